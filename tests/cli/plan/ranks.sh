# Which rank has which layers and experts, in DeepSpeed's order of ranks and with its names of files.
zckpt plan -n 16 --tp 2 --pp 2 --ep 4 --stage 1 mixtral-8x7b --ranks
zckpt plan -n 4 --pp 4 --stage 1 deepseek-v3 --ranks
zckpt plan -n 4 --tp 2 --stage 0 --dtype fp16 qwen3-8b --ranks
zckpt plan -n 4 --ep 2 --stage 0 mixtral-8x7b --ranks
zckpt plan -n 2 --stage 2 --dtype fp16 qwen3-0.6b --ranks --json
zckpt plan -n 2 --stage 3 qwen3-0.6b --ranks
echo "exit $?"
zckpt plan -n 2 --stage 1 100M --ranks
echo "exit $?"
# masters of all ranks: 46,702,792,704, and norms and routers (1,314,816) twice
zckpt plan -n 32 --tp 2 --pp 2 --ep 4 --stage 1 mixtral-8x7b --ranks --json |
	sed -n 's/.*"states": \([0-9]*\),.*/\1/p' | awk '{ n += $1 } END { printf "%.0f\n", n }'
