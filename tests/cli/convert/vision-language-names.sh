# Vision-language models keep their weights under a module's names; the Trainer writes others. One
# note names the --rename that make them equal, checked against transformers 5: Qwen2-VL, Qwen2.5-VL
# and InternVL. Qwen3-VL is written under the module's own names, so nothing is said of it.
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
names() { zckpt digest "$1" | sed '$d; s/^[^ ]* [^ ]* //' | sort; }
text=model.language_model.layers.0.mlp.up_proj.weight
weights q25.safetensors $text model.visual.blocks.0.norm1.weight model.visual.merger.ln_q.weight lm_head.weight
weights q3.safetensors $text model.visual.blocks.0.norm1.weight model.visual.merger.norm.weight lm_head.weight
weights ivl.safetensors $text model.vision_tower.encoder.layer.0.lambda_1 \
	model.multi_modal_projector.linear_1.weight lm_head.weight
weights llava.safetensors $text model.vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight \
	model.multi_modal_projector.linear_1.weight lm_head.weight
for model in q25 ivl q3 llava; do
	zckpt convert $model.safetensors $model-as-is.safetensors > out 2>&1; echo "$model: exit $?"
	grep -E 'hint|note' out
done
echo 'what it says, typed:'
for model in q25 ivl; do
	zckpt convert $model.safetensors x.safetensors 2>&1 | sed -n 's/.*: \(--rename .*\)/\1/p' > options
	eval "zckpt convert $(cat options) $model.safetensors $model-renamed.safetensors" 2>&1 | grep -E 'hint|note'
	names $model-renamed.safetensors
	rm x.safetensors
done
zckpt convert --json q25.safetensors json.safetensors | grep rename
