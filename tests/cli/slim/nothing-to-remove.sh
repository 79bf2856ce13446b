# A copy that would be as large is not made, and what slim removed is not put down to the run.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
zckpt slim run small 2>&1; echo "exit $?"; ls
zckpt slim --json run small | grep -e '"ok"' -e exit -e dry_run -e frozen_bytes; ls
zckpt slim -q --views run same; echo "exit $?"; ls
zckpt slim run 2>&1; echo "exit $?"
zckpt slim --moments run run/ 2>&1; echo "exit $?"
zckpt slim -q --moments run small && zckpt slim -q --moments run small 2>&1; echo "exit $?"
zckpt inspect small | grep STATE_EMPTY
zckpt reshard '2->1' small one 2>&1 | grep moments
