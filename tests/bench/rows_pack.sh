# shellcheck shell=bash disable=SC2154
# rows_pack.sh - the rows of `zckpt pack` and `unpack`; bench.sh sources it.

# Level 1 with all cores against tar and zstd in a pipe, both ways. What ours does besides (every
# frame decoded again before the rename, hashes, names looked at) is in its time.
pack_rows() {
	local s="$big_name" i
	wants pack || return 0
	command -v zstd >/dev/null || return 0
	gen --model "$big" --stage 3 --world 8 "$w/src"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$w/peer.tar.zst" "$w/ours.tar.zst" "$w/peer.out" "$w/ours.out"
		mkdir "$w/peer.out"
		run tp sh -c "tar -C '$w/src' -cf - . | zstd -q -T0 -1 -o '$w/peer.tar.zst'"
		run zp "$ZCKPT" pack -q --level 1 "$w/src" "$w/ours.tar.zst"
		run tu sh -c "zstd -qdc '$w/peer.tar.zst' | tar -C '$w/peer.out' -xf -"
		run zu "$ZCKPT" unpack -q "$w/ours.tar.zst" "$w/ours.out"
	done
	speed_row "pack --level 1, $s, against tar and zstd -T0 -1" tp zp 0.9
	speed_row "unpack, $s, against zstd -d and tar -x" tu zu 0.9
	bad zp || memory_row "pack --level 1, $s: peak memory" zp
	bad zu || memory_row "unpack, $s: peak memory" zu
	if ! diff -r "$w/src" "$w/ours.out" >/dev/null; then
		row "unpack, $s: the folder is back" differs '' '' same 'wrong bytes'
	fi
	row "  size of the pack, $s" "$(mib $(($(size "$w/ours.tar.zst") / 1024)))" \
		"$(mib $(($(size "$w/peer.tar.zst") / 1024)))" "$(calc "$(size "$w/ours.tar.zst") / $(size "$w/peer.tar.zst")")" '' ''
	rm -rf "$w/peer.tar.zst" "$w/peer.out" "$w/ours.out"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		run folder "$ZCKPT" digest -q "$w/src"
		run packed "$ZCKPT" digest -q "$w/ours.tar.zst"
	done
	note_row "  digest of the pack, $s, against that of the folder" packed folder
	rm -rf "$w/src" "$w/ours.tar.zst"
}
