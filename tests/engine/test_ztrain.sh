#!/bin/bash
# usage: test_ztrain.sh
#
# ztrain from the outside: a run that was stopped, resharded and resumed at another number of ranks
# and another stage has the bits of the run that never was.  If this fails, a checkpoint is not the
# run's state, or a run depends on who runs it.
#
#   alone     one rank: stages 0 to 3 and recomputation make no difference; resumed from every format
#   ranks     8 ranks of stage 3, resharded to 4 of stage 2, with mpirun
#   ends      SIGTERM: saved and ended; wrong calls and files: a sentence and a status
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models

for stage in 0 1 2 3; do
	cat > "z$stage.json" <<END
{
	"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1,
	"zero_optimization": {"stage": $stage}, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
	"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
	"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": "auto", "warmup_max_lr": 3e-3}}
}
END
done

# train FOLDER STAGE [RANKS] OPTION...: steps and norms go to FOLDER.log
train() {
	local folder=$1 stage=$2 ranks=$3
	shift 3
	set -- "$ztrain" --model "$models/qwen3_tied" --config "z$stage.json" --steps 6 --seq 33 \
		--save "$folder" --exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	logged "$folder" "$@"
}

train base 0 1 || bad 'a run of one rank'
for stage in 1 2 3; do
	train "s$stage" $stage 1 --recompute || bad "stage $stage"
	same "stage $stage with recomputation is the same run" base "s$stage"
done
train two 2 1 --threads 2 && same 'two threads are the same run' base two || bad 'two threads'

for format in native deepspeed universal dcp; do
	train "half-$format" 2 1 --stop-at 3 --save-format $format || bad "half a run, $format"
	"$zckpt" verify -q --full "half-$format" > said 2>&1 || bad "$format verifies"
	train "half-$format" 3 1 --resume auto --save-format native || bad "the other half, $format"
	same "resumed from $format" base "half-$format"
done

# What a configuration says of DeepSpeed's layout is how files are laid out, and what it offloads is
# counted as the host's.
layout() {	# NAME ZERO OPTION...
	local name=$1 zero=$2
	shift 2
	sed "s/\"stage\": 3/$zero/" z3.json > "$name.json"
	"$@" "$ztrain" --model "$models/qwen3_tied" --config "$name.json" --steps 2 --seq 33 --save "$name" \
		--save-format deepspeed --counters > said 2>&1 || { bad "$name"; return; }
	"$zckpt" verify -q --full "$name" > said.verify 2>&1 && good || bad "$name verifies"
}
layout plain '"stage": 3'
grep -q 'held  optimizer' said && good || bad 'an optimizer that is not offloaded'
layout grouped '"stage": 3, "sub_group_size": 20000, "offload_optimizer": {"device": "cpu"}'
{ grep -q 'held  host optimizer' said && ! grep -q 'held  optimizer' said; } && good || bad 'offloaded: the host'"'"'s'
"$zckpt" map --all --state exp_avg plain > map.plain && "$zckpt" map --all --state exp_avg grouped > map.grouped
cmp -s map.plain map.grouped && bad 'sub_group_size has no effect' || good

# Other weights, and none.
"$ztrain" --model "$models/llama3/config.json" --steps 2 --exact -q > said 2>&1 && good ||
	bad 'random weights of a config.json'
"$ztrain" --model nowhere > said 2>&1
{ [ $? = 1 ] && grep -q 'nowhere' said; } && good || bad 'no model: status 1, and its name'
"$ztrain" > said 2>&1
[ $? = 2 ] && good || bad 'no --model: status 2'
"$ztrain" --device cpu --model "$models/llama3/config.json" --steps 1 --keep-all -q > said 2>&1
{ [ $? = 0 ] && grep -q -- '--keep-all has no effect' said; } && good || bad '--keep-all of CPU ranks'
echo '{"zero_optimization": {"stage": 9}}' > odd.json
"$ztrain" --model "$models/llama3" --config odd.json > said 2>&1
{ [ $? = 1 ] && grep -q 'stage' said; } && good || bad 'stage 9 is refused by its name'

# SIGTERM after the first steps: saved there, and resumed from there.
: > said
"$ztrain" --model "$models/qwen3_tied" --config z2.json --steps 100000 --seq 33 --save term --exact \
	> said 2>&1 &
pid=$!
for _ in $(seq 200); do [ "$(grep -c '^step' said)" -ge 3 ] && break; sleep 0.05; done
kill -TERM $pid
if wait $pid && grep -q 'stopped by a signal after step' said && "$zckpt" verify -q term > /dev/null; then
	good
else
	bad 'SIGTERM: saved, and status 0'
fi

if has_ranks; then
	train full 3 8 || bad '8 ranks'
	same '8 ranks of stage 3 are the run of one' base full
	train a 3 8 --stop-at 3 || bad '8 ranks, half'
	"$zckpt" reshard -q --stage 2 '8->4' a b > said 2>&1 || bad reshard
	train b 2 4 --resume auto --save-format deepspeed || bad '4 ranks, the other half'
	same 'resharded from 8 to 4 and resumed' full b
	layout inorder '"stage": 2' "$mpirun" -n 2
	layout robin '"stage": 2, "round_robin_gradients": true' "$mpirun" -n 2
	[ "$(digest inorder)" = "$(digest robin)" ] && good || bad 'round robin has another state'
	"$zckpt" map --all --state exp_avg inorder > map.plain && "$zckpt" map --all --state exp_avg robin > map.robin
	cmp -s map.plain map.robin && bad 'round_robin_gradients has no effect' || good
	# A folder a rank: together they are the step, which one reshard puts together.
	sed 's/"bf16"/"checkpoint": {"use_node_local_storage": true}, "bf16"/' z2.json > z5.json
	train apart 5 2 --stop-at 3 || bad 'node-local storage'
	train whole 2 2 --stop-at 3 || bad '2 ranks, half'
	[ "$("$zckpt" digest -q apart/rank-* 2>&1 | tail -n 1)" = "$(digest whole)" ] && good ||
		bad 'folders of ranks are the step'
	train apart 5 2 --resume auto && bad 'folders of ranks are gone on from' || good
	grep -q 'zckpt reshard --to native rank-' said && good || bad 'what to do with them'
	"$zckpt" reshard -q --to native apart/rank-* together > said 2>&1 || bad 'put together'
	train together 2 2 --resume auto || bad 'gone on from what was put together'
	same 'node-local storage, put together' base together
	train apart.ds 5 2 --save-format deepspeed && bad 'node-local storage in another form' || good
	train c 1 2 --stop-at 3 || bad '2 ranks'
	train c 0 1 --resume auto || bad 'alone, resumed from 2'
	same 'from 2 ranks to one' full c
else
	echo 'no mpirun, or ztrain without MPI: ranks were not tried'
fi

finish
