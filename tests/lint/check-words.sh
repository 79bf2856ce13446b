#!/bin/sh
# usage: check-words.sh [-l] [FILE...]
#
# What users read is in plain words: none of tests/lint/words.txt in a message, help or other text
# of the programs, nor in README.md, CHANGELOG.md, docs/guide, docs/ztrain, docs/errors.md,
# docs/findings.md, docs/limits.md and the man pages.  Prints one line an offence, with the words
# to write instead, and ends with status 1 if there is one.  With FILEs only these are read: texts
# of *.c and *.h, all lines of others.  -l: count the offences of each entry instead.
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
count=0
if [ "${1-}" = -l ]; then
	count=1
	shift
fi
if [ $# = 0 ]; then
	set -- $(find libckpt formats kernels tools engine -name '*.[ch]' 2> /dev/null | sort) \
		$(find README.md CHANGELOG.md docs/guide docs/ztrain docs/man docs/errors.md docs/findings.md \
			docs/limits.md -type f 2> /dev/null | sort)
fi
# Every text as FILE:LINE, tab, text.
for file; do
	case $file in
	*.[ch]) code="$code $file" ;;
	*) prose="$prose $file" ;;
	esac
done
{
	[ -z "$code" ] || awk -f tests/lint/messages.awk $code | awk -F '\t' '{ print $1 "\t" $4 }'
	[ -z "$prose" ] || awk '{ print FILENAME ":" FNR "\t" $0 }' $prose
} | awk -F '\t' -v count=$count '
# In lower case, words alone, with one blank before, between and after them.
function plain(s) {
	s = tolower(s)
	gsub(/\\[fn][bir]?/, " ", s)
	gsub(/[^a-z0-9_'\''-]+/, " ", s)
	return " " s " "
}
function without_allowed(s,    i, at) {
	for (i = 1; i <= nallowed; i++)
		while (at = index(s, allowed[i]))
			s = substr(s, 1, at) "*" substr(s, at + length(allowed[i]) - 1)
	return s
}
function offences(s, words,    n) {
	n = 0
	while (match(s, " (" words ") ")) {
		n++
		s = substr(s, RSTART + RLENGTH - 1)
	}
	return n
}
FILENAME != "-" {
	if (/^#/ || !NF)
		next
	if (/^ok: /)
		allowed[++nallowed] = plain(substr($0, 5))
	else {
		bar = index($0, " | ")
		entry[++n] = substr($0, 1, bar - 1)
		instead[n] = substr($0, bar + 3)
	}
	next
}
{
	here = plain($2)
	# A phrase may begin in the line before, in the same document.
	place = $1
	sub(/:[0-9]+$/, "", place)
	if (place != file || place ~ /\.[ch]$/)
		before = " "
	file = place
	both = before here
	gsub(/  +/, " ", both)
	both = without_allowed(both)
	before = without_allowed(before)
	for (i = 1; i <= n; i++) {
		found = offences(both, entry[i]) - offences(before, entry[i])
		if (found <= 0)
			continue
		total[i] += found
		if (!count)
			printf "%s: \"%s\": write: %s\n", $1, entry[i], instead[i]
		bad = 1
	}
	before = here
}
END {
	for (i = 1; count && i <= n; i++)
		printf "%d\t%s\n", total[i], entry[i]
	exit bad
}' tests/lint/words.txt -
