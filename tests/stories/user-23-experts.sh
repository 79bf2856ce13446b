# Mixture of experts becomes one file of weights, each expert by its number in the whole model.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
types 0 zckpt convert "$steps/ds0.19.8-z1-bf16-w4-moe/ckpt" m.safetensors
