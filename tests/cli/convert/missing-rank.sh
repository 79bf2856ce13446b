# A lost rank file stops every writer, exit 3; the file is named, nothing is left.
# Given back as a folder of its own, the step is whole again.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w4/ckpt" run
cp -r run whole
mkdir -p other
mv run/*/*_rank_2_mp_*_optim_states.pt other/
zckpt convert -q run out.safetensors 2> err
echo "exit $?"
grep -o 'RANK_FILE_MISSING' err | sort -u
grep -c '^zckpt: hint: .*zckpt convert -q run whole out.safetensors$' err
zckpt inspect run | grep -c 'error RANK_FILE_MISSING'
zckpt inspect run | sed -n '$p'
zckpt convert -q run/global_step* other out.safetensors
echo "with its folder: exit $?"
zckpt convert -q whole whole.safetensors
zckpt digest whole.safetensors > a; zckpt digest out.safetensors | cmp a - && echo same
rm -r run whole other err a; ls
