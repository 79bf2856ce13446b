# ZeRO-3 without gathering: model.safetensors beside the step has only empty tensors.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
hf_trainer run ds0.19.8-z3-bf16-w2
header='{"a.weight":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]},"b.weight":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}}'
{ printf "\\$(printf '%03o' ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf %s "$header"; } > run/checkpoint-3/model.safetensors

types 3 zckpt convert run/checkpoint-3/model.safetensors out
answers PLACEHOLDERS_ONLY
absent out
types 1 zckpt verify run/checkpoint-3/model.safetensors
answers PLACEHOLDERS_ONLY
types 0 zckpt inspect run/checkpoint-3/model.safetensors
answers PLACEHOLDERS_ONLY

# the folder: doctor says it, and which command gives the model
zckpt doctor run/checkpoint-3 > "$said" 2>&1
answers PLACEHOLDERS_ONLY
answers 'zckpt convert'
types 0 zckpt convert run/checkpoint-3 model.safetensors
masters model.safetensors ds0.19.8-z3-bf16-w2
