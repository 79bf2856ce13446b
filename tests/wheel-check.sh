#!/bin/bash
# usage: tests/wheel-check.sh
#
# Builds the wheel, installs it into an environment that has nothing else, and runs the tests of
# python/ there: they must find the library and the program of the wheel.  If this fails, `pip
# install` gives a package that does not import.  Status 77: no Python with venv here, or pip cannot
# get setuptools or pytest.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH ZCKPT_LIBRARY
python=${PYTHON:-python3}
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-wheel.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
fail() {
	echo "wheel-check: $*" >&2
	tail -n 30 "$dir/log" >&2
	exit 1
}
skip() {
	echo "wheel-check: $*"
	exit 77
}
"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2> /dev/null ||
	skip "$python is older than 3.9 or has no venv"
# environment NAME PACKAGE...
environment() {
	"$python" -m venv "$dir/$1" && "$dir/$1/bin/pip" install -q "${@:2}" > "$dir/log" 2>&1
}
environment build setuptools wheel || skip 'pip cannot get setuptools here'
environment env pytest || skip 'pip cannot get pytest here'
make -s -j"$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 1)" wheel PYTHON="$dir/build/bin/python" > "$dir/log" 2>&1 ||
	fail 'make wheel fails'
make -s fixtures > "$dir/log" 2>&1 || fail 'no fixtures'
size=$(stat -c %s build/wheel/zckpt-*.whl)
[ "$size" -le 3145728 ] || fail "the wheel has $size bytes, more than 3 MiB"
"$dir/env/bin/pip" install -q --no-index --no-deps build/wheel/zckpt-*.whl > "$dir/log" 2>&1 || fail 'pip does not install it'
[ "$("$dir/env/bin/zckpt" --version)" = "$("$dir/env/bin/python" -m zckpt --version)" ] || fail 'the program of the wheel does not run'
(cd "$dir" && ZCKPT_FIXTURES=$OLDPWD/build/fixtures env/bin/python -m pytest -q -p no:cacheprovider "$OLDPWD/python/tests") \
	> "$dir/log" 2>&1 || fail 'the tests of python/ fail with the installed wheel'
echo "wheel-check: $(basename build/wheel/zckpt-*.whl), $size bytes: $(tail -n 1 "$dir/log")"
