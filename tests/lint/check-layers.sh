#!/bin/sh
# usage: check-layers.sh [LAYERS [FILE...]]
#
# Holds the #include lines of the tree against docs/layers.txt.  Prints
# FILE:LINE: OFFENCE and ends with status 1 if there is one.  Without FILE, all
# C sources and headers of the tree are looked at.
set -eu
cd "$(dirname "$0")/../.."
law=${1:-docs/layers.txt}
[ $# = 0 ] || shift
if [ $# = 0 ]; then
	# shellcheck disable=SC2046
	set -- $(find libckpt formats kernels engine tools tests examples -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2> /dev/null | sort)
fi
exec awk '
# The longest folder of the law that holds the path; "" for none.
function owner(path,   l, best) {
	best = ""
	for (l in layer)
		if (index(path, l "/") == 1 && length(l) > length(best))
			best = l
	return best
}
function offence(text) {
	printf "%s:%d: %s\n", FILENAME, FNR, text
	bad = 1
}
function exists(path,   line, rc) {
	if (!(path in there)) {
		rc = (getline line < path)
		close(path)
		there[path] = rc >= 0
	}
	return there[path]
}
# Is the header one of its folder alone: by its name, or by what its first lines say?
function is_private(path,   line, i) {
	if (!(path in private)) {
		private[path] = path ~ /_priv\.h$/
		for (i = 0; i < 4 && (getline line < path) > 0; i++)
			if (line ~ / private to /)
				private[path] = 1
		close(path)
	}
	return private[path]
}
function folder(path) {
	sub(/[^\/]*$/, "", path)
	return path
}
function judge_quoted(to,   dir, target) {
	if (strict_folder) {
		dir = FILENAME
		sub(/[^\/]*$/, "", dir)
		target = owner(dir to)
		if (!exists(dir to) || (from != target && !((from, target) in may)))
			offence(from " sees <ckpt.h>, <ckpt_zero.h> and the headers beside it, not \"" to "\"")
		return
	}
	if (!exists(to)) {
		offence("\"" to "\" is not a path from the root of the tree")
		return
	}
	if (FILENAME !~ /^tests\// && folder(to) != folder(FILENAME) && is_private(to))
		offence("\"" to "\" is private to its folder")
	target = owner(to)
	if (from == "" || from == target)
		return
	if (target == "")
		offence(from " may not include " to ", which no layer holds")
	else if (!((from, target) in may))
		offence(from " may not include " to)
}
function judge_angle(to,   n, place, i, okay) {
	if (to ~ /^ckpt(_[a-z]+)?\.h$/) {
		if (from != "" && from != "libckpt/include" && !((from, "libckpt/include") in may))
			offence(from " may not include <" to ">")
		return
	}
	if (to ~ /^kn[a-z_]*\.h$/) {
		if (from != "" && from != "kernels/include" && !((from, "kernels/include") in may))
			offence(from " may not include <" to ">")
		else if (!exists("kernels/include/" to))
			offence("<" to "> is not in kernels/include")
		return
	}
	if (to in outside) {
		n = split(outside[to], place, " ")
		for (i = 1; i <= n; i++)
			if (place[i] == "*" || FILENAME == place[i] || index(FILENAME, place[i] "/") == 1)
				return
		place[0] = outside[to]
		gsub(/ /, ", ", place[0])
		offence("<" to "> may be included in " place[0] " only")
	} else if (from == "libckpt/include")
		offence("a public header includes <stddef.h>, <stdint.h>, <stdbool.h> and public headers only, not <" to ">")
}
FILENAME == ARGV[1] {
	sub(/#.*/, "")
	if ($1 ~ /^</) {
		name = substr($1, 2, length($1) - 2)
		outside[name] = $2
		for (i = 3; i <= NF; i++)
			outside[name] = outside[name] " " $i
	} else if (NF && $1 != "symbol") {
		layer[$1]
		for (i = 2; i <= NF; i++)
			may[$1, $i]
	}
	next
}
FNR == 1 {
	files++
	from = owner(FILENAME)
	strict_folder = (from == "tools" || from == "tools/shared" || from == "tests/api")
	if (from == "" && FILENAME ~ /^(libckpt|formats|kernels|engine)\//)
		offence("no layer of docs/layers.txt holds this file")
}
/^[ \t]*#[ \t]*include[ \t]*"/ { split($0, part, "\""); judge_quoted(part[2]) }
/^[ \t]*#[ \t]*include[ \t]*</ { split($0, part, /[<>]/); judge_angle(part[2]) }
END {
	if (!files) { print "check-layers: no source to look at"; bad = 1 }
	exit bad
}' "$law" "$@"
