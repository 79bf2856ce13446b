#!/usr/bin/env bash
# bench.sh - measures zckpt against cp, a bare copy loop, zero_to_fp32 and
# ds_to_universal, and prints a table with what each row must reach. Run from
# the repository root:
#
#	ZCKPT=build/zckpt tests/bench/bench.sh [--quick] [--rows PATTERN] [--best]
#
# --quick          3 alternations at 0.8 GB instead of 7 at 3 GB
# --rows PATTERN   only rows whose part matches: copy, bf16, z2f, sparse,
#                  inspect, reshard, universal, verify, pack, save, load,
#                  sums, view, plan, wide, train, disk, fsdp, one, megatron
#                  (an extended regular expression)
# --best           judge by the fastest runs instead of the medians: for a
#                  machine that others use at the same time
# ZCKPT            the program (default ./zckpt)
# VENV             folder of a Python environment with torch and deepspeed;
#                  without it the rows against zero_to_fp32 and
#                  ds_to_universal are skipped
# BENCH_SHM        a folder in memory (default /dev/shm)
# BENCH_DISK       a folder on a real disk (default the current folder)
# RUNS             alternations (default 7)
# CC               C compiler of the helpers (default cc)
#
# Every row alternates: peer, ours, peer, ours; targets are removed before
# each run, outside the time. Times are medians, the spread is the smallest
# and the largest. Everything written is removed at the end. Exit status: 0,
# or 1 if a row that was measured misses its reach or gives wrong bytes.
set -u -o pipefail
export LC_ALL=C

ZCKPT=${ZCKPT:-./zckpt}
CC=${CC:-cc}
BENCH_SHM=${BENCH_SHM:-/dev/shm}
BENCH_DISK=${BENCH_DISK:-.}
VENV=${VENV:-}
rows='.'
quick=0
best=0
while [ $# -gt 0 ]; do
	case $1 in
	--quick) quick=1 ;;
	--best) best=1 ;;
	--rows) rows=${2:?a pattern}; shift ;;
	*) echo "bench.sh: unknown option $1" >&2; exit 2 ;;
	esac
	shift
done
if [ $quick = 1 ]; then
	big=llama-0.2b big_name='0.8 GB' RUNS=${RUNS:-3}
else
	big=llama-0.8b big_name='3 GB' RUNS=${RUNS:-7}
fi

