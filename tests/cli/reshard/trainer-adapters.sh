# Folders of transformers' Trainer with an adapter of PEFT alone: whose the optimizer's numbers are, the
# configuration of the model says, which is not in the folder; then every form and the same folder again.
T=$FIXTURES/trainer
for c in lora dora; do
	for to in native universal deepspeed dcp fsdp-ranks; do
		rm -rf there back
		zckpt reshard -q --to $to --world 3 --model-config $T/$c/base/config.json $T/$c/ckpt there &&
			zckpt verify -q --full there &&
			zckpt reshard -q --to trainer there back 2> /dev/null && zckpt verify -q --full back &&
			echo "$c: $to and back: $(zckpt diff --model-config $T/$c/base $T/$c/ckpt there | head -n 1)" &&
			zckpt diff $T/$c/ckpt/adapter_model.safetensors back/checkpoint-3/adapter_model.safetensors | head -n 1
	done
done
ls back/checkpoint-3
zckpt inspect back | grep -A 3 'groups\|ROLE'
# the live state: truth.safetensors has it by the names of the model
for s in exp_avg exp_avg_sq; do
	zckpt cat --state $s --model-config $T/lora/base $T/lora/ckpt base_model.model.model.layers.1.mlp.up_proj.lora_B.default.weight > have
	zckpt cat $T/lora/truth.safetensors "base_model.model.model.layers.1.mlp.up_proj.lora_B.default.weight|$s" > want
	cmp have want && echo "$s is the live one"
done
# the model that adapter_config.json names, if it is a folder here
cp -r $T/lora/ckpt checkpoint-3 && mkdir small && cp -r $T/lora/base small/model
zckpt reshard -q --to native checkpoint-3 native && zckpt diff checkpoint-3 native | head -n 1
zckpt reshard -q --to trainer native again && zckpt diff checkpoint-3 again | head -n 1
# refused, or left out
rm -r small
zckpt reshard -q --to native checkpoint-3 no 2>&1 | grep -v warning
zckpt inspect checkpoint-3 2>&1 | grep -A 1 warning
zckpt reshard -q --to native --model-config $T/lora-and-head/base $T/lora-and-head/ckpt no 2>&1 | grep -v warning
sed 's/qwen3/other/' $T/lora/base/config.json > other.json
zckpt reshard -q --to native --model-config other.json checkpoint-3 no 2>&1 | grep -v warning
zckpt reshard -q --to native --model-config none.json checkpoint-3 no
[ ! -e no ]
