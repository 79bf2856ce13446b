#!/bin/bash
# usage: test_ztrain_options.sh
#
# Every option that sets a value of the configuration, against a file that lacks the key, says "auto",
# says the same and says another value.  If this fails, a stated option is dropped without a word: a run
# trains in fp32 though --precision bf16 was typed.
#
#   options   each option has the effect of its key, or is refused by its name
#   schedule  options that the schedule of the file leaves without effect are refused
#   bare      no file, and a file without the keys, have the same defaults
#   yaml      accelerate's file: the same, and num_processes
#   words     '-' and '_' are the same in a value that is a word
#   names     an option of the Trainer is refused with the name of ours
#   commands  a command that ztrain lacks is answered with the one that was meant, as a command that runs
#   first     what a first command line gets wrong, with the next step
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models

# run NAME FILE OPTION...: says it to NAME.said, its steps to NAME.log
run() {
	local name=$1 file=$2
	shift 2
	logged "$name" "$ztrain" --model "$models/qwen3_tied" --config "$file" --seq 16 --exact "$@"
}
# json FILE MICRO TOP OPTIMIZER SCHEDULER: parts of a configuration
json() {
	local all=
	[ -z "$2" ] || all="\"train_micro_batch_size_per_gpu\": $2"
	[ -z "$3" ] || all="$all${all:+, }$3"
	[ -z "$4" ] || all="$all, \"optimizer\": {\"type\": \"AdamW\", \"params\": {$4}}"
	[ -z "$5" ] || all="$all, \"scheduler\": $5"
	echo "{$all}" > "$1"
}
# refused WORDS NAME TEXT...: the run NAME has failed, and says all of these
refused() {
	local words=$1 name=$2 text
	shift 2
	cp "$name.said" said
	[ -s "$name.log" ] && { bad "$words: it trains"; return; }
	for text; do
		grep -qF -- "$text" said || { bad "$words: '$text' is not said"; return; }
	done
	good
}
# option "OPTION VALUE" OTHER WHERE KEY JSON BAD [REST]: with WHERE (micro, top, opt, warm) the part of the
# file that KEY is in.  REST are other options of all runs.
option() {
	local opt=$1 other=$2 where=$3 key=$4 value=$5 rest=${6:-} kind text
	for kind in absent auto same other; do
		local micro=1 top= optimizer='"lr": 1e-3' sched= part
		case $kind in
		absent) part= ;; auto) part="$key \"auto\"" ;;
		same) part="$key $value" ;; other) part="$key $other" ;;
		esac
		case $key in *{*) [ -z "$part" ] || part="$part}" ;; esac
		case $where in
		micro) micro=; top=$part; [ $kind != absent ] || top='"train_batch_size": 6' ;;
		top) top=$part ;;
		opt) optimizer=${part:-'"bias_correction": true'} ;;
		warm) sched="{\"type\": \"WarmupLR\", \"params\": {$part}}" ;;
		esac
		json "$kind.json" "$micro" "$top" "$optimizer" "$sched"
	done
	# shellcheck disable=SC2086
	{
		run ref same.json $rest || bad "$opt: a file that says it"
		run none absent.json $rest
		run absent absent.json $opt $rest || bad "$opt: a file that lacks the key"
		run auto auto.json $opt $rest || bad "$opt: a file that says auto"
		run same same.json $opt $rest || bad "$opt: a file that says the same"
		run other other.json $opt $rest
	}
	cmp -s none.log ref.log && bad "$opt: the case shows nothing" || good
	for kind in absent auto same; do
		diff ref.log "$kind.log" > said && good || bad "$opt: the effect of its key ($kind)"
	done
	refused "$opt: another value" other "${opt%% *}"
}

