# An output folder of transformers' Trainer: checkpoint-N is a tag of it, for every verb.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
hf_trainer run ds0.19.8-z2-bf16-w2-twotags
mkdir two && cp "$steps/ds0.19.8-z2-bf16-w2-twotags/truth-global_step2.safetensors" two/truth.safetensors

types 0 zckpt convert run newest.safetensors
masters newest.safetensors ds0.19.8-z2-bf16-w2-twotags
types 0 zckpt convert --tag checkpoint-2 run older.safetensors
steps=. masters older.safetensors two

types 0 zckpt set-latest run checkpoint-2
for verb in inspect verify ls digest doctor; do types 0 zckpt $verb run; answers_not LATEST_LIES; done
types 0 zckpt latest run
holds 'latest names it' [ "$(cat "$answer")" = run/checkpoint-2/global_step2 ]
types 0 zckpt convert run chosen.safetensors
steps=. masters chosen.safetensors two
types 0 zckpt reshard --world 3 run three
types 0 zckpt convert three three.safetensors
steps=. masters three.safetensors two
types 0 zckpt prune --keep-last 1 run
types 0 zckpt ls run
holds 'one step is the latest' [ "$(grep -c '(latest)' "$said")" = 1 ]
