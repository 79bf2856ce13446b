# A DCP folder for a version of torch: the option is DCP's own, and takes a version that exists.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
for v in '' 2 2. v2.4 2.4.1.0 2.x 2.4.1+cpu 2.999; do
	zckpt reshard -q --to dcp --torch "$v" "$run" no 2>&1 | head -n 1
done
for to in deepspeed universal native; do
	zckpt reshard -q --to $to --world 3 --torch 2.4 "$run" no 2>&1 | head -n 1
done
for v in 2.4 2.4.1 2.15 3.0; do
	zckpt reshard -q --to dcp --torch $v "$run" for-$v && zckpt verify -q --full for-$v && ls for-$v
done
ls
