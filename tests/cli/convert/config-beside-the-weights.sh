# What is beside converted weights: config.json says the type that was written, of the model and of
# its parts (transformers gives each its own), and a folder without
# config.json or tokenizer, or an adapter's file that is not copied, is reported.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run && chmod -R u+w run
zckpt convert run bare 2>&1 | grep -v '^zckpt: \(step\|read\|wrote\|note: 1\)'
printf '{\n "a":  1.50, "dtype": "bfloat16",\n\t"torch_dtype" : "bfloat16", "text_config": {"dtype": "bfloat16"},\n "vision_config":{"x":[{"dtype":"bfloat16"}], "torch_dtype": "bfloat16", "y_config": {"dtype":null}}, "quantization_config": {"dtype": "bfloat16"}}\n' > run/config.json
for dtype in fp32 bf16 fp16 keep; do
	zckpt convert --dtype $dtype run $dtype 2>&1 | grep warning
	echo "* $dtype"; cat $dtype/config.json
done
cmp bf16/config.json run/config.json && echo 'nothing else changes'
zckpt verify -q fp32 && echo whole
echo '{}' > run/tokenizer.json
zckpt convert run whole 2>&1 | grep warning
echo 'not a { json' > run/config.json; zckpt convert -q run odd && cmp odd/config.json run/config.json && echo 'copied as it is'
echo '{}' > run/adapter_config.json; zckpt convert run lora 2>&1 | grep adapter_config
ls lora
zckpt convert -q run quiet
zckpt convert --state exp_avg run states 2>&1 | grep -c warning || :
