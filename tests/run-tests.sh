#!/bin/bash
# usage: run-tests.sh [-j N] [-t SECONDS] TEST...
#
# Runs test programs and scripts side by side, one line each, and ends with
# 'N passed, N failed, N skipped'.  Exit 1 if one failed or none ran.
#
# A test is a program (0 = passed, 77 = skipped with its last line on stderr as
# the reason, anything else = failed), a shell script with the same meaning, or
# a case of the command line (tests/cli/COMMAND/CASE.sh, run by tests/cli/run.sh).
# What cmocka counts inside a program is what is counted here.  A test that runs
# longer than SECONDS (default 300, with ZCKPT_LONG=1 3 hours, $TEST_TIMEOUT) is stopped and has failed.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C

# One test: its log stays at $LOGS/NAME.log, its result goes to NAME.result as
# 'passed failed skipped', its line to stdout.
run_one() {
	local test=$1 name log start took rc said counts words
	name=${test#"$ZCKPT_BUILD"/}
	name=${name#build/*/}
	log=$LOGS/${name//\//+}.log
	start=$(date +%s%N)
	case $test in
	tests/cli/*/*.sh) timeout -k 10 "$TEST_TIMEOUT" tests/cli/run.sh "$test" ;;
	*.sh) timeout -k 10 "$TEST_TIMEOUT" bash "$test" ;;
	*) timeout -k 10 "$TEST_TIMEOUT" "$test" ;;
	esac < /dev/null > "$log" 2> "$log.err"
	rc=$?
	took=$((($(date +%s%N) - start) / 1000000))
	# [  PASSED  ] 12 test(s).   [  FAILED  ] 1 test(s), listed below:
	counts=$(awk '/^\[  PASSED  \] [0-9]+ test/ { p += $4 }
		/^\[  FAILED  \] [0-9]+ test/ { f += $4 }
		/^\[  SKIPPED \] [0-9]+ test/ { s += $4 }
		END { print p + 0, f + 0, s + 0 }' "$log" "$log.err")
	case $rc in
	0)
		[ "$counts" != '0 0 0' ] || counts='1 0 0'
		words="ok    $name"
		;;
	77)
		counts='0 0 1'
		said=$(tail -n 1 "$log.err")
		words="SKIP  $name: ${said:-it gives no reason}"
		;;
	*)
		set -- $counts
		[ "$2" -gt 0 ] || counts="$1 1 $3"
		words="FAIL  $name: exit status $rc"
		case $rc in
		124 | 137) words="FAIL  $name: stopped after $TEST_TIMEOUT s" ;;
		129 | 13[0-9] | 14[0-9] | 15[0-9]) words="FAIL  $name: killed by signal $((rc - 128))" ;;
		esac
		cp "$log" "$log.failed"
		{ echo '--- stderr'; cat "$log.err"; } >> "$log.failed"
		;;
	esac
	set -- $counts
	echo "$counts" > "$log.result"
	printf '%s (%d.%02d s' "$words" $((took / 1000)) $((took % 1000 / 10))
	if [ $(($1 + $2 + $3)) -gt 1 ]; then
		printf ', %d tests' $(($1 + $2 + $3))
	fi
	printf ')\n'
}

if [ "${1-}" = --one ]; then
	run_one "$2"
	exit 0
fi

jobs=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 1)
if [ "${ZCKPT_LONG:-0}" = 0 ]; then
	TEST_TIMEOUT=${TEST_TIMEOUT:-300}
else
	TEST_TIMEOUT=${TEST_TIMEOUT:-10800}
fi
while getopts j:t: opt; do
	case $opt in
	j) jobs=$OPTARG ;;
	t) TEST_TIMEOUT=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
ZCKPT_BUILD=${ZCKPT_BUILD:-$PWD/build}
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-tests.XXXXXX") || exit 1
trap 'rm -rf "$LOGS"' EXIT
trap 'exit 130' INT TERM
export LOGS TEST_TIMEOUT ZCKPT_BUILD
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

if [ $# -gt 0 ]; then
	printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" bash tests/run-tests.sh --one
fi

for log in "$LOGS"/*.failed; do
	[ -e "$log" ] || continue
	name=$(basename "$log" .log.failed)
	printf '\n=== %s\n' "${name//+//}"
	if [ "$(wc -l < "$log")" -gt 200 ]; then
		echo '(the last 200 lines)'
	fi
	tail -n 200 "$log"
done
results=$(find "$LOGS" -name '*.result' | wc -l)
sum=$(find "$LOGS" -name '*.result' -exec cat {} + |
	awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
read -r passed failed skipped <<< "$sum"
# A test that left no result (its runner was killed) has failed.
failed=$((failed + $# - results))
[ $((passed + failed)) -gt 0 ] || echo 'No test ran.'
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
