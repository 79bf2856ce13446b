# One file of a step: what to look at instead is said.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt" run
zckpt inspect run/*/zero_pp_rank_0_mp_rank_00_model_states.pt > out 2>&1
grep -o 'this is one file of a step; look at all of it: .*' out
