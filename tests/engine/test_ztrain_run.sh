#!/bin/bash
# usage: test_ztrain_run.sh
#
# What ztrain does around its steps, from the outside.  If this fails, ztrain reported something that
# did not happen, or did something it was not asked to.
#
#   eval      held-out rows: the same bits at 1, 2 and 3 ranks, and after resuming; not trained on
#   loss      the mean over tokens is another sum than the mean of means, and as exact
#   log       a line a step, each step once, also after going on; a run that is new refuses it
#   bits      what is promised at the start, and what is not
#   config    "auto" is filled in; what the file says wins or is refused; ds_config is in the step
#   signals   SIGTERM gives up the step in work and saves
#   launch    contradicting variables are named
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
mpi=
if has_ranks; then mpi=1; fi

cat > z2.json <<'END'
{
	"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": "auto",
	"zero_optimization": {"stage": 2}, "gradient_clipping": "auto",
	"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": 0.1}}
}
END
# 40 rows of 4 to 24 tokens; a third of them with labels that count in part
awk 'BEGIN {
	for (r = 0; r < 40; r++) {
		n = 4 + r * 7 % 21; ids = labels = ""
		for (i = 0; i < n; i++) {
			ids = ids (i ? ", " : "") (r * 31 + i * i) % 250
			labels = labels (i ? ", " : "") (r % 3 == 0 && i < n / 2 ? -100 : (r * 31 + i * i) % 250)
		}
		printf "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids, labels
	}
}' > rows.jsonl

# train RANKS OPTION...: says it to 'said', its steps to 'steps'
train() {
	local ranks=$1
	shift
	set -- "$ztrain" --model "$models/qwen3_tied" --config z2.json --lr 1e-3 --data rows.jsonl \
		--exact "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2>&1
	local rc=$?
	grep '^step' said > steps
	return $rc
}

# ---- eval
train 1 --accumulation 6 --steps 4 --eval-rows 7 --eval-every 2 || bad 'held-out rows'
cp steps one
[ "$(grep -c 'eval loss' one)" = 2 ] && good || bad 'evaluated after steps 2 and 4'
if [ -n "$mpi" ]; then
	train 2 --accumulation 3 --steps 4 --eval-rows 7 --eval-every 2
	diff one steps > said && good || bad 'two ranks have the bits of one'
	train 3 --accumulation 2 --steps 4 --eval-rows 7 --eval-every 4 || bad 'three ranks'
	has_text 'three ranks say it' '3 ranks is not a power of two'
	awk '{ print ($3 == "loss" && $4 > 0) }' steps | sort -u | grep -qx 1 && good || bad 'three ranks train'
fi
train 1 --accumulation 6 --steps 2 --eval-rows 7 --save half --save-format deepspeed || bad half
train 1 --accumulation 6 --steps 4 --eval-rows 7 --eval-every 2 --save half --resume auto || bad 'other half'
diff <(tail -n 2 one) steps > said && good || bad 'evaluation after resuming'
# No steps are left to train: what was resumed is evaluated.
train 1 --accumulation 6 --steps 4 --eval-rows 7 --resume half || bad 'a run that is over'
{ [ ! -s steps ] && grep -q "^no steps left to train after step 4; eval loss $(tail -n 1 one | sed 's/.*eval loss //')\$" said; } &&
	good || bad 'a run that is over is evaluated'
tail -n 7 rows.jsonl > last.jsonl
head -n 33 rows.jsonl > first.jsonl
train 1 --accumulation 6 --steps 4 --data first.jsonl --eval last.jsonl --seq 24 --eval-every 2
cp steps apart
train 1 --accumulation 6 --steps 4 --seq 24 --eval-rows 7 --eval-every 2
diff apart steps > said && good || bad 'rows held out are those of a file of its own'
train 1 --steps 4 --eval-rows 40
{ [ $? = 1 ] && grep -q 40 said; } && good || bad 'all rows held out: refused'

# ---- loss
train 1 --accumulation 4 --steps 3 || bad micro
cp steps micro
train 1 --accumulation 4 --steps 3 --loss tokens || bad tokens
cp steps tokens
diff micro tokens > /dev/null && bad 'means of means and of tokens differ' || good
if [ -n "$mpi" ]; then
	train 4 --accumulation 1 --steps 3 --loss tokens
	diff tokens steps > said && good || bad 'the mean over tokens at 4 ranks'
fi
# Rows that are all alike: both means are one.
yes '[1, 2, 3, 4, 5, 6, 7, 8]' | head -n 16 > alike.jsonl
train 1 --data alike.jsonl --accumulation 4 --steps 2 --loss tokens && cp steps alike
train 1 --data alike.jsonl --accumulation 4 --steps 2
diff alike steps > said && good || bad 'rows that count alike: the same bits'

