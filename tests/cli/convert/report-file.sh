# --report leaves a record of a run, and of one that failed; digests are in it.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q --digest --report good.json "$run" out.safetensors
echo "exit $?"
sed -n 's/^  "\([a-z_]*\)":.*/\1/p' good.json | tr '\n' ' '; echo
root=$(zckpt digest out.safetensors | sed -n 's/ root$//p')
grep -c "\"root\": \"$root\"" good.json
bytes=$(wc -c < out.safetensors | tr -d ' ')
grep -c "\"path\": \".*out.safetensors\", \"bytes\": $bytes," good.json
zckpt convert -q --report bad.json "$run" out.safetensors 2> /dev/null
echo "exit $?"
grep -o '"ok": [a-z]*\|"exit": [0-9]*\|"code": "[A-Z_]*"' bad.json
zckpt convert -q --json "$run" other.safetensors | sed -n 's|"[0-9.]*"|"N"|; 1,5p; $p'
ls
