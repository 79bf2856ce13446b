#!/bin/bash
# usage: test_ztrain_out.sh
#
# What comes out of ztrain: a folder of weights that is the saved step, converted, at any number of
# ranks; and the tokens that a model continues with.  If this fails, what is handed out is not what
# was trained.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
# must WORDS COMMAND...
must() {
	local words=$1
	shift
	"$@" > said 2>&1 && good || bad "$words (exit status $?)"
}
# refused STATUS TEXT COMMAND...: that status, and a sentence with that text
refused() {
	local want=$1 text=$2 rc
	shift 2
	"$@" > said 2>&1
	rc=$?
	if [ $rc = "$want" ] && grep -qF -- "$text" said; then good; else
		bad "exit status $rc, $want is wanted, with '$text'"
	fi
}
# says WANT ARGUMENT...: what generate prints
says() {
	local want=$1
	shift
	"$ztrain" generate "$@" > said 2>&1
	if [ "$(cat said)" = "$want" ]; then good; else bad "generate $*: $want is wanted"; fi
}

for stage in 0 1 2 3; do
	for gather in true false; do
		cat > "z$stage-$gather.json" <<-END_OF_CONFIG
		{
			"train_batch_size": 24, "train_micro_batch_size_per_gpu": 1,
			"zero_optimization": {"stage": $stage, "stage3_gather_16bit_weights_on_model_save": $gather},
			"bf16": {"enabled": true},
			"optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}
		}
		END_OF_CONFIG
	done
done

# train FOLDER RANKS CONFIG OPTION...
train() {
	local folder=$1 ranks=$2 config=$3
	shift 3
	set -- "$ztrain" --model "$models/qwen3_tied" --config "$config.json" --steps 2 --seq 17 \
		--save "$folder" --quiet "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2>&1
}
# exported RANKS STAGE DTYPE: a run, its export, and what convert makes of the run
exported() {
	local ranks=$1 stage=$2 dtype=$3 name=w$1-z$2-$3
	train "$name" "$ranks" "z$stage-false" --export "$name-hf" --export-dtype "$dtype" ||
		bad "a run of $ranks ranks at stage $stage"
	"$zckpt" convert -q --dtype "$dtype" "$name" "$name-converted" > said 2>&1 || bad convert
	if [ -n "$(digest "$name-hf")" ] && [ "$(digest "$name-hf")" = "$(digest "$name-converted")" ] &&
		cmp "$name-hf/generation_config.json" "$models/qwen3_tied/generation_config.json" > said 2>&1; then
		good
	else
		bad "$ranks ranks, stage $stage: the export is not the step in $dtype"
	fi
}
# 24 micro-batches of any number of ranks are summed as one tree where that is a power of two
exported 1 0 fp32
exported 1 3 bf16
exported 1 2 fp16
if has_ranks; then
	for how in '2 1' '4 2' '8 3' '3 3'; do exported $how fp32; done
	for how in '2 0' '4 3'; do exported $how bf16; done
	for name in w2-z1-fp32 w4-z2-fp32 w8-z3-fp32; do
		must "$name is the export of one rank, to the byte" \
			cmp w1-z0-fp32-hf/model.safetensors $name-hf/model.safetensors
	done
else
	echo 'no mpirun, or ztrain without MPI: ranks were not tried'
fi

# The key of DeepSpeed: 16-bit weights, and a place for them; without it fp32.
train key 1 z3-true && "$zckpt" convert -q --dtype bf16 key key-converted > said 2>&1
if [ "$(digest key/weights)" = "$(digest key-converted)" ] &&
	grep -q '"dtype": "bfloat16"' key/weights/config.json; then good; else
	bad 'stage3_gather_16bit_weights_on_model_save: bf16 in key/weights'
fi
train key2 1 z3-true --export key2-hf && [ ! -e key2/weights ] &&
	grep -q '"dtype": "bfloat16"' key2-hf/config.json && good || bad '--export says where'
train key3 1 z3-false && [ ! -e key3/weights ] && good || bad 'false: nothing that nobody asked for'
train key4 1 z2-true && [ ! -e key4/weights ] && good || bad 'the key is of stage 3'
train key5 1 z3-true --stop-at 1 && [ ! -e key5/weights ] && good || bad 'not in the middle of a run'
must 'a resumed run, with weights in its folder' \
	"$ztrain" --model "$models/qwen3_tied" --config z3-true.json --steps 3 --seq 17 --save key --resume auto

