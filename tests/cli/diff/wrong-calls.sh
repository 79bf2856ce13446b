# What is no call of diff, and what is no checkpoint.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt diff 2>&1; echo "exit $?"
zckpt diff "$run" 2>&1; echo "exit $?"
zckpt diff a b c 2>&1; echo "exit $?"
for tolerance in '' -1 nan inf 1x rel: rel:-1 1, ' 1'; do
	zckpt diff "$run" "$run" --tolerance "$tolerance" 2>&1 | head -n 1
done
zckpt diff "$run" "$run" --state nothing 2>&1; echo "exit $?"
zckpt diff "$run" "$run" --state master=nothing 2>&1; echo "exit $?"
zckpt diff "$run" "$run" --include 'no such*' 2>&1; echo "exit $?"
zckpt diff "$run" "$run" --include emb.weights --include 'norm.b*x' 2>&1; echo "exit $?"
zckpt diff "$run" nothing 2>&1; echo "exit $?"
zckpt diff "$run" --tag2 nothing --json 2> /dev/null; echo "exit $?"
