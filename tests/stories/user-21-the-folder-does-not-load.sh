# A plain DeepSpeed folder has no config.json: the result says so, and how to add it.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
case=ds0.19.8-z3-bf16-w2

types 0 zckpt convert --dtype bf16 "$steps/$case/ckpt" hf
answers config.json
answers --aux
mkdir model && model_files model
types 0 zckpt convert --dtype bf16 --aux model "$steps/$case/ckpt" hf2
present hf2/config.json hf2/tokenizer.json hf2/model.safetensors
weights hf2/model.safetensors $case
