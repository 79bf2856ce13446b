# The save hung and the job was killed; which step is good?
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
hf_trainer run ds0.19.8-z2-bf16-w2-twotags
mkdir run/tmp-checkpoint-6
cp -r run/checkpoint-4/global_step4 run/tmp-checkpoint-6/global_step6
rm run/tmp-checkpoint-6/global_step6/mp_rank_00_model_states.pt

types 0 zckpt ls run
holds 'at most one step is the latest' [ "$(grep -c '(latest)' "$said")" -le 1 ]
types 0 zckpt latest --valid run
holds 'checkpoint-4 is the answer' [ "$(cat "$answer")" = run/checkpoint-4/global_step4 ]
# what a script does with the answer
types 0 zckpt convert "$(cat "$answer")" m.safetensors
masters m.safetensors ds0.19.8-z2-bf16-w2-twotags
