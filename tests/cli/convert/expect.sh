# --expect: what agrees is written, what differs in names, shapes or types is not.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q --max-shard-size 4KB "$run" hf
zckpt convert -q "$run" a.safetensors
for file in hf/model.safetensors.index.json a.safetensors; do
	zckpt convert -q --expect $file "$run" b.safetensors
	echo "exit $?"
	rm -f b.safetensors
done
zckpt convert -q --dtype bf16 --expect a.safetensors "$run" c.safetensors 2> err
echo "another type: exit $?"
zckpt convert -q --exclude '*bias' --expect a.safetensors "$run" c.safetensors 2> err
echo "a name less: exit $?"
ls *.safetensors
