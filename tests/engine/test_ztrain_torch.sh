#!/bin/bash
# usage: test_ztrain_torch.sh
#
# A step as one file of torch, {"model", "optimizer", ...}.  If this fails, a run that resumes from one
# is another run than its own step gives.
#
#   worlds    a step of 2 ranks as such a file, resumed by 1 and 2 ranks at stages 0 and 3: the losses
#             and norms are those of the run that resumes from the step itself
#   fp16      the same of a run in fp16, with its loss scale; a run in fp32 leaves that scale
#   refused   a file that was cut
#   owners    a file whose optimizer has numbers for names: what it lacks is said by the caller, and the
#             run is that of the file with names
# Files that torch wrote: tests/interop/training_files.py.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
zckpt=${ZCKPT:-$root/build/zckpt}
envrun=$root/tests/lib/run/envrun
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE

more=	# of the configuration

# train NAME WORLD STAGE OPTION...: lines of steps go to NAME.log
train() {
	local name=$1 world=$2 stage=$3 start=
	shift 3
	[ "$world" = 1 ] || start="$envrun -n $world"
	echo "{$more\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0," \
		"\"zero_optimization\": {\"stage\": $stage}," \
		'"optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}}' > z.json
	# shellcheck disable=SC2086
	timeout -k 5 100 $start "$ztrain" --model "$models/qwen3_tied" --config z.json --seq 8 --steps 5 --device cpu \
		--exact "$@" > "$name.said" 2>&1 < /dev/null
	local rc=$?
	grep '^step' "$name.said" | sed 's/ *lr.*norm/ norm/; s/ [0-9.]*k* tok.*//' > "$name.log"
	return $rc
}

train first 2 2 --stop-at 3 --save run || bad "the run did not save"
"$zckpt" convert -q --to torch-training run run.pth || bad "no file of torch was made"
train want 1 1 --resume run || bad "the step was not resumed"
[ "$(grep -c . want.log)" = 2 ] || bad "the step was resumed for other steps"
for c in "1 0" "2 3"; do
	# shellcheck disable=SC2086
	train got $c --resume run.pth || bad "run.pth was not resumed at $c"
	cmp got.log want.log || bad "run.pth at $c: other losses"
done
more='"fp16": {"enabled": true, "initial_scale_power": 6, "loss_scale_window": 2, "hysteresis": 1},'
train first 2 2 --stop-at 3 --save half || bad "the run in fp16 did not save"
"$zckpt" convert -q --to torch-training half half.pth || bad "no file of torch was made in fp16"
"$zckpt" convert -q --to torch-training --dtype fp16 half bits.pth || bad "no file with a model in fp16"
train want 1 1 --resume half || bad "the step in fp16 was not resumed"
grep -q 'scale 128' want.log || bad "the scale did not grow: $(cat want.log)"
more='"fp16": {"enabled": true},'
train got 2 3 --resume half.pth || bad "half.pth was not resumed"
cmp got.log want.log || bad "half.pth: other losses or scales"
train got 1 2 --resume bits.pth || bad "bits.pth was not resumed"
[ "$(sed 's/.*scale/scale/' got.log)" = "$(sed 's/.*scale/scale/' want.log)" ] || bad "bits.pth: other scales"
more=
train got 1 1 --resume half.pth || bad "half.pth was not resumed in fp32"
grep -q scale got.log && bad "a run in fp32 scales its loss"

head -c 9000 run.pth > cut.pth
train cut 1 0 --resume cut.pth && bad "a cut file was resumed"
grep -q 'cut.pth' cut.said || bad "the cut file is not named"

# ---- owners
command -v python3 > /dev/null || { echo 'no python3, which takes the names out of a file'; finish; exit; }
# forget FILE TO: without the names of the parameters, as torch.save writes the file of most programs
forget() {
	python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as a, zipfile.ZipFile(sys.argv[2], "w") as b:
    for i in a.infolist():
        b.writestr(i, a.read(i).replace(b"param_names", b"names_param"))' "$1" "$2"
}
# refuses WORDS NAME TEXT OPTION...: plain.pth is refused with that text
refuses() {
	local words=$1 name=$2 text=$3
	shift 3
	train "$name" 1 0 --freeze "$gate" --resume plain.pth "$@" && bad "$words: it trains"
	cp "$name.said" said
	has_text "$words" "$text"
}
gate=model.layers.0.mlp.gate_proj.weight	# of the shape of up_proj
train first 1 0 --freeze "$gate" --stop-at 3 --save frozen || bad 'the run with a frozen matrix did not save'
"$zckpt" convert -q --to torch-training frozen frozen.pth && forget frozen.pth plain.pth || bad 'no file without names'
train want 1 0 --freeze "$gate" --resume frozen.pth || bad 'frozen.pth was not resumed'
[ "$(grep -c . want.log)" = 2 ] && good || bad 'frozen.pth was resumed for other steps'
refuses 'no names' bare "plain.pth: the optimizer's states cannot be given to parameters: it has 34 parameters in 1 group"
has_text 'no names: what to give' 'by --resume-frozen or --resume-buffer' '--resume-order FILE'
lacks_text 'no names: options of zckpt' 'zckpt reshard'
for c in "1 0" "2 3"; do
	# shellcheck disable=SC2086
	train got $c --freeze "$gate" --resume plain.pth --resume-frozen "$gate" || bad "--resume-frozen at $c"
	cmp got.log want.log && good || bad "--resume-frozen at $c: other losses"
done
"$zckpt" inspect -v plain.pth | sed -n 's/^\(model\.[^ ]*\) .*/\1/p' > all
grep -vxF "$gate" all > order
train got 1 2 --freeze "$gate" --resume plain.pth --resume-order order || bad '--resume-order'
cmp got.log want.log && good || bad '--resume-order: other losses'
refuses 'a list of too many' long 'the list has 35 names and the optimizer 34 parameters' --resume-order all
refuses 'a pattern of nothing' none 'matches none of the 36 tensors (--resume-frozen)' --resume-frozen 'mlp.*'
refuses 'a pattern of too much' many '(--resume-frozen or --resume-buffer excludes too many?)' --resume-frozen '*.mlp.*'
refuses 'another matrix is frozen' other 'up_proj.weight: the tensor has no state "exp_avg"; it has weight; if the run' \
	--resume-frozen model.layers.0.mlp.up_proj.weight
refuses 'a list that is missing' missing 'nowhere' --resume-order nowhere
train step 1 0 --freeze "$gate" --resume frozen --resume-frozen "$gate" && bad 'a step takes --resume-frozen'
cp step.said said
has_text 'a step has names' '--resume-order, --resume-frozen and --resume-buffer are for one file of torch'
for rest in '' '--resume auto --save frozen'; do
	# shellcheck disable=SC2086
	train auto 1 0 --resume-order order $rest && bad "--resume-order with '$rest'"
	cp auto.said said
	has_text "--resume-order with '$rest'" 'need --resume FILE'
done
# Adam counts the updates of each parameter: one that began later is found in a file without names, too.
python3 - plain.pth late.pth << 'END' || bad 'no file with two counts'
import struct, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as a, zipfile.ZipFile(sys.argv[2], "w") as b:
    done = False
    for i in a.infolist():
        data = a.read(i)
        if not done and data == struct.pack("<f", 3):
            data, done = struct.pack("<f", 2), True
        b.writestr(i, data)
assert done
END
train late 1 0 --freeze "$gate" --resume late.pth --resume-frozen "$gate" && bad 'two counts: it trains'
cp late.said said
has_text 'two counts' 'has updated it 2 times and the first parameter 3 times'
finish
