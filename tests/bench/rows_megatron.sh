# shellcheck shell=bash disable=SC2154
# rows_megatron.sh - Megatron-Core to Hugging Face; bench.sh sources it.

# write_config HEADS GROUPS HIDDEN LAYERS FFN VOCAB: of the generator's model, for transformers
write_config() {
	printf '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": %s,
"num_key_value_heads": %s, "head_dim": 128, "hidden_size": %s, "num_hidden_layers": %s,
"intermediate_size": %s, "vocab_size": %s, "tie_word_embeddings": false, "hidden_act": "silu",
"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}\n' "$@"
}

# megatron_row WORDS TP REACH: a folder of TP parts against cp of it; no REACH = the cost is stated
megatron_row() {
	local out=$w/out.safetensors s="Megatron-Core to Hugging Face, $big_name fp32, $1" i
	run make "$ZCKPT" shard -q --to megatron --tp "$2" "$w/hf" "$w/run"
	bad make && { row "$s" failed '' '' '' failed; return; }
	fresh
	cp "$w/hf/config.json" "$w/run/"
	"$ZCKPT" diff -q "$w/run" "$w/hf" > /dev/null 2>> "$w/said" ||
		row "$s" '' '' '' 'right bytes' 'wrong bytes'
	for ((i = 0; i < RUNS; i++)); do
		rm -rf "$out" "$w/cp"
		run cp cp -r --reflink=never "$w/run" "$w/cp"
		rm -rf "$w/cp"
		run z1 "$ZCKPT" convert -q --dtype keep --threads 1 "$w/run" "$out"
		rm -f "$out"
		run z2 "$ZCKPT" convert -q --dtype keep --threads 2 "$w/run" "$out"
	done
	s="$s, 1 thread, against cp -r"
	if [ -n "$3" ]; then time_row "$s" z1 cp "$3"; else note_row "$s" z1 cp; fi
	note_row "  2 threads" z2 cp
	memory_row '  peak memory' z2
	rm -rf "$w/run" "$w/cp" "$out"
}

# Weights of a Megatron-Core folder with names and shapes of transformers: rows of one part, and
# the columns of attn.o_proj and mlp.down_proj woven from 4 parts.
megatron_rows() {
	wants megatron || return 0
	gen --model "$big" --stage 2 --world 8 --no-moments-data "$w/src"
	run make "$ZCKPT" convert -q --exclude '*inv_freq' "$w/src" "$w/hf"
	rm -rf "$w/src"
	case $big in
	llama-0.2b) write_config 8 8 1024 10 2816 32000 ;;
	*) write_config 12 4 1536 26 4096 32000 ;;
	esac > "$w/hf/config.json"
	megatron_row 'whole rows' 1 1.15
	megatron_row 'columns of 4 ranks' 4 ''
	rm -rf "$w/hf"
}
