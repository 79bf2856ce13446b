#!/bin/sh
# usage: check-findings.sh
#
# Every finding that the library or doctor can report has its section in docs/findings.md, with the
# severity it has in the code, a first sentence that fits into the list of `zckpt explain`, and what
# to do; and no section is about one that is gone.
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
awk -f tools/findings.awk docs/findings.md > "$dir/pages.c" || exit 1
sed -n 's/^	X(\([A-Z_]*\), \([A-Z]*\),.*/\1 \2/p' libckpt/format/ck_findings.h |
	sed 's/ WARN$/ warning/; s/ ERROR$/ error/; s/ INFO$/ info/' > "$dir/code"
[ -s "$dir/code" ] || { echo 'ck_findings.h: no finding was found'; exit 1; }
# Those of doctor alone are in the second part; the severity of some depends on the place.
grep -ohE '"[A-Z]+(_[A-Z]+)+"' tools/c*_doctor.c | tr -d '"' | grep -v '^CKPT_' | sort -u > "$dir/doctor"
awk '/^# Of paths/ { exit } { print }' docs/findings.md | sed -n 's/^## //p' | sort > "$dir/first"
awk -v dir="$dir" '
FILENAME == dir "/code" { severity[$1] = $2; next }
FILENAME == dir "/doctor" { doctor[$1]; next }
FILENAME == dir "/first" { first[$1]; next }
/^\t\{ "[A-Z]/ {
	split($0, part, "\"")
	id = part[2]
	seen[id]
	if (id in severity && part[4] != severity[id])
		print "docs/findings.md: " id " is " part[4] ", libckpt/format/ck_findings.h says " severity[id]
	if (id in first && !(id in severity))
		print "docs/findings.md: " id " is no finding of libckpt/format/ck_findings.h"
	getline gist
	if (length(gist) > 53 + 5)
		print "docs/findings.md: " id ": the first sentence has more than 53 characters"
	getline text
	if (text !~ /\\nWhat to do: /)
		print "docs/findings.md: " id " has no paragraph \"What to do:\""
}
END {
	for (id in severity)
		if (!(id in seen))
			print "libckpt/format/ck_findings.h: " id " is not in docs/findings.md"
	for (id in doctor)
		if (!(id in seen))
			print "tools/cmd_doctor.c or cli_doctor.c: " id " is not in docs/findings.md"
}' "$dir/code" "$dir/doctor" "$dir/first" "$dir/pages.c" > "$dir/said"
cat "$dir/said"
[ ! -s "$dir/said" ]
