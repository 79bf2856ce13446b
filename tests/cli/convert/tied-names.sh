# A weight under three names: once with the others in the metadata, thrice, or once
# without a word of them.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-tied3/ckpt
for tied in alias dup drop; do
	zckpt convert -q --tied $tied "$run" $tied.safetensors
	zckpt digest $tied.safetensors | sed '$d' | sort > $tied
done
zckpt inspect -q --names "$run" | awk 'NF > 2 && $(NF - 1) == "=" { print $1, $(NF - 1), $NF }' | sort > names
cat names
cmp alias drop && echo 'alias and drop hold the same tensors'
comm -13 alias dup | sed 's/^[^ ]* weight //'
sed 's/ = .*//' names | while read -r name; do
	for tied in alias drop; do
		head -c 8192 $tied.safetensors | grep -a -q "\"$name\"" && echo "$tied names $name"
	done
done
zckpt convert "$run" again.safetensors 2>&1 | grep 'note: 2 names'
# a second name that is taken in the metadata gets bytes of its own: it must not vanish
sed 's/ = .*//' names > second
zckpt convert --rename "$(sed -n 1p second)=format" --rename "$(sed -n 2p second)=zckpt.version" \
	"$run" taken.safetensors 2>&1 | grep -e ': wrote' -e note
zckpt digest taken.safetensors | grep -e ' format$' -e ' zckpt.version$' | sed 's/^[^ ]* //'
zckpt verify --full taken.safetensors | sed -n 1p
