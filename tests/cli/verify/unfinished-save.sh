# A save of the Trainer that did not finish is answered alike by all; convert warns.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
mkdir -p out/checkpoint-2 && cp -r "$step/." out/checkpoint-2 && cp -r out/checkpoint-2 out/tmp-checkpoint-4
new=out/tmp-checkpoint-4
zckpt ls out | tail -n 1
zckpt ls $new | tail -n 1
zckpt verify $new 2>&1; echo "exit $?"
zckpt inspect $new | sed -n '1p;$p'
zckpt doctor $new; echo "exit $?"
zckpt convert $new x.safetensors 2>&1 | grep -e UNFINISHED -e 'wrote x' | cut -c 1-66
zckpt convert --strict $new y.safetensors > said 2>&1; echo "exit $?"
(cd $new/global_step3 && zckpt verify -q --expect-finding UNFINISHED .; echo "exit $?")
zckpt verify -q out/checkpoint-2; echo "exit $?"
