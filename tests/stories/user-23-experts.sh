# Mixture of experts is refused by name, never half converted.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
types 3 zckpt convert "$steps/ds0.19.8-z1-bf16-w4-moe/ckpt" m.safetensors
answers expert
absent m.safetensors
