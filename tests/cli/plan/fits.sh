# Which stages fit a GPU, and what to change where the one that was asked for does not.
zckpt plan qwen2.5-7b -n 8 --gpu-mem 80GiB --seq 4096 | sed -n '/^run/p; /^STAGE/,/^$/p; /^it /,$p'
echo "exit $?"
zckpt plan qwen2.5-7b -n 8 --gpu-mem 40GiB --stage 2 --micro 4 --seq 4096 > out
echo "exit $?"
sed -n '/^run/p; /^it /,$p' out
echo '== nothing alone is enough'
zckpt plan llama-3-70b -n 8 --gpu-mem 80GiB --stage 2 --micro 4 --seq 4096 > out
echo "exit $?"
sed -n '/^it /,$p' out
echo '== nothing at all is enough'
zckpt plan llama-3-70b -n 8 --gpu-mem 8GiB --host-mem 100GiB --seq 65536 > out
echo "exit $?"
sed -n '/^it /,$p' out
