# A step that is cut a second time must be read in the order that the first cut gave it.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3-roundrobin/ckpt
cut() { zckpt reshard -q "$@"; }
cut 3:4 --no-round-robin "$step" plain
cut 4:3 --round-robin plain back
cut 3:3 "$step" same
diff -r back same && echo "there and back"
cut 4:2 plain a
cut 3:2 --no-round-robin "$step" b
diff -r a b && echo "still plain"
# the same of weights that become a step, and of a universal checkpoint
other=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
cut 3:2 --round-robin "$other" turned
cut 2:3 turned c
cut 3:3 --round-robin "$other" d
diff -r c d && echo "still round robin"
cut --to universal --world 3 --no-round-robin "$step" u
cut --world 3 --round-robin --new-tag global_step3 u v
pieces() { zckpt map --all --state master "$1" | sed -n 's/ at byte .*//; /^ *element/p'; }
pieces v > have
pieces same | cmp - have && echo "and by way of a universal checkpoint"
wc -l < have
