# What adapters keep for the backward pass: frozen matrices and norms keep less, dropout more.
cat > c.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 768,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 1, "vocab_size": 64,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
END
one() { zckpt plan -v --seq 1 "$@" c.json | sed -n 's/^  activations  .*layers x \([0-9,]*\) B x.*/\1 B a token/p'; }
echo "all trained: $(one)"
for keys in r=4,target=all-linear r=4,target=q_proj+v_proj r=4,dropout=0.1,target=all-linear r=4,target=o_proj; do
	echo "$keys: $(one --lora $keys)"
	echo "$keys, scores stored: $(one --lora $keys --attention matrix)"
done
echo '--- wrong calls'
zckpt plan --lora r=4,dropout=1 c.json; echo "exit $?"
