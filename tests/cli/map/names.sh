# Names after the source choose tensors; one that is unknown gets the nearest.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt map "$run" odd.w7 --state master,exp_avg
zckpt map "$run" odd.w7 'norm.b*' --state master | grep -v '^ '
zckpt map "$run" emb.weights 2>&1; echo "exit $?"
zckpt map "$run" nothing/at/all 2>&1; echo "exit $?"
zckpt map --include emb.weights "$run" 2>&1; echo "exit $?"
zckpt cat "$run" emb.weights --to text 2>&1; echo "exit $?"
