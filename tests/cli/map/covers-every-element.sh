# The extents of a state hold each of its elements once, at every stage.
for case in z1-bf16-w3 z2-bf16-w8 z3-bf16-w5 z2-bf16-w4-roundrobin z3-bf16-w4-subgroup300; do
	zckpt map --all "$FIXTURES/deepspeed/ds0.19.8-$case/ckpt" 2> err | awk -v case=$case '
	function finish() { if (state != "" && sum != numel) { print case ": " name " " state ": " sum " of " numel; bad = 1 }
		state = "" }
	/^[^ ]/ { finish(); name = $1; line = $0; sub(/^[^[]*\[/, "", line); sub(/\].*/, "", line)
		k = split(line, d, ", "); numel = 1; for (i = 1; i <= k; i++) numel *= d[i] }
	/^  [^ ]/ { finish(); state = $1; sum = 0; states++ }
	/^    element/ { split($2, at, "-"); count = (2 in at ? at[2] : at[1]) - at[1] + 1; runs = 1
		if ($3 ~ /^x[0-9]/) runs = substr($3, 2)
		sum += count * runs; extents++ }
	END { finish(); if (!bad && states && extents >= states) print case ": every element once" }'
	cat err
done
