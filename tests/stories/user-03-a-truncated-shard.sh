# "PytorchStreamReader failed reading zip archive": the newest save was cut short.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
cp -r "$steps/ds0.19.8-z2-bf16-w2-twotags/ckpt" run
shard=run/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
truncate -s 5000 "$shard"

types 3 zckpt convert run model.safetensors
answers 'bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt'
absent model.safetensors

types 1 zckpt verify run
types 0 zckpt latest --valid run
holds 'the step before is the answer' [ "$(cat "$answer")" = run/global_step2 ]
types 0 zckpt convert --tag global_step2 run model.safetensors
cp "$steps/ds0.19.8-z2-bf16-w2-twotags/truth-global_step2.safetensors" truth.safetensors
mkdir -p case2 && mv truth.safetensors case2 && steps=.
masters model.safetensors case2
