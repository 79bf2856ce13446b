# The bias that chooses experts changes by 0.001 a step: rounded to bf16, tokens go to other experts.
# transformers loads it in fp32, whatever type the model has.
src=$FIXTURES/parallel/mc0.16.1-qwen3moe-tp2-ep2/ckpt
for name in model.layers.0.mlp.gate.e_score_correction_bias decoder.layers.mlp.router.expert_bias; do
	zckpt convert -q --dtype fp32 --naming native --include decoder.final_layernorm.weight \
		--include output_layer.weight --rename decoder.final_layernorm.weight=$name "$src" made.safetensors
	zckpt convert -q --dtype bf16 made.safetensors out.safetensors
	zckpt inspect --names -q out.safetensors | grep -e bias -e output_layer | awk '{ print $1, $NF }'
	zckpt diff made.safetensors out.safetensors --include '*bias' | head -n 1
	rm *.safetensors
done
zckpt convert -q --dtype fp32 --naming native --include decoder.final_layernorm.weight \
	--rename decoder.final_layernorm.weight=router.expert_bias "$src" made.safetensors
zckpt convert -q --dtype bf16 --dtype '*bias=bf16' made.safetensors asked.safetensors
zckpt inspect --names -q asked.safetensors | awk '/bias/ { print $1, $NF }'
