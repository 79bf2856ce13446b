# The model fits one GPU now: stage 2 instead of 3.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z3-bf16-w4/ckpt

types 0 zckpt reshard --stage 2 "$run" two
answers 'keeping 4 ranks'
types 0 zckpt verify --full two
types 0 zckpt inspect two
answers 'stage 2'
types 0 zckpt convert two m.safetensors
masters m.safetensors ds0.19.8-z3-bf16-w4
state_of=exp_avg
types 0 zckpt convert --state exp_avg two avg.safetensors
state avg.safetensors ds0.19.8-z3-bf16-w4 exp_avg
