# Files of ranks that use the same names are one row, and no row is wider than a terminal.
zckpt audit "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8"
zckpt audit "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8" | awk 'length($0) > 100'
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8/ckpt/global_step3" step
cp "$FIXTURES/formats/pickle/hostile-os.system.pt" step/zero_pp_rank_5_mp_rank_00_model_states.pt
zckpt audit step | sed -n '1,/^$/p; /rank/p'
zckpt audit -q step | head -n 1
