# The result goes through a pipe to an uploader.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
run=$steps/ds0.19.8-z3-bf16-w2/ckpt

types 0 bash -c "set -o pipefail; zckpt convert -q '$run' -o - | cat > piped.safetensors"
masters piped.safetensors ds0.19.8-z3-bf16-w2
types 0 zckpt verify --full piped.safetensors
