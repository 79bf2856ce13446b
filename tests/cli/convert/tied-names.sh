# A weight under three names: once with the others in the metadata, thrice, or once
# without a word of them.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-tied3/ckpt
for tied in alias dup drop; do
	zckpt convert -q --tied $tied "$run" $tied.safetensors
	zckpt digest $tied.safetensors | sed '$d' | sort > $tied
done
zckpt inspect -q "$run" | sed -n '/^tied names/,/^$/s/^  //p' | sort > names
cat names
cmp alias drop && echo 'alias and drop hold the same tensors'
comm -13 alias dup | sed 's/^[^ ]* weight //'
sed 's/ = .*//' names | while read -r name; do
	for tied in alias drop; do
		head -c 8192 $tied.safetensors | grep -a -q "\"$name\"" && echo "$tied names $name"
	done
done
zckpt convert "$run" again.safetensors 2>&1 | grep 'note: 2 names'