option '--micro-batch 3' 2 micro '"train_batch_size": 6, "train_micro_batch_size_per_gpu":' 3 '--steps 2'
option '--accumulation 3' 2 top '"gradient_accumulation_steps":' 3 '--steps 2'
option '--clip 0.01' 0.5 top '"gradient_clipping":' 0.01 '--steps 2'
option '--precision bf16' false top '"bf16": {"enabled":' true '--steps 2'
option '--precision fp16' false top '"fp16": {"enabled":' true '--steps 2'
option '--precision bf16' false top '"bfloat16": {"enabled":' true '--steps 2'
option '--lr 3e-3' 1e-4 opt '"lr":' 3e-3 '--steps 2'
option '--beta1 0.5' '[0.8, 0.999]' opt '"betas":' '[0.5, 0.999]' '--steps 3'
option '--beta2 0.5' '[0.9, 0.8]' opt '"betas":' '[0.9, 0.5]' '--steps 3'
option '--eps 1e-3' 1e-4 opt '"eps":' 1e-3 '--steps 2'
option '--weight-decay 0.5' 0.1 opt '"weight_decay":' 0.5 '--steps 2'
option '--warmup-steps 7' 3 warm '"warmup_num_steps":' 7 '--steps 3'
option '--warmup-steps 0.5' 3 warm '"warmup_num_steps":' 5 '--steps 10'

# Who refuses it as well is named rightly: DeepSpeed never sees the option.
run other other.json --warmup-steps 0.5 --steps 10
tr '\n' ' ' < other.said | tr -s ' ' > said
grep -qF "transformers' Trainer rejects it too" said && good || bad "the Trainer's refusal"
grep -q 'DeepSpeed rejects it' said && bad 'a refusal that is not of DeepSpeed' || good
# A note on offloading is for what is offloaded.
for device in none cpu; do
	json off.json 1 "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"$device\"}}" '' ''
	run off off.json --steps 1
	grep -q "the host's cores update" said && echo cpu > note || echo none > note
	[ "$(cat note)" = $device ] && good || bad "the note on offload_optimizer $device"
done

# Only one of the betas is stated: it alone is compared, and the other one of the file holds.
json one.json 1 '' '"betas": [0.5, 0.6]'  ''
run one one.json --steps 2 && run two one.json --beta2 0.6 --steps 2 &&
	diff one.log two.log > said && good || bad 'one of the two betas is stated'
# 1 and "true" are true to the class that reads the block.
for value in 1 '"true"'; do
	json true.json 1 "\"bf16\": {\"enabled\": $value}" '' ''
	run true true.json --precision fp32 --steps 1
	refused "bf16.enabled $value" true --precision
done
json two.json 1 '"fp16": {"enabled": "auto"}' '' ''
run two two.json --precision bf16 --steps 1
grep -q 'ZeRO-0' said && grep -q ', bf16, ZeRO' said && good || bad 'fp16 is auto, and bf16 is stated'

# ---- schedule
json plain.json 1 '' '"lr": 1e-3' ''
run plain plain.json --warmup-steps 5 --steps 2
refused 'a warm-up of no schedule' plain --warmup-steps --lr-scheduler
run plain plain.json --warmup-steps 5 --lr-scheduler constant --steps 2
refused 'a warm-up of a constant rate' plain --warmup-steps constant_with_warmup
run bare plain.json --lr-scheduler linear --warmup-steps 2 --steps 4 && good || bad 'a warm-up of --lr-scheduler'
run plain plain.json --steps 2 --lr-scheduler-args '{}'
grep -q -- --lr-scheduler-args said && good || bad 'arguments of no scheduler'
cycle='{"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3}}'
range='{"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 1e-4}}'
decay='{"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": 50}}'
for sched in "$cycle" "$range"; do
	json s.json 1 '' '' "$sched"
	for opt in '--lr 1e-2' '--warmup-steps 3'; do
		# shellcheck disable=SC2086
		run s s.json $opt --steps 2
		refused "${sched:10:8} $opt" s "${opt% *}"
	done
