# Files of FSDP and DCP, each by itself: rank files of FSDP1, whose one getattr builds values, the
# index and the data of a DCP folder, torch_checkpointing. The hostile index is named.
cd "$FIXTURES/fsdp" || exit
for file in t2.1-fsdp1-verl-w4/ckpt/model_world_size_4_rank_0.pt \
	t2.4-fsdp1-verl-w3-flat/ckpt/model_world_size_3_rank_1.pt \
	t2.11-fsdp1-local-w2/ckpt/pytorch_model_fsdp_0_rank0.bin \
	t2.11-fsdp2-accel-w3-rank/ckpt/optimizer_0_rank2.bin \
	t2.1-fsdp1-dcp-w2/ckpt/.metadata t2.15-fsdp2-dcp-w2/ckpt/.metadata \
	t2.15-fsdp2-dcp-w2/ckpt/__1_0.distcp t2.11-fsdp2-tc-w2/ckpt/metadata.pkl \
	t2.11-fsdp2-tc-w2/ckpt/optimizer_1.pt \
	bad-2.11-fsdp2-dcp-w2-sweep-metadata-hostile/ckpt/.metadata \
	bad-2.11-fsdp2-dcp-w2-sweep-metadata-truncated/ckpt/.metadata; do
	zckpt audit "$file" > "$OLDPWD/out" 2>&1; echo "exit $? $file"
	sed -n 's/^/    /;1p;/getattr/p;/posix/p' "$OLDPWD/out" | sort -u
done
echo 'every folder: what is not safe, or not readable'
for case in *; do
	zckpt audit "$case/ckpt" > "$OLDPWD/out" 2>&1 || echo "exit $? $case: $(head -1 "$OLDPWD/out")"
	grep -q '^unknown' "$OLDPWD/out" && echo "unknown: $case"
done
true
