# ds_to_universal.py failed; zckpt makes the universal form.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z2-bf16-w2-uci/ckpt

types 2 zckpt convert --to universal "$run" uni
answers "try: zckpt reshard --to universal"
absent uni

types 0 zckpt reshard --to universal "$run" uni
present uni/latest_universal
types 0 zckpt verify --full uni
same_state "$run" uni
