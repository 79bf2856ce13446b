# --to peft: the adapter of a LoRA run under the names of PEFT's file, with a configuration.  r and
# the modules follow from tensors, alpha from the file beside the step or from the call, never from
# a guess.
C=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-lora/ckpt
zckpt convert -q --rename blocks=base_model.model.blocks --rename lora_A=lora_A.default.weight \
	--rename lora_B=lora_B.default.weight --rename .base.=.base_layer. "$C" run.safetensors
zckpt convert --to peft run.safetensors out; echo "exit $?"
zckpt convert --to peft --only trainable run.safetensors out; echo "exit $?"
zckpt convert -q --to peft --lora-alpha 6 --lora-task CAUSAL_LM --lora-dropout 0.05 run.safetensors out
cat out/adapter_config.json
zckpt map --all out | awk '/lora/ { print $1, $2, $3 }'
zckpt verify -q --full out && echo whole
zckpt cat --state master "$C" blocks.1.up.lora_A > a; zckpt cat out base_model.model.blocks.1.up.lora_A.weight | cmp - a && echo same
echo '* r of another run, another method, and the values of a file'
echo '{"peft_type": "LORA", "r": 8, "lora_alpha": 6}' > adapter_config.json
zckpt convert --to peft run.safetensors other 2>&1 | tail -n 1
echo '{"peft_type": "LOHA", "r": 3}' > adapter_config.json
zckpt convert --to peft run.safetensors other 2>&1 | tail -n 1
echo '{"peft_type": "LORA", "r": 3, "lora_alpha": 6.5, "custom": [1, {"a": 2}], "inference_mode": false}' > adapter_config.json
zckpt convert -q --to peft run.safetensors other && cat other/adapter_config.json
zckpt convert -q --to peft --lora-alpha 7 --force run.safetensors other && grep alpha other/adapter_config.json
echo '* again, from that'
zckpt convert --to peft --dtype bf16 other again 2>&1 | grep 'wrote again'
echo '* refused'
zckpt convert --to peft run.safetensors one.safetensors
zckpt convert --to peft --merge-lora out run.safetensors two
zckpt convert --to lora run.safetensors three
zckpt convert --to peft --adapter style run.safetensors three
zckpt convert --to peft --lora-alpha nine run.safetensors three
zckpt convert --to peft --lora-bias some run.safetensors three
zckpt convert --lora-alpha 3 run.safetensors three
zckpt convert --to peft "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" three
zckpt convert -q --rename lora_A.default.weight=hada_w1_a.default run.safetensors loha.safetensors
zckpt convert --to peft loha.safetensors three
ls
