# accelerator.save_state() of a DeepSpeed run.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
case=ds0.19.8-z2-bf16-w2
mkdir out
accelerate_state out/checkpoint_0 $case

types 0 zckpt convert out/checkpoint_0 m.safetensors
masters m.safetensors $case
types 0 zckpt convert out/checkpoint_0/pytorch_model n.safetensors
masters n.safetensors $case
rm out/checkpoint_0/latest
# without 'latest', and from the folder above: the only step below is used
types 0 zckpt convert out/checkpoint_0 o.safetensors
answers 'using out/checkpoint_0/pytorch_model, the only checkpoint below out/checkpoint_0'
masters o.safetensors $case
types 0 zckpt convert out p.safetensors
masters p.safetensors $case