# Calls that cannot be; nothing is trained for them.
one=("$ztrain" --model "$models/qwen3_tied" --steps 1 --quiet)
refused 1 'export to another folder' "${one[@]}" --export "$models/qwen3_tied/"
touch file
refused 1 'this is a file; expected a folder' "${one[@]}" --export file
refused 1 'expected a size' "${one[@]}" --export hf --max-shard-size 5XB
refused 2 'fp32, bf16 or fp16' "${one[@]}" --export hf --export-dtype int8
refused 2 '--export' "${one[@]}" --export-dtype bf16
refused 1 'need --export' "${one[@]}" --save nothing --export-dtype bf16
[ ! -e hf ] && good || bad 'a wrong call leaves nothing'
must 'shards' "${one[@]}" --export far/away/hf --max-shard-size 100KB
[ -e far/away/hf/model.safetensors.index.json ] && good || bad 'an index of shards'
echo mine > far/away/hf/README.md
must 'over what is there' "${one[@]}" --export far/away/hf
{ [ -e far/away/hf/README.md ] && [ -e far/away/hf/model.safetensors ] &&
	[ ! -e far/away/hf/model.safetensors.index.json ]; } && good || bad 'what else was there stays'

# ---- generate ----

m=$models/qwen3_tied
says '197,175,175,175,175,68,115,74' --model "$m" --prompt-ids 1,5,9 --max-new-tokens 8
printf '1 5\n9\n' > ids
says '197,175,175,175,175,68,115,74' --model "$m" --prompt-file ids --max-new-tokens 8 --threads 2
says '197,175,175,175,175,68,115,74' --model "$m" --prompt-file - --max-new-tokens 8 < ids
says '197,175,175,175,175,68,115,74' --model "$m" --prompt-ids 1,5,9 --max-new-tokens 8 --top-k 1

# A step of any form says what its weights do.
for format in native deepspeed universal dcp; do
	train "g-$format" 1 z2-false --save-format $format --export "g-$format-hf"
	want=$("$ztrain" generate --model "g-$format-hf" --prompt-ids 7)
	says "$want" --model "g-$format" --config "$m" --prompt-ids 7
done
refused 1 'give its folder by --config' "$ztrain" generate --model g-native --prompt-ids 7

# Draws are a function of the seed.
draw() { "$ztrain" generate --model "$m" --prompt-ids 1,5 --temperature 2 --ignore-eos "$@"; }
{ [ "$(draw --seed 3)" = "$(draw --seed 3)" ] && [ "$(draw --seed 3)" != "$(draw --seed 4)" ]; } &&
	good || bad 'the same seed says the same, another one something else'

# A token that ends a text: number, list, and not with --ignore-eos.
cp -r "$m" eos
for list in 175 '[3, 175]'; do
	echo "{\"eos_token_id\": $list}" > eos/generation_config.json
	says 197,175 --model eos --prompt-ids 1,5,9
done
says '197,175,175,175' --model eos --prompt-ids 1,5,9 --ignore-eos --max-new-tokens 4
"$ztrain" generate --model eos --prompt-ids 1,5,9 --json > said
grep -q '"ids": \[197,175\], "logprobs": \[-3.7575[0-9]*, -3.8119[0-9]*\], "end": "eos"' said &&
	good || bad '--json'

# Bytes: a model whose tokens they are.
says "$("$ztrain" generate --model "$m" --prompt-ids 104,105 --ignore-eos --max-new-tokens 5 |
	awk -F, '{ for (i = 1; i <= NF; i++) printf "%c", $i }' LC_ALL=C)" \
	--model "$m" --prompt hi --bytes --ignore-eos --max-new-tokens 5

refused 1 'none.safetensors: No such file' "$ztrain" generate --model none.safetensors --prompt-ids 1
refused 2 '--model' "$ztrain" generate --prompt-ids 1
refused 2 'give the prompt by --prompt-ids' "$ztrain" generate --model "$m"
refused 2 '--bytes' "$ztrain" generate --model "$m" --prompt hello
refused 2 'not an option: x' "$ztrain" generate --model "$m" --prompt-ids 1 x
refused 2 'fp32, bf16 or fp16' "$ztrain" generate --model "$m" --prompt-ids 1 --dtype int4
refused 2 'from 0 to 1' "$ztrain" generate --model "$m" --prompt-ids 1 --top-p 1.5
refused 1 'at byte 2' "$ztrain" generate --model "$m" --prompt-ids 1,x
refused 1 'no tokens' "$ztrain" generate --model "$m" --prompt-ids ,
refused 1 'vocabulary of 257' "$ztrain" generate --model "$m" --prompt-ids 1,257
refused 1 'max_position_embeddings, 512' "$ztrain" generate --model "$m" --prompt-ids 1 --max-new-tokens 512
refused 1 nowhere "$ztrain" generate --model nowhere --prompt-ids 1
refused 1 'config.json requires' "$ztrain" generate --model "$models/llama3" --config "$m" --prompt-ids 1
"$ztrain" generate --help | grep -q -- --top-p && good || bad '--help'
if test -w /dev/full; then
	for command in --help 'generate --help' "--model $models/qwen3_tied --steps 1 --seq 8"; do
		# shellcheck disable=SC2086
		"$ztrain" $command > /dev/full 2> said
		if [ $? = 1 ] && grep -q 'stdout: write failed' said; then good; else bad "'$command' on a full disk"; fi
	done
fi

finish
