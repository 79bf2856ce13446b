# shellcheck shell=bash disable=SC2154
# rows_save.sh - the rows of save sessions; bench.sh sources it.

# inner SERIES SECONDS: a time that a program took of itself
inner() { echo "$2 0 0 0 0 0 0" >>"$w/$1.tm"; }

# What saveloop printed last: total, stall, memcpy.
take_save() {
	local total stall bare
	[ ! -e "$w/saves.bad" ] || return 0
	read -r total stall bare _ < <(tail -n 1 "$w/said")
	inner "$1" "$total"
	inner "$1.stall" "$stall"
	inner "$1.memcpy" "$bare"
}

# save_pair SERIES FOLDER SYNC DD-OPTION...: alternates dd and a save of as many bytes
save_pair() {
	local series=$1 folder=$2 sync=$3 i
	shift 3
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$folder/dd.bin" "$folder/run"
		run "$series.dd" dd if=/dev/zero of="$folder/dd.bin" bs=4M count=$((mib / 4)) "$@"
		rm -rf "$folder/dd.bin"
		run saves "$w/saveloop" -l -t 2 -s "$sync" "$folder/run" "$mib"
		take_save "$series.lent"
		rm -rf "$folder/run"
		run saves "$w/saveloop" -t 2 -s "$sync" "$folder/run" "$mib"
		take_save "$series.copied"
	done
	rm -rf "$folder/run"
}

# The same state by PyTorch's Distributed Checkpoint, into the same folder, in turns; and loaded again.
dcp_rows() {
	local python=$VENV/bin/python loop i
	loop=${ZCKPT_BUILD:-$(dirname "$ZCKPT")}/tests/bench/loadloop
	if [ -z "$VENV" ] || ! "$python" -c 'import torch' 2>/dev/null; then
		row "save and load against PyTorch's DCP" '' '' '' 'aim 3 x' 'skipped: no torch in VENV'
		return
	fi
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$w/dcp" "$w/run"
		run peer "$python" tests/bench/dcp.py "$w/dcp" "$mib"
		[ -e "$w/peer.bad" ] || {
			inner dcp.save "$(tail -n 1 "$w/said" | cut -d' ' -f1)"
			inner dcp.load "$(tail -n 1 "$w/said" | cut -d' ' -f2)"
		}
		run saves "$w/saveloop" -l -t 2 -s none "$w/run" "$mib"
		take_save ours
		[ ! -x "$loop" ] || "$loop" -r 1 -o "$w" "$w/run" >/dev/null 2>"$w/said" || touch "$w/load2.bad"
	done
	aim_row "save, $mib MiB in memory, against DCP, both with 2 threads" dcp.save ours 3
	aim_row "load of it into tensors that are there, against DCP" dcp.load load2 3
	rm -rf "$w/run"
}

# aim_row NAME PEER OURS TIMES: an aim, not a reach
aim_row() {
	if bad "$2" || bad "$3"; then
		row "$1" failed '' '' "aim $4 x" failed
		return
	fi
	row "$1" "$(secs "$3")" "$(secs "$2")" \
		"$(calc "$(typical "$2") / $(typical "$3")" | xargs printf '%.2f x')" "aim $4 x" ''
}

# A training state in memory, to a native step of one rank by two threads. Lent: the trainer waits for
# the end, or does not touch it; copied: it goes on as soon as the copy is made.
save_rows() {
	local mib=1200
	wants save || return 0
	[ $quick = 0 ] || mib=300
	if [ ! -x "$w/saveloop" ]; then
		row "save" '' '' '' '>= 0.90' 'skipped: no libckpt.so beside the program'
		return
	fi
	fresh
	save_pair shm "$w" none
	speed_row "save, $mib MiB in memory, lent, against dd" shm.dd shm.lent 0.9
	note_row "  copied" shm.copied shm.dd
	time_row "  what a save that copies takes from the caller, against memcpy" \
		shm.copied.stall shm.copied.memcpy 1.2
	note_row "  what one that borrows takes" shm.lent.stall shm.lent.memcpy
	dcp_rows
	case $(stat -f -c %T "$d") in
	tmpfs | ramfs)
		row "save to disk" '' '' '' '>= 0.90' 'skipped: BENCH_DISK is in memory'
		return ;;
	esac
	fresh
	save_pair disk "$d" data conv=fdatasync
	speed_row "save, $mib MiB to disk, synced, against dd conv=fdatasync" disk.dd disk.lent 0.9
	note_row "  copied" disk.copied disk.dd
}
