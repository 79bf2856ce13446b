# A tensor that one step lacks is a difference, even if its weight equals another's: it has a master and moments of its own.
DS=$FIXTURES/deepspeed
run=$DS/ds0.19.8-z3-bf16-w8/ckpt
for tied in dup drop; do
	zckpt convert -q --only trainable --tied $tied "$run" $tied.safetensors
	zckpt inspect --names $tied.safetensors | awk '/\[/ { print $1 }' > $tied.order
	zckpt shard -q $tied.safetensors $tied --order $tied.order --world 1 --stage 1 --lr 1e-3 --dtype bf16
done
zckpt diff drop dup | grep -v '^[AB] '; zckpt diff -q drop dup; echo "exit $?"
echo '* the weights alone are the same'
zckpt diff drop.safetensors dup.safetensors | head -n 1
