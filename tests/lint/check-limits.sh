#!/bin/sh
# usage: check-limits.sh
#
# Every limit has its row in docs/limits.md with the default it has in the code, its field in
# struct ckpt_limits with the same number beside it, and no row is about one that is gone.
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# 100,000 and 100000, 1 GiB, (uint64_t)1 << 30 and 1 << 30: all as the one number.
plain() {
	awk '{ name = $1; $1 = ""; gsub(/[ ,]/, ""); sub(/\(uint64_t\)/, "")
		if (split($0, p, "<<") == 2) n = p[1] * 2 ^ p[2]
		else if (sub(/GiB/, "")) n = $0 * 2 ^ 30
		else if (sub(/MiB/, "")) n = $0 * 2 ^ 20
		else n = $0
		printf "%s %.0f\n", name, n }' | sort
}
sed -n 's/^	X(\([a-z_]*\), \([^,]*\),.*/\1 \2/p' libckpt/format/ck_limits.h | plain > "$dir/code"
[ -s "$dir/code" ] || { echo 'ck_limits.h: no limit was found'; exit 1; }
sed -n '/^## /q; s/^| `\([a-z_]*\)` | \([^|]*\) |.*/\1 \2/p' docs/limits.md | plain > "$dir/table"
sed -n '/^struct ckpt_limits {/,/^};/s/^	uint[0-9]*_t \([a-z_]*\);.*(\(.*\)).*/\1 \2/p' \
	libckpt/include/ckpt.h | plain > "$dir/header"
bad=0
for what in table header; do
	diff "$dir/code" "$dir/$what" > "$dir/diff" && continue
	bad=1
	sed -n "s/^< \(.*\)/libckpt\/format\/ck_limits.h: '\1' is not so in the $what/p
		s/^> \(.*\)/the $what: '\1' is not what libckpt\/format\/ck_limits.h says/p" "$dir/diff"
done
exit $bad
