#!/bin/bash
# usage: test_reshard_wide.sh
#
# Steps of 4096 ranks have more files than a process may open at once: if this fails, the
# largest runs cannot be resharded where the limit of open files is what most systems set.
#
# A tiny model that 4096 ranks wrote goes to 7 ranks and back to 4096, stages 2 and 3, with at
# most 256 open files.  The digest stays the source's.  With ZCKPT_LONG=1 also with 64 files, and
# what went there and back must be, byte for byte, what the source gives for its own world.
set -uf
build=${ZCKPT_BUILD:?set by make check}
zckpt=${ZCKPT:-build/zckpt}
gen=$build/tests/bench/gen_zero
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-wide.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

fail() { failed=$((failed + 1)); echo "FAILED stage $1, $2 open files: $3"; }
root_of() { "$zckpt" digest -q "$1" 2> "$work/err" | tail -n 1; }
files_of() { find "$1" -type f | wc -l; }

# cut LIMIT 'N->M' SRC DST
cut_step() {
	(
		ulimit -n "$1" || exit 1
		exec "$zckpt" reshard -q --sync none "$2" "$3" "$4"
	) > /dev/null 2> "$work/err"
}

# same_files SRC BACK LIMIT
same_files() {
	cut_step "$3" '4096->4096' "$1" "$work/same" &&
		diff -r "$work/same" "$2" > "$work/err" 2>&1
}

# there_and_back STAGE LIMIT FILES-OF-7 FILES-OF-4096
there_and_back() {
	local want step=$work/src
	want=$(root_of "$step")
	[ -n "$want" ] || { fail "$1" "$2" "digest: $(tail -n 1 "$work/err")"; return; }
	rm -rf "$work/seven" "$work/back" "$work/same"
	cut_step "$2" '4096->7' "$step" "$work/seven" &&
		cut_step "$2" '7->4096' "$work/seven" "$work/back" ||
		{ fail "$1" "$2" "$(tail -n 1 "$work/err")"; return; }
	[ "$(files_of "$work/seven")" = "$3" ] || { fail "$1" "$2" 'files of 7 ranks'; return; }
	[ "$(files_of "$work/back")" = "$4" ] || { fail "$1" "$2" 'files of 4096 ranks'; return; }
	[ "$(root_of "$work/seven")" = "$want" ] && [ "$(root_of "$work/back")" = "$want" ] ||
		{ fail "$1" "$2" 'another digest'; return; }
	[ -z "${ZCKPT_LONG-}" ] || same_files "$step" "$work/back" "$2" ||
		{ fail "$1" "$2" "$(head -n 1 "$work/err")"; return; }
	passed=$((passed + 1))
}

limits=256
[ -z "${ZCKPT_LONG-}" ] || limits='256 64'
for stage in 2 3; do
	rm -rf "$work/src"
	if ! "$gen" -q --model llama-tiny --stage $stage --world 4096 "$work/src"; then
		fail $stage - 'gen_zero'
		continue
	fi
	# 'latest', a shard of each rank, and one model file, or one of each rank
	for limit in $limits; do
		if [ $stage = 2 ]; then
			there_and_back $stage $limit 9 4098
		else
			there_and_back $stage $limit 15 8193
		fi
	done
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
