# A DCP folder for a version of torch and a program that loads it: the options are DCP's own, a
# wrong value is refused, and every form and layout has the same values and leads back.
D=$FIXTURES/deepspeed
run=$D/ds0.19.8-z2-bf16-w2/ckpt
for v in '' 2 2. v2.4 2.4.1.0 2.x 2.4.1+cpu 2.999 2.0; do
	zckpt reshard -q --to dcp --torch "$v" "$run" no 2>&1 | head -n 1
done
for l in '' x model a,b,c , a,a 'a..b,c' a.,b .a,b deepspeed,b; do
	zckpt reshard -q --to dcp --layout "$l" "$run" no 2>&1 | head -n 1
done
for to in deepspeed universal native; do
	zckpt reshard -q --to $to --world 3 --torch 2.4 "$run" no 2>&1 | head -n 1
	zckpt reshard -q --to $to --world 3 --layout titan "$run" no 2>&1 | head -n 1
done
ls
# the newest form is the same for every torch that reads it
for v in 2.4 2.4.1 2.15 3.0; do
	zckpt reshard -q --to dcp --torch $v "$run" for-$v && cmp for-2.4/global_step3/.metadata for-$v/global_step3/.metadata
done
# from a scheduler of torch, two groups without hyper-parameters, values of a client
for name in ds0.19.8-z2-bf16-w2-torchsched ds0.18.9-z2-bf16-w2-elastic ds0.19.8-z2-bf16-w2-client; do
	zckpt digest -q "$D/$name/ckpt" > want 2> /dev/null
	for o in '' '--torch 2.1' '--layout titan' '--layout accelerate' '--layout net.a,opt' '--torch 2.3 --layout titan'; do
		rm -rf out back
		zckpt reshard -q --to dcp --world 3 $o "$D/$name/ckpt" out 2> /dev/null && zckpt verify -q --full out
		zckpt digest -q out | cmp want - && zckpt reshard -q --stage 2 --world 2 out back 2> /dev/null &&
			zckpt diff -q "$D/$name/ckpt" back && echo "same $name $o"
	done
done
# what accelerate looks for; a scheduler that went along stays
zckpt reshard --to dcp --layout accelerate "$D/ds0.19.8-z2-bf16-w2-torchsched/ckpt" acc 2>&1 | tail -n 2 | head -n 1
(cd acc && find . -type f | sort)
zckpt reshard -q --to dcp --world 1 acc again && (cd again && find . -type f | sort)
cmp acc/global_step3/scheduler.bin again/global_step3/scheduler.bin
zckpt reshard --to dcp --torch 2.1 "$D/ds0.19.8-z2-bf16-w2-torchsched/ckpt" old 2>&1 | grep note
# a folder of torch: its layout stays; a list with tensors is no part of a model at the root
F=$FIXTURES/fsdp
for name in t2.1-fsdp1-dcp-w2 t2.11-fsdp2-dcp-w2-client t2.11-fsdp2-titan-w2 t2.11-fsdp2-accel-w2; do
	zckpt digest -q "$F/$name/ckpt" > want 2> /dev/null
	for o in '' '--torch 2.1' '--layout titan' '--layout accelerate' '--layout a,b'; do
		rm -rf out back
		zckpt reshard -q --to dcp --world 5 $o "$F/$name/ckpt" out 2> /dev/null
		zckpt digest -q out 2> /dev/null | cmp want - && zckpt reshard -q --to dcp --world 2 out back 2> /dev/null &&
			zckpt digest -q back 2> /dev/null | cmp want - && echo "same $name $o"
	done
done
# accelerate merge-weights takes a folder with the model alone
grep -ac 'deepspeed' acc/global_step3/pytorch_model_fsdp_0/.metadata acc/global_step3/optimizer_0/.metadata
