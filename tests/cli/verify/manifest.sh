# --write-manifest: later changes are seen, quickly or with --full, each under its name.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
zckpt verify -q --write-manifest run; echo "exit $?"
ls run/global_step3
# twice is the same, and --full agrees
cp run/global_step3/zckpt-manifest.json first
zckpt verify -q --write-manifest run && cmp first run/global_step3/zckpt-manifest.json && echo same
zckpt verify --full run | tail -n 1
echo 'more' > run/global_step3/notes.txt
zckpt verify -q run; echo "exit $?"
zckpt verify -q --strict run 2>&1 | wc -l
zckpt verify -q --expect-finding MANIFEST_FILE_EXTRA --strict run; echo "exit $?"
zckpt verify -q --expect-finding MANIFEST_SIZE_WRONG run; echo "exit $?"
rm run/global_step3/notes.txt
# a manifest that was edited is none
sed -i 's/"world": 2/"world": 3/' run/global_step3/zckpt-manifest.json
zckpt verify -q run; echo "exit $?"
zckpt verify -q --as-warning MANIFEST_DAMAGED run; echo "exit $?"
zckpt verify -q --write-manifest run; echo "exit $?"
zckpt verify -q --write-manifest --force run; echo "exit $?"
# of a single file it lies beside it; one byte of a tensor tells
zckpt convert -q run m.safetensors
zckpt verify -q --write-manifest m.safetensors; ls
printf '\377' | dd of=m.safetensors bs=1 conv=notrunc seek=$(($(stat -c %s m.safetensors) - 5)) 2> said
zckpt verify -q m.safetensors --full 2>&1 | sed 's/is [0-9a-f]\{32\}/is H/; s/says [0-9a-f]\{32\}/says H/'
# the step itself is read as before
zckpt convert -q run again.safetensors && zckpt reshard -q '2->1' run other && ls other/*
# a step that is called otherwise now; given itself, under whatever name, it says nothing
mv run/global_step3 run/kept; printf kept > run/latest
zckpt verify -q --strict run 2>&1 | grep -v '^zckpt: step'; zckpt verify -q --strict run/kept; echo "exit $?"
