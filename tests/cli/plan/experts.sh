# A model with experts: all parameters, those that a token passes, and ranks that divide them.
zckpt plan --gpus 64 --stage 1 mixtral-8x7b | head -14
zckpt plan --gpus 8 --stage 1 deepseek-v3 | sed -n '/^model/,/^run/p'
# a rank of tensor-parallel and expert-parallel ranks, in stages
zckpt plan -v --gpus 64 --tp 4 --pp 2 --ep 8 --stage 1 --accumulation 4 mixtral-8x7b
zckpt plan --gpus 16 --ep 8 --stage 2 --gpu-mem 80GiB qwen3-30b-a3b
echo "exit $?"
zckpt plan --gpus 16 --tp 2 --ep 4 --stage 0 --json mixtral-8x7b > out
grep '"active"' out
for key in run rank save; do
	sed -n "/^  \"$key\"/,/^  }/p" out
done
