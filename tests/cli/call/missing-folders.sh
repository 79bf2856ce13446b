# Folders above a destination that are missing are made, and removed again if the run fails; a dry run makes none.
# A file in the way, and a file system without files, are named.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" a/b/model.safetensors && ls a/b
zckpt convert -q "$run" ./a/c//folder && ls a/c
zckpt reshard -q --stage 3 "$run" a/d/run && ls a/d
zckpt shard -q --world 2 --stage 2 --lr 1e-5 "$FIXTURES/model/models/qwen3" "$PWD/a/e/run" && ls a/e
zckpt slim -q --moments "$run" a/f/run && ls a/f
zckpt cat -q -o a/g/emb.npy --dtype fp32 "$run" emb.weight && ls a/g
echo '* a failure leaves none'
zckpt convert -q --expect a/b/model.safetensors --exclude 'emb*' "$run" no/such/out > /dev/null 2>&1; echo "exit $?"
cp -r "$run" cut && chmod -R u+w cut && truncate -s 1000 cut/global_step3/*rank_1*optim_states.pt
zckpt reshard -q --world 3 cut no/such/out > /dev/null 2>&1; echo "exit $?"
zckpt cat -q -o no/such/x.npy "$run" no.such.tensor 2> /dev/null; echo "exit $?"
zckpt convert --dry-run "$run" no/such/out > /dev/null 2>&1; echo "exit $?"
ls
echo '* in the way'
touch file
zckpt convert -q "$run" file/out.safetensors; echo "exit $?"
zckpt convert -q "$run" file/a/b/; echo "exit $?"
zckpt reshard -q --dry-run --world 3 "$run" file/out; echo "exit $?"
zckpt convert -q "$run" /proc/out; echo "exit $?"
zckpt convert -q "$run" /proc/a/out.safetensors; echo "exit $?"
