# 50 GB for a 3 GB model: what are they for, and what may go?
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
cp -r "$steps/ds0.19.8-z2-bf16-w2-twotags/ckpt" run

types 0 zckpt inspect --explain-size run
answers exp_avg
types 0 zckpt slim --moments run/global_step4 small
types 0 zckpt convert small m.safetensors
masters m.safetensors ds0.19.8-z2-bf16-w2-twotags
types 0 zckpt prune --keep-last 1 run
present run/global_step2
types 0 zckpt prune --keep-last 1 --apply run
absent run/global_step2
types 0 zckpt verify --full run
