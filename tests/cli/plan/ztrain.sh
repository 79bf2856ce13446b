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
