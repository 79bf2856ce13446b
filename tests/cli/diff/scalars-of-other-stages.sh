# Loss scale and scheduler are told, and are the same at every stage.
for run in ds0.19.8-z2-fp16-w2-overflow ds0.19.8-z2-bf16-w2-torchsched ds0.19.8-z1-bf16-w2-bf16opt; do
	for stage in 0 1 2 3; do
		zckpt reshard -q '2->3' --stage $stage "$FIXTURES/deepspeed/$run/ckpt" $run-$stage 2> /dev/null
		zckpt diff -q "$FIXTURES/deepspeed/$run/ckpt" $run-$stage; echo "$run $stage: exit $?"
	done
done
zckpt diff -v --scalars --include odd.w0 ds0.19.8-z2-fp16-w2-overflow-2 ds0.19.8-z2-bf16-w2-torchsched-1 |
	sed -n '/^scalar/,$p' | grep 'scale\|sched'
