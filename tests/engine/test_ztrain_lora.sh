#!/bin/bash
# usage: test_ztrain_lora.sh
#
# What is trained of a model: --freeze and --lora.  At 1, 2 and 4 ranks and stages 0 to 3 such runs
# end with one digest and have the same losses; steps of every format resume with the same bits at
# another number of ranks and another stage, with frozen parameters and without
# (--exclude-frozen); a resume that trains other parameters is refused with both.  Beside each step
# is the adapter_config.json of --export, so that `zckpt convert --to peft` makes what that makes.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
need_ranks
fixtures=${models%/models}

# train FOLDER MODEL TYPE WORLD STAGE OPTION...: 4 micro-batches a step; 'steps' gets its steps
train() {
	local folder=$1 model=$2 type=$3 world=$4 stage=$5 extra=
	shift 5
	[ "$type" = fp32 ] || extra=", \"$type\": {\"enabled\": true}"
	echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1," \
		"\"zero_optimization\": {\"stage\": $stage}$extra}" > z.json
	set -- "$ztrain" --model "$models/$model" --config z.json --seq 33 --lr 3e-3 \
		--data "$fixtures/train/data.safetensors" --save "$folder" --exact "$@"
	[ "$world" = 1 ] || set -- "$mpirun" -n "$world" "$@"
	timeout -k 5 200 "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
}

# Ranks and stages: some, or with ZCKPT_LONG=1 all.
layouts='1:1 2:0 2:3 4:2 4:3' others='1:3 2:3 4:0'
if [ "${ZCKPT_LONG:-0}" != 0 ]; then
	layouts='1:1 1:2 1:3 2:0 2:1 2:2 2:3 4:0 4:1 4:2 4:3'
	others='1:0 1:3 2:0 2:3 4:0 4:3'
fi

