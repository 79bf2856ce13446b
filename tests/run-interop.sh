#!/bin/bash
# Runs tests/interop against the real torch, safetensors, transformers and
# DeepSpeed, in a virtual environment that is kept between runs at
# ${ZCKPT_VENV:-$HOME/.cache/zckpt/venv}.  Where that cannot be made (no
# network, no Python), the test is skipped and the reason printed.
set -u
cd "$(dirname "$0")/.." || exit 1
export ZCKPT=${ZCKPT:-$PWD/build/zckpt}
export ZCKPT_FIXTURES=${ZCKPT_FIXTURES:-$PWD/build/fixtures}
export ZCKPT_VENV=${ZCKPT_VENV:-${HOME:-/root}/.cache/zckpt/venv}
log=$(mktemp "${TMPDIR:-/tmp}/zckpt-interop.XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

run() {
	bash "$@" 2>&1 < /dev/null | tee "$log"
	rc=${PIPESTATUS[0]}
	case $rc in
	0) return ;;
	77)
		echo "skipped: $(tail -n 1 "$log")"
		echo '0 passed, 0 failed, 1 skipped'
		exit 0
		;;
	esac
	grep -q '^[0-9]* passed, [0-9]* failed' "$log" || echo '0 passed, 1 failed, 0 skipped'
	exit 1
}
run tests/interop/setup-venv.sh "$ZCKPT_VENV"
run tests/interop/run.sh
grep -q '^[0-9]* passed, [0-9]* failed' "$log" || echo '1 passed, 0 failed, 0 skipped'
