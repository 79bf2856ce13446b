#!/bin/bash
# usage: test_ztrain_trainer.sh
#
# Steps that ztrain saves as folders of transformers' Trainer.  If this fails, a run that resumes from
# one is another run than its native step gives, or the tools for runs lose such folders.
#
#   worlds    saved by 1, 4 and 7 ranks at several stages, resumed by 1, 2, 4 and 7 at others: the
#             losses, norms and digests are those of the same run resumed from the native form
#   precision the same for bf16 and fp16, whose loss scale moves; two param groups and one
#   runs      'latest', ls, inspect, verify, prune, convert and reshard on a run of such folders
#   bare      without zckpt-step.pt, as the Trainer writes a folder, the run is the same
#   damage    a folder with a missing, cut or changed file is skipped, or refused by name
# What the real Trainer makes of them, and its own folders: tests/interop/trainer_cases.py.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
envrun=$root/tests/lib/run/envrun
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE

# train NAME WORLD STAGE PRECISION OPTION...: steps go to NAME.log
train() {
	local name=$1 world=$2 stage=$3 precision=$4 start=
	shift 4
	[ "$world" = 1 ] || start="$envrun -n $world"
	echo "{\"train_batch_size\": 28, \"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0," \
		"$precision \"zero_optimization\": {\"stage\": $stage}}" > z.json
	# shellcheck disable=SC2086
	timeout -k 5 100 $start "$ztrain" --model "$models/${model:-qwen3_tied}" --config z.json --seq 8 --steps 5 \
		--device cpu --lr-scheduler cosine --warmup-steps 1 --exact $rates "$@" > said 2>&1 < /dev/null
	local rc=$?
	cp said "$name.said"
	grep '^step' said > "$name.log"
	return $rc
}

# both NAME WORLD STAGE PRECISION: three steps, saved in both forms
both() {
	train "$1" "$2" "$3" "$4" --stop-at 3 --save "$1-native" || bad "$1: saved"
	train "$1" "$2" "$3" "$4" --stop-at 3 --save "$1-trainer" --save-format trainer || bad "$1: saved for the Trainer"
	[ "$(digest "$1-native")" = "$(digest "$1-trainer")" ] && good || bad "$1: another state is saved"
	"$zckpt" verify -q --full "$1-trainer" > said 2>&1 && good || bad "$1: verify"
}

# resumed NAME WORLD STAGE PRECISION: the rest, from both
resumed() {
	rm -rf a b
	train a "$2" "$3" "$4" --resume "$1-native" --save a || bad "$1 at $2 ranks, native"
	train b "$2" "$3" "$4" --resume "$1-trainer/checkpoint-3" --save b --save-format trainer ||
		bad "$1 at $2 ranks of stage $3"
	if [ "$(wc -l < b.log)" = 2 ] && cmp -s a.log b.log && [ "$(digest a)" = "$(digest b)" ] &&
		[ "$(grep '^bits:' a.said)" = "$(grep '^bits:' b.said)" ]; then
		good
	else
		bad "$1 resumed by $2 ranks of stage $3 is another run"
		diff a.log b.log | head -n 4
	fi
}

rates='--lr 3e-3 --weight-decay 0.1'
bf16='"bf16": {"enabled": true},'
both w4 4 3 "$bf16"
resumed w4 1 0 "$bf16"
resumed w4 2 2 "$bf16"
resumed w4 7 3 "$bf16"
both w1 1 1 ''
resumed w1 4 3 ''
both w7 7 2 "$bf16"
resumed w7 2 3 "$bf16"
# the first scale overflows: it is halved, and its count is part of the step
fp16='"fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1, "loss_scale_window": 2},'
both f16 2 1 "$fp16"
grep -q skipped f16.said && good || bad 'fp16: no step overflows, so its scale does not move'
resumed f16 4 2 "$fp16"
# an optimizer in the configuration has one group, the Trainer two
rates=
one='"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}},'
both one 2 2 "$one"
resumed one 1 3 "$one"
# biases and an untied head
rates='--lr 3e-3 --weight-decay 0.1' model=qwen25
both bias 2 3 ''
resumed bias 1 0 ''
unset model

# ---- a run of such folders
rm -rf run
train run 2 2 "$bf16" --save run --save-every 1 --save-format trainer || bad 'a run'
[ "$(cat run/latest)" = checkpoint-5 ] && good || bad "'latest'"
for f in model.safetensors optimizer.pt scheduler.pt trainer_state.json zckpt-step.pt config.json; do
	[ -s run/checkpoint-5/$f ] && good || bad "$f of a folder"
