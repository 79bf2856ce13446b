# The run diverged; the user goes back to an older step with set-latest.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 8 --save-every 2
types 0 zckpt set-latest run global_step4
trains 0 run 8 --resume auto --stop-at 4
answers 'resumed at step 4'
answers global_step8
