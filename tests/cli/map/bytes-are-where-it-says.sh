# The bytes at the offsets of a map, one after the other, are the tensor.
for case in z1-bf16-w3 z2-bf16-w3 z3-bf16-w3 z2-bf16-w4-roundrobin z3-bf16-w4-subgroup300; do
	run=$FIXTURES/deepspeed/ds0.19.8-$case/ckpt
	zckpt convert -q --state master --include odd.w1003 "$run" $case
	tail -c 4012 $case/master.safetensors > tensor
	step=$run/$(cat "$run/latest")
	zckpt map --state master --include odd.w1003 "$run" |
		sed -n 's/^ *element \([0-9]*\) /elements \1-\1 /
			s/^ *elements \([0-9]*\)-\([0-9]*\)  \([^ ]*\) at byte \([0-9]*\)  F32.*/\1 \2 \3 \4/p' |
		sort -n | while read -r first last file byte; do
			tail -c +$((byte + 1)) "$step/$file" | head -c $(((last - first + 1) * 4))
		done > pieces
	cmp tensor pieces && echo "$case: $(wc -c < pieces | tr -d ' ') bytes"
done
