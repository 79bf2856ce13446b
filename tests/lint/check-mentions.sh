#!/bin/sh
# usage: check-mentions.sh [FILE...]
#
# A file that a comment names exists: NAME.c, .h, .cu, .cuh, .sh, .mk or .md is a file of the tree,
# as a path from its root, from the folder of the comment, or as the end of a path.  NAME may have
# the pattern *; in capitals it matches any.  Files of other projects are listed in tests/lint/foreign-files.txt.
# Without FILE, all sources, scripts and makefiles are read.  Prints FILE:LINE: OFFENCE; status 1
# if there is one.
set -eu
cd "$(dirname "$0")/../.."
export LC_ALL=C
if [ $# = 0 ]; then
	# shellcheck disable=SC2046
	set -- Makefile $(find base libckpt formats kernels engine tools tests examples mk -type f \( -name '*.[ch]' -o -name '*.cu' \
		-o -name '*.cuh' -o -name '*.mk' -o -name '*.sh' \) 2> /dev/null | sort)
fi
find . \( -name .git -o -path ./build \) -prune -o -type f -print | awk '
function offence(name) {
	printf "%s:%d: the comment names %s, which is no file of the tree\n", FILENAME, FNR, name
	bad = 1
}
# The pattern of a shell as a regular expression.
function regular(glob) {
	gsub(/[.+(){}^$|]/, "\\\\&", glob)
	gsub(/\*/, "[^/]*", glob)
	return glob
}
function exists(name,   e, path, base) {
	sub(/^\.\//, "", name)
	while (sub(/^\.\.\//, "", name))
		;
	if (name in known)
		return known[name]
	base = name
	sub(/^.*\//, "", base)
	# NAME.c matches any
	known[name] = base ~ /^[A-Z]+\./ && base != "README.md"
	if (name ~ /[*]/) {
		e = "(^|/)" regular(name) "$"
		for (path in tree)
			if (path ~ e) {
				known[name] = 1
				break
			}
	}
	return known[name]
}
function judge(text,   name, before) {
	gsub(/<[^>]*>/, " ", text)		# <stdio.h>, <name>.c
	while (match(text, /[A-Za-z0-9_$.*\/-]*[A-Za-z0-9_*]\.(cuh|cu|c|h|sh|md|mk)/)) {
		name = substr(text, RSTART, RLENGTH)
		before = substr(text, 1, RSTART - 1)
		text = substr(text, RSTART + RLENGTH)
		if (text ~ /^[A-Za-z0-9_\/]/ || text ~ /^\.[a-z]/ || name ~ /[$]/ || before ~ /[A-Za-z0-9_}"]$/)
			continue
		if (!exists(name))
			offence(name)
	}
}
FILENAME == "-" {
	path = substr($0, 3)
	tree[path]
	while (1) {
		known[path] = 1
		if (!index(path, "/"))
			break
		sub(/^[^\/]*\//, "", path)
	}
	next
}
FILENAME == "tests/lint/foreign-files.txt" {
	if (NF && !/^#/)
		known[$1] = 1
	next
}
FNR == 1 { inside = 0 }
FILENAME ~ /\.(c|h|cu|cuh)$/ {
	s = $0
	if (!inside)
		gsub(/"(\\.|[^"\\])*"/, "\"\"", s)
	comment = ""
	while (s != "") {
		if (inside) {
			at = index(s, "*/")
			comment = comment " " (at ? substr(s, 1, at - 1) : s)
			s = at ? substr(s, at + 2) : ""
			inside = !at
		} else {
			at = index(s, "/*")
			s = at ? substr(s, at + 2) : ""
			inside = at > 0
		}
	}
	judge(comment)
	next
}
match($0, /(^|[ \t])#/) { judge(substr($0, RSTART + RLENGTH)) }
END { exit bad }' - tests/lint/foreign-files.txt "$@"
