#!/bin/bash
# usage: coverage.sh OBJECTS -- line coverage of libckpt/ and formats/ by gcov
#
# OBJECTS is the folder of a build with --coverage whose tests have run
# (`make coverage` does both).  One line a file, lowest first, then the sums.
set -eu
cd "$(dirname "$0")/.."
gcov=${GCOV:-gcov}
find "$1/libckpt" "$1/formats" "$1/kernels" "$1/tools" -name '*.gcda' 2> /dev/null |
	xargs -r -n 50 "$gcov" -n 2> /dev/null |
	awk '
	/^File / { file = $2; gsub(/\x27/, "", file); next }
	/^Lines executed:/ && file ~ /^(libckpt|formats|kernels|tools)\/.*\.c$/ {
		split($0, part, /[:%]| of /)
		lines = part[4]; hit = part[2] * lines / 100
		printf "%6.1f%% of %5d  %s\n", part[2], lines, file | "sort -n"
		top = file; sub(/\/.*/, "", top)
		all[top] += lines; ran[top] += hit
	}
	{ file = "" }
	END {
		close("sort -n")
		for (top in all) {
			printf "%6.1f%% of %5d  all of %s/\n", 100 * ran[top] / all[top], all[top], top
			n++
		}
		if (!n) { print "no coverage data: run make coverage"; exit 1 }
	}'
