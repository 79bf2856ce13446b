#!/bin/sh
# usage: check-symbols.sh OBJECTS [LAYERS]
#
# Compares what the objects below OBJECTS (a build folder) call with
# docs/layers.txt: a folder may use symbols of the folders that its line names,
# and functions of a public header where the line names that header's folder.
# An edge of the law that neither an #include nor a symbol uses is an offence too,
# where both folders have objects.
# Prints one line an offence and ends with status 1 if there is one.
set -eu
cd "$(dirname "$0")/../.."
objects=${1:?usage: check-symbols.sh OBJECTS [LAYERS]}
law=${2:-docs/layers.txt}
calls=$(mktemp)
trap 'rm -f "$calls"' EXIT
for top in libckpt formats kernels engine tools gpusim/engine; do
	if [ -d "$objects/$top" ]; then
		find "$objects/$top" -name '*.o' -exec nm -A -g {} +
	fi
done | awk -v from="$objects/" '{
	file = $1
	sub(/:.*/, "", file)
	file = substr(file, length(from) + 1)
	sub(/^gpusim\//, "", file)
	print "symbol", file, $(NF - 1), $NF
}' | sort -u | while read -r line; do
	# an object whose source has moved or gone is left over from an earlier build
	source=${line#symbol }
	source=${source%%.o *}
	if [ "$source" != "${last-}" ]; then
		last=$source
		[ -f "$source.c" ] || [ -f "$source.cu" ] && keep=1 || keep=
	fi
	if [ -n "$keep" ]; then printf '%s\n' "$line"; fi
done > "$calls"
# shellcheck disable=SC2046
grep -H -E '^[ 	]*#[ 	]*include[ 	]*["<]' $(find libckpt formats kernels engine tools tests/api -type f \
	\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2> /dev/null) |
	sed -E 's/^([^:]*):[^"<]*["<]([^">]*)[">].*/include \1 \2/' >> "$calls"
awk '
function owner(path,   l, best) {
	best = ""
	for (l in layer)
		if (index(path, l "/") == 1 && length(l) > length(best))
			best = l
	return best
}
function offence(text) {
	print "check-symbols: " text
	bad = 1
}
# A call of one folder into another: allowed, or noted under its edge.
function judge(file, symbol, to,   from, edge) {
	from = owner(file)
	if (from == to || (symbol, from) in known)
		return
	edge = from SUBSEP to
	if (edge in may)
		used[edge] = 1
	else if (symbol ~ /^ckpt_/ && from !~ /^(libckpt|formats)/ && ((from, "libckpt/include") in may))
		used[from, "libckpt/include"] = 1
	else if (symbol ~ /^kn_/ && to ~ /^kernels/ && ((from, "kernels/include") in may))
		used[from, "kernels/include"] = 1
	else
		calls[from " may not use " to] = calls[from " may not use " to] "\n    " file ": " symbol
}
FNR == NR {
	sub(/#.*/, "")
	if ($1 == "symbol")
		known[$2, $3]
	else if (NF && $1 !~ /^</) {
		layer[$1]
		for (i = 2; i <= NF; i++)
			may[$1, $i]
	}
	next
}
$1 == "symbol" { built[owner($2)] }
$1 == "symbol" && $3 ~ /^[TDBRVWC]$/ { defined[$4] = owner($2) }
$1 == "symbol" && $3 ~ /^[Uw]$/ { n++; user[n] = $2; name[n] = $4 }
$1 == "include" {
	to = $3 ~ /^ckpt(_[a-z]+)?\.h$/ ? "libckpt/include" : $3 ~ /^kn[a-z_]*\.h$/ ? "kernels/include" : owner($3)
	used[owner($2), to] = 1
}
END {
	for (i = 1; i <= n; i++)
		if (name[i] in defined)
			judge(user[i], name[i], defined[name[i]])
	for (c in calls)
		offence(c calls[c])
	for (edge in may) {
		split(edge, part, SUBSEP)
		if (part[1] in built && (part[2] in built || part[2] == "kernels/include") && !(edge in used))
			offence("no file of " part[1] " uses " part[2] ", which docs/layers.txt allows")
	}
	if (!n) {
		print "check-symbols: no object to look at"
		bad = 1
	}
	exit bad
}' "$law" "$calls"
