# A native step has sums of the files that lie in its folder: one that was edited, or is gone, is a
# warning wherever it is looked at or taken along, and what is written has the sum of what it is.
RUN=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
cp -r "$RUN" run
mkdir run/global_step3/notes
echo '{"model_type": "llama"}' > run/global_step3/config.json
echo 'it learns' > run/global_step3/notes/today.txt
zckpt reshard -q --to native run nat; echo "reshard: $?"
zckpt verify -q --full nat; echo "verify: $?"
zckpt digest nat | tail -n 1 > before
echo '{"model_type": "Llama"}' > nat/global_step3/config.json
zckpt verify -q nat; echo "edited: $?"
echo 'it learned' > nat/global_step3/notes/today.txt
zckpt verify -q --full nat; echo "and another: $?"
zckpt digest nat | tail -n 1 | cmp before - && echo 'the digest is of tensors'
zckpt diff -q run nat; echo "diff: $?"
for verb in 'slim --views' 'slim --moments' 'reshard --to native' 'reshard --world 3' 'convert'; do
	echo "$verb"
	zckpt $verb -q nat "out-$verb"; echo "exit $?"
	zckpt verify --full -q "out-$verb"; echo "verify: $?"
done
zckpt reshard -q --strict --to native nat strict; echo "strict: $?"
rm nat/global_step3/notes/today.txt
zckpt verify -q nat; echo "gone: $?"
ls
