# shellcheck shell=bash disable=SC2154
# rows_load.sh - the rows of ckpt_load(); bench.sh sources it.

# Every state of a step into memory that was touched before, against its files read to the same
# place, in turns in one process (loadloop.c).
load_rows() {
	local loop=${ZCKPT_BUILD:-$(dirname "$ZCKPT")}/tests/bench/loadloop
	wants load || return 0
	if [ ! -x "$loop" ]; then
		row 'load' '' '' '' '>= 0.8 x' 'skipped: no loadloop (make bench builds it)'
		return
	fi
	gen --model llama-0.2b --stage 3 --world 8 "$w/src"
	load_step "$loop" "$w/src" 'stage 3, 2.4 GB'
	"$ZCKPT" reshard -q --to native --world 8 "$w/src" "$w/native" >"$w/said" 2>&1 || {
		row 'load, native' failed '' '' '>= 0.8 x' failed
		tail -n 3 "$w/said" >&2
		rm -rf "$w/src" "$w/native"
		return
	}
	rm -rf "$w/src"
	load_step "$loop" "$w/native" 'native, 2.4 GB'
	rm -rf "$w/native"
}

# load_step LOOP STEP NAME
load_step() {
	fresh
	if ! "$1" -r "$RUNS" -o "$w" "$2" >"$w/said" 2>&1; then
		tail -n 3 "$w/said" >&2
		touch "$w/load1.bad" "$w/load2.bad"
	fi
	speed_row "load, $3, 1 thread, against cat into touched memory" cat1 load1 0.8
	speed_row "load, $3, 2 threads, against the same with 2" cat2 load2 0.8
	bad load1 || bad load2 || {
		note_row "  checked against its sums, 1 thread, against load" check1 load1
		note_row "  the same, 2 threads" check2 load2
		row "  $(tail -n 1 "$w/said")" '' '' '' '' ''
	}
}
