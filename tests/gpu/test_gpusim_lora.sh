#!/usr/bin/env bash
# usage: tests/gpu/test_gpusim_lora.sh
#
# --lora and --freeze on simulated GPUs (tests/gpusim).
#
#   cpu       losses and norms are those of CPU ranks, at every stage, with all that is kept or
#             computed again, with the optimizer and the parameters on the host
#   tree      --reduction tree: one digest at 1, 2 and 4 ranks and stages 0 to 3
#   files     saved by GPUs, resumed by CPU ranks, and the other way; the exported adapter is the same
#   host      parameters on the host, the frozen ones too: the bits of a run that has them on GPUs
set -u
# shellcheck source=tests/gpu/gpusim.sh
. "$(dirname "$0")/gpusim.sh"
need_models
need_ranks
export FAKE_GPU_SEED=1

# train DEVICE FOLDER MODEL TYPE RANKS STAGE OPTION...: 4 micro-batches a step
zero=
train() {
	local device=$1 folder=$2 model=$3 type=$4 ranks=$5 stage=$6 as=
	shift 6
	[ "$type" = fp32 ] || as="\"$type\": {\"enabled\": true},"
	echo "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, $as" \
		"\"zero_optimization\": {\"stage\": $stage$zero}}" > z.json
	set -- "$ztrain" --device "$device" --model "$models/$model" --config z.json --seq 33 \
		--lr 3e-3 --data "$data" --save "$folder" --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	FAKE_GPU_SEED=$((FAKE_GPU_SEED + 1))
	timeout -k 5 200 "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
}
# near TOLERANCE: losses and norms of 'want' and 'steps', relative
near() {
	awk -v tol="$1" 'FNR == NR { loss[FNR] = $4; norm[FNR] = $8; next }
		{ a = $4 / loss[FNR] - 1; b = ($8 / norm[FNR] - 1) / 10
		  a = a < 0 ? -a : a; b = b < 0 ? -b : b; n += a <= tol && b <= tol }
		END { exit n != FNR || !n }' want steps
}
# both WORDS MODEL TYPE RANKS STAGE OPTION...
both() {
	local words=$1 tolerance=1e-6
	shift
	[ "$2" = fp32 ] || tolerance=3e-3
	rm -rf cpu cuda
	train cpu cpu "$@" --steps 3 || { bad "$words on the CPU"; return; }
	mv steps want
	if ! train cuda cuda "$@" --steps 3; then
		bad "$words"
	elif near $tolerance; then
		good
	else
		paste want steps > said
		bad "$words: other losses or norms"
	fi
}
all='--lora r=4,alpha=8,target=all-linear'
for how in '1 0' '2 1' '2 2' '2 3' '4 3'; do
	# shellcheck disable=SC2086
	both "adapters, $how" qwen25 fp32 $how $all
done
# shellcheck disable=SC2086
{
both 'all kept' qwen3 fp32 2 2 $all --keep-all
both 'all computed again' llama3 bf16 2 3 $all --recompute
}
both 'some modules' qwen3_tied fp32 2 3 --lora r=3,target=k_proj+o_proj+up_proj,rslora
both 'two of three side by side' llama3 fp32 2 2 --lora r=4,target=q_proj+v_proj+gate_proj+up_proj
both 'the same with dropout' qwen3 fp32 2 2 --lora r=4,dropout=0.2,target=k_proj+v_proj+up_proj --eval-rows 2 --eval-every 1
both 'dropout' qwen25 fp32 2 2 --lora r=4,alpha=8,dropout=0.2,target=all-linear
both 'dropout of one module, recomputed' qwen3 bf16 2 3 --lora r=4,dropout=0.5,target=down_proj --recompute
both 'gate alone, in bf16' qwen25_tied bf16 2 1 --lora r=8,target=gate_proj
both 'frozen embedding and norms' llama3_tied fp32 2 3 --freeze '*embed*' --freeze '*norm*'
both 'a frozen beginning' llama3 fp32 2 0 --freeze '*embed*' --freeze 'model.layers.0.*' --freeze '*up_proj*'
both 'only the head' qwen25 fp32 1 0 --freeze 'model.*'
both 'keys and norms of heads' qwen3 fp32 4 2 --freeze '*.k_proj.*' --freeze '*.?_norm*'
zero=', "offload_optimizer": {"device": "cpu"}'
# shellcheck disable=SC2086
both 'the optimizer on the host' qwen25 fp32 2 2 $all
both 'the same, frozen' llama3_tied bf16 2 3 --freeze '*embed*'
zero=', "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}'
# shellcheck disable=SC2086
{
both 'parameters on the host' qwen25 fp32 2 3 $all
both 'the same, one rank, recomputed' qwen3 bf16 1 3 $all --recompute
}
both 'the same, frozen' llama3_tied bf16 2 3 --freeze '*embed*' --freeze 'model.layers.0.*'
zero=

