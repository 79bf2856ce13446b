# Resumed with other hyper-parameters: said, and no promise of the same bits.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4 --stop-at 2
trains 0 run 4 --resume auto --weight-decay 0.3
answers 'resumed at step 2'
answers 0.3
answers_not 'had not stopped'
