# zckpt shard makes step 0, ztrain trains it, convert gives weights for transformers.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

types 0 zckpt shard "$(model qwen25)" run --world 2 --stage 3 --lr 1e-3
types 0 zckpt verify --full run
settings ds.json '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
types 0 ranks 2 ztrain --model "$(model qwen25)" --config ds.json --data "$tokens" --seq 33 --lr 1e-3 --steps 2 \
	--save trained --resume run
types 0 zckpt convert --dtype bf16 --aux "$(model qwen25)" trained hf
present hf/config.json hf/model.safetensors
types 0 zckpt verify --full hf
types 0 zckpt diff trained hf
