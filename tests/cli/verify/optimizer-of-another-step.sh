# All optimizer files of one step beside the model files of another: said, in both forms.
src=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
odd() {
	zckpt inspect --json "$@" 2> err | grep -c OPTIMIZER_STEP_DIFFERS
}
for tag in global_step2 global_step4; do
	zckpt reshard -q --stage 3 --world 2 --tag $tag "$src" run
	odd --tag $tag run
	zckpt reshard -q --to universal --tag $tag "$src" uni 2> err
	odd --tag ${tag}_universal uni
done
cp run/global_step2/*optim_states.pt run/global_step4
zckpt verify --strict --tag global_step4 run; echo "exit $?"
cp uni/global_step2_universal/mp_rank_00_model_states.pt uni/global_step4_universal
odd --tag global_step4_universal uni
# a run whose optimizer was reset on purpose
zckpt reshard -q --reset-optimizer --world 2 "$src" new
odd new || true
