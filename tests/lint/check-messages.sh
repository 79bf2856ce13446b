#!/bin/sh
# usage: check-messages.sh [-l | -a] [FILE...]
#
# The lengths of what the programs say.  The median of all messages is at most MEDIAN characters.
# No message, line of help or other text has more than MOST, unless it is a list: a text with line
# ends, or a command's description (.about, .notes), which is wrapped.  -l lists the messages as
# FILE:LINE, kind, length, text; -a also lists helps and other texts (tests/lint/messages.awk).
# Prints one line an offence, then nothing; with -l the numbers follow the list.
MEDIAN=120
MOST=300
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
list=
case ${1-} in
-l | -a)
	list=$1
	shift
	;;
esac
if [ $# = 0 ]; then set -- $(find libckpt formats kernels tools engine -name '*.[ch]' 2> /dev/null | sort); fi
awk -f tests/lint/messages.awk "$@" |
	if [ "$list" = -a ]; then cat; elif [ "$list" = -l ]; then grep '	message	'; else
		awk -F '\t' -v most=$MOST '
		$3 > most && $2 != "about" && $4 !~ /\\n./ {
			printf "%s: a text of %d characters, %d are allowed: %s\n", $1, $3, most, $4
			bad = 1
		}
		END { exit bad }'
	fi
status=$?
awk -f tests/lint/messages.awk "$@" | awk -F '\t' '$2 == "message" { print $3 }' | sort -n |
	awk -v most=$MEDIAN -v list="$list" '
	{ length_of[NR] = $1 }
	END {
		median = length_of[int((NR + 1) / 2)] + 0
		if (list != "")
			printf "%d messages, median %d characters, longest %d\n", NR, median, length_of[NR]
		if (median > most) {
			printf "the median of %d messages is %d characters, %d are allowed\n", NR, median, most
			exit 1
		}
	}' || status=1
exit $status
