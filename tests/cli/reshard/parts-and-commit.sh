# Shares of a step by processes of their own, then put into place: the files of one run. Parts of another
# run are not mixed in, and can be given up. A root that keeps another step gets this one beside it.
run=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8/ckpt
zckpt reshard -q '8->3' "$run" whole
zckpt reshard -q --part 3/3 '8->3' "$run" out; echo "exit $?"
zckpt reshard -q --part 1/2 '8->3' "$run" out 2> err; echo "other parts: exit $?"; cat err
zckpt reshard -q --part 1/3 '8->2' "$run" out 2> /dev/null; echo "another world: exit $?"
zckpt commit --timeout 0 out 2> err; echo "parts are missing: exit $?"; cat err
zckpt commit -q --discard out; echo "exit $?"
zckpt commit --discard out 2> err; echo "nothing is there: exit $?"; cat err
zckpt reshard -q '8->2' --new-tag other "$run" out
for i in 2 1 3; do zckpt reshard -q --part $i/3 '8->3' "$run" out; echo "exit $?"; done
zckpt commit -q out; echo "exit $?"
diff -r -x other whole out && ls out && echo 'the same files'
zckpt reshard --part 1/1 --dry-run '8->3' "$run" one 2> err; grep -c commit err
zckpt reshard --part 4/3 '8->3' "$run" out
zckpt reshard --part x '8->3' "$run" out
rm err; ls
