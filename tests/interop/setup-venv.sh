#!/bin/sh
# Makes, or keeps, the Python environment of the interop tests: setup-venv.sh DIR
#
# The pins below are the versions the expectations were taken from. DIR is
# rebuilt when they change; a second call with the same pins does nothing.
# Exit: 0 ready, 77 the packages cannot be fetched here (reason on stderr),
# 1 they were fetched and do not work.
set -eu

TORCH=2.11.0
DEEPSPEED=0.19.8
TRANSFORMERS=5.23.0
NUMPY=2.4.6
SAFETENSORS=0.8.0

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/venv-common.sh
. "$here/venv-common.sh"

if [ $# -ne 1 ]; then
	echo "usage: setup-venv.sh DIR" >&2
	exit 2
fi
dir=$1 made=$1 python=$1/bin/python
stamp=$dir/zckpt-interop-pins
pins="v2 torch=$TORCH deepspeed=$DEEPSPEED transformers=$TRANSFORMERS"
pins="$pins numpy=$NUMPY safetensors=$SAFETENSORS extra=$EXTRA"

ready() {
	[ -x "$dir/bin/python" ] && [ -f "$stamp" ] &&
		[ "$(cat "$stamp")" = "$pins" ]
}

if ready; then
	exit 0
fi
command -v python3 >/dev/null 2>&1 || skip "no python3 on this machine"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	skip "python3 is older than 3.11, which numpy $NUMPY needs"

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
if command -v flock >/dev/null 2>&1; then
	flock 9
	if ready; then
		exit 0
	fi
fi
if [ -e "$dir" ] && [ ! -f "$dir/pyvenv.cfg" ]; then
	echo "interop: $dir exists and is not a Python environment" >&2
	exit 1
fi
rm -rf "$dir"
log=$dir.log
: >"$log"
if ! python3 -m venv "$dir" >>"$log" 2>&1; then
	tail -n 3 "$log" >&2
	rm -rf "$dir"
	skip "python3 -m venv does not work (python3-venv missing?)"
fi

echo "interop: building $dir, about 4 GB, once" >&2
# a small one first, so that a machine without a network says so quickly
pip_install --no-deps hjson
# torch without triton and the CUDA Python bindings: nothing here has a GPU.
# The shared libraries its extension module links to must be there, though.
pip_install --no-deps "torch==$TORCH"
"$dir/bin/python" - >"$dir/torch-needs.txt" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("torch"):
    r = Requirement(line)
    if r.name in ("triton", "cuda-bindings"):
        continue
    if r.marker is None or r.marker.evaluate({"extra": ""}):
        r.marker = None
        print(r)
PY
# shellcheck disable=SC2086
pip_install -r "$dir/torch-needs.txt" wheel "numpy==$NUMPY" \
	"safetensors==$SAFETENSORS" "transformers==$TRANSFORMERS" $EXTRA
pip_install --no-deps --no-build-isolation "deepspeed==$DEEPSPEED"

if ! DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 \
	TORCH_EXTENSIONS_DIR="$dir/extensions" HF_HUB_OFFLINE=1 \
	"$dir/bin/python" - >>"$log" 2>&1 <<'PY'
import torch, numpy, safetensors.torch, transformers, deepspeed
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
assert torch.distributed.is_gloo_available()
assert torch.equal(torch.ones(3).bfloat16().float(), torch.ones(3))
PY
then
	tail -n 20 "$log" >&2
	echo "interop: the packages are there but do not work" >&2
	exit 1
fi
printf '%s\n' "$pins" >"$stamp"