done
"$zckpt" ls run > said 2>&1 && [ "$(grep -c 'trainer .* yes *checkpoint-[1-5]' said)" = 5 ] && good || bad 'ls'
"$zckpt" inspect run > said 2>&1
has_text inspect 'format       trainer' 'step         5' 'exp_avg_sq' 'weight_decay 0.1' 'tied'
"$zckpt" prune --keep-last 2 --apply run > said 2>&1
[ "$(cd run && echo checkpoint*)" = 'checkpoint-4 checkpoint-5' ] && good || bad 'prune keeps the last two'
"$zckpt" convert -q run hf > said 2>&1 && [ -s hf/config.json ] && [ -s hf/model.safetensors ] && good || bad 'convert'
for form in native universal deepspeed dcp fsdp-ranks; do
	rm -rf moved back
	"$zckpt" reshard -q --to $form --world 3 run moved > said 2>&1 || bad "resharded to $form"
	"$zckpt" reshard -q --to trainer moved back > said 2>&1 || bad "resharded from $form"
	[ "$(digest back)" = "$(digest run)" ] && good || bad "resharded to $form and back: another state"
	cmp -s back/checkpoint-5/optimizer.pt run/checkpoint-5/optimizer.pt && good || bad "$form: another optimizer.pt"
done
for step in 3 6; do
	train again 2 2 "$bf16" --save run --stop-at $step --steps 6 --resume auto --save-format trainer || bad 'resumed in its folder'
done
grep -q 'resumed at step 5 from run/checkpoint-5' said && [ "$(cat run/latest)" = checkpoint-6 ] && good ||
	bad 'resumed in its folder at step 5'

# ---- as the Trainer writes one: no file of zckpt, no names of parameters
cp -r w1-trainer/checkpoint-3 bare
rm bare/zckpt-step.pt
train b 1 0 '' --resume bare && has_text 'without zckpt-step.pt' 'resumed at step 3' || bad 'without zckpt-step.pt'
rm -rf a && train a 1 0 '' --resume w1-native && cmp -s a.log b.log && good || bad 'without zckpt-step.pt: another run'
# its scale of fp16 is in scaler.pt, of runs in fp16 alone
[ -s f16-trainer/checkpoint-3/scaler.pt ] && [ ! -e w1-trainer/checkpoint-3/scaler.pt ] && good || bad 'scaler.pt'
rm -rf a b && train a 2 1 "$fp16" --resume f16-native
for without in zckpt-step.pt scaler.pt; do
	rm f16-trainer/checkpoint-3/$without
	train b 2 1 "$fp16" --resume f16-trainer/checkpoint-3 || bad "fp16 without $without"
	cmp -s a.log b.log
	[ $? = $([ $without = scaler.pt ] && echo 1 || echo 0) ] && good || bad "fp16 without $without: the scale"
done

# ---- damage
# refused WORDS TEXT...: the folder 'torn' cannot be resumed, and the text is said
refused() {
	local words=$1
	shift
	train d 1 0 '' --resume torn && bad "$words: resumed" || has_text "$words" "$@"
}
torn() { rm -rf torn; cp -r w1-trainer/checkpoint-3 torn; }
torn; truncate -s -700 torn/optimizer.pt; refused 'a cut optimizer.pt' optimizer.pt
torn; truncate -s -7 torn/model.safetensors; refused 'cut weights' model.safetensors
torn; sed -i 's/"global_step": 3/"global_step": 4/' torn/trainer_state.json; refused 'another step' STEP_MIXED
torn; sed -i 's/"global_step": 3/"global_step": "3"/' torn/trainer_state.json; refused 'no step' global_step
torn; cp run/checkpoint-5/zckpt-step.pt torn; refused 'files of two runs' STEP_MIXED
torn; printf x | dd of=torn/optimizer.pt bs=1 seek=200000 conv=notrunc status=none; refused 'a changed moment' optimizer.pt
torn; printf xy | dd of=torn/model.safetensors bs=1 seek=300000 conv=notrunc status=none; refused 'a changed weight' model.safetensors
rm run/checkpoint-6/model.safetensors
train d 1 0 "$bf16" --resume run --stop-at 5 && has_text 'missing weights' 'skipped run/checkpoint-6' 'step 5 from run/checkpoint-5' ||
	bad 'missing weights'
truncate -s -700 run/checkpoint-5/optimizer.pt
train d 1 0 "$bf16" --resume run --stop-at 5 && has_text 'a cut file' 'step 4 from run/checkpoint-4' || bad 'a cut file'

finish