done
json s.json 1 '' '' "$cycle"
run s s.json --beta1 0.5 --steps 2
refused 'OneCycle sets the betas' s --beta1
json s.json 1 '' '' "$decay"
run none s.json --stop-at 3
run s s.json --lr 5e-4 --stop-at 3
json s.json 1 '' '' "${decay/'"warmup_num_steps"'/'"warmup_max_lr": 5e-4, "warmup_num_steps"'}"
run ref s.json --stop-at 3
{ diff ref.log s.log > said && ! cmp -s none.log s.log; } && good || bad '--lr is the rate of WarmupDecayLR'
run s s.json --steps 20
refused '--steps against total_num_steps' s --steps --stop-at
run s s.json --lr-scheduler cosine
refused 'two schedulers' s --lr-scheduler

# ---- bare
json bare.json 1 '' '' ''
run bare bare.json --steps 2 || bad 'a file that says the micro-batch'
logged none "$ztrain" --model "$models/qwen3_tied" --seq 16 --exact --steps 2 || bad 'no file'
diff none.log bare.log > said && good || bad 'defaults without a file are those with one'

# ---- words
# spelled OPTION OURS TYPED OPTION...: both words make the same run
spelled() {
	local opt=$1 ours=$2 typed=$3
	shift 3
	run ref plain.json "$opt" "$ours" --steps 3 "$@" || bad "$opt $ours"
	run got plain.json "$opt" "$typed" --steps 3 "$@" || bad "$opt $typed"
	{ [ -s ref.log ] && diff ref.log got.log > said; } && good || bad "$opt $typed is $ours"
}
decay='{"num_decay_steps": 1}'
json plain.json 1 '' '"lr": 1e-3' ''
spelled --lr-scheduler warmup_stable_decay warmup-stable-decay --lr-scheduler-args "$decay"
spelled --lr-scheduler constant_with_warmup constant-with_warmup --warmup-steps 2
spelled --lora r=2,target=all-linear r=2,target=all_linear
spelled --lora r=2,target=q_proj+up_proj r=2,target=q-proj+up-proj
spelled --optim adamw_torch adamw-torch
run s plain.json --fp8 tensorwise-with-gw-hp --steps 1
grep -qF 'run on GPUs' said && good || bad '--fp8 tensorwise-with-gw-hp is a recipe'
run s plain.json --lr-scheduler reduce-lr-on-plateau --steps 1
grep -qF 'reduce_lr_on_plateau needs evaluations' said && good || bad 'reduce-lr-on-plateau is a schedule'
run s plain.json --lr-scheduler cosin --steps 1
refused 'a word that is near' s '--lr-scheduler cosin: expected linear, cosine, ' 'did you mean cosine?'
# The schedules of the option are those that the engine has.
"$ztrain" __complete --lr-scheduler '' | sed 1d > schedules
[ "$(wc -l < schedules)" = 11 ] && good || bad 'schedules that the shell completes'
while read -r type; do
	run s plain.json --lr-scheduler "$type" --lr-scheduler-args "$decay" --steps 1
	grep -qF 'unknown schedule' said && bad "the schedule $type" || good
done < schedules
"$zckpt" plan qwen2.5-7b -n 1 --lora r=2,target=all-linear > want 2>&1 || bad 'zckpt plan --lora'
"$zckpt" plan qwen2.5-7b -n 1 --lora r=2,target=all_linear > said 2>&1
diff want said > diff && good || bad 'zckpt plan: all_linear is all-linear'
"$zckpt" plan qwen2.5-7b -n 1 --engine ztrain --dtype bf16 --fp8 tensorwise-fast > said 2>&1 && good || bad 'zckpt plan --fp8 tensorwise-fast'
# A file has the words of its own program.
mkdir peft
echo '{"peft_type": "LORA", "r": 2, "target_modules": "all_linear"}' > peft/adapter_config.json
run s plain.json --lora-from peft --steps 1
refused 'all_linear in a file of PEFT' s 'no adapter for a module all_linear'

# ---- yaml
yaml() { printf 'compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n%s\n' "$1" > a.yaml; }
if "$ztrain" --model "$models/qwen3_tied" --config /dev/null --steps 0 2>&1 | grep -q libyaml; then
	echo 'built without libyaml: no YAML was tried'
	finish
	exit
fi
ds='deepspeed_config:
  zero_stage: 2'
