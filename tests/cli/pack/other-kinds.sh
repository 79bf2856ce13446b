# Weights, one file, a universal checkpoint, a step among others.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$RUN" model.safetensors
zckpt convert -q --max-shard-size 10kB "$RUN" hf
zckpt reshard -q --to universal "$RUN" uni
cp -r "$RUN" two && cp -r two/global_step3 two/global_step9 && mkdir two/logs && echo log > two/logs/x
for src in model.safetensors hf uni two; do
	zckpt pack -q $src $src.tar.zst || echo "pack $src: $?"
	zckpt digest $src > a && zckpt digest $src.tar.zst > b && cmp a b && echo "$src: the same"
	zckpt verify -q --full $src.tar.zst || echo "verify $src: $?"
	zckpt unpack -q $src.tar.zst out.$src
	(cd out.$src && find . -type f | LC_ALL=C sort | head -4)
done
zckpt pack -q --tag global_step9 two nine.tar.zst && zckpt unpack -q nine.tar.zst nine && ls nine && cat nine/latest && echo
zckpt pack -q two/../two/global_step9/. dot.tar.zst && zckpt inspect dot.tar.zst | grep '^path'
zckpt verify -q --full --write-manifest two && zckpt pack -q two m.tar.zst && zckpt verify m.tar.zst | grep -i manifest
zckpt verify -q --full --write-manifest m.tar.zst; echo "exit $?"
