# A model is a config.json, a folder with one, weights, a step, a number or a published name.
DS=$FIXTURES/deepspeed
model() {
	zckpt plan "$@" > out 2> err || echo "exit $?"
	sed -n '/^model/,/^run/p' out | sed '$d'
	cat err
}
model 7615616512
model 8B
model 7e9
model 1.5b
model 135M
model Qwen3-8B
cat > config.json <<'END'
{ "model_type": "qwen2", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 173,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2 }
END
model config.json
model .
model $DS/ds0.19.8-z2-bf16-w3/ckpt
model --config config.json $DS/ds0.19.8-z3-bf16-w2-lora/ckpt
mkdir hf
zckpt convert -q $DS/ds0.19.8-z2-bf16-w3/ckpt hf/model.safetensors
model hf
cp config.json hf
model hf/model.safetensors
model hf
