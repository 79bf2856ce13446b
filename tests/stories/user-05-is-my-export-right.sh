# Is this file the model I trained?  A right export is the same; a damaged one is named.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z2-bf16-w2/ckpt

types 0 zckpt convert "$run" m.safetensors
types 0 zckpt diff "$run" m.safetensors
answers 'B is a correct export of A'
types 0 zckpt convert --dtype bf16 "$run" half.safetensors
types 0 zckpt diff "$run" half.safetensors
types 0 zckpt convert --no-sums "$run" bare.safetensors
types 0 zckpt diff "$run" bare.safetensors

# the last byte belongs to a tensor: without sums diff sees another value
flip bare.safetensors $(($(wc -c < bare.safetensors) - 1))
types 1 zckpt diff "$run" bare.safetensors
answers '1 of 24 weights differs'
# with sums, damage is not a difference
flip m.safetensors $(($(wc -c < m.safetensors) - 1))
types 3 zckpt diff "$run" m.safetensors
answers m.safetensors
types 1 zckpt verify --full m.safetensors
