# A step of a layout that zckpt does not read is neither complete nor incomplete, and said to be so.
ds=$FIXTURES/deepspeed
for case in ds0.19.8-z1-bf16-w2; do
	cp -r "$ds/$case/ckpt" run
	mkdir run/global_step3/offloaded_tensors
	zckpt ls run | sed 's/  20[0-9-]* [0-9:]* / TIME /'
	zckpt latest --valid run 2>&1; echo "exit $?"
	zckpt prune --keep-last 1 run 2>&1; echo "exit $?"
	zckpt doctor run | head -n 1
	zckpt ls --json run | grep -o -e "\"whole\": [a-z]*" -e "\"read\": [a-z]*"
	rm -r run
done
mkdir dcp && echo m > dcp/.metadata && echo d > dcp/__0_0.distcp
zckpt doctor dcp
echo '-- the one checkpoint below a folder'
mkdir above && cp -r "$ds/ds0.19.8-z2-bf16-w2/ckpt" above/checkpoint_0
zckpt doctor above 2>&1; echo "exit $?"
