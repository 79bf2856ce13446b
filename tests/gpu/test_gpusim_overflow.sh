#!/bin/bash
# usage: test_gpusim_overflow.sh
#
# fp16 on simulated GPUs: which steps are skipped.  If this fails, a run on GPUs skips other
# steps than DeepSpeed does, or says that it is the same run as on CPU ranks when it is not.
#
#   deepspeed  the default on GPUs: the steps that CPU ranks skip with --overflow deepspeed, which are
#              those of recorded runs (test_run_train.c)
#   units      with --reduction tree: the same steps at 1 and 2 ranks, as on CPU ranks
#   refused    with --reduction tree, fp32 gradients on the wire, or another precision
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_models
need_ranks

# train DEVICE RANKS STAGE UNITS OPTION...: scales and skips go to 'steps'
train() {
	local device=$1 ranks=$2 stage=$3 units=$4
	shift 4
	echo "{\"train_batch_size\": 8, \"gradient_accumulation_steps\": $units, \"gradient_clipping\": 1.0," \
		"\"zero_optimization\": {\"stage\": $stage}${more:-}, \"fp16\": {\"enabled\": true," \
		'"initial_scale_power": 24, "loss_scale_window": 4, "hysteresis": 1}}' > z.json
	set -- "$ztrain" --device "$device" --model "$models/qwen3_tied" --config z.json --seq 33 --steps 12 \
		--lr 3e-3 --beta2 0.95 --data "$data" --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	timeout -k 5 100 "$@" > said 2>&1 < /dev/null || return
	grep '^step' said | sed 's/^step \([0-9]*\) .* scale/\1/' > steps
}

for stage in 0 2 3; do for units in 1 2; do
	train cpu 2 $stage $units --overflow deepspeed || bad "on the CPU: stage $stage, $units units"
	mv steps want
	grep -q skipped want && good || bad "stage $stage, $units units: no step is skipped, so nothing is shown"
	train cuda 2 $stage $units || bad "on GPUs: stage $stage, $units units"
	grep -q 'as in DeepSpeed' said && good || bad 'it is said at the start'
	diff want steps > said && good || bad "the steps that DeepSpeed skips: stage $stage, $units units"
done; done
train cpu 2 2 2 || bad 'on the CPU, units'
grep -q -- '--overflow deepspeed' said && good || bad 'what is not as in DeepSpeed is said at the start'
mv steps units
cmp -s want units && bad 'units and deepspeed skip the same steps, so nothing is shown' || good
train cpu 1 2 4 && diff units steps > said && good || bad 'CPU ranks: the same steps at 1 and 2 ranks'
train cuda 2 2 2 --reduction tree && diff units steps > said && good || bad '--reduction tree: those of CPU ranks'
train cuda 1 2 4 --overflow units && diff units steps > said && good || bad 'GPUs, --overflow units'
train cuda 2 2 2 --reduction tree --overflow deepspeed && bad 'one tree in fp16' || good
grep -q -- --overflow said && good || bad 'one tree in fp16: by its name'
more=', "communication_data_type": "fp32"' train cuda 2 2 2 --overflow deepspeed && bad 'fp32 on the wire' || good
grep -q communication_data_type said && good || bad 'fp32 on the wire: by its name'
"$ztrain" --device cpu --model "$models/qwen3_tied" --steps 1 --overflow deepspeed > said 2>&1 && bad 'of fp32' || good
grep -q -- '--overflow needs fp16' said && good || bad 'of fp32: by its name'

finish