yaml "num_processes: 1
$ds"
for opt in '--precision bf16' '--accumulation 3' '--micro-batch 2' '--clip 0.01'; do
	run none a.yaml --steps 2 || bad 'a YAML'
	# shellcheck disable=SC2086
	run s a.yaml $opt --steps 2 || bad "YAML, $opt"
	{ [ -s s.log ] && ! cmp -s none.log s.log; } && good || bad "YAML without the key: $opt"
done
yaml "num_processes: 1
mixed_precision: 'no'
$ds"
run s a.yaml --precision bf16 --steps 1
refused 'mixed_precision no' s --precision
yaml "num_processes: 4
$ds"
run s a.yaml --steps 1
refused 'four processes of a YAML, and one rank' s num_processes '4 processes' '1 rank'
grep -q '^ztrain: a.yaml: num_processes: the file says 4' s.said && good || bad 'the file is named once'
yaml "num_processes: 0
$ds"
run s a.yaml --steps 1
refused 'no process' s num_processes 'expected 1 process or more'
grep -q 'missing in the file' s.said && bad 'num_processes 0 is in the file' || good
yaml "$ds"
run s a.yaml --steps 1 && good || bad 'a YAML without num_processes takes the ranks as they are'
# One reader of YAML: zckpt names it, and the JSON that it makes.
yaml "$ds"
"$zckpt" plan 1M -n 1 --ds-config a.yaml > said 2>&1 && bad 'plan reads a YAML' || good
grep -qF 'ztrain config a.yaml > ds.json' said && good || bad 'plan says what makes JSON of a YAML'
"$ztrain" config a.yaml > ds.json 2> said || bad 'JSON of a YAML'
cp a.yaml A.YAML
"$ztrain" config A.YAML 2> said | cmp -s - ds.json && good || bad 'JSON of a YAML whose name is in capitals'
run s A.YAML --steps 1 && good || bad 'a YAML whose name is in capitals'
"$zckpt" plan 1M -n 1 --ds-config ds.json > said 2>&1 && good || bad 'plan reads the JSON of a YAML'
"$zckpt" shard --world 2 --ds-config a.yaml --lr 1e-4 "$models/llama3" sharded > said 2>&1 && bad 'shard reads a YAML' || good
grep -qF 'ztrain config a.yaml > ds.json' said && good || bad 'shard says what makes JSON of a YAML'
"$zckpt" shard --world 2 --ds-config ds.json --lr 1e-4 "$models/llama3" sharded > said 2>&1 && good || bad 'shard reads the JSON of a YAML'
[ -d sharded/global_step0 ] && good || bad 'the step of shard'
yaml 'deepspeed_config:
  deepspeed_config_file: "ds.json"  # a comment'
"$zckpt" plan 1M -n 1 --ds-config a.yaml > said 2>&1
grep -qF -- '--ds-config ds.json' said && good || bad 'plan says which file the YAML names'
"$ztrain" config a.yaml > named.json 2> said && good || bad 'JSON of the file that a YAML names'
printf 'distributed_type: FSDP\n' > a.yaml
"$ztrain" config a.yaml > said 2>&1 && bad 'JSON of FSDP' || good
grep -q FSDP said && good || bad 'JSON of FSDP: by its name'
yaml "num_processes: 1
$ds
  offload_param_device: cpu"
run s a.yaml --steps 1 || bad 'offload_param_device at stage 2'
sed -n '/^no effect/,/^[a-z]/p' s.said | grep -q offload_param_device && good ||
	bad 'offload_param_device has no effect at stage 2'

