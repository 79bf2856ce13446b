#!/bin/bash
# usage: test_ztrain_length.sh
#
# How long a run is, and what it is called by.  If this fails, a run ends at another step than its user asked for,
# or a command line of the Trainer trains something else.
#
#   epochs     steps of N passes, whatever the batch, the tail and the rows held out
#   synthetic  an epoch of synthetic rows has an end
#   lines      which steps are printed, and what the log has
#   new data   a run resumes with other data, in the middle of its moments and schedule
#   schedules  a plateau lowers the rate, in one run or in parts; warm-up, stable, decay
#   best       the step of the lowest evaluation stays and is named; a run ends that no longer improves
#   aliases    names of the Trainer, accelerate and DeepSpeed train the same as ztrain's own
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
model=$models/qwen3_tied
awk 'BEGIN { for (r = 0; r < 22; r++) { printf "{\"input_ids\": ["; n = 5 + r * 7 % 12
	for (i = 0; i < n; i++) printf "%s%d", i ? ", " : "", (r * 31 + i * 17 + r * i * 5) % 257
	print "]}" } }' > rows.jsonl
train() { "$ztrain" --model "$model" "$@" > said 2>&1; }

# ---- epochs: 22 rows
# lasts STEPS OPTION...
lasts() {
	local want=$1
	shift
	train --data rows.jsonl "$@" || { bad "$*: it fails"; return; }
	[ "$(grep -c "^step [0-9]*/$want " said)" = "$want" ] && good || bad "$*: expected $want steps"
}
lasts 11 --epochs 1 --micro-batch 2
lasts 17 --epochs 1.5 --micro-batch 2
lasts 11 --epochs 2 --micro-batch 2 --accumulation 2
lasts 8 --epochs 1 --micro-batch 3
lasts 7 --epochs 1 --micro-batch 3 --drop-last
lasts 16 --epochs 2 --micro-batch 3 --tail fill
lasts 5 --epochs 1 --micro-batch 4 --eval-rows 2
lasts 3 --epochs 1 --micro-batch 8 --eval rows.jsonl
has_text 'the count is said' '1 epoch: 3 steps'
lasts 4 --epochs 2 --steps 4
has_text 'steps hold' '--epochs 2 has no effect: --steps 4 is given'
if has_ranks; then
	"$mpirun" -n 2 "$ztrain" --model "$model" --data rows.jsonl --epochs 1 --micro-batch 2 > said 2>&1 || bad '2 ranks'
	has_text '2 ranks' '1 epoch: 6 steps' 'step 6/6'
fi
# A schedule that decays to the end knows it.
echo '{"train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
	"warmup_max_lr": "auto", "warmup_min_lr": "auto", "warmup_num_steps": "auto"}}}' > decay.json
train --data rows.jsonl --epochs 2 --config decay.json --lr 1e-3 || bad 'a decay'
has_text 'a decay' 'total_num_steps 22' 'step 22/22'
train --epochs 2; [ $? = 2 ] && good || bad 'epochs without an end: status'
has_text 'epochs without an end' '--epochs needs --data, or --synthetic-rows N'
train --data rows.jsonl --epochs 0; [ $? = 2 ] && good || bad 'no epoch: status'
train --data rows.jsonl --epochs 1 --eval-rows 22 && bad 'all rows are held out' || good

# ---- synthetic
train --synthetic-rows 10 --epochs 2 --micro-batch 4 --eval-rows 2 || bad 'synthetic rows'
has_text 'synthetic rows' '8 rows of 64 tokens, synthetic' '2 evaluation rows' '2 epochs: 4 steps' 'step 4/4' 'eval loss'
train --synthetic-rows 10 --data rows.jsonl; [ $? = 2 ] && good || bad 'synthetic rows and data: status'

# ---- lines
train --data rows.jsonl --steps 10 --print-every 4 --eval-rows 2 --eval-every 5 --log every.jsonl || bad 'every 4'
[ "$(sed -n 's/^step \([0-9]*\).*/\1/p' said | tr '\n' ' ')" = '4 5 8 10 ' ] && good || bad 'every 4: which steps'
[ "$(wc -l < every.jsonl)" = 10 ] && good || bad 'every 4: the log has all steps'
has_text 'samples an hour' ' samples/h  '
[ "$(grep -c '"samples_per_hour": [0-9.e+]*, ' every.jsonl)" = 10 ] && good || bad 'the log has samples an hour'
[ "$(grep -c '"seconds_left": ' every.jsonl)" = 6 ] && good || bad 'the log has the time that is left'
grep -q '"rank_memory_bytes": \[[1-9]' every.jsonl && good || bad 'the log has the memory of ranks'

