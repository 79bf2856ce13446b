# Steps, but none whole: an error that names them; nothing is written over.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4
rm run/global_step4/rest.pt
cp -r run before
trains 1 run 4 --resume auto --save-every 2
answers global_step4
holds 'nothing changed' diff -r before run
