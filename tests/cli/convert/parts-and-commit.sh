# Shares written by processes of their own, then put into place: the bytes of one run.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" whole.safetensors
zckpt convert -q --part 1/3 "$run" out.safetensors; echo "exit $?"
zckpt convert -q --part 3/3 "$run" out.safetensors; echo "exit $?"
zckpt commit --timeout 0 out.safetensors 2> err; echo "a part is missing: exit $?"
ls out.safetensors 2> /dev/null
zckpt convert -q --part 2/3 "$run" out.safetensors; echo "exit $?"
zckpt commit -q out.safetensors; echo "exit $?"
cmp whole.safetensors out.safetensors && echo 'the same bytes'
rm err; ls
echo '* without any part there is nothing to wait for'
timeout 60 zckpt commit --timeout 1000000 out.safetensors; echo "exit $?"
timeout 60 zckpt commit --timeout 1000000 no/such.safetensors; echo "exit $?"
mkdir bare; timeout 60 zckpt commit --timeout 1000000 bare; echo "exit $?"; ls
