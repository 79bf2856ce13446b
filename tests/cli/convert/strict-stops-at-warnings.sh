# Frozen parameters that were left out at the save: a warning and exit 0; with
# --strict exit 1 and no output.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-exclfrozen/ckpt
zckpt convert -q "$run" with.safetensors 2> err
echo "exit $?"
sed -n 's/^\(zckpt: warning: [A-Z_]*\):.*/\1/p' err | sort -u
zckpt convert -q --strict "$run" without.safetensors 2> err
echo "exit $?"
sed -n '$s/^zckpt: [0-9]* warnings*,/zckpt: N warnings,/p' err
rm err; ls
