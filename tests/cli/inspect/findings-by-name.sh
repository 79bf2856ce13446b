# Every finding that a user may meet has its name in --json: scripts look for it.
DS=$FIXTURES/deepspeed
ids() {
	zckpt inspect --json "$@" 2> err |
		sed -n 's/.*{"id": "\([A-Z_]*\)", "severity": "\([a-z]*\)".*/\2 \1/p' | sort -u
}
echo 'a model file of stage 3 alone:'
ids "$DS/ds0.19.8-z3-bf16-w2/ckpt/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt"
echo 'a shard alone:'
ids "$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
echo 'before the first step:'
ids "$DS/ds0.19.8-z2-bf16-w2-step0/ckpt"
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt" run
cp run/global_step3/mp_rank_00_model_states.pt run/global_step3/other.pt
echo 'a file of the user in the step:'
ids run
rm run/global_step3/other.pt run/latest
echo "no 'latest':"
ids run
echo 'a tag with brackets:'
ids "$DS/ds0.19.8-z3-bf16-w2-oddtag/ckpt"
echo 'an archive without checksums:'
ids "$FIXTURES/formats/torch/v2.11/nocrc.pt"
echo 'names that others may refuse:'
ids "$FIXTURES/formats/safetensors/names.safetensors"
echo 'a header with a field more:'
ids "$FIXTURES/formats/safetensors/extra-field.safetensors"
echo 'frozen parameters that were not saved:'
ids "$DS/ds0.19.8-z2-bf16-w2-exclfrozen/ckpt"
