# 'latest' in a checkpoint-N names what is missing: the command that helps is about that folder.
DS=$FIXTURES/deepspeed
mkdir -p out/checkpoint-2 out/checkpoint-3
cp -r "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step2" out/checkpoint-2; printf global_step2 > out/checkpoint-2/latest
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3" out/checkpoint-3; printf global_step9 > out/checkpoint-3/latest
next() { zckpt doctor "$@" 2>&1 | sed -n 's/^ *next: //p'; }
next out
$(next out) && zckpt inspect out 2> /dev/null | grep '^path'
# none is left in it
rm -r out/checkpoint-3/global_step3; mkdir out/checkpoint-3/global_step3; printf global_step3 > out/checkpoint-3/latest
next out
