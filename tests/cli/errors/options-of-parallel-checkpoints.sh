# Options of parallel checkpoints are refused for others, which they say nothing of; nothing is written.
ds=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
mg=$FIXTURES/parallel/mc0.16.1-llama-tp2/ckpt
for option in '--naming hf' '--names native'; do
	# shellcheck disable=SC2086
	zckpt digest -q $option "$ds" 2>&1 | sed "s,$FIXTURES,FIXTURES,"
done
for option in '--model-config config.json' '--vocab 40'; do
	# shellcheck disable=SC2086
	zckpt convert -q $option "$ds" out.safetensors 2>&1 | sed "s,$FIXTURES,FIXTURES,"
done
echo '{}' > rules.json
zckpt convert -q --tp-rules rules.json "$mg" out.safetensors 2>&1 | sed "s,$FIXTURES,FIXTURES,"
zckpt convert -q --naming native "$mg" out.safetensors && zckpt diff --naming native "$mg" out.safetensors | head -1
ls
