#!/bin/bash
# usage: test_gpusim_fp8.sh
#
# ztrain --fp8 with simulated GPUs (tests/gpusim).  If this fails, a run with products of 8-bit numbers
# depends on how it is cut into ranks, stages and kept activations, or goes another way than bf16's.
#
#   bits     with --reduction tree: 1 and 2 ranks, stages 0 to 3, recomputed, all kept: the same bits
#   near     losses are near those of bf16, and not the same; no product in 8 bits where none fits
#   adapters fp8 of frozen matrices: the same bits at other ranks and stages, near bf16; joined and apart
#   resumed  the recipe is in the step, and a resumed run with another one says so
#   memory   zckpt plan --fp8 counts what the counters rise by, to the byte
#   refused  CPU ranks and fp32
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_ranks
bad() {
	failed=$((failed + 1))
	echo "FAILED $*"
	[ ! -s said ] || grep -av '^ ' said | tail -n 4 | sed 's/^/    /'
}

# model NAME HIDDEN INTER: Qwen3 with a head of its own
model() {
	echo "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": 96," \
		"\"hidden_size\": $2, \"intermediate_size\": $3, \"num_hidden_layers\": 3," \
		'"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "hidden_act": "silu",' \
		'"max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,' \
		'"tie_word_embeddings": false}' > "$1"
}
model fits.json 64 96
model odd.json 40 72

# train RANKS STAGE UNITS MODEL OPTION...: 8 rows of 16 tokens a step; 'steps' gets losses
zero=
train() {
	local ranks=$1 stage=$2 units=$3 model=$4
	shift 4
	echo "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": $units," \
		'"bf16": {"enabled": true}, "gradient_clipping": 1.0,' \
		"\"zero_optimization\": {\"stage\": $stage$zero}}" > z.json
	set -- "$ztrain" --device cuda --model "$model" --config z.json --seq 16 --lr 3e-3 --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	timeout -k 5 100 "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
}
same() { cmp -s want steps && good || { bad "other bits: $*"; diff want steps; }; }

# ---- bits
for recipe in tensorwise tensorwise_with_gw_hp; do
	train 1 0 4 fits.json --random --steps 3 --reduction tree --fp8 $recipe || bad "$recipe"
	mv steps want
	for how in '1 2 4' '1 3 4' '2 1 2' '2 2 2' '2 3 2' '1 1 4 --recompute' '2 3 2 --recompute' '2 2 2 --keep-all'; do
		# shellcheck disable=SC2086
		set -- $how
		FAKE_GPU_SEED=$RANDOM train "$1" "$2" "$3" fits.json --random --steps 3 --reduction tree \
			--fp8 $recipe ${4:-} || bad "$recipe: $how"
		same "$recipe: $how"
	done
	mv want "$recipe"
done
cmp -s tensorwise tensorwise_with_gw_hp && bad 'both recipes have the same bits' || good

# ---- near bf16
# near TOLERANCE: losses of 'want' and 'steps', relative
near() {
	awk -v tol="$1" 'FNR == NR { loss[FNR] = $4; next }
		{ a = $4 / loss[FNR] - 1; n += a <= tol && a >= -tol; same += a == 0 }
		END { exit n != FNR || !n || same == FNR }' want steps
}
train 1 2 4 fits.json --random --steps 6 || bad bf16
mv steps want
train 1 2 4 fits.json --random --steps 6 --fp8 || bad '--fp8 alone'
grep -q "linear layers in fp8 (tensorwise)," said && good || bad 'the recipe is not named'
near 0.02 && good || { bad 'far from bf16, or equal to it'; diff want steps; }

# ---- adapters
for lora in r=4,alpha=8,target=all-linear r=4,alpha=8,target=q_proj+up_proj; do
	train 1 0 4 fits.json --random --steps 4 --reduction tree --lora $lora || bad "bf16, $lora"
	mv steps want
	train 1 0 4 fits.json --random --steps 4 --reduction tree --lora $lora --fp8 || bad "fp8, $lora"
	near 0.02 && good || { bad "far from bf16, or equal to it: $lora"; diff want steps; }
	mv steps want
	for how in '2 2 2' '2 3 2' '1 1 4 --recompute' '2 2 2 --keep-all'; do
		# shellcheck disable=SC2086
		set -- $how
		FAKE_GPU_SEED=$RANDOM train "$1" "$2" "$3" fits.json --random --steps 4 --reduction tree \
			--lora $lora --fp8 ${4:-} || bad "$lora: $how"
		same "$lora: $how"
	done
	zero=', "offload_param": {"device": "cpu"}'
	for how in '1 3 4' '2 3 2'; do
		# shellcheck disable=SC2086
		FAKE_GPU_SEED=$RANDOM train $how fits.json --random --steps 4 --reduction tree --lora $lora --fp8 ||
			bad "$lora, parameters on the host: $how"
		same "$lora, parameters on the host: $how"
	done
	zero=
