#!/bin/bash
# usage: coverage.sh [-f FLOOR] OBJECTS -- line coverage of the library by gcov
#
# OBJECTS is the folder of a build with --coverage whose tests have run
# (`make coverage` does both).  One line a file, lowest first, then the sums.
# The lines that no test reached go to OBJECTS/uncovered.txt: FILE:FIRST-LAST
# and their text; docs/internals/coverage.md says what kinds they are of.  Lines
# of a header count once, whatever includes it.
#
# With -f, ends with 1 where libckpt/ or formats/ has less than FLOOR percent.
set -eu
cd "$(dirname "$0")/.."
floor=0
while getopts f: opt; do
	case $opt in
	f) floor=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
gcov=${GCOV:-gcov}
list=$1/uncovered.txt
find "$1/libckpt" "$1/formats" "$1/kernels" "$1/tools" "$1/tests" -name '*.gcda' 2> /dev/null |
	xargs -r -n 50 "$gcov" -t 2> /dev/null |
	awk -v list="$list" -v floor="$floor" '
	# "    #####:   12:text": how often, line, text; line 0 has facts about the file.
	{
		colon = index($0, ":")
		count = substr($0, 1, colon - 1); gsub(/ /, "", count)
		rest = substr($0, colon + 1)
		colon = index(rest, ":")
		line = substr(rest, 1, colon - 1) + 0
		text = substr(rest, colon + 1)
	}
	line == 0 {
		if (text ~ /^Source:/) {
			file = substr(text, 8)
			sub(/^\.\//, "", file)
			ours = file ~ /^(libckpt|formats|kernels|tools)\/.*\.[ch]$/
		}
		next
	}
	!ours || count == "-" { next }
	{
		if (!((file, line) in ran)) { lines[file]++; ran[file, line] = 0 }
		if (count !~ /^[#=]/) ran[file, line] = 1
		if (line > last[file]) last[file] = line
		source[file, line] = text
	}
	# What kind of line it is; a continuation is of the kind of the line before.
	function kind_of(text, before) {
		if (text ~ /nomem|no_memory\(|no_room\(|no_string_memory/) return "memory"
		if (text ~ /ck_fail_sys|EINTR|errno|ck_sys\./) return "system"
		if (text ~ /LIMIT|ck_fail_limit|limit;|limit:/) return "bound"
		if (text ~ /ck_fail\(|refuse\(|fail\(|bad\(|ck_findings_add|fail_[a-z]*\(|note\(/)
			return "refusal"
		if (before != "" && text ~ /^[ \t]+("|[a-z_>.\[\]-]+(, [^=]*)*\);$)/) return before
		if (text ~ /^[ \t]*(return (rc|NULL|false|-1|true|0)?;|goto |continue;|break;|return -\(int\))/ ||
		    text ~ /_cancel\(|_release\(|_free\(|err = inner|inner\.|rc;$/) return "passed on"
		return "other"
	}
	function told(from, to,   i, kind) {
		printf "%s:%s\n", f, from == to ? from : from "-" to > list
		kind = ""
		for (i = from; i <= to; i++)
			if ((f, i) in source) {
				kind = kind_of(source[f, i], kind)
				if (f ~ /^(libckpt|formats)/) kinds[kind]++
				print "\t" source[f, i] > list
			}
	}
	# A run of lines continues over lines that are no code.
	function uncovered(f,   i, from, to) {
		from = 0
		for (i = 1; i <= last[f]; i++) {
			if (!((f, i) in ran)) continue
			if (ran[f, i]) {
				hit[f]++
				if (from) told(from, to)
				from = 0
			} else {
				if (!from) from = i
				to = i
			}
		}
		if (from) told(from, to)
	}
	END {
		printf "" > list
		for (f in lines) {
			hit[f] += 0
			order[++n] = f
		}
		for (i = 2; i <= n; i++)	# by name: the list is read beside the tree
			for (k = i; k > 1 && order[k] < order[k - 1]; k--) {
				swap = order[k]; order[k] = order[k - 1]; order[k - 1] = swap
			}
		for (i = 1; i <= n; i++) {
			f = order[i]
			uncovered(f)
			printf "%6.1f%% of %5d  %s\n", 100 * hit[f] / lines[f], lines[f], f | "sort -n"
			parts = split(f, part, "/")
			for (k = 1; k < parts; k++) {
				dir = k == 1 ? part[1] : dir "/" part[k]
				all[dir] += lines[f]; got[dir] += hit[f]
			}
		}
		close("sort -n")
		for (dir in all)
			printf "%6.1f%% of %5d, %4d not  all of %s/\n", 100 * got[dir] / all[dir],
				all[dir], all[dir] - got[dir], dir | "sort -k 7"
		close("sort -k 7")
		if (!n) { print "no coverage data: run make coverage"; exit 1 }
		for (kind in kinds)
			printf "%5d not reached in libckpt/ and formats/: %s\n", kinds[kind], kind | "sort -rn"
		close("sort -rn")
		print "the lines: " list
		for (k = split("libckpt formats", part, " "); k; k--)
			if (100 * got[part[k]] < floor * all[part[k]]) {
				printf "%s/ is below the floor of %s%%\n", part[k], floor
				low = 1
			}
		exit low
	}'
