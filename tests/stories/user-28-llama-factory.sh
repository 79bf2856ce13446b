# LLaMA-Factory: the output folder with its last checkpoint, for transformers.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
case=ds0.19.8-z3-bf16-w2
llama_factory saves/sft $case

types 0 zckpt convert --dtype bf16 saves/sft/checkpoint-3 hf
weights hf/model.safetensors $case
present hf/config.json hf/tokenizer.json hf/generation_config.json
types 0 zckpt convert --dtype bf16 saves/sft hf2
weights hf2/model.safetensors $case
types 0 zckpt verify --full hf2