# ---- names
# meant OPTION WORDS [COMMAND]: the refusal of an option of the Trainer or of a launcher says what to give
meant() {
	"$ztrain" ${3:+"$3"} --model m "$1" 3 > said 2>&1
	{ [ $? = 2 ] && grep -qF -- "there is no option $1; $2" said; } && good || bad "$1: '$2' is not said"
}
meant --train_batch_size 'give --micro-batch N'
meant --per_device_eval_batch_size 'evaluation has the rows of --micro-batch'
meant --per-device-eval-batch-size 'evaluation has the rows of --micro-batch'
meant --push_to_hub 'copy the folder of --export to the hub'
meant --fsdp 'write "zero_optimization": {"stage": 3}'
meant --data_seed 'give --seed N'
meant --bf16 'give --precision P' bench
meant --stage 'write "zero_optimization": {"stage": N}'
meant --num_gpus 'the launcher starts the ranks'
meant --stpes 'did you mean --steps?'
meant --learning_rate 'a benchmark trains on random tokens' bench
meant --learning_rate 'an evaluation trains nothing' eval
meant --save 'an evaluation trains nothing' eval
meant --data 'a benchmark trains on random tokens' bench
# Each option that a hint or an alias names is one of ztrain.
"$ztrain" -h --all | grep -o '^  --[a-z0-9_-]*' | tr -d ' ' > all
grep -o '"give --[a-z0-9-]*' "$root/engine/main/zt_meant.c" | sed 's/.* //' | sort -u > named
grep -o '^	{ "[a-z0-9-]*",$' "$root/engine/main/zt_alias.c" | sed 's/.*"\(.*\)",/--\1/' >> named
grep -o '^	{ "[a-z0-9-]*", { ' "$root/engine/main/zt_alias.c" | sed 's/.*"\(.*\)", {.*/--\1/' >> named
[ "$(wc -l < named)" -gt 25 ] && ! grep -vxFf all named && good || bad 'a hint names an option that ztrain lacks'

# ---- commands
# answered WORDS TRY CALL...: the call is refused with these words, and its last line is that command ('' = none)
answered() {
	local words=$1 try=$2
	shift 2
	"$ztrain" "$@" > said 2>&1
	[ $? = 2 ] && head -n 1 said | grep -qxF -- "ztrain: $words" &&
		[ "$(sed -n 's/^ztrain: try: //p' said)" = "$try" ] && good || bad "ztrain $*: '$words'"
}
answered 'there is no command evl; did you mean eval?' 'ztrain eval' evl
answered 'there is no command genrate; did you mean generate?' "ztrain generate --prompt-ids '1 2'" \
	genrate --prompt-ids '1 2'
answered 'there is no command rep; did you mean report?' 'ztrain report a.jsonl' rep a.jsonl
answered 'there is no command benhc; did you mean bench?' 'ztrain bench --model m' benhc --model m
answered 'there is no command evaluate; did you mean eval?' 'ztrain eval run --data d' evaluate run --data d
answered 'there is no command Eval; did you mean eval?' 'ztrain eval' Eval
answered 'there is no command help; did you mean --help?' 'ztrain --help' help
answered 'there is no command train; ztrain trains without one' 'ztrain --model m' train --model m
answered 'there is no command frobnicate (see ztrain --help)' '' frobnicate --model m
answered 'there is no command "a\u0007" (see ztrain --help)' '' "$(printf 'a\a')"
answered 'eval: a command is the first word: ztrain eval ...' '' --quiet eval
answered 'unknown argument: evl (see ztrain --help)' '' --quiet evl
: > evl.json
answered 'evl.json is a path; its option comes before it: --model, --config, --data or --resume (see ztrain --help)' '' evl.json
"$ztrain" evl "$models/qwen3_tied" --data "$models/../train/data.safetensors" --eval-rows 1 > said 2>&1
sed -n "s,^ztrain: try: ztrain,$ztrain,p" said > again
sh ./again > said 2>&1 && grep -q '^eval loss' said && good || bad 'the command that is printed'
# Those that the shell completes are commands, each with a page of help.
"$ztrain" __complete '' | sed -n 's/^\([a-z]*\)\t.*/\1/p' > listed
[ "$(wc -l < listed)" = 6 ] && good || bad 'six commands are completed'
while read -r word; do
	"$ztrain" "$word" --help 2>&1 | grep -q "^usage: ztrain $word" && good || bad "ztrain $word --help"
done < listed

