# Stopped on one rank, resumed on two at another stage: the bits of the run that never stopped.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

settings ds.json '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
trains 0 whole 4
trains 0 run 4 --stop-at 2
settings ds.json '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
types 0 ranks 2 ztrain --model "$(model qwen25)" --config ds.json --data "$tokens" --seq 33 --lr 1e-3 --steps 4 \
	--save run --exact --resume auto
answers 'resumed at step 2'
same_state whole run
