# What is wrong, and a next command for each thing; the exact ones are run.
DS=$FIXTURES/deepspeed
look() { zckpt doctor "$@" 2>&1; echo "exit $?"; echo; }
cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt" run && chmod -R u+w run
echo '* nothing'; look run
echo '* a model file of stage 3 alone'
look run/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt
echo '* a shard alone'
look run/global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt
echo '* latest lies, and the command that sets it right'
echo global_step9 > run/latest
look run
eval "$(zckpt doctor run | sed -n 's/^ *next: //p')" && zckpt doctor run | tail -2
echo '* no latest'; rm run/latest; look run
echo '* a rank is missing'
mkdir half && cp -r run/global_step3 half && rm half/global_step3/*rank_1* && look half
echo '* cut short and empty'
cp -r run cut && truncate -s 3000 cut/global_step3/bf16_zero_pp_rank_1* &&
	: > cut/global_step3/zero_pp_rank_0_mp_rank_00_model_states.pt && echo global_step3 > cut/latest
look cut
echo '* a file that is cut short; of a step: look at the step'
printf '\100\0\0\0\0\0\0\0{' > alone.safetensors; look alone.safetensors
look cut/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt | sed "s,$PWD,HERE,"
echo '* a shard of nine is cut short: one error'
cp -r "$DS/ds0.19.8-z2-bf16-w8/ckpt" eight && chmod -R u+w eight
truncate -s 3000 eight/global_step3/*rank_1_mp* && look eight
zckpt verify --as-warning FILE_DAMAGED eight 2>&1 | grep -c 'error: RANK_FILE_MISSING.*damaged; 7 of 8'
echo '* states on NVMe, refused by name'
cp -r "$DS/ds0.19.8-z1-bf16-w2/ckpt" nvme && mkdir nvme/global_step3/offloaded_tensors
look nvme | sed "s,: optimizer states.*,: optimizer states on NVMe,"
echo '* for scripts'; zckpt doctor --json half | sed 's/^ *//' | cut -c1-90