done
train 1 0 4 fits.json --random --steps 2 --fp8 --freeze '*layers.1.*proj*' &&
	bad 'layers that are not alike are taken' || good
grep -q 'fp8 needs layers that are alike' said && good || bad 'layers that are not alike: no reason'

train 1 2 4 odd.json --random --steps 3 || bad 'bf16, no shape that fits'
mv steps want
train 1 2 4 odd.json --random --steps 3 --fp8 || bad 'no shape that fits'
same 'no shape fits, so all is in 16 bits'

# ---- resumed
train 2 2 2 fits.json --random --steps 4 --stop-at 2 --save run --save-format deepspeed --fp8 || bad 'saved'
train 2 2 2 fits.json --steps 4 --resume auto --save run --stop-at 3 --fp8 || bad 'resumed'
grep -q '^fp8:' said && bad 'the same recipe is a difference' || good
train 1 3 4 fits.json --steps 4 --resume auto --save run || bad 'resumed without fp8'
grep -q '^fp8: the step has tensorwise, this run off' said && good || bad 'another recipe is not noted'

# ---- refused
if timeout 20 "$ztrain" --device cpu --model fits.json --random --steps 1 --precision bf16 --fp8 > said 2>&1; then
	bad 'fp8 on CPU ranks'
fi
grep -q '^ztrain: --fp8: CPU ranks' said && good || bad 'CPU ranks: the sentence'
if timeout 20 "$ztrain" --device cuda --model fits.json --random --steps 1 --fp8 > said 2>&1; then bad 'fp8 in fp32'; fi
grep -q 'give --precision bf16' said && good || bad 'fp32: the sentence'
# ---- memory: what `zckpt plan` counts is what the counters rise by
# shape ARCHITECTURE TYPE: a config.json whose matrices all have products of 8 bits
shape() {
	cat <<END
{
	"architectures": ["$1"], "model_type": "$2", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96,
	"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 257,
	"rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": false,
	"initializer_range": 0.02
}
END
}
shape LlamaForCausalLM llama > llama.json
shape Qwen2ForCausalLM qwen2 > qwen2.json
shape Qwen3ForCausalLM qwen3 > qwen3.json
counted() { sed -n 's/^rank 0  held  work *\([0-9]*\) bytes/\1/p' "$1"; }
# as_planned RANKS STAGE ACCUMULATION MODEL RECIPE OPTION...: the options are of both programs
as_planned() {
	local n=$1 stage=$2 steps=$3 shape=$4 recipe=$5 said plain launch=()
	shift 5
	echo "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": $steps,
		\"zero_optimization\": {\"stage\": $stage}, \"bf16\": {\"enabled\": true}}" > m.json
	[ "$n" = 1 ] || launch=("$mpirun" -n "$n")
	for fp8 in '' "$recipe"; do
		${launch[@]+"${launch[@]}"} "$ztrain" --device cuda --model "$shape.json" --config m.json --synthetic-rows 64 \
			--seq 16 --steps 1 --counters -q ${fp8:+--fp8 "$fp8"} "$@" > "held.${fp8:-off}" 2>&1 || { bad "$fp8: it fails"; cat "held.${fp8:-off}"; }
	done
	said=$("$zckpt" plan --engine ztrain -n "$n" --stage "$stage" --accumulation "$steps" --micro 2 --seq 16 --fp8 "$recipe" \
		--json "$shape.json" "$@" | sed -n 's/.*"fp8 copies on a GPU, not in the sum", "bytes": \([0-9]*\).*/\1/p')
	plain=$(counted held.off)
	[ -n "$said" ] && [ "$(counted "held.$recipe")" = "$((plain + said))" ] && good ||
		bad "$n $stage $steps $shape $recipe $*: the plan says '$said', the counters $plain and $(counted "held.$recipe")"
}
for recipe in tensorwise tensorwise_with_gw_hp tensorwise_fast; do
	as_planned 1 2 1 llama $recipe
	as_planned 1 3 2 qwen2 $recipe
done
as_planned 1 1 2 qwen3 tensorwise
as_planned 1 2 2 qwen2 tensorwise --lora r=16,target=q_proj+v_proj
as_planned 2 2 2 qwen2 tensorwise
as_planned 2 3 2 qwen3 tensorwise
finish