case $ZCKPT in */*) ;; *) ZCKPT=$(command -v "$ZCKPT") ;; esac
if [ ! -x "$ZCKPT" ]; then
	echo "bench.sh: $ZCKPT is not a program; build it or set ZCKPT" >&2
	exit 2
fi

w=$(mktemp -d "$BENCH_SHM/zckpt-bench.XXXXXX") || exit 3
d=$(mktemp -d "$BENCH_DISK/zckpt-bench.XXXXXX") || exit 3
trap 'rm -rf "$w" "$d"' EXIT
trap 'exit 130' INT TERM
table=$w/table
failed=0
: >"$table"

# ---- helpers ------------------------------------------------------------

build() {
	"$CC" -std=c11 -O2 -I. -o "$w/$1" "tests/bench/$1.c" \
		"${@:2}" || exit 3
}
build gen_zero -ldeflate -pthread
build measure
build peak
build rwloop -lxxhash -pthread
build dropcache
build crcloop libckpt/zip/ck_zip_crc.c -Ilibckpt/include -ldeflate -pthread
# the library lies where the program was built
built=$(dirname "$(readlink -f "$ZCKPT")")
[ ! -e "$built/libckpt.so" ] ||
	build saveloop -Ilibckpt/include "$built/libckpt.so" -Wl,-rpath,"$built"

wants() { [[ $1 =~ $rows ]]; }

# run SERIES COMMAND...: runs it, appends its line to the series. A failure
# is told once, with what the command said.
run() {
	local series=$1
	shift
	if ! "$w/measure" "$w/$series.tm" "$@" >"$w/said" 2>&1; then
		[ -e "$w/$series.bad" ] || {
			echo "bench.sh: failed: $*"
			tail -n 3 "$w/said"
		} >&2
		touch "$w/$series.bad"
	fi
}

fresh() { rm -rf "$w"/*.tm "$w"/*.bad; }
bad() { [ -e "$w/$1.bad" ] || [ ! -s "$w/$1.tm" ]; }

# col SERIES N: the Nth field of every run, sorted
col() { awk -v n="$2" '{ print $n }' "$w/$1.tm" | sort -g; }
median() { col "$1" "$2" | awk '{ v[NR] = $1 }
	END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
most() { col "$1" "$2" | tail -n 1; }
# the time that a series is judged by
typical() { if [ $best = 1 ]; then col "$1" 1 | head -n 1; else median "$1" 1; fi; }
spread() { col "$1" 1 | awk 'NR == 1 { a = $1 } { b = $1 }
	END { printf "%.2f-%.2f", a, b }'; }
secs() { printf '%.3f s (%s)' "$(typical "$1")" "$(spread "$1")"; }
mib() { awk -v k="$1" 'BEGIN { printf "%.0f MiB", k / 1024 }'; }
calc() { awk "BEGIN { print $* }"; }
size() { stat -L -c %s "$1"; }

# row NAME OURS PEER RATIO REACH VERDICT
row() {
	printf '%s|%s|%s|%s|%s|%s\n' "$@" >>"$table"
	[ "$6" != missed ] && [ "$6" != failed ] && [ "$6" != 'wrong bytes' ] ||
		failed=1
}

# judge VALUE OP LIMIT: prints reached or missed
judge() { awk -v a="$1" -v b="$3" -v op="$2" 'BEGIN {
	ok = op == "<=" ? a <= b : op == ">=" ? a >= b : a < b
	print ok ? "reached" : "missed" }'; }

# time_row NAME OURS PEER FACTOR: ratio of times, ours / peer
time_row() {
	local r
	if bad "$2" || bad "$3"; then
		row "$1" failed '' '' "<= $4" failed
		return
	fi
	r=$(calc "$(typical "$2") / $(typical "$3")")
	row "$1" "$(secs "$2")" "$(secs "$3")" "$(printf %.2f "$r")" \
		"<= $4" "$(judge "$r" '<=' "$4")"
}

# note_row NAME SERIES PEER: a row without a reach
note_row() {
	row "$1" "$(secs "$2")" "$(secs "$3")" \
		"$(calc "$(typical "$2") / $(typical "$3")" |
		xargs printf %.2f)" '' ''
}

# right FILE OPTION...: the converted file holds the generator's numbers
right() { "$w/gen_zero" --check "$@" 2>>"$w/said"; }

gen() { "$w/gen_zero" -q --threads "$(nproc)" "$@" || exit 3; }

# ---- rows ---------------------------------------------------------------

# convert to fp32 with one and two threads, and to bf16, of one stage
copy_rows() {
	local stage=$1 s="stage $1, $big_name" out=$w/out.safetensors n i
	wants copy || wants bf16 || return 0
	gen --model "$big" --stage "$stage" --world 8 --no-moments-data \
		--truth "$w/truth" "$w/src"
	n=$(size "$w/truth")
	if wants copy; then
		fresh
		run first "$ZCKPT" convert -q "$w/src" "$out"
		right "$out" --model "$big" ||
			row "convert fp32, $s" '' '' '' 'right bytes' 'wrong bytes'
		for ((i = 0; i < RUNS; i++)); do
			rm -f "$out" "$w/cp"
			run cp cp --reflink=never "$w/truth" "$w/cp"
			rm -f "$w/cp"
			run z1 "$ZCKPT" convert -q --threads 1 "$w/src" "$out"
			rm -f "$out"
			run rw1 "$w/rwloop" -t 1 "$w/truth" "$w/cp"
			rm -f "$w/cp"
			run z2 "$ZCKPT" convert -q --threads 2 "$w/src" "$out"
			rm -f "$out"
			run rw2 "$w/rwloop" -t 2 "$w/truth" "$w/cp"
		done
		rm -f "$w/cp"
		time_row "convert fp32, $s, 1 thread, against cp" z1 cp 1.10
		time_row "convert fp32, $s, 2 threads, against cp" z2 cp 0.85
		note_row "  bare loop, 1 thread, against cp" rw1 cp
		note_row "  bare loop, 2 threads, against cp" rw2 cp
		memory_row "convert fp32, $s: peak memory" z2
		bytes_row "convert fp32, $s: bytes read" z1 "$n"
	fi
	if wants bf16; then
		bf16_rows "$stage" "$s" "$n"
	fi
	rm -rf "$w/src" "$w/truth" "$out"
}

memory_row() {
	bad "$2" && { row "$1" failed '' '' '<= 320 MiB' failed; return; }
	row "$1" "$(mib "$(most "$2" 2)")" '' '' '<= 320 MiB' \
		"$(judge "$(most "$2" 2)" '<=' 327680)"
}

bytes_row() {
	local r
	bad "$2" && { row "$1" failed '' '' '<= 1.05' failed; return; }
	r=$(calc "$(most "$2" 3) / $3")
	row "$1" "$(most "$2" 3)" "$3" "$(printf %.3f "$r")" '<= 1.05' \
		"$(judge "$r" '<=' 1.05)"
}

# cp copies (read + written) / 2 bytes: what a right reader needs, not what
# this one took, so reading too much does not make the peer slower
bf16_rows() {
	local out=$w/out.safetensors n=$3 had i
	fresh
	run first "$ZCKPT" convert -q --dtype bf16 "$w/src" "$out"
	bad first && { row "convert bf16, $2" failed '' '' '' failed; return; }
	{ right "$out" --model "$big" && [ "$(size "$out")" -lt $((n * 6 / 10)) ]; } ||
		row "convert bf16, $2" '' '' '' 'right bytes' 'wrong bytes'
	had=$(most first 3)
	[ "$had" -lt "$n" ] || had=$n
	head -c $(((had + $(size "$out")) / 2)) "$w/truth" >"$w/half"
	rm -f "$w/truth"
	for ((i = 0; i < RUNS; i++)); do
		rm -f "$out" "$w/cp"
		run cp cp --reflink=never "$w/half" "$w/cp"
		rm -f "$w/cp"
		run z1 "$ZCKPT" convert -q --threads 1 --dtype bf16 "$w/src" "$out"
	done
	time_row "convert bf16, $2, 1 thread, against cp of $(($(size "$w/half") / 1000000)) MB" z1 cp 0.95
	rm -f "$w/half" "$w/cp" "$out"
}

# against zero_to_fp32 --safe_serialization; its peak memory too
z2f_rows() {
	local model=$1 name=$2 stage=$3 want=$4 i n=3 py s r
	wants z2f || return 0
	s="against zero_to_fp32, stage $stage, $name"
	if [ -z "$VENV" ] || [ ! -x "$VENV/bin/python" ]; then
		row "$s" '' '' '' ">= $want x" 'skipped: no venv'
		return
	fi
	py=$(DS_ACCELERATOR=cpu "$VENV/bin/python" -c \
		'import deepspeed.utils.zero_to_fp32 as z; print(z.__file__)' \
		2>"$w/said" | tail -n 1)
	if [ ! -f "$py" ]; then
		row "$s" '' '' '' ">= $want x" 'skipped: no deepspeed in the venv'
		return
	fi
	[ "$RUNS" -lt 3 ] && n=$RUNS
	# beside other modules its folder would hide Python's own
	cp "$py" "$w/zero_to_fp32.py"
	gen --model "$model" --stage "$stage" --world 8 --no-moments-data "$w/src"
	fresh
	for ((i = 0; i < n; i++)); do
		rm -rf "$w/out"
		run start env DS_ACCELERATOR=cpu "$VENV/bin/python" -c \
			'import deepspeed.utils.zero_to_fp32, safetensors.torch'
		run z2f env DS_ACCELERATOR=cpu "$VENV/bin/python" "$w/zero_to_fp32.py" \
			--safe_serialization --max_shard_size 100GB \
			"$w/src" "$w/out"
		rm -rf "$w/out"
		run ours "$ZCKPT" convert -q "$w/src" "$w/out"
	done
	rm -rf "$w/src" "$w/out"
	if bad z2f || bad ours; then
		row "$s" failed '' '' ">= $want x" failed
		return
	fi
	r=$(calc "$(typical z2f) / $(typical ours)")
	row "$s" "$(secs ours)" "$(secs z2f)" "$(printf '%.1f x' "$r")" \
		">= $want x" "$(judge "$r" '>=' "$want")"
	bad start || row '  of which Python starts and imports' '' \
		"$(secs start)" '' '' ''
	r=$(calc "$(most ours 2) / $(most z2f 2)")
	row "  peak memory" "$(mib "$(most ours 2)")" "$(mib "$(most z2f 2)")" \
		"$(printf %.3f "$r")" '<= 0.167' "$(judge "$r" '<=' 0.16667)"
}

# 64 GB that take no space: memory must not grow with the checkpoint
sparse_rows() {
	local stage
	wants sparse || return 0
	for stage in 2 3; do
		gen --model llama-16b --stage $stage --world 8 --sparse "$w/src"
		fresh
		# shellcheck disable=SC2016
		run z bash -c 'exec "$0" convert -q -o - "$1" >/dev/null' \
			"$ZCKPT" "$w/src"
		memory_row "convert -o -, stage $stage, 64 GB sparse: peak memory" z
		bad z || row '  time' "$(secs z)" '' '' '' ''
		rm -rf "$w/src"
	done
}

inspect_rows() {
	local stage s i
	wants inspect || return 0
	for stage in 2 3; do
		s="inspect 405B, 192 ranks, stage $stage"
		gen --model llama-405b --stage $stage --world 192 --sparse "$w/src"
		fresh
		for ((i = 0; i < (RUNS < 3 ? RUNS : 3); i++)); do
			run z "$ZCKPT" inspect "$w/src"
		done
		rm -rf "$w/src"
		if bad z; then
			row "$s" failed '' '' '< 5 s' failed
			continue
		fi
		row "$s" "$(secs z)" '' '' '< 5 s' \
			"$(judge "$(typical z)" '<' 5)"
		row '  peak memory' "$(mib "$(most z 2)")" '' '' '< 1 GiB' \
			"$(judge "$(most z 2)" '<' 1048576)"
	done
}

# The source is not in memory and the time includes reaching the disk.
disk_rows() {
	local out=$d/out.safetensors i s="disk, $big_name: cold read, synced write"
	wants disk || return 0
	case $(stat -f -c %T "$d") in
	tmpfs | ramfs)
		row "$s" '' '' '' '<= 1.10' 'skipped: BENCH_DISK is in memory'
		return ;;
	esac
	if [ "$(df --output=avail -k "$d" | tail -n 1)" -lt 16000000 ]; then
		row "$s" '' '' '' '<= 1.10' 'skipped: less than 16 GB free'
		return
	fi
	gen --model "$big" --stage 2 --world 8 --no-moments-data \
		--truth "$d/truth" "$d/src"
	sync "$d/truth"
	fresh
	for ((i = 0; i < RUNS; i++)); do
		rm -f "$out" "$d/cp"
		sync -f "$d"
		"$w/dropcache" "$d/src" "$d/truth"
		# shellcheck disable=SC2016
		run cp bash -c 'cp --reflink=never "$0" "$1" && sync "$1"' \
			"$d/truth" "$d/cp"
		rm -f "$d/cp"
		sync -f "$d"
		"$w/dropcache" "$d/src" "$d/truth"
		run z "$ZCKPT" convert -q "$d/src" "$out"
	done
	time_row "$s, against cp and sync" z cp 1.10
	rm -rf "$d/src" "$d/truth" "$d/cp" "$out"
}

. tests/bench/rows_reshard.sh
. tests/bench/rows_verify.sh
# shellcheck source=tests/bench/rows_pack.sh
. tests/bench/rows_pack.sh
# shellcheck source=tests/bench/rows_save.sh
. tests/bench/rows_save.sh
# shellcheck source=tests/bench/rows_load.sh
. tests/bench/rows_load.sh
# shellcheck source=tests/bench/rows_sums.sh
. tests/bench/rows_sums.sh
# shellcheck source=tests/bench/rows_view.sh
. tests/bench/rows_view.sh
# shellcheck source=tests/bench/rows_train.sh
. tests/bench/rows_train.sh
# shellcheck source=tests/bench/rows_fsdp.sh
. tests/bench/rows_fsdp.sh
# shellcheck source=tests/bench/rows_megatron.sh
. tests/bench/rows_megatron.sh

# ---- the machine, the rows, the table -----------------------------------

echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)," \
	"$(nproc) cores, $(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' \
	/proc/meminfo), $(uname -sr), cp $(cp --version |
	sed -n '1s/.* //p'), load $(cut -d' ' -f1 /proc/loadavg)"
echo "memory folder $(stat -f -c %T "$w"), disk folder $(stat -f -c %T "$d")," \
	"$RUNS alternations, $([ $best = 1 ] && echo fastest || echo medians)" \
	"(smallest-largest)"

copy_rows 2
copy_rows 3
z2f_rows llama-0.2b '0.8 GB' 2 7
z2f_rows llama-0.2b '0.8 GB' 3 7
if [ $quick = 0 ]; then
	z2f_rows llama-0.8b '3 GB' 2 4
	z2f_rows llama-0.8b '3 GB' 3 4
fi
sparse_rows
inspect_rows
reshard_rows
verify_rows 2
verify_rows 3
pack_rows
save_rows
load_rows
sums_rows
view_rows
dcp_rows
one_rows
megatron_rows
train_rows
disk_rows

echo
{ echo 'row|ours|peer|ratio|reach|verdict'; cat "$table"; } |
	awk -F'|' '{ for (i = 1; i <= 6; i++) {
			t[NR, i] = $i
			if (length($i) > n[i]) n[i] = length($i) } }
		END { for (r = 1; r <= NR; r++) {
			s = ""
			for (i = 1; i <= 6; i++)
				s = s sprintf("%-*s  ", n[i], t[r, i])
			sub(/ +$/, "", s)
			print s } }'
exit $failed
