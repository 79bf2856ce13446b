# The same as one JSON object.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-tied3/ckpt" run
zckpt inspect --json run
zckpt inspect --json --tensors run | sed -n '/"tensor_list"/,/^  \]/p' | sed -n '1,3p'
