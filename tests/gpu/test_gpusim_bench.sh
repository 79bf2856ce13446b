#!/bin/bash
# usage: test_gpusim_bench.sh
#
# `ztrain bench` on simulated GPUs (tests/gpusim): all that tests/engine/test_ztrain_bench.sh
# asks of CPU ranks; what is held is what was expected, to the byte, over stages, types, micro-batches
# and recomputation; a timeline of their events; a micro-batch that should fit and does not.  If this
# fails, a stage is recommended for GPUs by numbers that are not theirs.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
ZTRAIN=${ZCKPT_BUILD:-$here/build}/ztrain-gpusim DEVICE=cuda FAKE_GPUS=2 bash "$here/tests/engine/test_ztrain_bench.sh" || exit
ZTRAIN=${ZCKPT_BUILD:-$here/build}/ztrain-gpusim
# shellcheck source=tests/engine/ztrain.sh
. "$here/tests/engine/ztrain.sh"
need_models
export FAKE_GPUS=2

# config STAGE PRECISION UNITS
config() {
	echo "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": $3,
		\"zero_optimization\": {\"stage\": $1}, \"$2\": {\"enabled\": true}}"
}
# bench RANKS OPTION...
bench() {
	local ranks=$1
	shift
	set -- "$ztrain" bench --device cuda --seq 17 --steps 1 --warmup 1 "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2>&1
}
ranks=1
has_ranks && ranks='1 2'
i=0
for model in llama3_tied qwen25 qwen3; do
	for stage in 0 1 2 3; do
		i=$((i + 1)) n=1 more=
		[ $((i % 3)) = 0 ] && more=--recompute
		[ $((i % 2)) = 0 ] || n=${ranks##* }
		config $stage "$([ $((i / 4 % 2)) = 0 ] && echo bf16 || echo fp16)" $((1 + i / 2 % 3)) > c.json
		# shellcheck disable=SC2086
		bench "$n" --model "$models/$model" --config c.json $more &&
			grep -q '^total ' said && ! grep -q 'not equal' said && good ||
			bad "$model, stage $stage, $n ranks $more"
	done
	i=$((i + 1))
done
bench 1 --model "$models/qwen3" --precision fp32 && grep -q '^total ' said && ! grep -q 'not equal' said &&
	good || bad 'fp32'
bench "${ranks##* }" --model "$models/qwen3_tied" --precision bf16 --accumulation 3 --reduction tree &&
	grep -q '^total ' said && ! grep -q 'not equal' said && good || bad 'sums as a tree'
config 2 bf16 1 > c.json
bench "${ranks##* }" --model "$models/qwen3" --config c.json --offload --trace t.json && grep -q '^host optimizer ' said &&
	! grep -q 'not equal\|no room\|no effect' said && grep -qF '"adam 1"' t.json && good || bad 'the optimizer on the host'

# ---- rows of the device and of the host, whatever chance does
for seed in 1 2; do
	FAKE_GPU_SEED=$seed bench "${ranks##* }" --model "$models/qwen3" --precision bf16 --trace t.json && good || bad "seed $seed"
	for what in '"wait for the pass"' '"launch 0"' '"forward 1"' '"backward 0"' '"adam 0"' '"norm"'; do
		grep -qF "$what" t.json && good || bad "no $what"
	done
done

# ---- the driver has less than it says
FAKE_GPU_BYTES=42M bench 1 --model "$models/qwen3" --precision bf16 --stages 1,3 --memory 47M && good ||
	bad 'less memory than is said'
[ "$(grep -c 'were expected to fit and did not; [0-9]* did' said)" = 2 ] && good || bad 'and nobody says so'
FAKE_GPU_BYTES=20M bench 1 --model "$models/qwen3" --precision bf16 --stages 1 --memory 50M --rows 1 && good || bad 'none at all'
grep -q '1 row expected to fit and did not, nor did fewer' said && grep -q 'no stage fits' said && good || bad 'none, not said'
FAKE_GPU_BYTES=20M bench "${ranks##* }" --model "$models/qwen3" --precision bf16
{ [ $? != 0 ] && grep -q 'out of GPU memory' said; } && good || bad 'a table without the memory'

finish
