# shellcheck shell=bash disable=SC2154
# rows_reshard.sh - the rows of `zckpt reshard`; bench.sh sources it.

# A step and what became of it hold the same state.
same_state() {
	local a b
	a=$("$ZCKPT" digest -q "$1" 2>"$w/said" | tail -n 1)
	b=$("$ZCKPT" digest -q "$2" 2>>"$w/said" | tail -n 1)
	[ -n "$a" ] && [ "$a" = "$b" ]
}

# limit_row NAME SERIES FIELD LIMIT REACH: memory of a series, in KiB
limit_row() {
	bad "$2" && { row "$1" failed '' '' "$5" failed; return; }
	row "$1" "$(mib "$(most "$2" "$3")")" '' '' "$5" \
		"$(judge "$(most "$2" "$3")" '<=' "$4")"
}

# Space that was taken for a while: what was allocated below the folder at the
# worst moment, and what calls wrote, against what the result takes.
space_rows() {
	local name=$1 arrow=$2 peak end r
	rm -rf "$w/dst"
	mkdir "$w/dst"
	rm -f "$w/space"
	"$w/peak" "$w/space" "$w/dst" "$ZCKPT" reshard -q "$arrow" "$w/src" \
		"$w/dst/out" >"$w/said" 2>&1 || {
		row "$name: temporary space" failed '' '' '<= 1 MiB' failed
		return
	}
	read -r peak end _ <"$w/space"
	row "$name: temporary space" "$(mib $(((peak - end) / 1024)))" '' '' \
		'<= 1 MiB' "$(judge $((peak - end)) '<=' 1048576)"
	end=$(find "$w/dst/out" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%.0f", s }')
	r=$(calc "$(most z2 4) / $end")
	row '  bytes written' "$(most z2 4)" "$end" "$(printf %.4f "$r")" \
		'<= 1.001' "$(judge "$r" '<=' 1.001)"
	same_state "$w/src" "$w/dst/out" ||
		row "$name" '' '' '' 'same state' 'wrong bytes'
}

# reshard of a folder with one and two threads against a copy of it
reshard_copy_rows() {
	local stage=$1 from=$2 to=$3 i name
	name="reshard $from->$to, stage $stage, 2.4 GB"
	gen --model llama-0.2b --stage "$stage" --world "$from" "$w/src"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$w/dst"
		run cp cp -r --reflink=never "$w/src" "$w/dst"
		rm -rf "$w/dst"
		run z1 "$ZCKPT" reshard -q --threads 1 "$from->$to" "$w/src" "$w/dst"
		rm -rf "$w/dst"
		run z2 "$ZCKPT" reshard -q --threads 2 "$from->$to" "$w/src" "$w/dst"
	done
	time_row "$name, 1 thread, against cp -r" z1 cp 1.25
	time_row "$name, 2 threads, against cp -r" z2 cp 0.90
	bad z2 && return
	memory_row "$name: peak memory" z2
	space_rows "$name" "$from->$to"
	rm -rf "$w/dst"
}

# The same folder through DeepSpeed's own way to another world. At stage 2 its
# converter needs to be told that the step has no universal_checkpoint_info.
universal_rows() {
	local stage=$1 i n=3 r s inject=
	s="reshard 8->4, stage $stage, 2.4 GB, against ds_to_universal"
	if [ -z "$VENV" ] || ! DS_ACCELERATOR=cpu "$VENV/bin/python" -c \
		'import deepspeed.checkpoint.ds_to_universal' >"$w/said" 2>&1; then
		row "$s" '' '' '' '>= 8 x' 'skipped: no deepspeed in the venv'
		return
	fi
	[ "$stage" = 3 ] || inject=--inject_missing_state
	[ "$RUNS" -lt 3 ] && n=$RUNS
	fresh
	for ((i = 0; i < n; i++)); do
		rm -rf "$w/dst"
		run d2u env DS_ACCELERATOR=cpu "$VENV/bin/python" -m \
			deepspeed.checkpoint.ds_to_universal $inject \
			--input_folder "$w/src/global_step1000" --output_folder "$w/dst"
		rm -rf "$w/dst"
		run z "$ZCKPT" reshard -q '8->4' "$w/src" "$w/dst"
	done
	rm -rf "$w/dst"
	if bad d2u || bad z; then
		row "$s" failed '' '' '>= 8 x' failed
		return
	fi
	r=$(calc "$(typical d2u) / $(typical z)")
	row "$s" "$(secs z)" "$(secs d2u)" "$(printf '%.1f x' "$r")" '>= 8 x' \
		"$(judge "$r" '>=' 8)"
	r=$(calc "$(most z 2) / $(most d2u 2)")
	row "  peak memory, of its largest process" "$(mib "$(most z 2)")" \
		"$(mib "$(most d2u 2)")" "$(printf %.3f "$r")" '' ''
}

# index and plan of what no machine has room for
plan_rows() {
	local stage=$1 i name
	name="reshard --dry-run 405B 192->128, stage $stage"
	gen --model llama-405b --stage "$stage" --world 192 --sparse "$w/src"
	fresh
	for ((i = 0; i < (RUNS < 3 ? RUNS : 3); i++)); do
		run z "$ZCKPT" reshard -q --dry-run '192->128' "$w/src" "$w/dst"
	done
	rm -rf "$w/src"
	if bad z; then
		row "$name" failed '' '' '< 30 s' failed
		return
	fi
	row "$name" "$(secs z)" '' '' '< 30 s' "$(judge "$(typical z)" '<' 30)"
	limit_row '  peak memory' z 2 2097152 '<= 2 GiB'
}

# thousands of files under a small limit of open ones
wide_rows() {
	local stage=$1 arrow name from=$w/src to
	gen --model llama-tiny --stage "$stage" --world 4096 "$w/src"
	for arrow in '4096->7' '7->4096'; do
		name="reshard $arrow, stage $stage, ulimit -n 256"
		to=$w/dst${arrow%%-*}
		fresh
		# shellcheck disable=SC2016
		run z bash -c 'ulimit -n 256; exec "$@"' . \
			"$ZCKPT" reshard -q "$arrow" "$from" "$to"
		if bad z; then
			row "$name" failed '' '' 'it works' failed
			break
		fi
		if same_state "$w/src" "$to"; then
			row "$name" "$(secs z)" '' '' 'it works' reached
		else
			row "$name" "$(secs z)" '' '' 'same state' 'wrong bytes'
		fi
		limit_row '  peak memory' z 2 327680 '<= 320 MiB'
		from=$to
	done
	rm -rf "$w/src" "$w"/dst*
}

reshard_rows() {
	local stage
	for stage in 2 3; do
		if wants reshard; then
			reshard_copy_rows $stage 4 8
			rm -rf "$w/src"
			reshard_copy_rows $stage 8 4
			rm -rf "$w/src"
		fi
		if wants universal; then
			gen --model llama-0.2b --stage "$stage" --world 8 "$w/src"
			universal_rows $stage
			rm -rf "$w/src"
		fi
		wants plan && plan_rows $stage
		wants wide && wide_rows $stage
	done
	return 0
}
