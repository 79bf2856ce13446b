# Each term with its formula: a number that a user doubts can be computed by hand.
zckpt plan -v qwen2.5-7b -n 8 --stage 2 --micro 2 --seq 4096 --recompute
