# The files of a vision-language model have other names than its modules; a step has those of the
# modules, in their order, and convert gives the files' names back. The tower is frozen by either name.
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
mkdir m
weights m/model.safetensors lm_head.weight model.embed_tokens.weight model.layers.0.input_layernorm.weight \
	model.layers.0.self_attn.q_proj.bias model.layers.0.self_attn.q_proj.weight model.norm.weight \
	visual.blocks.0.attn.qkv.weight visual.blocks.0.norm1.weight visual.blocks.1.attn.qkv.weight \
	visual.blocks.1.norm1.weight visual.merger.ln_q.weight visual.merger.mlp.0.weight \
	visual.merger.mlp.2.weight visual.patch_embed.proj.weight
config() { echo "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"model_type\": \"$1\",
	\"num_hidden_layers\": $2, \"vision_config\": {\"depth\": $3}}" > m/config.json; }
shard() { rm -rf run; zckpt shard -q --world 2 --stage 2 --lr 1e-5 "$@" m run 2>&1; echo "exit $?"; }
config qwen2_5_vl 1 2
shard
zckpt map --all run | awk '/trainable|frozen/ { print $1, $NF }'
for frozen in 'visual.*' 'model.visual.*'; do
	shard --frozen "$frozen"
	zckpt map --all run | awk '/trainable|frozen/ { print $NF }' | sort | uniq -c
done
echo 'back again:'
zckpt convert run out 2>&1 | grep note
zckpt diff m out | head -1
echo 'the form of InternVL with its own code:'
mkdir chat
weights chat/model.safetensors language_model.lm_head.weight language_model.model.embed_tokens.weight \
	language_model.model.layers.0.mlp.up_proj.weight language_model.model.norm.weight mlp1.0.weight mlp1.1.weight \
	mlp1.3.weight vision_model.embeddings.class_embedding vision_model.embeddings.patch_embedding.bias \
	vision_model.embeddings.patch_embedding.weight vision_model.embeddings.position_embedding \
	vision_model.encoder.layers.0.attn.k_norm.weight vision_model.encoder.layers.0.attn.proj.weight \
	vision_model.encoder.layers.0.attn.qkv.weight vision_model.encoder.layers.0.ls1 vision_model.encoder.layers.0.ls2
for tied in false true; do
	echo "{\"architectures\": [\"InternVLChatModel\"], \"model_type\": \"internvl_chat\", \"llm_config\": {\"model_type\":
	\"qwen2\", \"num_hidden_layers\": 1, \"tie_word_embeddings\": $tied}, \"vision_config\": {\"num_hidden_layers\": 1}}" \
		> chat/config.json
	rm -rf run; zckpt shard -q --world 2 --stage 2 --lr 1e-5 --frozen 'vision_model.enc*' chat run; echo "exit $?"
	zckpt map --all run | awk '/trainable|frozen|alias/ { print $1, $NF }'
done
echo 'what does not fit:'
config qwen2_5_vl 2 2; shard
config qwen2_5_vl 1 3; shard
config other_vl 1 2; shard
config qwen2_5_vl 1 2; shard --naming native
weights m/model.safetensors lm_head.weight model.embed_tokens.weight
shard
