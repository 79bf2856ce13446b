# shellcheck shell=bash disable=SC2154
# rows_verify.sh - the rows of `zckpt verify`; bench.sh sources it.

# --full of a folder against a loop that reads the same bytes and sums them
# with the same CRC-32, in the same run; and what a second thread brings.
verify_rows() {
	local stage=$1 s="verify --full, stage $1, 2.4 GB" i r
	wants verify || return 0
	gen --model llama-0.2b --stage "$stage" --world 8 "$w/src"
	mapfile -t files < <(find "$w/src" -name '*.pt' | sort)
	fresh
	for ((i = 0; i < RUNS; i++)); do
		run loop1 "$w/crcloop" -t 1 "${files[@]}"
		run z1 "$ZCKPT" verify --full -q --threads 1 "$w/src"
		run loop2 "$w/crcloop" -t 2 "${files[@]}"
		run z2 "$ZCKPT" verify --full -q --threads 2 "$w/src"
	done
	rm -rf "$w/src"
	speed_row "$s, 1 thread, against pread and CRC-32" loop1 z1 0.85
	speed_row "$s, 2 threads, against the same with 2" loop2 z2 0.85
	speed_row "$s, 2 threads, against 1" z1 z2 1.7
	note_row "  the bare loop, 2 threads, against 1" loop2 loop1
	bad z2 || memory_row "$s: peak memory" z2
}

# speed_row NAME PEER OURS LEAST: how many times as fast as the peer
speed_row() {
	local r
	if bad "$2" || bad "$3"; then
		row "$1" failed '' '' ">= $4" failed
		return
	fi
	r=$(calc "$(typical "$2") / $(typical "$3")")
	row "$1" "$(secs "$3")" "$(secs "$2")" "$(printf '%.2f x' "$r")" ">= $4 x" \
		"$(judge "$r" '>=' "$4")"
}