# ---- first
# ends STATUS WORDS OPTION...: the command ends with that status and says the words
ends() {
	local status=$1 words=$2
	shift 2
	"$ztrain" "$@" > said 2>&1
	{ [ $? = "$status" ] && grep -qF -- "$words" said; } && good || bad "'$words' is not said"
}
mkdir bare
: > t.txt
head -c 64 "$models/qwen3_tied/model.safetensors" > w.safetensors
ends 1 '--model Qwen/Qwen3-0.6B: no such file or folder; to download a model of the hub: hf download' --model Qwen/Qwen3-0.6B
ends 1 '--model nowhere: no such file or folder; expected a Hugging Face folder' --model nowhere
ends 1 '--model bare: no config.json in this folder' --model bare
ends 1 'w.safetensors: binary data; expected the JSON text of a config.json' --model w.safetensors
ends 1 'text is tokenised beforehand' --model "$models/qwen3_tied" --data t.txt
ends 1 'max_position_embeddings is ' --model "$models/qwen3_tied" --seq 1000000
ends 2 '--device gpu: expected auto, cpu or cuda' --model m --device gpu
ends 2 'expected one FILE, found 0 arguments' config
ends 0 'the result is not kept' --model "$models/qwen3_tied" --seq 16 --steps 1
ends 0 ', synthetic (no --data)' --model "$models/qwen3_tied" --seq 16 --steps 1
echo '{"train_batch_size": 8 "bf16": {"enabled": true}}' > comma.json
ends 1 'a comma is missing' --model "$models/qwen3_tied" --config comma.json
echo '{"train_batch_size": "8"}' > text.json
ends 1 'DeepSpeed accepts it and fails' --model "$models/qwen3_tied" --config text.json
grep -q 'rejects it too' said && bad 'DeepSpeed does not reject it at once' || good
# The screen comes before the error where both go to one file.
[ "$(grep -n '^config ' said | cut -d: -f1)" = 1 ] && tail -n 1 said | grep -q '^ztrain: text.json' && good || bad 'the order of the screen and the error'

# A path that is missing or of another kind, by its option, before anything is read.
mkdir -p runs/global_step2
for path in '--config nowhere' '--data nowhere' '--data nowhere.jsonl' '--eval nowhere.bin' '--resume nowhere' \
	'--lora-from nowhere'; do
	# shellcheck disable=SC2086
	ends 1 "ztrain: $path: no such file or folder; expected " --model "$models/qwen3_tied" $path
done
for path in '--config bare' '--data bare' '--log bare'; do
	# shellcheck disable=SC2086
	ends 1 "ztrain: $path: this is a folder; expected " --model "$models/qwen3_tied" $path
done
for path in '--save t.txt' '--export t.txt' '--lora-from t.txt'; do
	# shellcheck disable=SC2086
	ends 1 "ztrain: $path: this is a file; expected " --model "$models/qwen3_tied" $path
done
ends 1 '--log no/log.jsonl: the folder of this file is missing' --model "$models/qwen3_tied" --log no/log.jsonl
ends 0 'step 1/1' --model "$models/qwen3_tied" --seq 16 --steps 1 --save new --log new/log.jsonl
ends 1 '--resume runs/global_step9: no such file or folder; zckpt ls runs lists the steps in it' \
	--model "$models/qwen3_tied" --resume runs/global_step9
ends 1 'ztrain: runs/global_step9: no such file or folder; zckpt ls runs lists' eval runs/global_step9 --data t.txt
ends 1 '--data bare: this is a folder' eval "$models/qwen3_tied" --data bare
ends 1 '--trace no/trace: the folder of this file is missing' bench --model "$models/qwen3_tied" --trace no/trace
ends 1 '--model bare: no config.json in this folder; expected a Hugging Face folder' bench --model bare

mkdir empty
ends 1 '--resume empty: this folder is empty; expected auto (with --save), a step' --model "$models/qwen3_tied" --resume empty
ends 1 'ztrain: empty: this folder is empty; expected a step' eval empty --data t.txt
for option in --data --config --resume --save --log --lora-from; do
	ends 1 "$option '': an empty text (an unset variable?); expected " --model "$models/qwen3_tied" $option ''
