# Nothing is left to train, but a file to evaluate on is given.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 2
trains 0 run 2 --resume auto --eval "$tokens"
holds 'a loss is printed' grep -q 'eval.*[0-9]\.[0-9]' "$answer"
