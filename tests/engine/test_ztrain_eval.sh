#!/bin/bash
# usage: test_ztrain_eval.sh
#
# ztrain eval.  If this fails, the loss of a saved step is another one than its run printed, so that steps are
# compared by numbers that do not belong to them.
#
#   bits       a step of every form has the bits that its run printed, at other ranks and stages too
#   settings   micro-batch, tokens of a row, precision and stage are found in the step; options replace them
#   models     a folder of weights, and an exported one
#   fp16       the loss scale of the step plays no part
#   memory     parameters as the stage leaves them, and neither gradients nor states of an optimizer
#   frozen     adapters and frozen parameters, also of a step that was saved without these
#   moments    they are not read
#   finished   a run that is over, and one that was stopped
#   refused    no data, no step, no config.json, rows that are too long
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
model=$models/qwen3_tied

# Rows of different lengths, so that tokens per micro-batch differ.
awk 'BEGIN { srand(7); for (r = 0; r < 24; r++) { printf "{\"input_ids\": ["; n = 5 + r * 7 % 12
	for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", (r * 31 + i * 17 + r * i * 5) % 257
	print "]}" } }' > rows.jsonl
tail -n 5 rows.jsonl > held.jsonl
loss_in() { sed -n 's/.*eval loss \([0-9.]*\).*/\1/p' "$1" | tail -n 1; }
# evaluates WORDS LOSS OPTION...: that loss is printed
evaluates() {
	local words=$1 want=$2
	shift 2
	"$@" > said 2>&1 || { bad "$words: it fails"; return; }
	[ -n "$want" ] && [ "$(loss_in said)" = "$want" ] && good || bad "$words: expected $want"
}

for precision in fp32 bf16; do
	for form in native deepspeed universal dcp; do
		dir=$precision-$form
		logged "$dir" "$ztrain" --model "$model" --data rows.jsonl --eval-rows 5 --eval-every 2 --micro-batch 2 \
			--precision $precision --steps 4 --save "$dir" --save-every 2 --save-format $form --exact \
			--export "$dir-out" || bad "$dir: a run"
		second=$(sed -n 2p "$dir.log" > two; loss_in two) fourth=$(loss_in "$dir.log")
		[ "$second" != "$fourth" ] && good || bad "$dir: two steps, one loss"
		evaluates "$dir: latest" "$fourth" "$ztrain" eval "$dir" --data rows.jsonl --eval-rows 5 --exact
		evaluates "$dir: step 2" "$second" "$ztrain" eval "$dir/global_step2" --data rows.jsonl --eval-rows 5 --exact
		evaluates "$dir: a file of its own" "$fourth" "$ztrain" eval "$dir" --data held.jsonl --exact
		evaluates "$dir: exported" "$fourth" "$ztrain" eval "$dir-out" --data held.jsonl --exact --seq 16 \
			--precision $precision --micro-batch 2
	done
done
has_text 'what is said' 'bf16-dcp-out' 'bf16, 5 rows of 16 tokens in held.jsonl, micro-batches of 2, 1 rank'

# ---- settings
"$ztrain" eval bf16-native --data held.jsonl > said 2>&1 || bad 'settings: it fails'
has_text 'settings of the step' 'bf16-native/global_step4' 'step 4, bf16, 5 rows of 16 tokens' 'micro-batches of 2'
"$ztrain" eval bf16-native --data held.jsonl --precision fp32 --micro-batch 3 --seq 20 > said 2>&1 || bad 'options: it fails'
has_text 'options replace them' 'step 4, fp32, 5 rows of 20 tokens' 'micro-batches of 3'
echo '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}' > c.json
"$ztrain" eval bf16-native --data held.jsonl --config c.json > said 2>&1 || bad 'a file: it fails'
has_text 'a file replaces them' 'step 4, bf16' 'micro-batches of 4'
"$ztrain" eval bf16-native --data held.jsonl --json > said 2>&1 || bad 'json: it fails'
has_text 'one object' '"of": "bf16-native", "tag": "global_step4", "step": 4, "data": "held.jsonl", "loss": ' \
	'"tokens": ' '"rows": 5, "row_tokens": 16, "micro_batch": 2, "precision": "bf16", "ranks": 1'
[ "$(wc -l < said)" = 1 ] && good || bad 'json: one line'

# ---- ranks and stages
if has_ranks; then
	for stage in 1 3; do
		sed "s/\"stage\": 2/\"stage\": $stage/; s/: 4, \"bf/: 2, \"bf/" c.json > s.json
		logged ranks "$mpirun" -n 2 "$ztrain" --model "$model" --config s.json --data rows.jsonl --eval-rows 5 \
			--steps 3 --save "s$stage" --exact || bad "stage $stage: a run"
		want=$(loss_in ranks.log)
		evaluates "stage $stage, 1 rank" "$want" "$ztrain" eval "s$stage" --data held.jsonl --exact
		evaluates "stage $stage, 4 ranks" "$want" "$mpirun" -n 4 "$ztrain" eval "s$stage" --data held.jsonl --exact
	done
fi

