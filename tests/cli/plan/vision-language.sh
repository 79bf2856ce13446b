# A vision-language model has a tower and a projector beside its language model, and both configurations.
# Weights of it have the same numbers. With the tower frozen the optimizer has the rest alone.
model() { zckpt plan "$@" 2>&1 | sed -n '/^model/,/^$/p' | head -5; }
cat > q25.json << 'END'
{"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": false,
"vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
"in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2}}
END
cat > chat.json << 'END'
{"model_type": "internvl_chat", "downsample_ratio": 0.5, "llm_config": {"model_type": "qwen2",
"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
"num_key_value_heads": 4, "vocab_size": 151674, "tie_word_embeddings": false},
"vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
"num_attention_heads": 16, "image_size": 448, "patch_size": 14, "qkv_bias": true,
"qk_normalization": false, "norm_type": "layer_norm"}}
END
model q25.json
zckpt plan --json --freeze-tower --gpus 8 --stage 2 q25.json | grep -E '"(params|tower|trainable)"' | head -3
model --freeze-tower chat.json
echo "InternViT-300M: $(($(zckpt plan --json chat.json | sed -n 's/.*"tower": \([0-9]*\).*/\1/p') - 2 * 4096 \
	- (4096 * 3584 + 3584) - (3584 * 3584 + 3584)))"
echo 'weights of one:'
weights() { # OUT NAME ...
	out=$1 json= at=0; shift
	for name; do
		json="$json,\"$name\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[$at,$((at + 4))]}"
		at=$((at + 4))
	done
	json="{${json#,}}" n=${#json}
	{ printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$json"
	  head -c $at /dev/zero; } > "$out"
}
weights w.safetensors lm_head.weight model.layers.0.mlp.up_proj.weight visual.blocks.0.norm1.weight visual.merger.ln_q.weight
model --freeze-tower w.safetensors
echo 'what is refused:'
sed 's/vision_config/other/' q25.json > cut.json
zckpt plan cut.json; echo "exit $?"
echo '{"model_type": "internvl", "vision_config": {"hidden_size": 8}}' > no-text.json
zckpt plan no-text.json; echo "exit $?"
sed 's/"model_type": "qwen2"/"model_type": "strange"/' chat.json > strange.json
zckpt plan strange.json 2>&1 | sed 's/(known.*)/(known ...)/'; echo "exit $?"
sed 's/"image_size": 448/"image_size": [448]/' chat.json > side.json
zckpt plan side.json; echo "exit $?"
zckpt plan --freeze-tower llama-3-8b; echo "exit $?"
zckpt plan --engine ztrain q25.json; echo "exit $?"
