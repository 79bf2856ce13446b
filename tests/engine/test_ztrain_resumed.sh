#!/bin/bash
# usage: test_ztrain_resumed.sh
#
# A run that is resumed with other values than those of its step.  If this fails, a resumed run is another
# one than its user thinks, and says that it has the bits of the one that never stopped.
#
#   model      a config.json of equal shapes that computes another model is refused, by key and values
#   values     the step's lr, betas, eps and decay hold unless an option states others; what differs is said
#   schedule   schedule and clipping are this run's, and said
#   forms      the same for native, DeepSpeed, universal and DCP steps
#   quiet      what differs is said with --quiet too
# Steps that do not say what they were made of: test_run_facts.c.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models

cat > z.json <<'END'
{
	"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1},
	"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
	"gradient_clipping": "auto"
}
END
sed "/optimizer\"/d" z.json > bare.json
own="--lr 1e-3 --beta2 0.95 --eps 1e-6 --weight-decay 0.1 --clip 0.5"
# run NAME OPTION...
run() {
	local name=$1
	shift
	logged "$name" "$ztrain" --model "${model:-$models/qwen3_tied}" --config "${config:-z.json}" --seq 16 --exact --steps 6 "$@"
}
tail_of() { tail -n "$(wc -l < "$2.log")" "$1.log" | diff - "$2.log" > said.diff && [ -s "$2.log" ]; }

