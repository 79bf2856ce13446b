# A tag inside a Trainer's checkpoint-N, 'latest' as a tag, --step; a 'latest' that names nothing.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
mkdir -p out/checkpoint-2 out/checkpoint-4
cp -r "$run/global_step2" out/checkpoint-2/ && printf global_step2 > out/checkpoint-2/latest
cp -r "$run/global_step4" out/checkpoint-4/ && printf global_step4 > out/checkpoint-4/latest
for tag in '--tag global_step2' '-t latest' '--step 2' '--checkpoint 4' '--tag global_step9'; do
	zckpt inspect -q $tag out 2>&1 | grep -e '^tag' -e 'no step'
done
zckpt inspect -q -t latest "$run" | grep '^tag'
cp -r "$run" lies && printf global_step7 > lies/latest
zckpt latest lies 2>&1; echo "exit $?"
rm lies/latest
zckpt latest lies 2>&1; echo "exit $?"