# ---- aliases
echo '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
	"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}, "optimizer": {"type": "AdamW", "params": {"lr": "auto",
	"betas": "auto", "eps": "auto", "weight_decay": "auto"}}}' > ds.json
logged own "$ztrain" --model "$model" --config ds.json --data rows.jsonl --save own --micro-batch 2 --accumulation 2 \
	--epochs 2 --lr 1e-3 --beta1 0.8 --beta2 0.95 --eps 1e-6 --clip 0.5 --warmup-steps 0.2 --weight-decay 0.01 \
	--lr-scheduler cosine --save-every 5 --eval-every 3 --eval-rows 2 --seed 3 --precision bf16 --recompute --exact \
	--drop-last || bad 'own names'
logged trainer "$ztrain" --deepspeed ds.json --model_name_or_path "$model" --data rows.jsonl --output_dir trainer \
	--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --num_train_epochs 2 --learning_rate 1e-3 \
	--adam_beta1 0.8 --adam_beta2 0.95 --adam_epsilon 1e-6 --max_grad_norm 0.5 --warmup_ratio 0.2 --weight_decay 0.01 \
	--lr_scheduler_type cosine --save_steps 5 --save_strategy steps --eval_steps 3 --eval_strategy steps --eval_rows 2 \
	--seed 3 --bf16 True --gradient_checkpointing --exact --logging_steps 1 --max_steps -1 --do_train True \
	--dataloader_drop_last True --report_to none --optim adamw_torch --disable_tqdm True --overwrite_output_dir || bad 'names of the Trainer'
same "the Trainer's names" own trainer
logged flags "$ztrain" --deepspeed --deepspeed_config=ds.json --model_name_or_path="$model" --data rows.jsonl --output-dir=flags \
	--per-device-train-batch-size=2 --gradient-accumulation-steps=2 --num-train-epochs=2 --learning-rate=1e-3 \
	--adam-beta1=0.8 --adam-beta2=0.95 --adam-epsilon=1e-6 --max-grad-norm=0.5 --warmup_ratio=0.2 --weight_decay=0.01 \
	--lr-scheduler-type=cosine --save-steps=5 --eval-steps=3 --eval-rows=2 --seed=3 --mixed_precision bf16 --fp16 False \
	--gradient-checkpointing=true --exact --dataloader_drop_last || bad 'names with = and hyphens'
same 'names with = and hyphens' own flags
"$ztrain" --model "$model" --config ds.json --data rows.jsonl --output_dir trainer --resume_from_checkpoint True --bf16 \
	--per_device_train_batch_size 2 --gradient_accumulation_steps 2 --num_train_epochs 2 --dataloader_drop_last --learning_rate 1e-3 \
	--adam_beta1 0.8 --adam_beta2 0.95 --adam_epsilon 1e-6 --max_grad_norm 0.5 --warmup_ratio 0.2 --weight_decay 0.01 \
	--lr_scheduler_type cosine --eval_rows 2 > said 2>&1 || bad 'resume_from_checkpoint: it fails'
has_text 'resume_from_checkpoint' 'resumed at step 10 from trainer/global_step10' 'no steps left to train'
# refused WORDS OPTION...
refused() {
	local words=$1
	shift
	train "$@"; [ $? = 2 ] && grep -qF -- "$words" said && good || bad "$*: '$words' is not said"
}
refused '--learning_rate abc: expected a number' --learning_rate abc
refused '--bf16 3: expected True or False' --bf16=3
refused '--warmup_ratio 3: expected a part of the steps' --warmup_ratio 3
refused '--save_strategy epoch: --save-every N saves every N steps' --save_strategy epoch
refused '--optim lion: ztrain has AdamW' --optim lion
refused '--report_to wandb: give --log FILE' --report_to wandb

# ---- other data with kept moments
# The Nth line of a run is followed by that of another.
awk 'BEGIN { for (r = 0; r < 9; r++) { printf "{\"input_ids\": ["; for (i = 0; i < 12; i++)
	printf "%s%d", i ? ", " : "", (r * 91 + i * 13 + 5) % 257; print "]}" } }' > second.jsonl
