# The same state is the same at other ranks, another stage, in universal form; what the layout
# changes is told with -v only.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt reshard -q '2->3' --stage 3 "$run" three 2> /dev/null
zckpt diff "$run" three; echo "exit $?"
zckpt diff three "$run" -v --include odd.w7; echo "exit $?"
zckpt reshard -q '2->5' "$run" five 2> /dev/null
zckpt diff -v five three --scalars --include 'odd.w*'; echo "exit $?"
zckpt reshard -q --to universal "$run" uni 2> /dev/null
zckpt diff "$run" uni; echo "exit $?"
zckpt diff "$run" "$run"; echo "exit $?"
zckpt diff -q "$run" three; echo "exit $?"
