# shellcheck shell=bash disable=SC2154
# rows_fsdp.sh - FSDP's folders, and one output file by several threads; bench.sh sources it.

# cpu SERIES: the median of user and system seconds
cpu() { awk '{ print $6 + $7 }' "$w/$1.tm" | sort -g | awk '{ v[NR] = $1 }
	END { print v[int((NR + 1) / 2)] }'; }

# cpu_row NAME SERIES SECONDS
cpu_row() {
	local c
	bad "$2" && { row "$1" failed '' '' "<= $3 s" failed; return; }
	c=$(cpu "$2")
	row "$1" "$(printf '%.2f s' "$c")" '' '' "<= $3 s" "$(judge "$c" '<=' "$3")"
}

# The weights of a DCP folder as one file, against cp of the folder and what merges it in Python.
dcp_rows() {
	local out=$w/out.safetensors s="DCP to safetensors, $big_name, 8 files" n peer i
	wants fsdp || return 0
	gen --model "$big" --stage 2 --world 8 --no-moments-data --truth "$w/truth" "$w/src"
	fresh
	run make "$ZCKPT" reshard -q --to dcp --layout accelerate --drop-state 'exp*' "$w/src" "$w/run"
	rm -rf "$w/src" "$w/truth"
	bad make && { row "$s" failed '' '' '' failed; return; }
	n=$(find "$w/run" -name 'pytorch_model_fsdp_0')
	run first "$ZCKPT" convert -q "$n" "$out"
	right "$out" --model "$big" || row "$s" '' '' '' 'right bytes' 'wrong bytes'
	peer=torch
	[ -n "$VENV" ] && "$VENV/bin/python" -c 'import accelerate' 2>/dev/null && peer=accelerate
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$out" "$w/cp"
		run cp cp -r --reflink=never "$n" "$w/cp"
		rm -rf "$w/cp"
		run z1 "$ZCKPT" convert -q --threads 1 "$n" "$out"
		rm -f "$out"
		run z2 "$ZCKPT" convert -q --threads 2 "$n" "$out"
		[ -n "$VENV" ] && [ "$i" -lt 3 ] || continue
		rm -rf "$out"
		if [ $peer = accelerate ]; then
			run py "$VENV/bin/python" -m accelerate.commands.accelerate_cli \
				merge-weights "$n" "$w/cp"
		else
			run py "$VENV/bin/python" -m torch.distributed.checkpoint.format_utils \
				dcp_to_torch "$n" "$w/cp"
		fi
	done
	time_row "$s, 1 thread, against cp -r" z1 cp 1.10
	time_row "$s, 2 threads, against cp -r" z2 cp 0.75
	cpu_row '  processor time, 2 threads' z2 1.0
	memory_row '  peak memory' z2
	[ -n "$VENV" ] && [ -s "$w/py.tm" ] &&
		note_row "  2 threads, against $([ $peer = torch ] && echo 'dcp_to_torch' ||
			echo 'accelerate merge-weights')" z2 py
	rm -rf "$w/run" "$w/cp" "$out"
}

# One file in memory by 1 to 16 threads, against cp: it takes no more than eight.
one_rows() {
	local out=$w/out.safetensors s="one file, $big_name, from 8 shards" t i
	wants one || return 0
	gen --model "$big" --stage 2 --world 8 --no-moments-data --truth "$w/truth" "$w/src"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -f "$w/cp"
		run cp cp --reflink=never "$w/truth" "$w/cp"
		rm -f "$w/cp"
		for t in 1 2 4 8 16; do
			[ $t -le "$(nproc)" ] || continue
			rm -f "$out"
			run "t$t" "$ZCKPT" convert -q --threads $t "$w/src" "$out"
		done
	done
	time_row "$s, 1 thread, against cp" t1 cp 1.05
	cpu_row "  processor time of one" t1 "$(calc "1.05 * $(cpu cp)")"
	for t in 2 4 8 16; do
		[ -s "$w/t$t.tm" ] || continue
		note_row "  $t threads, against cp" t$t cp
		row "  processor time of $t" "$(printf '%.2f s' "$(cpu t$t)")" \
			"$(printf '%.2f s' "$(cpu t1)") of one" \
			"$(calc "$(cpu t$t) / $(cpu t1)" | xargs printf %.2f)" '' ''
	done
	rm -rf "$w/src" "$w/truth" "$w/cp" "$out"
}
