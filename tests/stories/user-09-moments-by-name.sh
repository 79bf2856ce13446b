# A researcher wants Adam's moments under the parameters' names.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.19.8-z3-bf16-w2

types 0 zckpt convert --state exp_avg "$steps/$case/ckpt" avg.safetensors
state avg.safetensors $case exp_avg
types 0 zckpt convert --state all "$steps/$case/ckpt" all
present all/exp_avg.safetensors all/exp_avg_sq.safetensors all/master.safetensors
state all/exp_avg_sq.safetensors $case exp_avg_sq
types 0 zckpt cat --state exp_avg "$steps/$case/ckpt" blocks.0.ln1.bias --to text
types 2 zckpt cat --state exp_avg "$steps/$case/ckpt" blocks.0.ln1.biass --to text
