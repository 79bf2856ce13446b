# --include, --exclude, --state and --only choose what a map lists.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
names() { zckpt map "$@" "$run" | sed -n 's/^\([^ ]*\)  \[.*/\1/p' | sort | tr '\n' ' '; echo; }
states() { zckpt map "$@" "$run" | sed -n 's/^  \([^ ][^ ]*\) .*/\1/p' | sort | uniq | tr '\n' ' '; echo; }
names --include 'odd.*'
names --include 'odd.*' --exclude '*w1*'
names --all --only buffers
states --include 'odd.*'
states --include 'odd.*' --state master,exp_avg
zckpt map --include head.weight "$run"
zckpt map --include head.weight --json "$run" | sed -n '/"tensors"/,/^  \]/p'
