# Damage is a status or a cut connection, and never other bytes.
. "$(dirname "$0")/lib.inc"
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
chmod -R u+w run
zckpt convert -q --no-sums run want.safetensors
step=run/$(cat run/latest)
file=$(ls "$step"/*optim_states.pt | head -1)
# The middle of the largest record, which holds the masters of this rank.
flip() {
	byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	printf "\\$(printf '%03o' $((byte ^ 64)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
at_byte=$(zckpt map run --rank 0 --json | tr ',' '\n' | sed -n 's/.*"offset": *\([0-9]*\).*/\1/p' | sort -n | tail -1)
flip "$file" $((at_byte + 40))
serve -q "$step" || exit 1
ask /fp32/model.safetensors -r 0-99 | head -1
ask /fp32/model.safetensors | head -1; cat body | sed 's/CRC-32 [0-9a-f]*/CRC-32 X/'
ask /findings | head -1; sed 's/^[^ ]* //; s/CRC-32 [0-9a-f]*/CRC-32 X/' body
end > ended; sed 's/CRC-32 [0-9a-f]*/CRC-32 X/' ended
echo '--- undamaged again, then replaced while it is served'
flip "$file" $((at_byte + 40))
serve -q "$step" || exit 1
curl -s -o got "$at/fp32/model.safetensors"; cmp got want.safetensors && echo same
before=$(curl -sI "$at/fp32/model.safetensors" | grep ETag)
cp "$file" new && mv new "$file"
ask /fp32/model.safetensors | head -1; grep -o 'another file replaced this one' body
ask /fp32/model.safetensors | head -1; cmp body want.safetensors && echo 'opened again'
after=$(curl -sI "$at/fp32/model.safetensors" | grep ETag)
[ "$before" != "$after" ] && echo 'another tag'
truncate -s 1000 "$file"
ask /fp32/model.safetensors | head -1
ask /fp32/model.safetensors | head -1
end > /dev/null