goes() {
	local name=$1
	shift
	logged "$name" "$ztrain" --model "$model" --micro-batch 2 --lr 1e-3 --exact --save d "$@"
}
goes d1 --data rows.jsonl --steps 5 || bad 'the first data'
goes d2 --data second.jsonl --steps 8 --resume auto && bad 'other data: it is taken' || good
has_text 'other data' 'tokens of a row (--seq): 16 in the saved run, 12 now' 'or --new-data'
goes d2 --data second.jsonl --steps 8 --resume auto --new-data || bad 'new data: it fails'
has_text 'new data' 'resumed at step 5' 'starting at its first row (--new-data)' 'differs in: data'
[ "$(sed -n 's/^step \([0-9]*\) .*/\1/p' d2.log | tr '\n' ' ')" = '6 7 8 ' ] && good || bad 'new data: which steps'
# The same command continues where it was, as one that never stopped.
goes d3 --data second.jsonl --steps 12 --resume auto --new-data || bad 'new data again: it fails'
lacks_text 'new data again' 'its first row'
has_text 'new data again' 'had not stopped'
rm -r d && goes d4 --data rows.jsonl --steps 5 && goes d4 --data second.jsonl --steps 12 --resume auto --new-data || bad 'new data at once'
cat d2.log d3.log | diff - d4.log > said && good || bad 'new data: in two parts'
# Moments are kept: weights alone give another loss.  The rows are those of a run that begins with them.
rm -r d && goes d5 --data rows.jsonl --steps 5 --export d-out || bad 'weights'
"$ztrain" --model d-out --micro-batch 2 --lr 1e-3 --exact --data second.jsonl --seq 12 --steps 7 > said 2>&1 || bad 'weights alone'
grep '^step' said > w.only
[ "$(sed -n '1s/.*\(loss [0-9.]*\).*/\1/p' w.only)" = "$(sed -n '1s/.*\(loss [0-9.]*\).*/\1/p' d4.log)" ] && good ||
	bad 'new data: the first loss is that of the weights on the first rows'
! diff <(sed 's/^step [0-9]*//' w.only) <(sed 's/^step [0-9]*//' d4.log) > /dev/null && good || bad 'new data: moments play no part'
# Recorded: twice, in every form.
for form in native deepspeed universal dcp; do
	rm -rf d
	goes n1 --data rows.jsonl --steps 2 --save-format $form && goes n2 --data second.jsonl --steps 4 --resume auto --new-data \
		--save-format $form && goes n3 --data rows.jsonl --steps 6 --resume auto --new-data --save-format $form &&
		goes n4 --data rows.jsonl --steps 8 --resume auto --save-format $form || bad "$form: three data"
	has_text "$form: the last continues" 'resumed at step 6' 'had not stopped'
	goes n5 --data second.jsonl --steps 9 --resume auto --new-data --stop-at 9 --save-format $form || bad "$form: a fourth"
	[ "$(grep -roah consumed d/global_step9 | wc -l)" -ge 4 ] && good || bad "$form: four data are recorded"
done
train --data rows.jsonl --new-data --steps 1; [ $? = 2 ] && good || bad 'new data without a step: status'

# ---- best, patience, limit: the loss falls at first, then rises
# best NAME OPTION...: a run in that folder
best() {
	local name=$1
	shift
	logged "$name" "$ztrain" --model "$model" --data rows.jsonl --eval-rows 4 --eval-every 2 --micro-batch 2 --lr 3e-2 \
		--save "$name" --keep-best --exact "$@"
}
steps_in() { (cd "$1" && ls -d global_step* | sed 's/global_step//' | sort -n | tr '\n' ' '); }
# lowest LOG: the step with the lowest evaluation loss of it
lowest() { sed -n 's/^step \([0-9]*\) .*eval loss \([0-9.]*\)$/\2 \1/p' "$1" | sort -g | head -n 1 | cut -d ' ' -f 2; }
best p --steps 60 --patience 4 --save-every 3 --save-total-limit 2 || bad 'patience'
low=$(lowest p.log) end=$(sed -n 's/^step \([0-9]*\) .*/\1/p' p.log | tail -n 1)
[ "$end" = $((low + 8)) ] && [ "$end" -lt 60 ] && good || bad "patience: the run ends after step $end, the lowest is $low"
has_text 'patience' "ended after step $end: 4 evaluations in a row not lower" "after step $low, named by p/best"
[ "$(cat p/best)" = "global_step$low" ] && good || bad "best is $(cat p/best), not step $low"
[ "$(cat p/latest)" = "global_step$end" ] && good || bad 'latest is the last step'
[ "$(steps_in p)" = "$low $((end - 1)) $end " ] && good || bad "limit: $(steps_in p)"
"$ztrain" eval "p/$(cat p/best)" --data rows.jsonl --eval-rows 4 --exact > said 2>&1 || bad 'eval of best: it fails'
has_text 'eval of best' "$(sed -n "s/^step $low .*\(eval loss .*\)/\1/p" p.log)"
# Prune keeps it.
"$zckpt" prune --keep-last 1 --apply p > said 2>&1 || bad 'prune: it fails'
[ "$(steps_in p)" = "$low $end " ] && good || bad "prune: $(steps_in p)"
# Such a run is over; with more patience it goes on, and counts on.
best p --steps 60 --patience 4 --resume auto || bad 'resumed: it fails'
[ ! -s p.log ] && good || bad 'resumed: it trains'
has_text 'resumed' "ended after step $end: 4 evaluations in a row not lower" "after step $low"
best p --steps 60 --patience 5 --resume auto || bad 'more patience: it fails'
[ "$(wc -l < p.log)" = 2 ] && good || bad 'more patience: two steps'
# The same steps and the same best as a run that was stopped at each step.
best w --steps 14 --save-every 3 --save-total-limit 3 || bad 'a whole run'
for at in 3 6 7 10 14; do
	best parts --steps 14 --save-every 3 --save-total-limit 3 --stop-at $at --resume auto || bad "a part until $at"
	cat parts.log >> all.log