# ---- log
train 1 --accumulation 2 --steps 6 --save run --save-every 2 --log run.jsonl || bad log
cp run.jsonl whole.jsonl
[ "$(grep -c '^{"step": ' run.jsonl)" = 6 ] && good || bad '6 lines'
rm -r run/global_step6
printf '{"step": 7, "lo' >> run.jsonl
train 1 --accumulation 2 --steps 6 --save run --resume auto --log run.jsonl || bad 'log, going on'
strip() { sed 's/"seconds.*//' "$1"; }
diff <(strip whole.jsonl) <(strip run.jsonl) > said && good || bad 'the log of a resumed run has each step once'
train 1 --accumulation 2 --steps 6 --log run.jsonl
{ [ $? = 1 ] && grep -q run.jsonl said; } && good || bad 'a new run does not write into an old log'

# ---- bits
train 1 --accumulation 8 --steps 2 --save b || bad bits
has_text 'what has the same bits' '1 x 8 = 8 micro-batches of 1 row in a step' '1, 2, 4, 8 ranks'
train 1 --accumulation 8 --steps 3 --save b --resume auto
has_text 'as if it had not stopped' 'bits: bit-identical, as if the run of 1 rank x 8 micro-batches'
train 1 --accumulation 4 --steps 4 --save b --resume auto
has_text 'another number of units' 'ranks x accumulation differs'
train 1 --accumulation 4 --steps 5 --save b --resume auto --loss tokens
has_text 'another mean' '--loss differs'

# ---- config
train 1 --steps 1 --clip 0.5 --eps 1e-6 --save c --save-format deepspeed || bad 'auto'
has_text 'filled in' 'gradient_clipping 0.5' '1e-06' 'default'
"$zckpt" inspect --json c > inspected 2> said || bad inspect
# A member of torch's archive is stored as it is.
grep -qa gradient_clipping c/global_step1/mp_rank_00_model_states.pt && good || bad 'ds_config is in the step'
train 1 --steps 1 --weight-decay 0.2
{ [ $? = 1 ] && grep -q 'make them equal' said; } && good || bad 'a stated value that the file contradicts'
train 1 --steps 4 --lr-scheduler cosine --warmup-steps 2 || bad cosine
awk '{ print $6 }' steps | tr '\n' ' ' > said
grep -q '^0 0[.]00050*[1]* 0[.]001 0[.]00050*[1]* ' said && good || bad 'the cosine after two steps of warm-up'

# ---- signals: a step of very many micro-batches is given up
: > said
"$ztrain" --model "$models/qwen3_tied" --config z2.json --lr 1e-3 --accumulation 100000 --steps 5 \
	--data rows.jsonl --save term --exact > said 2>&1 &
pid=$!
for _ in $(seq 100); do grep -q '^bits' said && break; sleep 0.05; done
sleep 0.3
kill -TERM $pid
wait $pid
rc=$?
[ $rc = 0 ] && has_text 'given up, and saved as before it' 'stopped by a signal after step 0' || bad "SIGTERM: status $rc"
"$zckpt" verify -q term > said 2>&1 && good || bad 'what was saved'
train 1 --accumulation 4 --steps 3 --save term --resume auto || bad 'it is resumed'
diff micro steps > said && good || bad 'from where it was'

# ---- launch
RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_JOB_ID=1 "$ztrain" --check-launch > said 2>&1
{ [ $? != 0 ] && grep -q SLURM said; } && good || bad 'two launchers that disagree'
"$ztrain" --check-launch > said 2>&1
has_text 'alone' 'rank 0 of 1 on'
CUDA_VISIBLE_DEVICES=7 "$ztrain" --check-launch > said 2>&1 && bad 'an ERROR line, and status 0'
has_text 'a list that hides every GPU' 'ERROR'

# as deepspeed's launcher sets it, whatever the host has; a build without CUDA continues, and says so once
if ! ls /dev/nvidia[0-9]* > devices 2>&1 && "$ztrain" --device cuda --model "$models/qwen3" --random --lr 1e-3 --steps 0 2>&1 | grep -q 'without CUDA'; then
	CUDA_VISIBLE_DEVICES=0 train 1 --steps 1 && good || bad 'without CUDA: the variable stops it'
	has_text 'without CUDA' 'note: runs on CPUs: CUDA_VISIBLE_DEVICES is "0", but this program was built without CUDA'
	CUDA_VISIBLE_DEVICES=0 train 1 --steps 1 --device cpu && ! grep -q CUDA said && good || bad '--device cpu: said all the same'
fi
LOCAL_RANK=1 "$ztrain" --check-launch > said 2>&1 && good || bad 'LOCAL_RANK alone'
has_text 'LOCAL_RANK alone' 'LOCAL_RANK is "1", but RANK and WORLD_SIZE are not set: this process trains alone'
# as accelerate launch starts one process where it was to start several
ACCELERATE_MIXED_PRECISION=no MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 train 1 --steps 1 || bad 'alone below accelerate launch'
has_text 'accelerate launch' 'started only this process'

# ---- the manual has every option, and no other
"$ztrain" --help --all | grep -o '^  --[a-z0-9-]*' | tr -d ' ' | sort -u > options
tr -d '\\' < "$root/docs/man/ztrain.1" | grep '^[.]\(BI\|B\|BR\) -' | grep -o -- '--[a-z0-9-]*' |
	grep -vx -e -- -e --all -e --help -e --version | sort -u > manual
diff options manual > said && good || bad 'the manual and --help'

finish
