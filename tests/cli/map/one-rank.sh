# The files of one rank, as rsync and tar take them, are those of the rank and of all; its ranges hold its
# states and nothing else.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt map --rank 1 "$run"; echo "exit $?"
zckpt map --rank 1 --files "$run"
mkdir copy && zckpt map --rank 1 --files "$run" | tar -C "$run" -cf - -T - | tar -C copy -xf - && find copy -type f | sort
zckpt map --rank 1 --files "$run/global_step3"
zckpt map --rank 1 --json --state exp_avg --only trainable "$run" | sed -n '/"needs"/,/^  \]/p' | grep -o '"bytes": [0-9]*}' | awk '
	{ sum += $2 } END { print sum " bytes of exp_avg" }'
zckpt map --json --state exp_avg "$run" | grep -o '"rank": 1, "bytes": [0-9]*'
echo '* extents of one rank'
zckpt map --rank 1 "$run" blocks.0.qkv.weight
echo '* wrong ranks'
zckpt map --rank 2 "$run" 2>&1; echo "exit $?"
zckpt convert -q "$run" w.safetensors && zckpt map --rank 0 w.safetensors 2>&1; echo "exit $?"
