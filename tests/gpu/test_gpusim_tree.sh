#!/usr/bin/env bash
# usage: tests/gpu/test_gpusim_tree.sh
#
# --reduction tree: one digest for as many units a step, whatever the number of GPUs, the stage and
# the order in which streams take turns; on simulated GPUs (tests/gpusim).
#
#   same      1, 2, 4 ranks, stages 0-3, three types; 6 units, which leave a rest in the tree
#   resumed   4 GPUs of stage 3, then 2 of stage 2: as if they had not stopped
#   sums      with NCCL's sums, and without windows, the losses are those within rounding
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_models
need_ranks
export FAKE_GPU_SEED=1

# train FOLDER RANKS STAGE MICRO-BATCHES TYPE [OPTION...]
train() {
	local folder=$1 ranks=$2 stage=$3 units=$4 type=$5 as=
	shift 5
	[ "$type" = fp32 ] || as="\"$type\": {\"enabled\": true},"
	cat > z.json <<END
{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": $units,
 "gradient_clipping": 0.5, $as "zero_optimization": {"stage": $stage},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}}}
END
	set -- "$ztrain" --device cuda --model "$models/qwen3_tied" --config z.json --seq 12 \
		--steps 4 --exact --save "$folder" "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	FAKE_GPU_SEED=$((FAKE_GPU_SEED + 1)) "$@" > said 2>&1 || return 1
	FAKE_GPU_SEED=$((FAKE_GPU_SEED + 1))
	grep '^step' said > "$folder.log"
}
same() {
	if [ "$(digest "$2")" = "$(digest "$3")" ] && cmp -s "$2.log" "$3.log"; then
		good
	else
		bad "$1: $(digest "$2"), $(digest "$3")"
	fi
}

for type in fp32 bf16 fp16; do
	train "$type" 1 0 4 "$type" --reduction tree || bad "$type, one rank"
	for how in '2 0 2' '2 3 2' '4 1 1' '4 2 1' '4 3 1'; do
		# shellcheck disable=SC2086
		set -- $how
		train a "$1" "$2" "$3" "$type" --reduction tree || bad "$type, $how"
		same "$type, ranks, stage, micro-batches: $how" "$type" a
		rm -rf a
	done
done
train a 2 3 2 bf16 --reduction tree --keep-all || bad 'keeping all'
same 'nothing computed again' bf16 a
rm -rf a
train a 2 3 2 bf16 --reduction tree --recompute || bad 'recomputing'
same 'all computed again' bf16 a
rm -rf a
train six 1 0 6 bf16 --reduction tree && train a 2 2 3 bf16 --reduction tree
same '6 units' six a
rm -rf a
train a 4 3 1 bf16 --reduction tree --stop-at 2 || bad 'the first half'
"$zckpt" reshard -q --stage 2 '4->2' a b > said 2>&1 || bad reshard
train b 2 2 2 bf16 --reduction tree --resume auto || bad 'the second half'
grep -q 'had not stopped' said && good || bad 'it says so'
[ "$(digest bf16)" = "$(digest b)" ] && good || bad '4 GPUs, then 2'

# within BY FOLDER FOLDER: the losses
within() {
	paste "$2.log" "$3.log" | awk -v by="$1" '
		{ split($0, a, /loss +/); split(a[2], x, " "); split(a[3], y, " ")
		  d = (x[1] - y[1]) / x[1]; if (d > by || d < -by) bad = 1; n++ }
		END { exit bad || n != 4 }'
}
rm -rf a
train a 2 3 2 fp32 && within 1e-6 fp32 a && good || bad 'by NCCL'
rm -rf a
FAKE_NCCL_WINDOWS=0 train a 2 3 2 fp32 && within 1e-6 fp32 a && good || bad 'by NCCL, no windows'
rm -rf a
FAKE_NCCL_WINDOWS=0 train a 2 2 2 fp32 --reduction tree && same 'a tree, no windows' fp32 a
finish
