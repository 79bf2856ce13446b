# The modules of vision-language models have other names in memory than in the files that
# save_pretrained() writes. A folder and safetensors get the files' names, a state dict for torch
# the modules'; --naming chooses. The model is that of config.json, else the names tell it. Qwen3-VL
# has the same names in both.
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
	zckpt convert $model.safetensors $model-out.safetensors > out 2>&1; echo "$model: exit $?"
	grep -E 'hint|note' out
	names $model-out.safetensors
	zckpt diff $model.safetensors $model-out.safetensors | head -1
done
echo 'once more, and for torch:'
zckpt convert q25-out.safetensors twice.safetensors 2>&1 | grep note
zckpt diff -q q25-out.safetensors twice.safetensors && echo the same
zckpt convert q25.safetensors q25.pt 2>&1 | grep note
names q25.pt | head -1
zckpt convert -q --naming hf q25.safetensors hf.pt && names hf.pt | head -2
zckpt convert -q --naming native q25.safetensors native.safetensors && names native.safetensors | head -2
zckpt convert --json q25.safetensors json.safetensors | sed -n '/naming/,/]/p'
echo 'config.json says it:'
mkdir m && weights m/model.safetensors $text model.visual.other.weight
for c in '"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "x"' '"model_type": "qwen2_vl"' \
	'"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen2_vl"' '"hidden_size": 1'; do
	echo "{$c}" > m/config.json
	rm -rf out.d; zckpt convert -q m out.d 2>&1 | grep -v tokenizer; echo "$c: $(names out.d | head -1)"
done
echo 'a table of your own:'
printf '%s\n' 'family Own # a comment' '' 'model.language_model.* text.*' 'lm_head.weight head.weight' > own.map
zckpt convert --naming own.map q25.safetensors own.safetensors 2>&1 | grep note; names own.safetensors
while read -r line; do
	echo "$line" > bad.map
	zckpt convert -q --naming bad.map q25.safetensors bad.safetensors; echo "exit $?"
done << 'END'
other.* Own.*
a.*.* b.*
a.* b
a.* b.* c.*
family
family Own
END
zckpt convert -q --naming none.map q25.safetensors bad.safetensors; echo "exit $?"
zckpt cat --naming native q25.safetensors lm_head.weight; echo "exit $?"
