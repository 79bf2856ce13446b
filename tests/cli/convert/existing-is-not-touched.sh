# What stands at the destination stays, exit 2; --force replaces it.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
echo precious > out.safetensors
mkdir hf; echo precious > hf/file
for dst in out.safetensors hf; do
	zckpt convert -q "$run" $dst 2> err
	echo "$dst: exit $?"
	sed 's/.*hint/hint/' err | tail -n 1
done
cat out.safetensors hf/file
for dst in out.safetensors hf; do
	zckpt convert -q --force "$run" $dst
	echo "$dst: exit $?"
done
zckpt digest out.safetensors > a; zckpt digest hf | cmp a - && echo replaced
cp -r "$run" copy
for dst in copy copy/global_step3; do
	zckpt convert -q --force "$run" $dst 2> err
	echo "a checkpoint: exit $?"
done
zckpt convert -q --force out.safetensors out.safetensors 2> err
echo "the source: exit $?"
ls copy copy/global_step3 | wc -l | tr -d ' '
rm -r a err copy; ls
