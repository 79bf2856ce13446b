# A folder that FSDP wrote becomes one file, and a step of DeepSpeed with its optimizer.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=$fixtures/fsdp/t2.6-fsdp1-trainer-w4-flat
[ -d "$case" ] || { echo "$case is missing" >&2; exit 77; }
cp -r "$case/ckpt" out && chmod -R u+w out

types 0 zckpt convert out m.safetensors
answers 'wrote m.safetensors'
types 0 zckpt diff out m.safetensors
answers 'the same'
types 0 zckpt reshard '4->2' out out-ds
types 0 zckpt inspect out-ds
answers 'stage 2, 2 ranks, step 3'
types 0 zckpt reshard --to dcp out-ds out-fsdp
types 0 zckpt verify --full out-fsdp
answers 'every byte'

# the folders of model and optimizer are one step, which prune does not take apart
types 1 zckpt prune --keep-last 1 --apply out/checkpoint-3
answers 'there is no step in out/checkpoint-3'
types 0 zckpt verify out

# an interrupted save
rm out/checkpoint-3/pytorch_model_fsdp_0/.metadata
types 3 zckpt convert out n.safetensors
answers MODEL_FILE_MISSING
absent n.safetensors
