# The user's DeepSpeed JSON, unchanged, on two ranks; the export is the model that was trained.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

cp "$fixtures/config/user000_ds_zero3.json" ds.json
types 0 ranks 2 ztrain --model "$(model qwen25)" --config ds.json --data "$tokens" --seq 33 --lr 1e-3 --steps 2 \
	--save run --export out
present run/latest run/global_step2 out/config.json out/model.safetensors
types 0 zckpt verify --full run
types 0 zckpt diff run out
# the batch that reshard names is the file's
types 0 zckpt reshard '2->4' run four
answers_not '160 = 40'
types 0 zckpt verify --full four
same_state run four
