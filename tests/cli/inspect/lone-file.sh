# One file of a step: what to look at instead is said; of placeholders, what makes the weights.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt" run
zckpt inspect run/*/zero_pp_rank_0_mp_rank_00_model_states.pt > out 2>&1
grep -o 'next: .*' out
zckpt inspect run/*/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt | grep "^next"
