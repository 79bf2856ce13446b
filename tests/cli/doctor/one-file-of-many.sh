# One file of a checkpoint of many: doctor says what it is and which folder to give. What the folder
# says of this file counts.
cd "$FIXTURES/fsdp" || exit
for file in t2.15-fsdp2-dcp-w2/ckpt/.metadata t2.15-fsdp2-dcp-w2/ckpt/__0_0.distcp \
	t2.11-fsdp2-tc-w2/ckpt/metadata.pkl \
	t2.15-fsdp2-hfs-w2/ckpt/shard-00002-model-00001-of-00001.safetensors \
	t2.1-fsdp1-verl-w4/ckpt/model_world_size_4_rank_0.pt \
	bad-2.11-fsdp2-dcp-w2-sweep-metadata-hostile/ckpt/.metadata \
	bad-2.11-fsdp2-dcp-w2-sweep-metadata-truncated/ckpt/.metadata \
	bad-2.11-fsdp2-dcp-w2-sweep-truncated-distcp/ckpt/__1_0.distcp \
	bad-2.15-fsdp2-dcp-w2-wrong-shape/ckpt/__0_0.distcp; do
	zckpt doctor "$file" 2>&1; echo "exit $?"
done
echo '* in its folder, and without the others'
cp t2.15-fsdp2-dcp-w2/ckpt/.metadata "$OLDPWD" && cd t2.15-fsdp2-dcp-w2/ckpt && zckpt doctor .metadata
echo "exit $?"
cd - > /dev/null && cd "$OLDPWD" && zckpt doctor .metadata; echo "exit $?"