# shellcheck disable=SC2086
{
for form in native deepspeed universal dcp; do
	run whole $own --save whole --overwrite-steps || bad 'a whole run'
	run "half-$form" $own --save "half-$form" --save-format $form --stop-at 3 || bad "half a run, $form"

	# ---- values: without the options the step's hold
	run a --clip 0.5 --resume "half-$form" || bad "$form: resumed without the options"
	has_text "$form: what differs" 'lr: the step has 0.001' 'beta2: the step has 0.95, this run would have 0.999;' \
		'eps: the step has' 'weight_decay: the step has 0.1' "using the step's" 'had not stopped'
	tail_of whole a && good || bad "$form: the step's values hold"
	# Neither an option nor the file states them: the step's hold, and nothing differs.
	config=bare.json run bare $own || bad 'a whole run without an optimizer in the file'
	config=bare.json run b $own --save "bare-$form" --save-format $form --stop-at 3 || bad "half of it, $form"
	config=bare.json run b --clip 0.5 --resume "bare-$form" || bad "$form: resumed without any value"
	lacks_text "$form: no value is stated" 'lr: the step' 'lr of group' 'beta2' 'eps: the step' 'weight_decay: the step'
	tail_of bare b && good || bad "$form: the step's values hold without a line"
	config=bare.json run b --clip 0.5 --lr 5e-4 --resume "bare-$form" || bad "$form: resumed with a rate"
	has_text "$form: a rate is stated" '--lr says 0.0005; using'
	# Equal values are not said.
	run a $own --resume "half-$form" || bad "$form: resumed with the options"
	has_text "$form: the same run" 'had not stopped'
	lacks_text "$form: nothing differs" 'the step has' 'compared'
	tail_of whole a && good || bad "$form: the same options"

	# ---- others are stated
	run b --clip 0.5 --lr 5e-4 --weight-decay 0.3 --resume "half-$form" || bad "$form: other options"
	has_text "$form: other options hold" 'lr: the step has 0.001' '--lr says 0.0005; using' '--weight-decay says 0.3; using' \
		'using the option' 'differs in: lr, weight_decay' 'beta2: the step has 0.95,'
	lacks_text "$form: no promise" 'had not stopped'
	awk '{ print $6 }' b.log | sort -u | grep -qx 0.00050000000000000001 && good || bad "$form: --lr 5e-4 is the rate"
	run b $own --lr 1e-3 --clip 0.25 --resume "half-$form" || bad "$form: another clipping"
	has_text "$form: another clipping" 'gradient_clipping: the step has 0.5' 'this run 0.25' 'differs in: gradient_clipping'
	run b $own --lr-scheduler linear --resume "half-$form" || bad "$form: a schedule where there was none"
	has_text "$form: a schedule" 'schedule: the step has none' 'linear' 'differs in: schedule'

	# ---- model
	for change in 's/"rope_theta": *[0-9.]*/"rope_theta": 5000/' 's/"rms_norm_eps": *[-0-9.e]*/"rms_norm_eps": 1e-3/'; do
		mkdir -p other
	sed "$change" "$models/qwen3_tied/config.json" > other/config.json
		cmp -s other/config.json "$models/qwen3_tied/config.json" && bad "$change: nothing is changed"
		key=${change#*\"} key=${key%%\"*}
		model=other run c $own --resume "half-$form" && bad "$form: another $key is trained" || good
		has_text "$form: another $key" "$key: the step was trained with" 'config.json has' '--allow-other-model'
		model=other run c $own --resume "half-$form" --allow-other-model || bad "$form: another $key, allowed"
		has_text "$form: another $key, allowed" "model: $key: the step has" "differs in: $key"
		lacks_text "$form: another $key, allowed" 'had not stopped'
	done
	"$zckpt" verify -q --full "half-$form" > said 2>&1 && good || bad "$form verifies"
done
# both of two keys, of which one is the end of the other
rm -rf other && cp -r "$models/qwen3_tied" other
sed 's/"rms_norm_eps": [0-9.e-]*/"rms_norm_eps": 0.25/' "$models/qwen3_tied/config.json" > other/config.json
model=other run c $own --eps 1e-5 --resume half-native --allow-other-model || bad 'two keys'
has_text 'two keys' 'differs in: rms_norm_eps, eps'

# ---- schedule: of a file it is this run's
sched() { sed '$d' z.json; echo ', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": '"$1"', "warmup_max_lr": "auto"}}}'; }
sched 4 > s4.json
sched 5 > s5.json
config=s4.json run whole $own || bad 'a schedule'
config=s4.json run s $own --save s --stop-at 3 || bad 'half a schedule'
config=s4.json run a $own --resume s || bad 'the same schedule'
has_text 'the same schedule' 'had not stopped'
lacks_text 'the same schedule' 'the step has'
tail_of whole a && good || bad 'the same schedule'
config=s5.json run b $own --resume s || bad 'another schedule'
has_text 'another schedule' 'schedule.warmup: the step has 4' 'this run 5' 'differs in: schedule'
config=s4.json run b $own --lr 5e-4 --resume s || bad 'another maximum'
has_text 'another maximum' 'schedule.max_lr: the step has 0.001' 'this run 0.0005' 'differs in: schedule'
lacks_text 'another maximum' 'had not stopped'
config=s4.json run b $own --lr 5e-4 --resume s --quiet || bad quiet
has_text 'quiet, and another maximum' 'schedule.max_lr: the step has 0.001'
run b $own --resume s || bad 'no schedule'
has_text 'no schedule' 'schedule: the step has' 'differs in: '
run l $own --lr-scheduler linear --save l --stop-at 3 || bad linear
run a $own --lr-scheduler linear --resume l || bad 'linear again'
has_text 'linear again' 'had not stopped'
lacks_text 'linear again' 'the step has'
run b $own --lr-scheduler linear --steps 9 --resume l || bad 'more steps'
has_text 'more steps' 'schedule.total: the step has 6' 'this run 9' 'differs in: schedule'
run b $own --lr-scheduler linear --lr 5e-4 --resume l || bad 'linear, another rate'
has_text 'linear, another rate' 'lr: the step has 0.001' '--lr says 0.0005'
awk '{ print $6 }' b.log | head -n 1 | grep -q '^0[.]00025' && good || bad 'half of 5e-4 after half of the steps'

}

finish
