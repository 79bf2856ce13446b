# A result that cannot be written is trouble, exit 3, and not a silent success.
test -w /dev/full || { echo 'there is no /dev/full' >&2; exit 77; }
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
for verb in help "inspect $run" "map --json $run" "digest $run"; do
	zckpt $verb > /dev/full 2> err
	echo "exit $?: $(sed -n '$s/stdout cannot be written: .*/stdout cannot be written/p' err)"
done
zckpt convert -q "$run" -o - > /dev/full 2> err
echo "a stream: exit $?"
zckpt convert -q --report no/such/folder/r.json "$run" out.safetensors 2> err
echo "a report: exit $?"
