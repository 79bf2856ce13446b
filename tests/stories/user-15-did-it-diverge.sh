# Two steps of one run compared.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z2-bf16-w2-twotags/ckpt

types 1 zckpt diff "$run" --tag global_step2 --tag2 global_step4
answers '21 of 24 weights differ'
types 0 zckpt diff "$run" --tag global_step4 --tag2 global_step4
