#!/bin/sh
# usage: check-findings.sh
#
# Every finding that the library can make has its paragraph in docs/findings.md, with
# the severity it has in the code, and no paragraph is about one that is gone.
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
sed -n 's/^	X(\([A-Z_]*\), \([A-Z]*\),.*/\1 \2/p' libckpt/format/ck_findings.h |
	sed 's/ WARN$/ warning/; s/ ERROR$/ error/; s/ INFO$/ info/' | sort > "${TMPDIR:-/tmp}/findings.$$"
trap 'rm -f "${TMPDIR:-/tmp}/findings.$$"' EXIT
[ -s "${TMPDIR:-/tmp}/findings.$$" ] || { echo 'ck_findings.h: no finding was found'; exit 1; }
awk '/^## / { name = $2; next } name != "" && NF { sub(/\..*/, "", $1); print name, $1; name = "" }' \
	docs/findings.md | sort | diff - "${TMPDIR:-/tmp}/findings.$$" |
	sed -n 's/^< \(.*\)/docs\/findings.md: "\1" is not what libckpt\/format\/ck_findings.h says/p
		s/^> \(.*\)/libckpt\/format\/ck_findings.h: "\1" is not in docs\/findings.md/p' |
	awk '{ print; bad = 1 } END { exit bad }'
