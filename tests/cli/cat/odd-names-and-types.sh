# Names that end in brackets or hold odd letters, tensors without elements, types below 8 bits.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" m.safetensors --include odd.w7 --include odd.w35 \
	--rename 'odd.w35=a b/é' --rename 'odd.w7=odd.w35[0]'
zckpt cat m.safetensors 'odd.w35[0]' --to text | wc -l
zckpt cat m.safetensors 'odd.w35[0][:2]' --to text
zckpt cat m.safetensors 'a b/é[2, 3:]' --to text
# {"e": F32 [0, 3], "f": F4 [4], "s": I8 []}
header='{"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"f":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"s":{"dtype":"I8","shape":[],"data_offsets":[2,3]}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\022\\064\\377" "$header" > t.safetensors
zckpt cat t.safetensors e | tail -c +11
zckpt cat t.safetensors e --to text; zckpt cat t.safetensors 'e[:, 1]' --to raw
zckpt cat t.safetensors s --to text
zckpt cat t.safetensors f --to raw | od -An -tx1
zckpt cat t.safetensors f 2>&1; echo "exit $?"
zckpt cat t.safetensors 'f[1]' --to raw 2>&1; echo "exit $?"
sed 's/\x34\xff$/\x35\x01/' t.safetensors > u.safetensors
zckpt diff t.safetensors u.safetensors; echo "exit $?"
