# A config.json from the hub has keys that mean nothing to training.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

mkdir hub
sed '1s/{/{ "use_mrope": false,/' "$(model qwen25)/config.json" > hub/config.json
cp "$(model qwen25)/model.safetensors" hub/
types 0 ztrain --model hub --data "$tokens" --seq 33 --lr 1e-3 --steps 1 --save run
# another architecture is refused by its name
sed 's/Qwen2ForCausalLM/Qwen2_5_VLForConditionalGeneration/; s/"model_type": "qwen2"/"model_type": "qwen2_5_vl"/' \
	hub/config.json > vl.json
rc=0
ztrain --model vl.json --random --data "$tokens" --seq 33 --steps 1 > "$said" 2>&1 || rc=$?
[ $rc != 0 ] || fails 'another architecture was trained'
answers Qwen2_5_VL
