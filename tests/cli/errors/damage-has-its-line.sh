# The cases of docs/errors.md that damage makes: what the page promises is what is said.
DS=$FIXTURES/deepspeed
fresh() { rm -rf RUN && cp -r "$DS/$1/ckpt" RUN && chmod -R u+w RUN && STEP=RUN/global_step3; }
fresh ds0.19.8-z3-bf16-w8; rm $STEP/*rank_[4-7]_*
echo '* Expected 8 but found 4'; zckpt inspect $STEP | grep -c 'error RANK_FILE_MISSING.*ranks 4-7 of 8'
fresh ds0.19.8-z3-bf16-w2; rm $STEP/*optim*
echo "* can't find *_optim_states.pt"; zckpt inspect $STEP | grep -o 'error RANK_FILE_MISSING'
fresh ds0.19.8-z2-bf16-w2; cp "$DS"/ds0.19.8-z2-bf16-w4/ckpt/global_step3/*rank_1_*optim* $STEP
echo '* consumed ... out of'; zckpt inspect -v $STEP | grep -o 'error [A-Z_]*' | sort -u
fresh ds0.19.8-z1-bf16-w2-bf16opt
echo '* is not a zero checkpoint'; zckpt convert -q RUN model.safetensors; echo "exit $?"
fresh ds0.5.10-z3-fp32-w2
echo "* KeyError: 'param_shapes'"; zckpt convert -q "$(echo RUN)" old.safetensors; echo "exit $?"
fresh ds0.19.8-z2-bf16-w2-tied3
echo '* Some tensors share memory'; zckpt convert -q --tied dup RUN tied.safetensors; echo "exit $?"
fresh ds0.19.8-z2-bf16-w2-twotags; f=RUN/global_step4/mp_rank_00_model_states.pt
truncate -s -30 $f
echo '* failed finding central directory'; zckpt doctor RUN | grep -o 'error [A-Z_]*'; zckpt latest -q --valid RUN
: > $f
echo '* Ran out of input'; zckpt ls RUN | grep -o 'NO .*'; zckpt doctor RUN | grep -o 'error [A-Z_]*'
printf 'version https://git-lfs.github.com/spec/v1\n' > x.safetensors; cp x.safetensors x.pt
echo '* invalid load key, header too large'
for f in x.pt x.safetensors; do zckpt doctor $f | grep -o 'error [A-Z_]*\|next: .*'; done
printf '\100\000\000\000\000\000\000\000{' > x.safetensors
echo '* invalid header length'; zckpt doctor x.safetensors | grep -o 'error x.safetensors: .*'
