# The language model of a vision-language model as a model of its own: names and config.json are those of
# a decoder, from names in memory and from published ones; M-RoPE becomes the plain rotary embedding.
weights() { # OUT NAME ...
	out=$1 json= at=0; shift
	for name; do
		json="$json,\"$name\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[$at,$((at + 2))]}"
		at=$((at + 2))
	done
	json="{${json#,}}" n=${#json}
	{ printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0%s" "$json"
	  head -c $at /dev/zero; } > "$out"
}
names() { zckpt digest "$1" | sed '$d; s/^[^ ]* [^ ]* //' | sort; }
mkdir m5 m4 chat
weights m5/model.safetensors model.language_model.layers.0.mlp.up_proj.weight model.language_model.norm.weight \
	model.visual.merger.norm.weight lm_head.weight
cat > m5/config.json << 'END'
{"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "image_token_id": 9,
"tie_word_embeddings": true, "text_config": {"model_type": "qwen3_vl_text", "dtype": "bfloat16", "hidden_size": 32,
"rope_parameters": {"mrope_interleaved": true, "mrope_section": [1, 1, 2], "rope_theta": 5000000, "rope_type": "default"},
"tie_word_embeddings": false}, "vision_config": {"depth": 1}}
END
weights m4/model.safetensors model.embed_tokens.weight model.layers.0.mlp.up_proj.weight \
	visual.merger.ln_q.weight lm_head.weight
cat > m4/config.json << 'END'
{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "torch_dtype": "bfloat16",
"hidden_size": 32, "vision_start_token_id": 5, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
"rope_theta": 1000000.0, "vision_config": {"depth": 1}}
END
weights chat/model.safetensors language_model.model.layers.0.mlp.up_proj.weight language_model.lm_head.weight \
	vision_model.encoder.layers.0.ls1 mlp1.0.weight
cat > chat/config.json << 'END'
{"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "auto_map": {"AutoModel": "x"},
"llm_config": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 32,
"tie_word_embeddings": true}, "vision_config": {}}
END
for m in m5 m4 chat; do
	zckpt convert -q --dtype bf16 --language-part $m $m-text 2>&1 | grep -v tokenizer
	echo "== $m"; names $m-text; cat $m-text/config.json
done
echo 'with other options:'
zckpt convert -q --dtype keep --language-part --exclude 'lm_head*' m5 one.safetensors && names one.safetensors
echo 'what is refused:'
zckpt convert -q --language-part m5-text again; echo "exit $?"
sed -i 's/qwen3_vl_text/mamba/' m5/config.json
zckpt convert -q --language-part m5 other; echo "exit $?"
weights odd.safetensors model.layers.0.mlp.up_proj.weight audio_tower.conv.weight visual.merger.ln_q.weight
zckpt convert -q --language-part odd.safetensors other.safetensors; echo "exit $?"
ztrain --model m4 --synthetic 2>&1 | tail -1