# one WORDS MODEL TYPE OPTION...: the same run in any layout
one() {
	local words=$1 model=$2 type=$3 layout world stage want
	shift 3
	rm -rf base
	train base "$model" "$type" 1 0 --steps 3 "$@" || { bad "$words: one rank"; return; }
	mv steps want
	want=$(digest base)
	for layout in $layouts; do
		world=${layout%:*} stage=${layout#*:}
		rm -rf other
		if ! train other "$model" "$type" "$world" "$stage" --steps 3 "$@"; then
			bad "$words: $world ranks, stage $stage"
		elif ! diff want steps > said || [ "$(digest other)" != "$want" ]; then
			echo "$want, $(digest other)" >> said
			bad "$words: other bits with $world ranks at stage $stage"
		else
			good
		fi
	done
}
one 'adapters of all modules' qwen25 fp32 --lora r=4,alpha=8,target=all-linear
one 'adapters in bf16' qwen3_tied bf16 --lora r=4,alpha=8 --recompute
one 'dropout' qwen25 fp32 --lora r=4,alpha=8,dropout=0.1,target=all-linear
one 'dropout in bf16' qwen3 bf16 --lora r=4,dropout=0.3,target=all-linear --recompute
one 'frozen embedding' llama3_tied fp32 --freeze '*embed*' --freeze '*norm*'
one 'a frozen beginning' llama3 bf16 --freeze '*embed*' --freeze 'model.layers.0.*' --weight-decay 0.1
one 'only the head' qwen3 fp32 --freeze 'model.*'
one 'gate without up' qwen3_tied fp32 --freeze '*up_proj*' --freeze '*.1.*q_proj*'

# moved WORDS FORMAT OPTION...: two steps at 2 ranks and stage 2, the third elsewhere
moved() {
	local words=$1 format=$2 layout world stage
	shift 2
	rm -rf base from
	train base qwen25 bf16 1 0 --steps 3 --save-format "$format" "$@" || { bad "$words: one run"; return; }
	mv steps want
	train from qwen25 bf16 2 2 --steps 3 --stop-at 2 --save-format "$format" "$@" ||
		{ bad "$words: the first half"; return; }
	for layout in $others; do
		world=${layout%:*} stage=${layout#*:}
		rm -rf other
		cp -r from other
		if ! train other qwen25 bf16 "$world" "$stage" --steps 3 --resume auto \
			--save-format "$format" "$@"; then
			bad "$words: resumed at $world ranks, stage $stage"
		elif ! diff <(tail -n 1 want) steps > said || [ "$(digest other)" != "$(digest base)" ]; then
			echo "$(digest base), $(digest other)" >> said
			bad "$words: other bits at $world ranks, stage $stage"
		else
			good
		fi
	done
}
for format in native deepspeed universal dcp; do
	moved "adapters, $format" $format --lora r=4,target=all-linear
	moved "frozen norms and embedding, $format" $format --freeze '*norm*' --freeze '*embed*'
	moved "adapters without frozen ones, $format" $format --lora r=2 --exclude-frozen
done

# In native steps frozen parameters are files of their own, and written once.
rm -rf base
train base qwen25 bf16 2 3 --steps 3 --save-every 1 --lora r=4 || bad 'three steps'
for name in base/global_step1/frozen-*; do
	for step in 2 3; do
		[ "$name" -ef "base/global_step$step/${name##*/}" ] && good || bad "$name is not linked in step $step"
	done
done
"$zckpt" verify base > said 2>&1 && good || bad 'verify after links'

# beside FORMAT RANKS: each step has PEFT's configuration, and convert makes what --export makes
beside() {
	local words="beside a step, $1, $2 ranks" made step
	rm -rf run first second peft
	train run qwen25 bf16 "$2" 2 --steps 1 --save-format "$1" --export first \
		--lora r=4,alpha=6.5,rslora,target=k_proj+up_proj &&
		train run qwen25 bf16 1 3 --steps 2 --resume auto --save-format "$1" --export second \
			--lora r=4,alpha=6.5,rslora,target=k_proj+up_proj || { bad "$words"; return; }
	for made in first second; do
		step=$(echo run/*[12])
		[ $made = first ] && step=${step% *} || step=${step#* }
		cmp "$step/adapter_config.json" $made/adapter_config.json > said 2>&1 && good || bad "$words: $step"
		rm -rf peft
		rm -rf a b
		train a qwen25 bf16 1 0 --steps 1 --lora-from $made && train b qwen25 bf16 1 0 --steps 1 \
			--lora-from "$step" && [ "$(digest a)" = "$(digest b)" ] && good ||
			bad "$words: $step, --lora-from"
		"$zckpt" convert --to peft "$step" peft > said 2>&1 &&
			cmp peft/adapter_config.json $made/adapter_config.json > said 2>&1 &&
			"$zckpt" diff $made peft > said 2>&1 && good || bad "$words: $step, as PEFT's"
	done
	"$zckpt" verify --full run > said 2>&1 && lacks_text "$words: verify" adapter_config || bad "$words: verify"
	"$zckpt" prune --keep-last 1 --apply run > said 2>&1 && [ "$(echo run/*/adapter_config.json | wc -w)" = 1 ] &&
		good || bad "$words: prune"
	rm -rf peft && "$zckpt" convert --to peft --lora-alpha 3 run peft > said 2>&1 &&
		grep -q '"lora_alpha": 3,' peft/adapter_config.json && good || bad "$words: --lora-alpha replaces"
}
for format in native deepspeed universal dcp trainer; do
	beside $format 1
	beside $format 2
done
# A step of before has no such file, and a run of all parameters never has.
rm -rf base from plain
train base qwen25 fp32 1 0 --steps 3 --lora r=4 && train from qwen25 fp32 1 2 --steps 1 --save-format deepspeed \
	--lora r=4 && rm from/*/adapter_config.json && train from qwen25 fp32 2 3 --steps 3 --resume auto \
	--save-format deepspeed --lora r=4 && [ "$(digest base)" = "$(digest from)" ] &&
	[ -s from/global_step3/adapter_config.json ] && good || bad 'resumed from a step without adapter_config.json'
train plain qwen25 fp32 2 2 --steps 1 --freeze '*embed*' && [ ! -e plain/global_step1/adapter_config.json ] &&
	[ -s plain/global_step1/config.json ] && good || bad 'a run without adapters has adapter_config.json'

# refused WORDS TEXT OPTION...
refused() {
	local words=$1 text=$2
	shift 2
	if "$ztrain" "$@" > said 2>&1 < /dev/null; then
		bad "$words: it is not refused"
	else
		has_text "$words" "$text"
	fi
}
rm -rf base
train base qwen25 fp32 1 0 --steps 1 --lora r=4,alpha=8 || bad 'a run with adapters'
again() { refused "$1" "$2" --model "$models/qwen25" --steps 2 --resume base "${@:3}"; }
again 'without adapters' '--lora: the step was trained with r=4,alpha=8,target=q_proj+v_proj, this run has none; give --lora r=4,alpha=8,target=q_proj+v_proj to resume it'
"$zckpt" convert -q base all.safetensors > said 2>&1 || bad convert
refused 'weights of a run with adapters' 'an adapter of rank 4; train it with --lora r=4' \
	--model "$models/qwen25" --steps 2 --resume all.safetensors
rm -rf one two
train one qwen25 fp32 1 0 --steps 0 --resume all.safetensors --lora r=4,alpha=8 --export one.peft &&
	train two qwen25 fp32 2 3 --steps 0 --resume base/global_step1 --lora r=4,alpha=8 --export two.peft ||
	bad 'adapters of weights, and of the step'
if cmp one.peft/adapter_model.safetensors two.peft/adapter_model.safetensors > said; then
	good
else
	bad 'weights with adapters begin with others'
fi
# B begins at 0, so dropout shows from the second step on; nothing is dropped in an evaluation.
rm -rf whole dropped
train whole qwen25 fp32 1 0 --steps 2 --lora r=4,target=all-linear && mv steps want &&
	train dropped qwen25 fp32 1 0 --steps 2 --lora r=4,dropout=0.5,target=all-linear \
		--eval-rows 2 --eval-every 2 || bad 'with dropout and without'
[ "$(awk '{ print $4 }' want | head -n 1)" = "$(awk '{ print $4 }' steps | head -n 1)" ] &&
	[ "$(tail -n 1 want)" != "$(tail -n 1 steps)" ] && good || bad 'dropout changes the first loss, or not the second'
own=$(sed -n 's/.*eval loss \([0-9.]*\).*/\1/p' said | tail -n 1)
"$ztrain" eval dropped --data "$fixtures/train/data.safetensors" --eval-rows 2 --exact > said 2>&1
has_text 'evaluated with dropout' "eval loss ${own:-was not printed}"
# ztrain eval finds in the step what the run trained.
rm -rf both
train both qwen25 fp32 1 0 --steps 1 --lora r=4,alpha=8 --freeze '*layers.0.*norm*' || bad 'adapters, norms frozen'
for run in base both; do
	"$ztrain" eval "$run" --data "$models/../train/data.safetensors" --eval-rows 2 > said 2>&1 &&
		grep -q '^eval loss' said && good || bad "ztrain eval of the run $run"
done
again 'another rank' 'this run has r=2,alpha=8,target=q_proj+v_proj' --lora r=2,alpha=8
again 'more is frozen' '--freeze: the step was trained with none, this run has *embed*; remove --freeze to resume it' --lora r=4,alpha=8 --freeze '*embed*'
refused 'nothing is left' 'leaves nothing to train: all' --model "$models/qwen25" --freeze '*'
refused 'no such name' '--freeze *embet* matches none of the' --model "$models/qwen25" --freeze '*embet*'
refused 'a tied head' 'lm_head.weight is tied to model.embed_tokens.weight' --model "$models/qwen3_tied" --freeze lm_head.weight
refused 'dropout of all' 'dropout=1: expected 0 or a number below 1' --model "$models/qwen25" --lora r=4,dropout=1
refused 'a module that has none' 'no adapter for a module lm_head' --model "$models/qwen25" --lora target=lm_head
# PEFT's folder is neither a model nor a step.
"$ztrain" --model "$models/qwen25" --seq 8 --steps 1 --lora r=4 --export peft > said 2>&1 || bad 'an adapter for the calls that follow'
refused 'an adapter as a model' '--model peft: an adapter of PEFT; give the model that it was trained for by --model' --model peft
refused 'an adapter as a step' '--resume peft: an adapter of PEFT, without moments to resume; give' --model "$models/qwen25" --resume peft
"$ztrain" eval peft --data "$models/../train/data.safetensors" > said 2>&1 && bad 'an adapter is evaluated alone'
has_text 'an adapter alone' 'ztrain: peft: an adapter of PEFT;' 'ztrain eval MODEL --lora-from peft'
"$ztrain" eval "$models/qwen25" --lora-from peft --data "$models/../train/data.safetensors" > said 2>&1 &&
	grep -q '^eval loss' said && good || bad 'the call that is printed'
rm -rf base
train base qwen25 bf16 1 0 --steps 1 --lora r=4 --exclude-frozen || bad 'a run that excludes'
refused 'no weights beside' 'was saved without frozen parameters (--exclude-frozen)' \
	--model "$models/qwen25/config.json" --config z.json --steps 2 --resume base --lora r=4
finish
