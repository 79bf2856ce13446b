#!/bin/bash
# usage: test_ztrain_save.sh
#
# Saves in the background of a run: after every step, with memory for all of the state and with
# little of it, each step that was saved is the one at which another run ended.  If this fails, a
# save holds numbers of the next step, or of none.
#
# ZTRAIN_DEVICE=cuda, with ZTRAIN: on GPUs.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
device=${ZTRAIN_DEVICE:-cpu}

cat > model.json <<'END_OF_CONFIG'
{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 128, "intermediate_size": 320,
 "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 2051,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
 "hidden_act": "silu", "attention_bias": false, "torch_dtype": "bfloat16"}
END_OF_CONFIG
for stage in 0 1 2 3; do
	cat > "z$stage.json" <<-END_OF_CONFIG
	{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0,
	 "zero_optimization": {"stage": $stage}, "bf16": {"enabled": true},
	 "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "weight_decay": 0.1}}}
	END_OF_CONFIG
done

# train RANKS STAGE OPTION...
train() {
	local ranks=$1 stage=$2
	shift 2
	set -- "$ztrain" --device "$device" --model model.json --config "z$stage.json" --random --seq 16 \
		--steps 3 --sync none "$@"
	[ "$ranks" = 1 ] || set -- "$mpirun" -n "$ranks" "$@"
	"$@" > said 2>&1
}

# wanted RANKS STAGE: what a run leaves that ends at step 1, 2, 3
wanted() {
	local k
	for k in 1 2 3; do
		train "$1" "$2" --stop-at $k --save "end$k" || bad "ranks $1, stage $2, to step $k"
		digest "end$k/global_step$k"
	done
	rm -rf end?
}
# same RANKS STAGE WORDS OPTION...: a run that saves every step leaves what is in 'want'
same() {
	local ranks=$1 stage=$2 words=$3 k
	shift 3
	train "$ranks" "$stage" --save all --save-every 1 "$@" || bad "ranks $ranks, stage $stage, $words"
	for k in 1 2 3; do digest "all/global_step$k"; done > got
	diff want got > said && good || bad "ranks $ranks, stage $stage, $words: other states"
	rm -rf all
}

# A stage that is whole, one that is cut: the rest is the same code.
cases='1:0 1:3'
has_ranks && cases='1:2 2:0 2:1 2:3'
for case in $cases; do
	n=${case%:*} stage=${case#*:}
	wanted "$n" "$stage" > want
	[ "$(sort -u want | grep -c root)" = 3 ] && good || { cp want said; bad 'three steps'; }
	same "$n" "$stage" full
	same "$n" "$stage" 'a small buffer' --save-buffer 4MiB --save-threads 2
done

# DeepSpeed's layout, and what is said of a buffer that is too small
wanted 1 2 > want
same 1 2 'DeepSpeed' --save-format deepspeed --save-buffer 4MiB
train 1 1 --save all --save-buffer 4MiB
grep -q 'a save writes 9.4 MB per rank through a buffer of 4.2 MB: the other 5.2 MB .*(assumed, not measured)' said && good ||
	bad 'the sentence about the buffer'
train 1 1 --save all --save-buffer full
grep -q 'goes through a buffer' said && bad 'a full buffer' || good

# resumes from a step that was saved while it was overtaken
rm -rf all
train 1 3 --save all --save-every 1 --save-buffer 4MiB || bad 'a run'
digest all/global_step3 > want
rm -rf all/global_step2 all/global_step3
train 1 3 --save all --resume auto || bad 'going on'
digest all/global_step3 > got
diff want got > said && good || bad 'going on'

# a signal: the last whole step is saved, whatever of the one before is still on its way
rm -rf all
"$ztrain" --device "$device" --model model.json --config z1.json --random --seq 16 --steps 1000000 --sync none \
	--save all --save-every 1 --save-buffer 4MiB --quiet > said 2>&1 &
pid=$!
for ((i = 0; i < 300; i++)); do
	[ -e all/latest ] && break
	sleep 0.1
done
sleep 0.2
kill -TERM $pid
wait $pid && good || bad 'a signal'
last=$(cat all/latest)
digest "all/$last" > got
train 1 1 --steps 1000000 --stop-at "${last#global_step}" --save one || bad "to $last"
digest "one/$last" > want
diff want got > said && good || bad "a signal, $last"
rm -rf one all

# weights at the end, with a save under way and with none at all
train 1 3 --save all --save-every 1 --export w1 && train 1 3 --export w2 || bad 'weights'
"$zckpt" convert -q --dtype fp32 all/global_step3 conv > said 2>&1 || bad convert
for w in w1 w2; do
	[ -n "$(digest $w)" ] && [ "$(digest $w)" = "$(digest conv)" ] && good || bad "weights, $w"
done
rm -rf all

# files that cannot have their length: reported at the next save or at the end, and nothing is left
for buffer in full 4MiB; do
	(trap '' XFSZ; ulimit -f 2000; train 1 1 --save all --save-every 1 --save-buffer $buffer)
	[ $? = 1 ] && grep -q 'File too large' said && good || bad "no room, buffer $buffer"
	find all -type f > said 2>&1
	[ ! -s said ] && good || bad 'something is left'
	rm -rf all
done

# a folder that another process does not let go of: that is what is said, not that the save continues
if command -v flock > /dev/null; then
	mkdir -p all/global_step3.zckpt-partial
	(exec 9< all/global_step3.zckpt-partial; flock 9; exec sleep 30) &
	held=$!
	while flock -n all/global_step3.zckpt-partial true; do sleep 0.1; done
	train 1 1 --save all --timeout 1
	[ $? = 1 ] && grep -q 'has held the lock of this folder for 1000 ms' said && good || bad 'a folder that is held'
	kill $held
	wait $held 2> /dev/null
	rm -rf all
fi

# --grace: a save whose syncs take longer is given up, as is said, and does not appear later
if command -v strace > /dev/null && strace -o /dev/null true 2> /dev/null; then
	: > said	# a loop may read it before the run has opened it
	strace -f -qq -o /dev/null -e trace=fdatasync,fsync,syncfs \
		-e inject=fdatasync,fsync,syncfs:delay_enter=2s "$ztrain" --device "$device" \
		--model model.json --config z1.json --random --seq 16 --steps 1000000 --save all --grace 1 \
		> said 2>&1 &
	run=$!
	while ! grep -q '^step 2' said && kill -0 $run 2> /dev/null; do sleep 0.1; done
	pkill -TERM -P $run || bad '--grace: there is no run that gets the signal'
	wait $run
	[ $? = 1 ] && grep -q 'did not finish within 1.0 s after the signal' said && [ ! -e all/latest ] && good ||
		bad '--grace is over before the save'
	rm -rf all
fi

for wrong in '--save-buffer 1MB' '--save-buffer much' '--save-threads 0' '--save-threads 65'; do
	# shellcheck disable=SC2086	# two words
	train 1 0 --save all $wrong
	[ $? = 2 ] && good || bad "$wrong"
done
# without --save nothing would be saved, silently
for wrong in '--save-buffer 8MB' '--save-every 1' '--save-format native' '--grace 30'; do
	# shellcheck disable=SC2086	# two words
	train 1 0 $wrong
	[ $? = 2 ] && grep -q 'needs --save' said && good || bad "$wrong alone"
done
finish
