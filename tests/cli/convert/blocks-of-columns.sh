# A folder whose matrices are cut into rows and columns: each verb reads the same elements, and a
# flipped bit in a block of columns is found.
C=$FIXTURES/fsdp/t2.11-hand-dcp-w4-shard2d/ckpt
zckpt convert -q "$C" model.safetensors && zckpt diff "$C" model.safetensors
for part in 3 1 2; do
	zckpt convert -q --part $part/3 "$C" parts.safetensors
done
zckpt commit -q parts.safetensors
cmp model.safetensors parts.safetensors && echo parts
zckpt digest -q "$C" > want
zckpt reshard -q --to dcp --world 3 "$C" rows && zckpt digest -q rows | cmp want - && zckpt diff "$C" rows
zckpt pack -q "$C" packed.zckpt && zckpt digest -q packed.zckpt | cmp want - && echo packed
for slice in 'emb.weight[9:11]' 'emb.weight[:,2:4]'; do
	zckpt cat "$C" "$slice" > a && zckpt cat model.safetensors "$slice" | cmp - a && echo "$slice"
done
zckpt verify --full "$C"
cp -r "$C" flipped && chmod -R u+w flipped
printf '\377' | dd of=flipped/__1_0.distcp bs=1 seek=18179 conv=notrunc status=none
zckpt verify -q --full flipped 2>&1 | head -n 1
zckpt convert -q flipped no.safetensors 2>&1 | head -n 1
ls
zckpt map "$C" emb.weight | sed -n 1,8p
