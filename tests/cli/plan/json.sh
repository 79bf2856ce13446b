# The same for scripts: every byte as it is, one schema.
zckpt plan --json qwen3-0.6b -n 2 --stage 3 --gpu-mem 40GiB
zckpt plan --json qwen3-0.6b -n 2 --stage 2 --gpu-mem 1GiB > out
echo "exit $?"
sed -n '/"fits": false/,$p' out | tail -n 40
