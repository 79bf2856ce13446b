#!/bin/bash
# usage: test_gpusim_eval.sh
#
# ztrain eval on simulated GPUs (tests/gpusim).  If this fails, the loss of a step is another one than its run
# on the same GPUs printed.
#
#   bits      1 and 2 GPUs, ZeRO 0 to 3, bf16 and fp16: the last line of the run, by one GPU
#   adapters  those of a step, and a folder of PEFT's beside the model
#   memory    neither gradients nor states of an optimizer; also where parameters are on the host
#   finished  a run with no step left evaluates the same
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_models
model=$models/qwen3_tied

loss_in() { sed -n 's/.*eval loss \([0-9.]*\).*/\1/p' "$1" | tail -n 1; }
ranks=1
has_ranks && ranks='1 2'
for n in $ranks; do
	for stage in 0 1 2 3; do
		for type in bf16 fp16; do
			[ $type = bf16 ] || [ $stage = 2 ] || continue
			dir=$n-$stage-$type
			echo "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": $stage}, \"$type\": {\"enabled\": true}}" > c.json
			launch=()
			[ "$n" = 1 ] || launch=("$mpirun" -n "$n")
			run=(--device cuda --model "$model" --config c.json --data "$data" --eval-rows 3 --steps 2 --exact --save "$dir")
			logged "$dir" ${launch[@]+"${launch[@]}"} "$ztrain" "${run[@]}" || bad "$dir: a run"
			want=$(loss_in "$dir.log")
			"$ztrain" eval "$dir" --device cuda --data "$data" --eval-rows 3 --exact --counters > said 2>&1 || bad "$dir: eval"
			[ -n "$want" ] && [ "$(loss_in said)" = "$want" ] && good || bad "$dir: expected $want"
			lacks_text "$dir: gradients" 'held  gradients'
			lacks_text "$dir: optimizer" 'optimizer'
			has_text "$dir: settings" "step 2, $type, 3 rows of " 'micro-batches of 2, 1 rank'
		done
	done
done
echo '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}' > c.json
logged lora "$ztrain" --device cuda --model "$model" --config c.json --data "$data" --eval-rows 3 --steps 2 --exact --lr 0.05 \
	--lora r=4,target=all-linear --save lora --export adapter || bad 'adapters: a run'
for of in lora "$model --lora-from adapter --precision bf16 --micro-batch 2"; do
	# shellcheck disable=SC2086
	"$ztrain" eval $of --device cuda --model "$model" --data "$data" --eval-rows 3 --exact --counters > said 2>&1 || bad 'adapters: eval'
	[ "$(loss_in said)" = "$(loss_in lora.log)" ] && good || bad "adapters of $of: expected $(loss_in lora.log)"
	lacks_text 'adapters' 'optimizer'
done
for off in offload_optimizer offload_param; do
	echo "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 3, \"$off\": {\"device\": \"cpu\"}}, \"bf16\": {\"enabled\": true}}" > o.json
	"$ztrain" eval 1-3-bf16 --device cuda --config o.json --data "$data" --eval-rows 3 --exact --counters > said 2>&1 || bad "$off: eval"
	[ "$(loss_in said)" = "$(loss_in 1-3-bf16.log)" ] && good || bad "$off: expected $(loss_in 1-3-bf16.log)"
	lacks_text "$off" 'optimizer'
done
"$ztrain" "${run[@]}" --resume auto > said 2>&1 || bad 'finished: it fails'
has_text 'finished' "no steps left to train after step 2; eval loss $want"
finish
