# Training files as users write them: {"model": ..., "optimizer": ...} and its like. The model has
# its own names, moments are states of the parameters, and what is left out is said.
H=$FIXTURES/honest/torch
look() {
	echo "* $1"
	zckpt inspect -v "$@" 2>&1 | sed -n '/^TENSOR/,/^$/p' | head -n 4
	zckpt doctor "$@" 2>&1 | sed "s|$FIXTURES/honest/||g; s/^/  /"
}
for f in model-optimizer state_dict model_state_dict module model-ema ema two-models groups frozen \
	named sgd optimizer-object; do
	look "$H/$f.pt"
done
look "$FIXTURES/honest/lightning/lightning.ckpt"
echo '* written names are plain, and the values those of the state dict'
for f in model-optimizer state_dict model_state_dict module model-ema; do
	zckpt convert -q "$H/$f.pt" $f.safetensors 2> /dev/null
	zckpt diff -q "$H/state-dict.pt" $f.safetensors && echo "$f: same"
done
zckpt convert -q --state exp_avg "$H/model-optimizer.pt" moments && ls moments
zckpt cat --to text "$H/model-optimizer.pt" block.0.bias --state exp_avg > one
zckpt cat --to text --subtree optimizer "$H/model-optimizer.pt" state.2.exp_avg > two
cmp one two && echo 'the moment is that of the third parameter'
zckpt cat --to text "$H/named.pt" block.0.bias --state exp_avg > one
zckpt cat --to text --subtree optimizer "$H/named.pt" state.1.exp_avg > two
cmp one two && echo 'by name: the second of those that are trained'
echo '* another entry'
zckpt convert -q --subtree ema "$H/model-ema.pt" ema.safetensors
zckpt diff -q "$H/ema.pt" ema.safetensors && echo 'ema: same'
zckpt convert --subtree emo "$H/model-ema.pt" x.safetensors; echo "exit $?"
zckpt inspect --subtree model ema.safetensors; echo "exit $?"
zckpt inspect -q --subtree optimizer_states.0.state "$FIXTURES/honest/lightning/lightning.ckpt" | tail -n 2
zckpt diff -q --subtree ema "$H/model-ema.pt" ema.safetensors && echo 'diff takes it for the torch file'
zckpt convert --strict "$H/model-ema.pt" x.safetensors; echo "exit $?"
