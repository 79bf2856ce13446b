# A state has the same hash in the step, in a file, and whatever --tied and
# --threads are.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" m.safetensors
zckpt digest --state master "$run" | sed '$d; s/ master / weight /' | sort > step
zckpt digest m.safetensors | sed '$d' | sort > file
comm -23 step file
test -s step && echo 'the masters are in the file'
run=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-tied3/ckpt
for tied in alias dup drop; do
	zckpt convert -q --tied $tied "$run" $tied.safetensors
	zckpt digest $tied.safetensors > $tied
done
cmp alias drop && echo 'alias and drop: the same'
sed '$d' alias | sort > a; sort dup | comm -23 a -
echo "dup has $(($(wc -l < dup) - $(wc -l < alias))) names more"
for threads in 1 2 3; do
	zckpt digest --threads $threads "$run" | tail -n 1
done | uniq | grep -c '^[0-9a-f]* root$'