done
ends 1 "--model '': an empty text" --model ''
ends 1 '--eval-rows: 100 evaluation rows to hold out, but the data has only 8 rows' --model "$models/qwen3_tied" --synthetic-rows 8 --eval-rows 100
ends 1 '--lora: target= has an empty name; expected target=q_proj+v_proj' --model "$models/qwen3_tied" --lora r=2,target=
ends 1 '--lora: r=2,,alpha=3: a comma without a key after it' --model "$models/qwen3_tied" --lora r=2,,alpha=3

# An option of another call, and a word that no option took.
ends 2 'there is no option --json; it is one of `ztrain bench` and `ztrain eval`' --model m --json
ends 2 'there is no option --table; it is one of `ztrain bench`' --model m --table
ends 2 'there is no option --stages; it is one of `ztrain bench`' eval m --data d --stages 1
ends 2 'there is no option --eval-rows; a benchmark trains on' bench --model m --eval-rows 2
ends 2 'unknown argument: target=q_proj; keys of --lora are one word, with commas: --lora r=8,target=q_proj' \
	--model m --lora r=8 target=q_proj
ends 2 'unknown argument: t.txt is a path; its option comes before it: --model, --data or --resume (see ztrain --help)' --steps 3 t.txt
ends 2 'unknown argument: bare is a path; its option comes before it: --model (see ztrain bench --help)' bench bare
ends 2 'unknown argument: x (see ztrain bench --help)' bench x
ends 2 'runs and bare: one step or model at a time' eval runs bare --data d
# What evaluations need is said at once.
ends 2 '--keep-best needs evaluations: --eval-every N, of --eval FILE or of the last rows of --data' --model m --keep-best
ends 2 '--patience needs evaluations: --eval-every N, of --eval FILE or of' --model m --patience 2
ends 2 '--eval-every needs rows to evaluate: --eval FILE, or --eval-rows N' --model m --eval-every 2
ends 1 'num_decay_steps is missing and has no default; give --lr-scheduler-args '"'"'{"num_decay_steps": N}'"'" \
	--model "$models/qwen3_tied" --lr-scheduler wsd
ends 1 "--lr-scheduler-args: cosine has no parameter 'num_cycle'; it has num_cycles" \
	--model "$models/qwen3_tied" --lr-scheduler cosine --lr-scheduler-args '{"num_cycle": 2}'
ends 1 "linear has no parameter 'power'; it has none" \
	--model "$models/qwen3_tied" --lr-scheduler linear --lr-scheduler-args '{"power": 2}'
ends 1 '--lr-scheduler-args: JSON: ' --model "$models/qwen3_tied" --lr-scheduler cosine --lr-scheduler-args cycles=2
for option in '--save-every 3' '--save-format dcp' '--save-format deepspeed' '--grace 3' --overwrite-steps; do
	# shellcheck disable=SC2086
	ends 2 "ztrain: ${option%% *} needs --save DIR" --model m $option
done
ends 1 '--lora: alhpa: unknown key; expected r, alpha, dropout, target or rslora' --model "$models/qwen3_tied" --lora alhpa=3

# Two sources of tokens: by the option that was typed.
ends 2 '--synthetic trains on synthetic tokens, --data on those of a file: remove --synthetic to' --model m --data d --synthetic
ends 2 'remove --synthetic-rows to train on the file, or --data' --model m --synthetic-rows 4 --data d
grep -qF -- '--synthetic ' said && bad 'an option is named that was not typed' || good

# Controls of the command line and of the environment never reach the terminal as they are.
evil=$(printf '\033[2J')
CUDA_VISIBLE_DEVICES=$evil "$ztrain" --check-launch > said 2>&1
"$ztrain" --model m "$evil" >> said 2>&1
"$ztrain" --steps "$evil" >> said 2>&1
! grep -q "$(printf '\033')" said && [ "$(grep -c 'x1b\[2J' said)" -ge 3 ] && good || bad 'controls in messages'

finish
