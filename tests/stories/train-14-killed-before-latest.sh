# Killed between the last save and its 'latest': the run that finds it finished sets 'latest'.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 run 4 --save-every 2
printf global_step2 > run/latest
types 0 zckpt latest run
rm run/latest
trains 0 run 4 --resume auto
holds 'latest names the last step' [ "$(cat run/latest)" = global_step4 ]
