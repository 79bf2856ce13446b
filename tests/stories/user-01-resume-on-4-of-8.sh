# Eight GPUs wrote the run, four are left.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z3-bf16-w8/ckpt

types 2 zckpt reshard "$run" four
answers 'has 8 ranks; give another number of ranks'
answers 'try: zckpt reshard --world 4'
absent four

types 0 zckpt reshard '8->4' "$run" four
present four/latest four/global_step3
holds 'four ranks have files of their own' [ "$(ls four/global_step3 | grep -c optim_states)" = 4 ]
types 0 zckpt verify --full four
same_state "$run" four
types 0 zckpt convert four model.safetensors
masters model.safetensors ds0.19.8-z3-bf16-w8
