# An adapter of PEFT, and a run that trains one, are named for what they are.
run=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-lora/ckpt
zckpt convert -q --only trainable --dtype bf16 "$run" peft/adapter_model.safetensors
echo '{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "Qwen/Qwen2.5-7B"}' > peft/adapter_config.json
zckpt inspect peft | sed -n '1p;$p'
zckpt inspect peft/adapter_model.safetensors | head -n 1
zckpt doctor peft
zckpt diff "$run" peft | head -n 1
zckpt doctor "$run" | tail -n 1
zckpt shard --world 2 --stage 2 --lr 1e-5 peft new 2>&1
echo '-- a configuration that says little, or nothing'
echo '{"peft_type": "LOHA", "r": "x"}' > peft/adapter_config.json; zckpt inspect peft | head -n 1
echo 'no JSON' > peft/adapter_config.json; zckpt inspect peft | head -n 1
echo '-- weights alone have no masters to miss'
zckpt convert peft x.safetensors 2>&1 | grep -c master
echo '-- a step is not sharded again'
zckpt shard --world 1 --stage 2 --lr 1e-5 "$run" new 2>&1; ls
