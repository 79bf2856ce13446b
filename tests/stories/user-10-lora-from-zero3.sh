# The adapter out of a ZeRO-3 run, without the frozen base.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.19.8-z3-bf16-w2-lora

types 0 zckpt convert --only trainable "$steps/$case/ckpt" adapter.safetensors
masters adapter.safetensors $case
holds 'nothing frozen is in it' [ "$(hashes adapter.safetensors | wc -l)" = "$(true_hashes $case master | wc -l)" ]
answers_not PEFT
types 0 zckpt inspect "$steps/$case/ckpt"
answers 'next: the adapter alone: zckpt convert --only trainable'

# a run of PEFT: a folder of its weights is not what PEFT loads
# shellcheck source=tests/guide/setups.sh
. "$root/tests/guide/setups.sh"
setup_peft as run || fails 'the run of PEFT was not made'
types 0 zckpt convert --only trainable run folder
answers 'PEFT loads the adapter from: zckpt convert --to peft'
types 2 zckpt convert --to peft run my-adapter
answers 'give --lora-alpha N as the run had it (r is 3)'
types 0 zckpt convert --to peft --lora-alpha 6 run my-adapter
present my-adapter/adapter_model.safetensors my-adapter/adapter_config.json
types 0 zckpt inspect --names my-adapter
answers 'base_model.model.blocks.0.qkv.lora_A.weight'
holds 'the values are those of the run' [ "$(hashes my-adapter/adapter_model.safetensors | cut -d' ' -f1 | sort)" = \
	"$(true_hashes $case master | grep lora | cut -d' ' -f1 | sort)" ]
