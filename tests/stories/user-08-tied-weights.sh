# Saving stopped at tensors that share memory.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.19.8-z2-bf16-w2-tied3

types 0 zckpt convert "$steps/$case/ckpt" m.safetensors
masters m.safetensors $case
types 0 zckpt convert --tied dup "$steps/$case/ckpt" dup.safetensors
masters dup.safetensors $case
holds 'copies are tensors of their own' [ "$(hashes dup.safetensors | wc -l)" -gt "$(hashes m.safetensors | grep -vc '^$')" ]
