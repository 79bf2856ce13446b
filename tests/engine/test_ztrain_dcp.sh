#!/bin/bash
# usage: test_ztrain_dcp.sh
#
# Steps that ztrain saves as folders of torch.distributed.checkpoint.  If this fails, a run that
# resumes from one is another run than its native step gives, or the tools for runs lose such steps.
#
#   worlds    saved by 1, 4 and 7 ranks at several stages, resumed by 1, 2, 4 and 7 at others: the
#             losses, norms and digests are those of the same run resumed from the native form
#   precision the same for fp32 and fp16, whose loss scale moves, and a schedule of transformers
#   runs      'latest', ls, latest, inspect, verify, prune, convert and reshard on a run of such steps
#   damage    a step with a missing or cut file is skipped; without an older one the run ends
# What stock torch loads of them, and folders of other programs: tests/interop/ztrain_cases.py.
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
		"\"zero_optimization\": {\"stage\": $stage}, $precision" \
		'"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}}' > z.json
	# shellcheck disable=SC2086
	timeout -k 5 100 $start "$ztrain" --model "$models/qwen3_tied" --config z.json --seq 8 --steps 5 --device cpu \
		--lr-scheduler cosine --warmup-steps 1 --exact "$@" > said 2>&1 < /dev/null
	local rc=$?
	cp said "$name.said"
	grep '^step' said > "$name.log"
	return $rc
}

# both NAME WORLD STAGE PRECISION: three steps, saved in both forms
both() {
	train "$1" "$2" "$3" "$4" --stop-at 3 --save "$1-native" || bad "$1: saved"
	train "$1" "$2" "$3" "$4" --stop-at 3 --save "$1-dcp" --save-format dcp || bad "$1: saved as DCP"
	[ "$(digest "$1-native")" = "$(digest "$1-dcp")" ] && good || bad "$1: another state is saved"
	"$zckpt" verify -q --full "$1-dcp" > said 2>&1 && good || bad "$1: verify"
}

# resumed NAME WORLD STAGE PRECISION: the rest, from both
resumed() {
	rm -rf a b
	train a "$2" "$3" "$4" --resume "$1-native" --save a || bad "$1 at $2 ranks, native"
	train b "$2" "$3" "$4" --resume "$1-dcp" --save b --save-format dcp || bad "$1 at $2 ranks of stage $3"
	if [ "$(wc -l < b.log)" = 2 ] && cmp -s a.log b.log && [ "$(digest a)" = "$(digest b)" ] &&
		[ "$(grep '^bits:' a.said)" = "$(grep '^bits:' b.said)" ]; then
		good
	else
		bad "$1 resumed by $2 ranks of stage $3 is another run"
		diff a.log b.log | head -n 4
	fi
}

bf16='"bf16": {"enabled": true},'
both w4 4 3 "$bf16"
resumed w4 1 0 "$bf16"
resumed w4 2 2 "$bf16"
resumed w4 4 1 "$bf16"
resumed w4 7 3 "$bf16"
both w1 1 1 "$bf16"
resumed w1 4 3 "$bf16"
both w7 7 2 "$bf16"
resumed w7 2 3 "$bf16"
resumed w7 7 2 "$bf16"

both f32 2 2 ''
resumed f32 4 0 ''
# the first scale overflows: it is halved, and its count is part of the step
fp16='"fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1, "loss_scale_window": 2},'
both f16 2 1 "$fp16"
grep -q skipped f16.said && good || bad 'fp16: no step overflows, so its scale does not move'
resumed f16 4 2 "$fp16"

# ---- a run of such steps
rm -rf run
train run 2 2 "$bf16" --save run --save-every 1 --save-format dcp || bad 'a run'
{ [ "$(cat run/latest)" = global_step5 ] && [ -s run/global_step5/.metadata ] && [ -s run/global_step5/__1_0.distcp ]; } &&
	good || bad "'latest' and the files of a step"
"$zckpt" ls run > said 2>&1 && [ "$(grep -c 'dcp .* yes *global_step[1-5]' said)" = 5 ] && good || bad 'ls'
"$zckpt" latest --valid run > said 2>&1 && grep -q global_step5 said && good || bad 'latest'
"$zckpt" inspect run > said 2>&1
has_text inspect 'format       dcp, 2 ranks' 'step         5' 'exp_avg_sq'
"$zckpt" verify --full run > said 2>&1 && good || bad 'verify'
"$zckpt" prune --keep-last 2 --apply run > said 2>&1
[ "$(cd run && echo global_step*)" = 'global_step4 global_step5' ] && good || bad 'prune keeps the last two'
"$zckpt" convert -q run/global_step5 hf > said 2>&1 && [ -s hf/config.json ] && good || bad 'convert'
"$zckpt" reshard -q --to native --world 3 run moved > said 2>&1 || bad 'reshard'
[ "$(digest moved)" = "$(digest run)" ] && good || bad 'resharded to native: another state'
for step in 3 6; do
	train again 2 2 "$bf16" --save run --stop-at $step --steps 6 --resume auto --save-format dcp || bad 'resumed in its folder'
done
grep -q 'resumed at step 5 from run/global_step5' said && [ "$(cat run/latest)" = global_step6 ] && good ||
	bad 'resumed in its folder at step 5'

# ---- damage
rm run/global_step6/__1_0.distcp
train d 1 0 "$bf16" --resume run --stop-at 5 && has_text 'a missing file' 'skipped run/global_step6' 'step 5 from run/global_step5' ||
	bad 'a missing file'
mv run/global_step5/.metadata hidden
train d 1 0 "$bf16" --resume run --stop-at 5 && has_text 'no .metadata' 'step 4 from run/global_step4' || bad 'no .metadata'
truncate -s -700 run/global_step4/__0_0.distcp
train d 1 0 "$bf16" --resume run && bad 'no whole step' || has_text 'no whole step' 'none is complete'

finish
