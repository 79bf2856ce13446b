# Folders given together are parts of one checkpoint.  A glob names several: nothing is written,
# since the oldest one would be what is taken.
DS=$FIXTURES/deepspeed
two=$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt
for n in 2 4; do
	mkdir -p out/checkpoint-$n acc/checkpoint_$n epochs/epoch_$n weights/checkpoint-$n
	cp -r "$two/global_step$n" out/checkpoint-$n
	printf 'global_step%s' $n > out/checkpoint-$n/latest
	cp -r "$two/global_step$n" acc/checkpoint_$n/pytorch_model
	printf pytorch_model > acc/checkpoint_$n/latest
	: > acc/checkpoint_$n/scheduler.bin
	cp -r acc/checkpoint_$n/. epochs/epoch_$n
	zckpt convert -q out/checkpoint-$n weights/checkpoint-$n/model.safetensors
done
cp -r "$two" run
echo '* a glob'
zckpt convert out/checkpoint-* gm 2>&1; echo "exit $?"
zckpt convert -q run/global_step2 run/global_step4 x.safetensors 2>&1; echo "exit $?"
zckpt verify --strict weights/* 2>&1; echo "exit $?"
ls -d gm x.safetensors 2>&1 | wc -l
zckpt convert -q --tag global_step4 out/checkpoint-2 out/checkpoint-4 x.safetensors 2>&1 | cut -c 1-44
echo '* folders of two runs: one cause'
cp -r "$DS/ds0.19.8-z3-bf16-w8/ckpt" half; rm half/*/*_rank_[4-7]_*
zckpt convert half "$DS/ds0.19.8-z2-bf16-w2/ckpt" x 2>&1 | grep -v '^zckpt: step'
echo '* checkpoints of accelerate'
zckpt convert acc p.safetensors 2>&1 | grep step
zckpt convert --tag 2 acc p2.safetensors 2>&1 | grep step
zckpt latest acc
mkdir above && cp -r acc above/checkpoints
zckpt convert above p3.safetensors 2>&1 | sed -n '$p'
zckpt convert epochs p3.safetensors 2>&1 | sed -n '$p'
echo '* two halves of one step below a folder'
mkdir -p nodes/a/global_step3 nodes/b/global_step3
for r in 0 1 2 3; do cp "$DS"/ds0.19.8-z3-bf16-w8/ckpt/global_step3/*_rank_${r}_* nodes/a/global_step3; done
for r in 4 5 6 7; do cp "$DS"/ds0.19.8-z3-bf16-w8/ckpt/global_step3/*_rank_${r}_* nodes/b/global_step3; done
zckpt convert nodes n.safetensors 2>&1 | sed -n '$p'
$(zckpt convert nodes n.safetensors 2>&1 | sed -n '$s/.*: zckpt/zckpt/p') -q && ls n.safetensors
