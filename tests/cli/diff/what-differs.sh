# Two steps of one run: the answer, a line a state, weights before moments, the worst twenty; then scalars.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
zckpt diff "$run" --tag2 global_step2 --include 'blocks.0.ln1.*' --scalars; echo "exit $?"
zckpt diff "$run" --tag2 global_step2 | sed -n '1p; 4,12p; 30,$p'
zckpt diff --all "$run" --tag2 global_step2 | grep -c ' of .*: '
zckpt diff --no-scalars --state exp_avg --include norm.bias -v "$run" "$run" --tag global_step2
zckpt diff --json --include norm.bias --state exp_avg "$run" --tag2 global_step2
zckpt diff --tolerance 1e9,rel:1 --state weight "$run" --tag2 global_step2 | head -n 1
for n in 1 2 5; do
	zckpt diff --json --threads $n --mem-limit 1MB "$run" --tag2 global_step2 | grep -v read_bytes
done | sort | uniq -c | awk '$1 % 3 { print }'
