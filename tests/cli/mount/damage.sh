# Damage is an I/O error and never other bytes; the rest is right.
. "$(dirname "$0")/lib.inc"
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
chmod -R u+w run
zckpt convert -q --no-sums run want.safetensors
step=run/$(cat run/latest)
file=$(ls "$step"/*optim_states.pt | head -1)
at=$(zckpt map run --rank 0 --json | tr ',' '\n' | sed -n 's/.*"offset": *\([0-9]*\).*/\1/p' | sort -n | tail -1)
flip "$file" $((at + 40))
zckpt mount -q "$step" view
cat view/fp32/model.safetensors > got 2> err; echo "exit $?"
sed 's/.*: //' err
n=$(wc -c < got); head -c "$n" want.safetensors | cmp - got && echo 'what was read before is right'
cat view/model.safetensors > /dev/null && echo 'files without the record are right'
sed 's/^[^ ]* //; s/CRC-32 [0-9a-f]*/CRC-32 X/' view/.zckpt/findings.txt
zckpt mount -u view
echo '--- undamaged again, then replaced while it is mounted'
flip "$file" $((at + 40))
zckpt mount -q "$step" view
cat view/fp32/model.safetensors | cmp - want.safetensors && echo same
cp "$file" new && mv new "$file"
cmp view/fp32/model.safetensors want.safetensors && echo 'the kernel has the right pages still'
cat view/state/exp_avg.safetensors > /dev/null 2> err; sed 's/.*: //' err
grep -o 'another file replaced this one' view/.zckpt/findings.txt
zckpt mount -u view
zckpt mount -q "$step" view && cmp view/fp32/model.safetensors want.safetensors && echo 'right when it is mounted again'
zckpt mount -u view
rm "$file"
zckpt mount -q "$step" view2 2>&1; echo "exit $?"; [ -e view2 ] || echo 'no folder is left'
