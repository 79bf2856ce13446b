# The same command typed again without --resume: the first run's steps stay.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4 --save-every 2
cp -r run before
rc=0
ztrain --model "$(model qwen25)" --data "$tokens" --seq 33 --lr 1 --steps 4 --save-every 2 --save run > "$said" 2>&1 || rc=$?
[ $rc != 0 ] || fails 'a second run writes over the steps of the first'
answers run
answers --resume
holds 'the first run is as it was' diff -r before run
