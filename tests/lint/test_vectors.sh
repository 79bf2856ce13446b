#!/bin/bash
# docs/internals/vectors.md says which test each of the 221 test vectors is.  A test that is renamed
# or a row that goes would leave a vector without one, and nobody would know.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
list=docs/internals/vectors.md
manifest=${ZCKPT_FIXTURES:-build/fixtures}/formats/manifest.json
wrong=0
bad() {
	echo "$list: $*"
	wrong=$((wrong + 1))
}
[ -f "$manifest" ] || { echo "no fixtures at $manifest" >&2; exit 77; }

want=$(for g in Z:56 P:58 L:9 S:43 H:17 D:32 T:6; do
	seq -f "${g%%:*}%02g" 1 "${g#*:}"
done | sort)
have=$(sed -n 's/^| \([A-Z][0-9][0-9]\) |.*/\1/p' $list | sort)
[ "$want" = "$have" ] || bad "ids differ: $(diff <(echo "$want") <(echo "$have") | grep '^[<>]' | tr '\n' ' ')"

# Each line names a test or a row, or says that it has none and why.
grep '^| [A-Z][0-9][0-9] |' $list | while IFS= read -r line; do
	case $line in
	*'| not a test |') [[ $line == *'no fixture'* ]] || echo "$line" ;;
	*'| `tests/'* | *'| row `'*) ;;
	*) echo "$line" ;;
	esac
done > "${TMPDIR:-/tmp}/vectors.$$"
[ ! -s "${TMPDIR:-/tmp}/vectors.$$" ] || bad "no test: $(cat "${TMPDIR:-/tmp}/vectors.$$")"
rm -f "${TMPDIR:-/tmp}/vectors.$$"

# `FILE` `TEST`
while read -r file name; do
	grep -qs "\b$name\b" "$file" || bad "there is no $name in $file"
done < <(grep -o '`tests/[^`]*\.c` `[^`]*`' $list | tr -d '`' | sort -u)

# row `FILE`
rows=$(sed -n 's/^{"file": "\([^"]*\)".*/\1/p' "$manifest" | sort)
missing=$(comm -23 <(grep -o 'row `[^`]*`' $list | sed 's/row `\(.*\)`/\1/' | sort -u) <(echo "$rows"))
[ -z "$missing" ] || bad "no such rows: $missing"
[ "$(grep -o 'row `[^`]*`' $list | wc -l)" -gt 200 ] || bad "hardly any rows are named"

# The counts in the text.
none=$(grep -c '| not a test |$' $list)
tests=$(($(grep -c '^| [A-Z][0-9][0-9] |' $list) - none))
grep -q "$tests are tests, and $none " $list || bad "the text does not say $tests tests and $none without"

[ $wrong = 0 ]
