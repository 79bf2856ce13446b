#!/bin/bash
# usage: launchers.sh ZTRAIN FIXTURES BIN
#
# ztrain started by the real torchrun and the real launcher of DeepSpeed, which are in BIN: the run is
# that of tests/lib/run/envrun, and two jobs of torchrun on one host at once do not meet.
set -u
here=$(cd "$(dirname "$0")" && pwd)
ztrain=$1 models=$2/model/models bin=$3
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-launchers.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
echo '{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}' > "$work/z.json"
# run NAME COMMAND...: losses and norms go to NAME
run() {
	local name=$1 status
	shift
	timeout -k 5 120 "$@" "$ztrain" --model "$models/llama3" --config "$work/z.json" --seq 33 --steps 3 --random --exact \
		${log:+--log "$log"} > "$work/$name.out" 2>&1 < /dev/null
	status=$?
	grep -o 'step [0-9]*  loss .*' "$work/$name.out" > "$work/$name"
	return $status
}
same() {
	if [ "$(wc -l < "$work/$1")" = 3 ] && cmp -s "$work/want" "$work/$1"; then
		echo "$1: the same run"
	else
		failed=1
		echo "$1: another run"
		tail -n 20 "$work/$1.out"
	fi
}
run want "$here/../lib/run/envrun" -n 3 || { cat "$work/want.out"; exit 1; }
run torchrun "$bin/torchrun" --no-python --nproc-per-node 3
same torchrun
# torchrun takes --log for an abbreviation of its own options, where nothing ends them
log=$work/steps.jsonl run logged "$bin/torchrun" --no-python --nproc-per-node 3 --
same logged
[ "$(wc -l < "$work/steps.jsonl")" = 3 ] || failed=1
run standalone "$bin/torchrun" --standalone --no-python --nproc-per-node 3 &
run beside "$bin/torchrun" --standalone --no-python --nproc-per-node 3
wait
same standalone
same beside
# it asks for GPUs only to know how many; a number does as well
port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
run deepspeed "$bin/deepspeed" --no_python --num_gpus 3 --master_port $port
same deepspeed
exit $failed
