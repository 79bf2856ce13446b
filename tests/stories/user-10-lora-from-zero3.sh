# The adapter out of a ZeRO-3 run, without the frozen base.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.19.8-z3-bf16-w2-lora

types 0 zckpt convert --only trainable "$steps/$case/ckpt" adapter.safetensors
masters adapter.safetensors $case
holds 'nothing frozen is in it' [ "$(hashes adapter.safetensors | wc -l)" = "$(true_hashes $case master | wc -l)" ]
types 0 zckpt convert --only trainable "$steps/$case/ckpt" folder
answers 'PEFT loads the adapter from: zckpt convert --only trainable'
answers 'folder/adapter_model.safetensors'
