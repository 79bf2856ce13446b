# Killed before anything was saved; the scheduler starts the same command again.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

trains 0 none 2 --log run.jsonl
rm -rf none
trains 0 run 2 --log run.jsonl --resume auto
types 0 zckpt verify --full run
holds 'the log is that of this run' [ "$(grep -c '"step": *2' run.jsonl)" = 1 ]
