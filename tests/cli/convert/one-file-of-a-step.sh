# One file of a step given alone: what it is part of is said.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt" run
zckpt convert -q run/*/zero_pp_rank_0_mp_rank_00_model_states.pt out.safetensors 2>&1 |
	grep -o 'hint: .*'
