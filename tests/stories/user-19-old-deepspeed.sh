# A run of 2021, DeepSpeed 0.5.10.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.5.10-z3-fp32-w3

types 0 zckpt convert "$steps/$case/ckpt" m.safetensors
masters m.safetensors $case
types 0 zckpt reshard --world 2 "$steps/$case/ckpt" two
types 0 zckpt verify --full two
same_state "$steps/$case/ckpt" two