done
diff all.log w.log > said && good || bad 'parts: other losses'
[ "$(cat w/best) $(digest "w/$(cat w/best)")" = "$(cat parts/best) $(digest "parts/$(cat parts/best)")" ] && good || bad 'parts: another best'
# Killed before 'best' was written: the resumed run writes it.
rm parts/best
best parts --steps 14 --resume auto || bad 'best is missing: it fails'
cmp -s parts/best w/best && good || bad 'best is missing: it is not written'
# The export at the end is of the last step, also of a run that ended early.
best e --steps 60 --patience 2 --export out || bad 'an export: it fails'
[ -f out/model.safetensors ] && good || bad 'an export of a run that ended early'

# ---- schedules that need the length, or the evaluations
for form in native deepspeed universal dcp; do
	rm -rf plateau parts all.log
	drops="--lr-scheduler reduce_lr_on_plateau --save-format $form --lr-scheduler-args {\"patience\":0,\"factor\":0.5}"
	# shellcheck disable=SC2086
	{
	best plateau --steps 14 $drops || bad "plateau, $form"
	for at in 3 8 9 14; do
		best parts --steps 14 $drops --stop-at $at --resume auto || bad "plateau, $form: a part until $at"
		cat parts.log >> all.log
	done
	}
	diff all.log plateau.log > said && [ "$(digest parts)" = "$(digest plateau)" ] && good || bad "plateau, $form: in parts"
	[ "$(awk '{ print $6 }' plateau.log | sort -u | wc -l)" -gt 1 ] && good || bad "plateau, $form: the rate never falls"
done
logged wsd "$ztrain" --model "$model" --data rows.jsonl --exact --steps 10 --lr 1 --warmup-steps 2 --lr-scheduler wsd \
	--lr-scheduler-args '{"num_decay_steps": 4, "decay_type": "linear"}' || bad 'wsd: it fails'
[ "$(awk '{ printf "%g ", $6 }' wsd.log)" = '0 0.5 1 1 1 1 1 0.75 0.5 0.25 ' ] && good || bad "wsd: rates"
train --lr-scheduler reduce_lr_on_plateau; [ $? = 2 ] && good || bad 'a plateau without evaluations: status'
has_text 'a plateau without evaluations' 'reduce_lr_on_plateau needs evaluations: --eval-every N'
train --data rows.jsonl --eval-rows 2 --eval-every 1 --lr-scheduler reduce_lr_on_plateau --warmup-steps 2 && bad 'warm-up: it runs' || good
has_text 'a plateau has no warm-up' '--warmup-steps 2 has no effect with --lr-scheduler reduce_lr_on_plateau'

train --steps 2 --keep-best; [ $? = 2 ] && good || bad 'no evaluations: status'
has_text 'no evaluations' '--keep-best needs evaluations: --eval-every N'
train --steps 2 --data rows.jsonl --eval-rows 2 --eval-every 1 --keep-best; [ $? = 2 ] && good || bad 'no folder: status'
has_text 'no folder' '--keep-best needs --save'
# Steps of another run stay, whatever the limit is.
logged o "$ztrain" --model "$model" --data rows.jsonl --steps 9 --save-every 3 --save other || bad 'another run'
logged n "$ztrain" --model "$model" --data rows.jsonl --steps 20 --save-every 4 --save-total-limit 1 --save other --overwrite-steps ||
	bad 'a run in its folder'
[ "$(steps_in other)" = '3 6 9 20 ' ] && good || bad "steps of another run: $(steps_in other)"
finish
