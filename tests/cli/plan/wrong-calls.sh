# A wrong call says what is wrong, and exits with 2.
try() {
	zckpt plan "$@" > out
	echo "exit $?"
}
try
try no-such-model
try qwen2.5-7
try no-such/config.json
for name in $(zckpt plan -v no-such-model 2>&1 | sed -n 's/.*known models: //p' | tr -d ,); do
	zckpt plan -h | tr -d '\n' | grep -q -e "${name#*-}" -e "-${name##*-}" || echo "$name is not in the help"
	zckpt plan -q "$name" > out || echo "$name: exit $?"
done
try 8B --stage 4
try 8B --dtype int8
try 8B --offload nvme
try 8B --gpus 5000
try 8B --stage 0 --offload optimizer
try 8B --stage 2 --offload params
try 8B --gpu-mem much
try 0
try 99999999B
echo '{ "model_type": "mamba", "num_hidden_layers": 8 }' > config.json
try config.json
try config.json --json
cat out
# what was probably meant
try 8B --gpu-mem 80
try 8B --host-mem 512
try 8B --gpu-mem h100
try 8B --offload cpu
try 7 --gpus 8
try 7.5
try Qwen/Qwen2.5-7B
try --gpus 8 meta-llama/Llama-3.1-8B-Instruct
try llama
try some/model
# sizes that do not divide each other
try mixtral-8x7b --gpus 6 --tp 4
try mixtral-8x7b --gpus 6 --tp 3
try mixtral-8x7b --gpus 32 --tp 16
try mixtral-8x7b --gpus 12 --ep 3
try mixtral-8x7b --gpus 4 --pp 2 --ep 8
try mixtral-8x7b --gpus 64 --pp 64
try qwen3-8b --gpus 8 --ep 2
try mixtral-8x7b --gpus 8 --pp 2 --stage 2
try mixtral-8x7b --gpus 8 --tp 2 --stage 3
try mixtral-8x7b --gpus 8 --tp 2 --engine ztrain --stage 1
try mixtral-8x7b --gpus 8 --tp 5000
try $FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt --gpus 2 --tp 2
