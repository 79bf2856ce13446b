# A comma too many in the DeepSpeed JSON: the line is named, and nothing is said of other readers.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/stories/training.sh
. "$root/tests/stories/training.sh"

settings ds.json '{
  "train_micro_batch_size_per_gpu": 1,,
  "zero_optimization": {"stage": 2}
}'
trains 1 run 2
answers 'ds.json: line 2, column 39'
answers_not 'DeepSpeed reads it'
absent run
# HJSON that is whole is read, and who else reads it is said
settings ds.json '{
  train_micro_batch_size_per_gpu: 1
  zero_optimization: {stage: 2}	# as in the paper
}'
trains 0 run 2
answers 'HJSON, not plain JSON'
