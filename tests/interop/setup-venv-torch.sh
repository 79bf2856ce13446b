#!/bin/sh
# Makes the environment of another torch, to judge DCP folders by:
#
#	setup-venv-torch.sh VERSION DIR
#	ZCKPT_VENV_TORCH=DIR make interop
#
# About 4 GB. DIR must not exist. Exit: 0 ready, 77 the packages cannot be
# fetched here (reason on stderr), 1 they were fetched and do not work.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/venv-common.sh
. "$here/venv-common.sh"

if [ $# -ne 2 ] || [ -e "$2" ]; then
	echo "usage: setup-venv-torch.sh VERSION DIR, where DIR does not exist" >&2
	exit 2
fi
version=$1 made=$2 python=$2/bin/python log=$2.log
case $version in
2.[0-2].*) numpy='numpy<2' ;;
*) numpy='numpy<2.5' ;;
esac
: >"$log"
python3 -m venv "$made" >>"$log" 2>&1 || skip "python3 -m venv does not work"
# without triton and the CUDA Python bindings, as setup-venv.sh
pip_install --no-cache-dir --no-deps "torch==$version"
"$python" - >"$made/torch-needs.txt" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("torch"):
    r = Requirement(line)
    if r.name not in ("triton", "cuda-bindings") and (r.marker is None or r.marker.evaluate({"extra": ""})):
        r.marker = None
        print(r)
PY
pip_install --no-cache-dir -r "$made/torch-needs.txt" "$numpy" safetensors
"$python" -c 'import torch; assert torch.distributed.is_gloo_available()' >>"$log" 2>&1 || {
	tail -n 5 "$log" >&2
	exit 1
}
