# Options that the file leaves open have their effect, or are refused by name.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

settings ds.json '{"train_micro_batch_size_per_gpu": 2}'
types 0 ztrain --model "$(model qwen25)" --config ds.json --data "$tokens" --seq 33 --lr 1e-3 --steps 1 --precision bf16 \
	--clip 0.5 --accumulation 3 --weight-decay 0.1 --beta2 0.95 --lr-scheduler linear --warmup-steps 2
holds 'it trains in bf16' grep -q '^precision *bf16' "$answer"
holds 'gradients are clipped' grep -q 'clipped to 0.5' "$answer"
holds 'the batch is as stated' grep -q '6 samples a step' "$answer"
holds 'Adam is as stated' grep -q 'betas 0.9 0.95.*decay 0.1' "$answer"
settings ds.json '{"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": "auto"}}'
types 0 ztrain --model "$(model qwen25)" --config ds.json --data "$tokens" --seq 33 --lr 1e-3 --steps 1 --precision bf16
holds 'it trains in bf16' grep -q '^precision *bf16' "$answer"
