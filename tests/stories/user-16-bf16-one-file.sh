# One bf16 file to serve from.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
case=ds0.19.8-z3-bf16-w2

types 0 zckpt convert --dtype bf16 "$steps/$case/ckpt" m.safetensors
weights m.safetensors $case
types 0 zckpt convert --dtype bfloat16 "$steps/$case/ckpt" n.safetensors
same_state m.safetensors n.safetensors
# a folder for transformers says the type that was written
hf_trainer run $case
types 0 zckpt convert run/checkpoint-3 fp32
holds 'config.json says fp32' grep -q '"dtype": "float32"' fp32/config.json
types 0 zckpt convert --dtype bf16 run/checkpoint-3 bf16
holds 'config.json is as it was' cmp bf16/config.json run/checkpoint-3/config.json
