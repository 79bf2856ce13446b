#!/bin/sh
# Older DeepSpeed versions for the resume tests:
#
#	setup-venv-old.sh DIR VERSION [VENV]
#
# 0.16.9 (and 0.15.4, 0.17.6, 0.18.9) becomes DIR/ds-0.16.9, a folder to put
# in front of the packages of VENV (made by setup-venv.sh). 0.14.5 needs an older torch and
# numpy: DIR/venv-0.14.5 is an environment of its own, about 4 GB. A second
# call with the same pins does nothing.
# Exit: 0 ready, 77 the packages cannot be fetched here (reason on stderr),
# 1 they were fetched and do not work.
set -eu

OLD_TORCH=2.1.2
OLD_NUMPY=1.26.4
OLD_SETUPTOOLS=69.5.1
OLD_SAFETENSORS=0.4.5

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/interop/venv-common.sh
. "$here/venv-common.sh"
EXTRA="$EXTRA nvidia-ml-py"

usage() {
	echo "usage: setup-venv-old.sh DIR 0.14.5|0.15.4|0.16.9|0.17.6|0.18.9 [VENV]" >&2
	exit 2
}

case $# in
2 | 3) ;;
*) usage ;;
esac
dir=$1 version=$2
venv=${3:-${ZCKPT_VENV:-${HOME:-/root}/.cache/zckpt/venv}}
case $version in
0.15.4 | 0.16.9 | 0.17.6 | 0.18.9) made=$dir/ds-$version python=$venv/bin/python
	pins="v1 deepspeed=$version venv=$venv" ;;
0.14.5) made=$dir/venv-$version python=$made/bin/python
	pins="v1 deepspeed=$version torch=$OLD_TORCH numpy=$OLD_NUMPY"
	pins="$pins setuptools=$OLD_SETUPTOOLS safetensors=$OLD_SAFETENSORS"
	pins="$pins extra=$EXTRA" ;;
*) usage ;;
esac
stamp=$made/zckpt-resume-pins

ready() {
	[ -x "$python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]
}

if ready; then
	exit 0
fi
mkdir -p "$dir"
exec 9>"$made.lock"
if command -v flock >/dev/null 2>&1; then
	flock 9
	if ready; then
		exit 0
	fi
fi
if [ -e "$made" ] && [ ! -d "$made/deepspeed" ] && [ ! -f "$made/pyvenv.cfg" ]; then
	echo "interop: $made exists and is no folder of DeepSpeed $version" >&2
	exit 1
fi
rm -rf "$made"
log=$made.log
: >"$log"

if [ "$version" != 0.14.5 ]; then
	[ -x "$python" ] || skip "no Python environment at $venv (setup-venv.sh)"
	pip_install --no-deps --no-build-isolation --target "$made" \
		"deepspeed==$version"
else
	# torch 2.1.2 was built for Python 3.8 to 3.11
	base=
	for p in python3.11 python3.10 python3.9 python3; do
		if command -v $p >/dev/null 2>&1 && $p -c 'import sys
sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))'; then
			base=$p
			break
		fi
	done
	[ -n "$base" ] || skip "torch $OLD_TORCH needs Python 3.9, 3.10 or 3.11"
	if ! $base -m venv "$made" >>"$log" 2>&1; then
		tail -n 3 "$log" >&2
		rm -rf "$made"
		skip "$base -m venv does not work (python3-venv missing?)"
	fi
	echo "interop: building $made, about 4 GB, once" >&2
	# a small one first, so that a machine without a network says so quickly
	pip_install --no-deps hjson
	pip_install --no-deps "torch==$OLD_TORCH"
	"$python" - >"$made/torch-needs.txt" <<'PY'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for line in requires("torch"):
    r = Requirement(line)
    if r.name == "triton":
        continue
    if r.marker is None or r.marker.evaluate({"extra": ""}):
        r.marker = None
        print(r)
PY
	# shellcheck disable=SC2086
	pip_install -r "$made/torch-needs.txt" wheel "numpy==$OLD_NUMPY" \
		"setuptools==$OLD_SETUPTOOLS" "safetensors==$OLD_SAFETENSORS" $EXTRA
	pip_install --no-deps --no-build-isolation "deepspeed==$version"
fi

path=
[ "$version" = 0.14.5 ] || path=$made
if ! PYTHONPATH=$path DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 \
	TORCH_EXTENSIONS_DIR="$made/extensions" ZCKPT_WANT=$version \
	"$python" - >>"$log" 2>&1 <<'PY'
import os, torch, numpy, safetensors.torch, deepspeed
import deepspeed.runtime.zero.stage3, deepspeed.runtime.zero.stage_1_and_2
assert deepspeed.__version__.split("+")[0] == os.environ["ZCKPT_WANT"], deepspeed.__version__
assert torch.distributed.is_gloo_available()
assert torch.equal(torch.ones(3).bfloat16().float(), torch.ones(3))
PY
then
	tail -n 20 "$log" >&2
	echo "interop: DeepSpeed $version is there but does not work (see $log)" >&2
	exit 1
fi
printf '%s\n' "$pins" >"$stamp"
