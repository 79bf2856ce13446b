#!/bin/bash
# usage: run.sh [--update] [CASE.sh...] -- tests of the command line
#
# A case is tests/cli/COMMAND/CASE.sh and what it must print: CASE.stdout,
# CASE.stderr, CASE.exit (absent: empty, empty, 0).  It runs under sh in a
# fresh folder, with the built program first on PATH and $FIXTURES naming the
# unpacked fixtures.  In what it prints, the fixtures' path becomes $FIXTURES
# and the fresh folder's $HERE.  A line '...' in an expectation matches any
# lines, also none.  A case that ends with 77 (and has no .exit) is skipped.
#
# --update rewrites the expectations that do not match; review the diff.
# Without CASE, all cases are run.  Exit 0, 1 (a case failed) or 77.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C
update=0
if [ "${1-}" = --update ]; then
	update=1
	shift
fi
program=${ZCKPT:-$root/build/zckpt}
FIXTURES=${ZCKPT_FIXTURES:-$root/build/fixtures}
export FIXTURES

# matches EXPECTED ACTUAL: do the lines agree, with '...' for any lines?
matches() {
	awk '
	NR == FNR && !second { want[++n] = $0; next }
	{ got[++m] = $0 }
	END {
		i = j = 1; star = 0
		while (j <= m) {
			if (i <= n && want[i] == "...") { star = i++; mark = j }
			else if (i <= n && want[i] == got[j]) { i++; j++ }
			else if (star) { i = star + 1; j = ++mark }
			else exit 1
		}
		while (i <= n && want[i] == "...") i++
		exit i <= n
	}' "$1" second=1 "$2"
}

# printed FILE: what the case printed, without the paths of this machine.
printed() {
	awk -v fixtures="$FIXTURES" -v here="$work/here" '
	function put(text, from, to,   at, out) {
		while (at = index(text, from)) {
			out = out substr(text, 1, at - 1) to
			text = substr(text, at + length(from))
		}
		return out text
	}
	{ print put(put($0, here, "$HERE"), fixtures, "$FIXTURES") }' "$1"
}

# compare WHAT: expectation $base.WHAT against $work/WHAT.
compare() {
	local want=$base.$1 got=$work/$1
	[ -e "$want" ] || want=/dev/null
	if matches "$want" "$got"; then
		return 0
	fi
	if [ "$update" = 1 ]; then
		if [ -s "$got" ]; then cp "$got" "$base.$1"; else rm -f "$base.$1"; fi
		echo "updated $base.$1"
		return 0
	fi
	echo "$case_file: $1 is not what is expected (- expected, + printed)"
	diff -u "$want" "$got" | tail -n +3 | head -n 100
	return 1
}

run_case() {
	case_file=$1
	base=${case_file%.sh}
	rm -rf "$work"
	mkdir -p "$work/here" "$work/tmp"
	(cd "$work/here" && PATH=$(dirname "$program"):$PATH TMPDIR=$work/tmp exec sh "$case_file") \
		< /dev/null > "$work/raw.out" 2> "$work/raw.err"
	local rc=$? bad=0
	printed "$work/raw.out" > "$work/stdout"
	printed "$work/raw.err" > "$work/stderr"
	if [ $rc = 77 ] && [ ! -e "$base.exit" ]; then
		echo "$case_file: skipped"
		tail -n 1 "$work/stderr" >&2
		skipped=$((skipped + 1))
		return
	fi
	compare stdout || bad=1
	compare stderr || bad=1
	[ $rc = 0 ] && : > "$work/exit" || echo $rc > "$work/exit"
	compare exit || bad=1
	if [ $bad = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

if [ ! -x "$program" ]; then
	echo "$program is not there: run 'make tools' first" >&2
	exit 1
fi
passed=0 failed=0 skipped=0
top=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-cli.XXXXXX") || exit 1
trap 'chmod -R u+rwX "$top"; rm -rf "$top"' EXIT
trap 'exit 130' INT TERM
work=$top/case
if [ $# = 0 ]; then
	set -- "$root"/tests/cli/*/*.sh
fi
for one in "$@"; do
	run_case "$(cd "$(dirname "$one")" && pwd)/$(basename "$one")"
done
if [ $# -gt 1 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