# ---- host
# on_host TYPE RANKS OPTION...
on_host() {
	local type=$1 ranks=$2
	shift 2
	rm -rf one other
	train cuda one qwen3_tied "$type" "$ranks" 3 "$@" --steps 3 || { bad "$*: on GPUs"; return; }
	tail -n 1 steps > want
	zero=', "offload_param": {"device": "cpu"}'
	train cuda other qwen3_tied "$type" "$ranks" 3 "$@" --steps 3 --stop-at 2 || bad "$*: on the host"
	train cuda other qwen3_tied "$type" "$ranks" 3 "$@" --steps 3 --resume auto --counters || bad "$*: resumed on the host"
	zero=
	has_text "$*" 'held  host parameters'
	lacks_text "$*" 'held  parameters'
	if cmp -s want steps && [ "$(digest one)" = "$(digest other)" ]; then
		good
	else
		paste want steps > said
		bad "$*: other bits on the host"
	fi
}
# shellcheck disable=SC2086
for ranks in 1 2; do
	for type in bf16 fp32; do
		on_host $type $ranks $all
		on_host $type $ranks --random --seed 7 --freeze '*embed*' --freeze '*norm*' --freeze 'model.layers.1.*'
	done
done

# shellcheck disable=SC2086
for type in fp32 bf16; do
	rm -rf one
	train cuda one qwen25 $type 1 0 $all --steps 3 --reduction tree || bad "$type, one rank"
	mv steps want
	for how in '2 0' '2 3' '4 1' '4 2' '4 3'; do
		rm -rf other
		train cuda other qwen25 $type $how $all --steps 3 --reduction tree || bad "$type, $how"
		if cmp -s want steps && [ "$(digest one)" = "$(digest other)" ]; then
			good
		else
			bad "$type, $how: other bits"
		fi
	done
done

# shellcheck disable=SC2086
for format in native deepspeed; do
	rm -rf a b
	train cuda a qwen25 bf16 2 3 $all --steps 3 --stop-at 2 --save-format $format || bad "$format: GPUs save"
	cp -r a b
	train cuda a qwen25 bf16 2 2 $all --steps 3 --resume auto --export adapter || bad "$format: GPUs resume"
	mv steps want
	train cpu b qwen25 bf16 1 0 $all --steps 3 --resume auto || bad "$format: CPU ranks resume"
	near 3e-3 && good || bad "$format: CPU ranks go on otherwise"
	train cuda b qwen25 bf16 1 1 $all --steps 4 --resume auto && good || bad "$format: GPUs resume those of CPU ranks"
done
"$zckpt" inspect adapter > said 2>&1
has_text 'the exported adapter' 'LoRA adapter for' 'r=4'
rm -rf from
# shellcheck disable=SC2086
train cuda from qwen25 bf16 2 2 --steps 0 --lora-from adapter --export again || bad 'from the exported adapter'
cmp -s adapter/adapter_model.safetensors again/adapter_model.safetensors && good || bad 'an adapter that was read is another'
cmp -s adapter/adapter_config.json again/adapter_config.json && good || bad 'adapter_config.json is another'
train cuda from qwen25 bf16 2 2 --steps 0 --overwrite-steps --lora-from adapter --merge --export gpu || bad 'merged by GPUs'
train cpu from qwen25 bf16 1 0 --steps 0 --overwrite-steps --lora-from adapter --merge --export cpu.model || bad 'merged by CPU ranks'
cmp -s gpu/model.safetensors cpu.model/model.safetensors && good || bad 'GPUs merge otherwise than CPU ranks'
finish
