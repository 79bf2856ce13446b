#!/bin/bash
# usage: test_gpusim_train.sh
#
# ztrain with simulated GPUs (tests/gpusim): the engine on GPUs from the outside, with
# operations late and streams in an order of chance.  If this fails, runs on GPUs are other runs
# than their configuration says, or depend on the moment.
#
#   cpu       1, 2 and 3 ranks, stages 0 to 3, types, micro-batches, recomputation: next to CPU ranks
#   chance    what chance does makes no difference to the bits
#   packed    rows of several documents: next to CPU ranks
#   files     saved by GPUs, loaded by CPU ranks, and the other way
#   waits     each wait that is skipped and needed is reported; with other bits by some chance
#   refused   too little memory, too few GPUs
#
# Some of the runs, by ZCKPT_SEED; with ZCKPT_LONG=1 all.
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_models
need_ranks
long=${ZCKPT_LONG:-0}
RANDOM=${ZCKPT_SEED:-$(date +%j)}
bad() {
	failed=$((failed + 1))
	echo "FAILED $*"
	[ ! -s said ] || grep -av '^ ' said | tail -n 4 | sed 's/^/    /'
}

# train DEVICE RANKS STAGE UNITS TYPE MODEL OPTION...: UNITS are a rank's; 'steps' gets losses
train() {
	local device=$1 ranks=$2 stage=$3 units=$4 type=$5 model=$6 extra=
	shift 6
	[ "$type" = fp32 ] || extra=", \"$type\": {\"enabled\": true}"
	[ "$type" != fp16 ] || extra=", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}"
	echo "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": $units," \
		"\"gradient_clipping\": 1.0, \"zero_optimization\": {\"stage\": $stage, $flow}$extra}" > z.json
	set -- "$ztrain" --device "$device" --model "$models/$model" --config z.json --seq 33 \
		--lr 3e-3 --data "$data" --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	timeout -k 5 100 "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
}

# What moves how early and stays how long: it makes no difference to the bits.
none='"stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0'
flow=$none
flows=("$none" "$none, \"stage3_prefetch_bucket_size\": 1" "$none, \"overlap_comm\": false"
	'"stage3_param_persistence_threshold": 0' '"stage3_param_persistence_threshold": 20000'
	'"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 1')

# near TOLERANCE: losses and norms of 'want' and 'steps', relative
near() {
	awk -v tol="$1" 'FNR == NR { loss[FNR] = $4; norm[FNR] = $8; next }
		{ a = $4 / loss[FNR] - 1; b = ($8 / norm[FNR] - 1) / 10
		  a = a < 0 ? -a : a; b = b < 0 ? -b : b; n += a <= tol && b <= tol }
		END { exit n != FNR || !n }' want steps
}

