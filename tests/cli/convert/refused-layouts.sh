# Other layouts are refused by name, exit 3, without output.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" nvme && mkdir nvme/global_step3/offloaded_tensors
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" fast && touch fast/global_step3/mp_rank_00_model_states.pt-0.1
for case in nvme fast; do
	zckpt convert $case out.safetensors > out 2> err
	echo "$case: exit $?, $(grep -o -m 1 'LAYOUT_UNSUPPORTED: [^;,]*' err)"
done
rm -r out err nvme fast; ls
