# The program says which step of several it took, and why that one.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
cp -r "$run" both
zckpt convert both a.safetensors 2>&1 | sed -n 1p
zckpt convert --tag global_step2 both b.safetensors 2>&1 | sed -n 1p
zckpt convert both/global_step2 c.safetensors 2>&1 | sed -n 1p
zckpt convert -q both d.safetensors 2>&1
cmp b.safetensors c.safetensors && echo 'the same'
rm both/latest
zckpt convert both e.safetensors 2>&1 | grep -v read
echo 'a shard is a file of weights, an index is not:'
zckpt convert --max-shard-size 9KB "$run" hf 2>&1 | grep '^zckpt: wrote'
