# A run begins with weights from the hub, cut for eight ranks.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
model=$fixtures/model/models/qwen3

types 2 zckpt shard "$model" run --world 8
absent run
types 0 zckpt shard "$model" run --world 8 --stage 3 --lr 1e-5
types 0 zckpt verify --full run
# masters are fp32: compare in fp32
types 0 zckpt convert --dtype fp32 "$model" model32.safetensors
types 0 zckpt convert --dtype fp32 run run32.safetensors
same_state model32.safetensors run32.safetensors
