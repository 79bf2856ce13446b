#!/bin/bash
# python_package.sh PYTHON PYTEST LIBCKPT ZTRAIN FIXTURES -- the tests of python/, with real numpy, torch, safetensors
# and transformers, then without any of them.  PYTEST is a folder with pytest, which is filled once.
# The last line is `N passed, N failed, N skipped`.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
python=$1 pytest=$2 honest=${1%/bin/python}-honest
export ZCKPT_LIBRARY=$3 ZTRAIN=$4 ZCKPT_FIXTURES=$5 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
if [ ! -f "$pytest/.made" ]; then
	"$python" -m pip install -q --disable-pip-version-check --retries 2 --timeout 60 --target "$pytest" pytest==8.3.5 &&
		: > "$pytest/.made"
fi
if [ ! -f "$pytest/.made" ]; then
	echo 'skipped: pytest cannot be installed here'
	echo '0 passed, 0 failed, 1 skipped'
	exit 0
fi
passed=0 failed=0 skipped=0
# count WORD LINE: the number before a word of pytest's last line, or 0.
count() { grep -oE "[0-9]+ $1" <<< "$2" | cut -d' ' -f1 | grep . || echo 0; }
run() {
	local log line
	echo "-- $1"
	shift
	log=$("$@" -m pytest -q -rs -p no:cacheprovider "$top/python/tests" 2>&1)
	line=$(tail -n 1 <<< "$log")
	[[ $line =~ ^[0-9] ]] || line='1 failed'
	if [[ $line == *failed* || $line == *error* ]]; then tail -n 60 <<< "$log"; else tail -n 12 <<< "$log"; fi
	passed=$((passed + $(count passed "$line"))) skipped=$((skipped + $(count skipped "$line")))
	failed=$((failed + $(count failed "$line") + $(count error "$line")))
}
run 'with numpy, torch, safetensors, transformers' env PYTHONPATH="$top/python/src:$pytest:$honest" "$python"
# No environment of Python's own has these packages, so this is how most users first import it.
run 'without any other package' env PYTHONPATH="$top/python/src:$pytest" "$(readlink -f "$python")"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
