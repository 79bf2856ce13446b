# What inspect says of a step, and of all its tensors.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
zckpt inspect run
zckpt inspect -v run | sed -n '/^TENSOR/,/^$/p'
