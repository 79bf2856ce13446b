# Folders of transformers' Trainer: what the Trainer wrote becomes a step of every form, and the same
# folder again; what cannot be one is refused with the cause and the command that helps.
T=$FIXTURES/trainer
D=$FIXTURES/deepspeed
for c in llama qwen3-tied qwen3-fused qwen2-biases shards; do
	for to in native universal deepspeed dcp fsdp-ranks; do
		rm -rf there back
		zckpt reshard -q --to $to --world 3 $T/$c/ckpt there && zckpt verify -q --full there &&
			zckpt reshard -q --to trainer there back && zckpt verify -q --full back &&
			echo "$c: $to and back: $(zckpt diff $T/$c/ckpt back | head -n 1)"
	done
done
ls back/checkpoint-3
# the whole line of what it says
zckpt reshard --to trainer there back2 2>&1 | sed 's/ in [0-9.]* s/ in 0.00 s/'
# of DeepSpeed's own steps with one group, the second with frozen parameters
for name in ds0.16.9-z2-bf16-w2 ds0.19.8-z2-bf16-w2-lora; do
	rm -rf there back
	zckpt reshard -q --to trainer $D/$name/ckpt there && zckpt verify -q --full there
	zckpt reshard -q --stage 2 --world 2 there back 2> /dev/null
	echo "$name: $(zckpt diff $D/$name/ckpt back | grep -v '^[AB] ' | tr -s '\n ' ' ')"
done
# a Trainer's folder with DeepSpeed in it becomes one without: what is beside the step goes into checkpoint-N
mkdir checkpoint-3 && cp -r $D/ds0.16.9-z2-bf16-w2/ckpt/* checkpoint-3 && chmod -R u+w checkpoint-3
for f in tokenizer.json config.json scheduler.pt training_args.bin; do echo $f > checkpoint-3/$f; done
printf '{\n "global_step": 3,\n "log_history": [\n  {\n   "loss": NaN,\n   "step": 1\n  }\n ]\n}\n' > checkpoint-3/trainer_state.json
echo zero > checkpoint-3/rng_state_0.pth
echo one > checkpoint-3/rng_state_1.pth
zckpt reshard -q --to trainer checkpoint-3 without && (cd without && find . -type f | sort && cat checkpoint-3/trainer_state.json) &&
	zckpt verify -q --full without
rm -r without checkpoint-3
# moments anew
rm -rf there && zckpt reshard -q --to trainer --reset-optimizer $T/llama/ckpt there && zckpt inspect there | grep 'group\|step' &&
	zckpt diff $T/llama/ckpt there | tail -n 2
# the loss scale of fp16 is in scaler.pt: without zckpt-step.pt it is found there
zckpt reshard -q --to deepspeed --dtype fp16 $T/llama/ckpt half && zckpt reshard -q --to trainer half half-trainer && ls half-trainer/*
rm half-trainer/*/zckpt-step.pt && zckpt reshard -q --to deepspeed --dtype fp16 half-trainer again && ls again/* &&
	zckpt inspect --json again | grep '"loss_scale'
# a file that is not a GradScaler's is left out; types apply where the source has none
cp half-trainer/*/scheduler.pt half-trainer/*/scaler.pt && zckpt reshard -q --to deepspeed half-trainer other && ls -d other
zckpt reshard -q --to deepspeed --world 4 --dtype bf16 again no
# a call that changes nothing
zckpt reshard -q half-trainer no 2>&1 | grep -v warning
# refused
zckpt reshard -q --to trainer $D/ds0.19.8-z2-bf16-w2/ckpt no
zckpt reshard -q --to trainer $D/ds0.19.8-z3-bf16-w3-reversed/ckpt no
for c in gpt2 adafactor sgd; do
	zckpt reshard -q --to native $T/$c/ckpt no 2>&1 | grep -v warning
done
zckpt reshard -q --to trainer $T/old-groups/ckpt no
zckpt reshard -q --to trainer --drop-state exp_avg_sq $T/llama/ckpt no
zckpt reshard -q --to trainer $D/ds0.19.8-z2-bf16-w2-muon/ckpt no 2>&1 | grep -v warning
zckpt reshard -q --to trainer $D/ds0.18.9-z2-bf16-w2-elastic/ckpt no 2>&1 | grep -v warning
zckpt reshard -q --to trainer --layout titan $T/llama/ckpt no
ls -d back back2 there no 2> /dev/null
