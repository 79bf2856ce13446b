# Megatron-Core saves optimizer states in buckets without names by default.  Who reads that there is
# no optimizer takes a step for one that cannot be resumed, or deletes the better one.
M=$FIXTURES/parallel
line() { zckpt inspect "$@" 2> /dev/null | grep '^optimizer *[a-z]* *[a-z]' | grep -v groups; }
for name in mc0.16.1-llama-tp2 mc0.14.0-qwen2-dp2-zerogather; do
	line "$M/$name/ckpt"
	line --find-states "$M/$name/ckpt"
done
echo 'without an optimizer:'
line "$M/mc0.16.1-llama-fp32-weights/ckpt"
echo 'for programs:'
zckpt inspect --json "$M/mc0.16.1-llama-tp2/ckpt" | grep '"optimizer"'
