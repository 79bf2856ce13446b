# Memory is planned with the file that will be trained by, and from a step or weights themselves.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

cp "$fixtures/config/user001_accelerate_deepspeed_zero3.yaml" acc.yaml
rc=0
zckpt plan "$(model qwen25)" -n 2 --ds-config acc.yaml > "$said" 2>&1 || rc=$?
[ $rc = 0 ] || answers YAML
answers_not 'the end of the text wanted'
cp -r "$steps/ds0.19.8-z3-bf16-w2/ckpt" run
model_files run
types 0 zckpt plan run -n 4
