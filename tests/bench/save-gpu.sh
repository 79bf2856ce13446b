#!/bin/bash
# usage: tests/bench/save-gpu.sh [-n RANKS] [-z STAGE] [-r ROWS] [-l TOKENS] [-d FOLDER] [-t THREADS]
#                                [-b SIZE] [-f FORMAT] [-p PYTHON] CONFIG.json
#
# What saves take from a run on GPUs, and how fast they and loads are, next to PyTorch's DCP on the same
# model in the same run. FOLDER (/dev/shm) is where both write; it must hold two steps. THREADS (0: by the
# cores) are those of a rank that write, SIZE is --save-buffer, PYTHON one with torch (python3; none: no peer).
# DEVICE=cpu and ZTRAIN=build/ztrain try it where there is no GPU.
#
#   step       median without saves; and added by a save, all steps to the end counted
#   stall      of that, what the step behind a save took longer, and what save() itself took
#   save       the last one, which nothing hides: from asking until the step stood there
#   load       until parameters are ready on all ranks
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
ranks=1 stage=2 rows=2 tokens=4096 folder=/dev/shm threads=0 buffer=full format=native python=python3
while getopts n:z:r:l:d:t:b:f:p: o; do
	case $o in
	n) ranks=$OPTARG ;; z) stage=$OPTARG ;; r) rows=$OPTARG ;; l) tokens=$OPTARG ;;
	d) folder=$OPTARG ;; t) threads=$OPTARG ;; b) buffer=$OPTARG ;; f) format=$OPTARG ;;
	p) python=$OPTARG ;; *) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# = 1 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
model=$1
ztrain=${ZTRAIN:-$here/build/ztrain-gpu}
work=$(mktemp -d) && root=$(mktemp -d "$folder/save-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work" "$root"' EXIT
trap 'exit 130' INT TERM
cat > "$work/ds.json" <<-END
	{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
	 "zero_optimization": {"stage": $stage}, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW",
	 "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}
	END

# train LOG OPTION...
train() {
	local log=$1
	shift
	set -- "$ztrain" --device "${DEVICE:-cuda}" --model "$model" --config "$work/ds.json" \
		--micro-batch "$rows" --seq "$tokens" --log "$work/$log" "$@"
	[ "$ranks" = 1 ] || set -- "$here/tests/lib/run/mpirun" -n "$ranks" "$@"
	"$@" > "$work/$log.said" 2>&1 || { cat "$work/$log.said" >&2; exit 1; }
}
# seconds LOG FROM TO: of each of these steps
seconds() { sed -n 's/.*"step": \([0-9]*\),.*"seconds": \([0-9.e-]*\).*/\1 \2/p' "$work/$1" | awk -v a="$2" -v b="$3" '$1 >= a && $1 <= b { print $2 }'; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }

# warm PARAMETERS: the first use of memory may be slow, on virtual machines very; so room for two steps, and
# for the copy that saves are made from, is used once beforehand.
warm() {
	for i in 1 2 3 4 5 6 7 8; do
		head -c "$((${1:-0} * 12 * 3 / 8))" /dev/zero > "$root/warm.$i" &
	done
	wait
	rm -f "$root"/warm.*
}

more=()
[ "$threads" = 0 ] || more=(--save-threads "$threads")
train plain --random --steps 14
warm "$(sed -n 's/.*, \([0-9]*\) parameters, .*/\1/p' "$work/plain.said" | head -n 1)"
train saved --random --steps 24 --sync none --save "$root/run" --save-every 12 --save-format "$format" --save-buffer "$buffer" "${more[@]}"
train again --steps 25 --resume "$root/run"
rm -rf "$root/run"

step=$(seconds plain 4 14 | median)
behind=$(seconds saved 13 13)
all=$(seconds saved 13 24 | awk '{ s += $1 } END { print s }')
# "3 saves delayed training by S s; the last one wrote B bytes to DIR in T s"
read -r calls bytes took < <(sed -n 's/^\([0-9]*\) saves\{0,1\} delayed training by \([0-9.]*\) s; .* wrote \([0-9]*\) bytes to .* in \([0-9.]*\) s$/\1 \2 \3 \4/p' \
	"$work/saved.said" | awk '{ print $2 / $1, $3, $4 }')
read -r read_bytes read_took < <(sed -n 's/.* \([0-9]*\) bytes read by all ranks in \([0-9.]*\) s/\1 \2/p' "$work/again.said")
step=$(calc "$step")
per=$(calc "$bytes / $ranks")
added=$(calc "$all - 12 * $step + $calls")
stall=$(calc "$behind - $step + $calls")
aim=$(calc "1.2 * $per / 55.5e9")
sed -n 's/^on /ztrain on /p' "$work/plain.said"
echo "$(basename "$model"), stage $stage, $ranks ranks, $rows x $tokens, $format, $bytes bytes of files, $(nproc) cores, into $folder"
printf '%-28s %10s s\n' 'step without saves' "$step" 'step behind a save' "$behind" 'save() itself' "$calls"
printf '%-28s %10s s   aim %s s (1.2 x bytes of a rank / 55.5 GB/s)\n' 'stall of a save' "$stall" "$aim"
printf '%-28s %10s s\n' 'added by a save, in all' "$added"
printf '%-28s %10s s   %s GB/s   aim 8\n' save "$took" "$(calc "$bytes / $took / 1e9")"
printf '%-28s %10s s   %s GB/s   aim 20\n' load "$read_took" "$(calc "$read_bytes / $read_took / 1e9")"

"$python" -c 'import torch' 2> /dev/null || { echo 'no torch: no peer'; exit 0; }
[ "$threads" != 0 ] || threads=8
for t in 1 "$threads"; do
	"$python" -m torch.distributed.run --nproc-per-node "$ranks" "$here/tests/bench/dcp_ranks.py" "$model" \
		"$root/dcp" "$t" > "$work/dcp" 2> "$work/dcp.err" || { tail -n 5 "$work/dcp.err" >&2; exit 1; }
	read -r b s as at l < <(tail -n 1 "$work/dcp")
	echo "DCP, $b bytes, $t threads a rank"
	printf '%-28s %10s s   %s GB/s   ztrain %s x\n' '  save' "$s" "$(calc "$b / $s / 1e9")" \
		"$(calc "$bytes / $took / ($b / $s)")"
	printf '%-28s %10s s   %s GB/s   ztrain %s x\n' '  load' "$l" "$(calc "$b / $l / 1e9")" \
		"$(calc "$read_bytes / $read_took / ($b / $l)")"
	printf '%-28s %10s s   until it ended %s s\n' '  async_save: stall' "$as" "$at"
done
