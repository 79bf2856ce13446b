# accelerate's YAML, unchanged.  It names two processes: another number is refused or named.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

cp "$fixtures/config/user001_accelerate_deepspeed_zero2.yaml" acc.yaml
ztrain --model "$(model qwen25)" --config acc.yaml --check-launch > "$said" 2>&1
if grep -q 'libyaml' "$said"; then echo 'built without libyaml' >&2; exit 77; fi
types 0 ranks 2 ztrain --model "$(model qwen25)" --config acc.yaml --data "$tokens" --seq 33 --micro-batch 1 \
	--lr 1e-3 --steps 1 --save run
types 0 zckpt verify --full run
ztrain --model "$(model qwen25)" --config acc.yaml --data "$tokens" --seq 33 --micro-batch 1 --lr 1e-3 \
	--steps 1 --save alone > "$said" 2>&1
answers num_processes
