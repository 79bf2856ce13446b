# A config.json of equal shapes, but another model.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4 --stop-at 2
mkdir other
sed 's/"rope_theta": [0-9.e]*/"rope_theta": 54321.0/' "$(model qwen25)/config.json" > other/config.json
cmp -s "$(model qwen25)/config.json" other/config.json && fails 'the other model is the same'
rc=0
ztrain --model other/config.json --data "$tokens" --seq 33 --lr 1e-3 --steps 4 --save run --resume auto > "$said" 2>&1 || rc=$?
[ $rc != 0 ] || fails 'another model was resumed'
answers rope_theta
