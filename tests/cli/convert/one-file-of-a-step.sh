# One file of a step given alone: what it is part of is said, after what is wrong.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt" run
zckpt convert run/*/zero_pp_rank_0_mp_rank_00_model_states.pt out.safetensors 2>&1 | cut -c 1-108
zckpt convert -q run/*/*_rank_0_*optim_states.pt part.safetensors 2>&1 | cut -c 1-108
# placeholders of DeepSpeed 0.5.10 have one element
cp -r "$FIXTURES/deepspeed/ds0.5.10-z3-fp32-w2/ckpt" old
file=old/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt
for verb in convert verify plan digest; do
	case $verb in convert) out=old.safetensors ;; *) out= ;; esac
	zckpt $verb $file $out > said 2>&1; echo "$verb $?"
	grep -o 'PLACEHOLDERS_ONLY\|[0-9]* of its tensors are placeholders of one element' said
done
zckpt diff $file run > said 2>&1; echo "diff $?"; tail -n 1 said
ls old.safetensors 2>&1
# sizes of placeholders are no plan
head='{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
mkdir hollow && printf "\\$(printf %03o ${#head})\0\0\0\0\0\0\0%s" "$head" > hollow/model.safetensors
zckpt plan hollow 2>&1 | cut -c 1-60; zckpt plan hollow > said 2>&1; echo "plan $?"
# the destination that was typed is in the command
mkdir trainer && cp -r run/. trainer && cp hollow/* trainer
zckpt convert trainer/model.safetensors fixed.safetensors 2>&1 | sed -n '$p'
