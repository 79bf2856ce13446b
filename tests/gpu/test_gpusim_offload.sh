#!/bin/bash
# usage: test_gpusim_offload.sh
#
# ztrain on simulated GPUs, with the optimizer and parameters on the host or on a drive: the
# run with everything on the GPU, in whatever order streams continue (torch's rule is the same one
# here and there, and only then bits can be the same).  If this fails, a copy between host and GPU
# is not waited for, or states are not what they are said to be.
#
#   same      1 and 2 ranks, stages 1 to 3, clipped, accumulated: losses, norms, the saved state
#   half      saved by one, gone on by the other, with all of what is offloaded
#   rule      without torch_adam the host's update is DeepSpeedCPUAdam's: near, and another one
#   held      the counters say where it is; the drive's folder is empty
#   trace     the update of the host and what goes up are in it
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/../engine/ztrain.sh"
ztrain=$build/ztrain-gpusim
[ -x "$ztrain" ] || skip "$ztrain is missing (make gpusim)"
need_models

# config NAME STAGE BLOCKS ADAM: 8 rows a step
config() {
	cat > "$1.json" <<END
{
	"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
	"bf16": {"enabled": true},
	"zero_optimization": {"stage": $2$3},
	"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1$4}}
}
END
}
optimizer=', "offload_optimizer": {"device": "cpu"}'
params=', "offload_param": {"device": "cpu"}'
drive=", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"$PWD/drive\"}"
torch=', "torch_adam": true'
for stage in 1 2 3; do
	config "plain$stage" $stage '' "$torch"
	config "host$stage" $stage "$optimizer" "$torch"
done
config both3 3 "$optimizer$params" "$torch"
config params3 3 "$params" "$torch"
config drive3 3 "$drive" "$torch"
config all3 3 "$drive$params" "$torch"

# train NAME CONFIG RANKS SEED OPTION...
train() {
	local name=$1 config=$2 ranks=$3 seed=$4
	shift 4
	set -- "$ztrain" --model "$models/qwen3_tied" --config "$config.json" --device cuda --steps 4 \
		--seq 32 --save "$name" --exact --counters --threads 2 "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	FAKE_GPU_SEED=$seed logged "$name" "$@"
}

# ---- same
worlds=1
has_ranks && worlds='1 2'
seed=0
for ranks in $worlds; do
	for stage in 1 2 3; do
		train "plain$stage-$ranks" "plain$stage" "$ranks" 1 || bad "stage $stage, $ranks ranks"
		ways="host$stage"
		[ $stage = 3 ] && ways='host3 both3 params3 drive3 all3'
		for way in $ways; do
			seed=$((seed + 1))
			train "$way-$ranks" "$way" "$ranks" $seed || bad "$way, $ranks ranks"
			same "$way, $ranks ranks, seed $seed" "plain$stage-$ranks" "$way-$ranks"
		done
	done
done
train eager both3 1 eager && same 'eager' plain3-1 eager || bad 'eager'
for seed in 11 12 13; do
	train again all3 1 $seed && same "seed $seed" plain3-1 again || bad "seed $seed"
	rm -rf again
done

# ---- half
train half all3 1 5 --stop-at 2 && train half plain3 1 6 --resume auto && same 'offloaded, then not' \
	plain3-1 half || bad 'offloaded, then not'
rm -rf half
train half plain3 1 7 --stop-at 2 && train half all3 1 8 --resume auto && same 'not, then offloaded' \
	plain3-1 half || bad 'not, then offloaded'

# ---- rule
config fused 3 '' ''
config cpuadam 3 "$optimizer" ''
train fused fused 1 1 && train cpuadam cpuadam 1 2 || bad 'the other rules'
loss() { sed -n 's/^step 4  loss \([0-9.]*\).*/\1/p' "$1.log"; }
near=$(awk -v a="$(loss fused)" -v b="$(loss cpuadam)" 'BEGIN { d = a - b; print (d < 0 ? -d : d) < 0.01 * a }')
{ [ "$near" = 1 ] && [ "$(digest fused)" != "$(digest cpuadam)" ]; } && good ||
	{ cat fused.log cpuadam.log > said; bad 'DeepSpeedCPUAdam is near, and another'; }

# ---- held
grep -q 'held  optimizer' plain3-1.said && ! grep -q 'held  host' plain3-1.said && good || bad 'held: plain'
for kind in optimizer parameters; do
	{ grep -q "held  host $kind" both3-1.said && ! grep -q "held  $kind" both3-1.said; } && good ||
		{ cp both3-1.said said; bad "held: $kind of the host"; }
done
grep -q "masters and moments in $PWD/drive, by " drive3-1.said && [ -z "$(ls -A drive)" ] && good ||
	bad 'the drive'

# ---- trace: the host's cores and the copies have rows of their own
if "$ztrain" bench --model "$models/qwen3_tied" --config host1.json --device cuda --seq 32 --steps 1 \
	--warmup 1 --trace trace.json > said 2>&1; then
	for what in adam 'wait for gradients' 'parameters up'; do
		grep -q "\"$what" trace.json && good || bad "the trace has no '$what'"
	done
else
	bad 'a trace'
fi

finish
