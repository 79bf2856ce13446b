#!/bin/sh
# usage: check-prose.sh [-v] [HEADER...]
#
# The comment of a public header is the contract of what it declares.  Each of
# libckpt/include must have a comment on FLOOR percent of its lines; with -v the
# share of each is printed.  Blank lines do not count, a line with code and a
# comment counts once, and bodies of inline functions are no part of a contract.
# Prints one line an offence and ends with status 1 if there is one.
FLOOR=70
cd "$(dirname "$0")/../.." || exit 1
verbose=0
if [ "${1-}" = -v ]; then
	verbose=1
	shift
fi
if [ $# = 0 ]; then set -- libckpt/include/*.h; fi
awk -v floor=$FLOOR -v verbose=$verbose '
function flush() {
	share = total ? int(100 * prose / total) : 100
	if (name != "" && verbose)
		printf "%d %s\n", share, name
	if (name != "" && share < floor) {
		printf "%s: %d %% of its lines have a comment, %d are demanded\n", name, share, floor
		bad = 1
	}
	prose = total = inside = body = 0
}
FNR == 1 { flush(); name = FILENAME }
/^[ \t]*$/ { next }
{
	had = 0
	rest = $0
	while (rest != "") {
		if (inside) {
			had = 1
			end = index(rest, "*/")
			inside = !end
			rest = end ? substr(rest, end + 2) : ""
		} else {
			begin = index(rest, "/*")
			inside = begin > 0
			had = had || inside
			rest = begin ? substr(rest, begin + 2) : ""
		}
	}
	if (/^\{/)
		body = 1
	if (!body) {
		total++
		prose += had
	}
	if (/^\}/)
		body = 0
}
END { flush(); exit bad }
' "$@"
