# The memory of a CPU rank of ztrain: every term with its formula, and what it does not train.
zckpt plan -v --engine ztrain qwen2.5-7b -n 8 --stage 2 --micro 2 --seq 4096 --accumulation 4 --recompute
zckpt plan --engine ztrain llama-3.2-1b -n 4 --stage 3 --gpu-mem 20GiB --offload params
try() {
	zckpt plan --engine ztrain "$@" > out
	echo "exit $?"
}
try qwen3-8b --gpu-mem 16GiB -n 2 --micro 4 --seq 4096
cat out
try 1000
try qwen3-8b --ops fused
try qwen3-8b --offload optimizer --stage 0
echo '{ "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100 }' > config.json
try config.json
# copies of fp8 on a GPU are a line of their own, in no sum
zckpt plan -v --engine ztrain qwen3-8b -n 2 --stage 2 --accumulation 4 --fp8 tensorwise | grep -e 'memory of' -e '  ranks' -e fp8
zckpt plan -v --engine ztrain qwen3-8b -n 2 --stage 2 --accumulation 4 | grep -e 'memory of' -e '  ranks' -e fp8
zckpt plan --engine ztrain qwen2.5-7b --fp8 tensorwise_with_gw_hp --json | grep -o '"fp8[^}]*'
zckpt plan qwen3-8b --fp8 tensorwise; echo "exit $?"
zckpt plan --engine ztrain qwen3-8b --fp8 e4m3; echo "exit $?"
zckpt plan --engine ztrain qwen3-8b --dtype fp32 --fp8 tensorwise; echo "exit $?"
echo '{ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 96, "rms_norm_eps": 1e-6, "tie_word_embeddings": false }' > odd.json
zckpt plan --engine ztrain odd.json --fp8 tensorwise; echo "exit $?"
