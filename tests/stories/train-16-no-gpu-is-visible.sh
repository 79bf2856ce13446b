# SLURM set CUDA_VISIBLE_DEVICES to names of another host: training on CPUs in silence costs days.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

sim=$build/ztrain-gpusim
[ -x "$sim" ] || { echo "$sim is missing: run 'make gpusim'" >&2; exit 77; }
rc=0
FAKE_GPUS=2 CUDA_VISIBLE_DEVICES=21000,21001 "$sim" --model "$(model qwen25)" --data "$tokens" --seq 33 --lr 1e-3 \
	--steps 1 > "$said" 2>&1 || rc=$?
[ $rc != 0 ] || fails 'it trains on CPUs without a word'
answers CUDA_VISIBLE_DEVICES
answers 21000
