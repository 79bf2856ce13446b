# Each node saved its own ranks.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
two_nodes ds0.19.8-z3-bf16-w8 nodeA nodeB

types 3 zckpt convert nodeA x.safetensors
answers RANK_FILE_MISSING
answers 'ranks 4-7 of 8 are missing (optimizer and model files)'
answers 'zckpt convert nodeA nodeB x.safetensors'
absent x.safetensors

types 0 zckpt convert nodeA nodeB x.safetensors
masters x.safetensors ds0.19.8-z3-bf16-w8
types 0 zckpt verify --full nodeA nodeB
# listed with all their folders, the step is whole
types 0 zckpt ls nodeA nodeB
answers_not ' NO '
