# A file that is no pickle is not a failed audit; under a pickle's name it is not checked.
zckpt convert -q "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" m.safetensors
echo '# notes' > README.md
echo 'This is a text' > notes.txt
echo '{"a": 1}' > config.json
cp notes.txt text.bin
printf 'cposix\nsystem\n(S"true"\ntR.' > evil.bin
for f in m.safetensors README.md notes.txt config.json text.bin; do
	zckpt audit $f; echo "exit $?"
done
echo '-- several'
zckpt audit -q m.safetensors README.md; echo "exit $?"
zckpt audit m.safetensors README.md; echo "exit $?"
zckpt audit -q m.safetensors evil.bin; echo "exit $?"
zckpt audit -q text.bin m.safetensors; echo "exit $?"
zckpt audit --json README.md | grep -e ok -e answer -e unread
echo '-- a bare pickle is pointed to audit'
printf '\200\002}.' > bare.bin
zckpt convert bare.bin x.safetensors 2>&1
zckpt doctor bare.bin
true