# ---- cpu, and chance
rows() {
	local ranks stage units type model recompute
	for ranks in 1 2 3; do for stage in 0 1 2 3; do for units in 1 2; do
		for type in fp32 bf16 fp16; do for model in llama3 qwen3_tied qwen25; do
			for recompute in '' --recompute; do
				echo "$ranks $stage $units $type $model $recompute"
			done
		done; done
	done; done; done
}
# A few: each number of ranks at each stage once or so.
some() {
	if [ "$long" != 0 ]; then rows; return; fi
	local ranks stage
	for ranks in 1 2 3; do for stage in 0 1 2 3; do
		[ "$ranks" != 1 ] || [ "$stage" = $((RANDOM % 4)) ] || continue
		rows | grep "^$ranks $stage " | sed -n "$((RANDOM % 36 + 1))p"
	done; done
}
while read -r ranks stage units type model recompute; do
	name="$ranks ranks, stage $stage, $units units, $type, $model $recompute"
	[ "$type" = fp32 ] && tol=2e-5 || tol=4e-3
	export FAKE_NCCL_WINDOWS=$((RANDOM % 2))	# gradients are exchanged, or NCCL sums
	rm -rf gpu
	# shellcheck disable=SC2086
	train cpu 1 0 $((ranks * units)) "$type" "$model" --steps 2 || { bad "on the CPU: $name"; continue; }
	mv steps want
	# shellcheck disable=SC2086
	FAKE_GPU_SEED=$RANDOM train cuda "$ranks" "$stage" "$units" "$type" "$model" --steps 2 \
		--save gpu $recompute || { bad "$name"; continue; }
	near $tol && good || { bad "next to the CPU: $name"; diff want steps; }
	mv steps first
	one=$(digest gpu)
	[ "$ranks" != 1 ] || continue
	for seed in $([ "$long" = 0 ] && shuf -n 1 -e eager $RANDOM || echo eager $RANDOM 7 8); do
		rm -rf gpu
		flow=${flows[RANDOM % ${#flows[@]}]}
		# shellcheck disable=SC2086
		FAKE_GPU_SEED=$seed train cuda "$ranks" "$stage" "$units" "$type" "$model" --steps 2 \
			--save gpu $recompute || bad "$name, seed $seed"
		cmp -s first steps && [ "$(digest gpu)" = "$one" ] && good || bad "other bits: $name, seed $seed"
	done
done < <(some)

unset FAKE_NCCL_WINDOWS
flow=$none

# ---- packed
awk 'BEGIN { for (d = 0; d < 64; d++) {
	n = 1 + d * 11 % 29; printf "["
	for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", (d * 7 + i * i * 3 + 1) % 97
	print "]" } }' > docs.jsonl
rows=$data data=docs.jsonl
for model in llama3 qwen3_tied qwen25; do
	train cpu 1 0 4 fp32 "$model" --steps 2 --pack-documents || { bad "packed on the CPU: $model"; continue; }
	mv steps want
	FAKE_GPU_SEED=$RANDOM train cuda 2 $((RANDOM % 4)) 2 fp32 "$model" --steps 2 --pack-documents ||
		bad "packed: $model"
	near 2e-5 && good || { bad "packed, next to the CPU: $model"; diff want steps; }
done
data=$rows

# ---- files
train cpu 2 2 2 bf16 qwen3_tied --steps 4 || bad 'the CPU alone'
tail -n 2 steps > want
rm -rf moved
for way in 'cuda 2 3' 'cpu 2 1' 'cuda 1 2' 'cuda 2 1'; do
	# shellcheck disable=SC2086
	set -- $way
	n=$((${n:-0} + 1))
	FAKE_GPU_SEED=$RANDOM train "$1" "$2" "$3" $((4 / $2)) bf16 qwen3_tied --steps $n --save moved \
		--save-format "$([ $n = 2 ] && echo native || echo deepspeed)" --resume auto || bad "$way goes on"
	cat steps >> all
done
tail -n 2 all > steps
near 4e-3 && good || { bad 'moved between CPU ranks and GPUs'; diff want steps; }

# ---- waits
# forgotten K: 0 if reported
forgotten() {
	rm -rf gpu report
	FAKE_GPU_REPORT=$PWD/report FAKE_GPU_DROP_WAIT=$1 \
		train cuda 2 "$stage" 1 fp32 llama3 --steps 2 --save gpu && return 1
	cat report >> said
	grep -q 'a wait is missing' said || bad "wait $1 of stage $stage: another end"
}
for stage in 2 3; do
	rm -rf gpu
	FAKE_GPU_STATS=1 train cuda 2 "$stage" 1 fp32 llama3 --steps 2 --save gpu || bad 'waits are counted'
	all=$(sed -n 's/.* \([0-9]*\) waits.*/\1/p' said | head -n 1)
	one=$(digest gpu) told=0 looked=0 other=
	[ "${all:-0}" -gt 20 ] || bad "waits of stage $stage: ${all:-none}"
	for k in $([ "$long" = 0 ] && shuf -i "1-$all" -n 4 --random-source="$data" || seq "$all"); do
		looked=$((looked + 1))
		forgotten "$k" || continue
		told=$((told + 1))
		for seed in 1 2 3 4 5 6; do
			[ -z "$other" ] || continue
			rm -rf gpu
			FAKE_GPU_RACES=0 FAKE_GPU_SEED=$seed FAKE_GPU_DROP_WAIT=$k \
				train cuda 2 "$stage" 1 fp32 llama3 --steps 2 --save gpu
			[ "$(digest gpu)" = "$one" ] || other="wait $k by seed $seed"
		done
	done
	echo "stage $stage: $all waits, of $looked looked at $told needed; other bits: ${other:-none}"
	[ "$told" -gt 0 ] && [ -n "$other" ] && good || bad "stage $stage: nothing is seen of a forgotten wait"
done

# ---- refused
if FAKE_GPU_BYTES=33M train cuda 1 0 1 fp32 llama3 --steps 1; then bad '33 MiB are enough'; else good; fi
grep -q 'out of GPU memory: need .* MiB for' said && good || bad 'missing memory is not reported'
if FAKE_GPUS=1 train cuda 2 2 1 fp32 llama3 --steps 1; then bad 'two ranks on one GPU'; else good; fi
finish