# ---- memory
# params_in FILE: the bytes of rank 0's parameters
params_in() { sed -n 's/^rank 0  held  parameters *\([0-9]*\) bytes/\1/p' "$1"; }
# forward_only WORDS FILE: what the counters in FILE say is a forward pass's
forward_only() {
	has_text "$1" 'rank 0  held  parameters' 'rank 0  held  activations'
	lacks_text "$1" 'held  gradients'
	lacks_text "$1" 'optimizer'
}
sed 's/"stage": 2/"stage": 2, "offload_optimizer": {"device": "cpu"}/' c.json > o.json
for config in c o; do
	"$ztrain" --model "$model" --config $config.json --data rows.jsonl --steps 1 --counters > memory.log 2>&1 || bad 'memory: a run'
	"$ztrain" eval bf16-native --data held.jsonl --config $config.json --counters > said 2>&1 || bad 'memory: it fails'
	forward_only "memory, $config.json"
	[ "$(params_in said)" = "$(params_in memory.log)" ] && good || bad "memory, $config.json: expected $(params_in memory.log)"
done
if has_ranks; then
	for stage in 0 3; do
		sed "s/\"stage\": 2/\"stage\": $stage/" c.json > s.json
		"$mpirun" -n 2 "$ztrain" --model "$model" --config s.json --data rows.jsonl --steps 1 --counters > memory.log 2>&1 ||
			bad "memory, stage $stage: a run"
		"$mpirun" -n 2 "$ztrain" eval bf16-native --data held.jsonl --config s.json --counters > said 2>&1 ||
			bad "memory, stage $stage: it fails"
		forward_only "memory, stage $stage"
		[ "$(params_in said)" = "$(params_in memory.log)" ] && good || bad "memory, stage $stage: expected $(params_in memory.log)"
	done
fi

# ---- frozen parameters and adapters
for how in "--freeze *embed*" "--freeze *mlp* --exclude-frozen" "--lora r=4,target=all-linear" \
	"--lora r=4,target=q_proj --exclude-frozen"; do
	n=$((${n:-0} + 1))
	set -f
	logged "some$n" "$ztrain" --model "$model" --data rows.jsonl --eval-rows 5 --micro-batch 2 --precision bf16 --lr 0.05 \
		--steps 2 --save "some$n" --exact $how || bad "$how: a run"
	set +f
	evaluates "$how" "$(loss_in "some$n.log")" "$ztrain" eval "some$n" --model "$model" --data held.jsonl --exact --counters
	forward_only "$how: memory"
	has_ranks && evaluates "$how, 2 ranks" "$(loss_in "some$n.log")" "$mpirun" -n 2 "$ztrain" eval "some$n" --model "$model" \
		--data held.jsonl --micro-batch 2 --exact
done

# ---- moments: a byte of one is another, and the loss is the step's
moment=$(find bf16-universal/global_step4 -name exp_avg.pt | head -n 1)
printf '\377' | dd of="$moment" bs=1 seek=$(($(stat -c %s "$moment") / 2)) conv=notrunc status=none
evaluates 'moments are not read' "$(loss_in bf16-universal.log)" "$ztrain" eval bf16-universal/global_step4 --data held.jsonl --exact
"$ztrain" --model "$model" --data rows.jsonl --resume bf16-universal/global_step4 --steps 5 > said 2>&1 && bad 'damaged moments: it resumes' || good

# ---- fp16: the step has a dynamic scale, or a fixed one
for scale in 0 128; do
	echo "{\"train_micro_batch_size_per_gpu\": 2, \"fp16\": {\"enabled\": true, \"loss_scale\": $scale}}" > f.json
	logged f "$ztrain" --model "$model" --config f.json --data rows.jsonl --eval-rows 5 --steps 3 --save "f$scale" --exact ||
		bad "fp16, scale $scale: a run"
	evaluates "fp16, scale $scale" "$(loss_in f.log)" "$ztrain" eval "f$scale" --data held.jsonl --exact
done

# ---- a model, before any training, and a run that goes on from it
"$ztrain" eval "$model" --data held.jsonl > said 2>&1 || bad 'a model: it fails'
has_text 'a model' 'fp32, 5 rows of ' 'eval loss ' 'perplexity '
lacks_text 'a model has no step' 'step '

# ---- refused
"$ztrain" eval fp32-native > said 2>&1; [ $? = 2 ] && good || bad 'no data: status'
has_text 'no data' '--data is required'
"$ztrain" eval > said 2>&1; [ $? = 2 ] && good || bad 'no step: status'
has_text 'no step' 'a step, a folder of steps or a model is required'
"$ztrain" eval missing --data held.jsonl > said 2>&1; [ $? = 1 ] && good || bad 'a missing path: status'
has_text 'a missing path' 'missing: no such file or folder'
mkdir bare && cp -r fp32-native/global_step4 bare/ && rm bare/global_step4/config.json
"$ztrain" eval bare/global_step4 --data held.jsonl > said 2>&1 && bad 'no config.json: it runs' || good
has_text 'no config.json' 'give the model'"'"'s folder by --model'
evaluates 'the config of a model' "$(loss_in fp32-native.log)" "$ztrain" eval bare/global_step4 --model "$model" --data held.jsonl --exact
"$ztrain" eval fp32-native --data held.jsonl --seq 4 > said 2>&1 && bad 'longer rows: it runs' || good
has_text 'longer rows' '--cut'
find fp32-native -newer bare -type f | grep -q . && bad 'something was written' || good
finish
