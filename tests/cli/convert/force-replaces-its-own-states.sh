# --force takes away what the states that are written now were before, whatever they are called, and
# nothing else: a moment of another state, or a user's own file, must not be gone.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q --state exp_avg "$step" out --max-shard-size 9KB
echo mine > out/sum.safetensors
echo mine > out/notes.txt
zckpt convert --force --state exp_avg_sq "$step" out 2>&1 | grep -e ': wrote' -e removed
ls out
echo '* again in one file: the shards go, and are named'
zckpt convert --force --state exp_avg "$step" out 2>&1 | grep -e ': wrote' -e removed
ls out
cat out/sum.safetensors
echo '* a name that no list has'
mkdir other
for i in 1 2; do cp out/exp_avg.safetensors other/hessian-0000$i-of-00002.safetensors; done
echo '{}' > other/exp_avg_sq.safetensors.index.json
zckpt convert --force --state exp_avg_sq "$step" other 2>&1 | grep -e ': wrote' -e removed
ls other
zckpt convert --force --json --state exp_avg "$step" out --max-shard-size 9KB | grep -A3 '"removed"'
ls out
