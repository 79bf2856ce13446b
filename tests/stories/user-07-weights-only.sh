# torch 2.6 refuses the file under weights_only.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z2-bf16-w2/ckpt

zckpt audit "$run" > "$said" 2>&1
rc=$?
[ $rc -le 1 ] || fails "audit ends with $rc"
answers 'deepspeed'
types 0 zckpt convert "$run" m.safetensors
masters m.safetensors ds0.19.8-z2-bf16-w2
