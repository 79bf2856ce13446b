# Frozen parameters that were left out at the save: a warning and exit 0; with
# --strict exit 1 and no output.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-exclfrozen/ckpt
zckpt convert -q "$run" with.safetensors 2> err
echo "exit $?"
sed -n 's/^\(zckpt: warning: [A-Z_]*\):.*/\1/p' err | sort -u
zckpt convert -q --strict "$run" without.safetensors 2> err
echo "exit $?"
sed -n '$s/^zckpt: [0-9]* warnings*:/zckpt: N warnings:/p' err
rm err; ls
# values that become infinite are known when all is read: then nothing is left of the result
head='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"big":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
{ printf "\\$(printf %o ${#head})\0\0\0\0\0\0\0%s" "$head"; printf '\0\0\200?\0\0\200?\0$tI\0$tI'; } > in.safetensors
zckpt convert --dtype fp16 in.safetensors loose.safetensors 2>&1 | grep warning
for dst in strict.safetensors strict strict.pt; do
	zckpt convert --strict --dtype fp16 in.safetensors $dst; echo "exit $?"
done
zckpt convert --strict --dtype fp16 in.safetensors -o - | wc -c
zckpt convert -q --strict --dtype bf16 in.safetensors fine.safetensors; echo "exit $?"
ls
