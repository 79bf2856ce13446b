# --check: 0 if all agree, 1 and the differences if not, 3 if the list is none.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt digest "$run" > list
zckpt digest --check list "$run" | sed 's/[0-9][0-9]*/N/'
zckpt digest --check - "$run" < list > out; echo "exit $?"
awk 'NR == 1 { $1 = "00000000000000000000000000000000" } NR != 2 { print }
	NR == 2 { print $1, $2, "nothing.of.this.name" }' list > other
zckpt digest --check other "$run" > out; echo "exit $?"
sed 's/: .*//' out
sed -n 's/^differs: //p' out > told
sed -n '1s/^[^ ]* //p' list | cmp told - && echo 'the right one'
zckpt digest --check other --json "$run" > out; echo "exit $?"
grep '"ok"' out; grep -c '"what"' out
echo 'all differ: how many, and the first ten'
sed 's/^[0-9a-f]*/00000000000000000000000000000000/' list > other
zckpt digest -q --check other "$run" | sed -n '1p; $p'; zckpt digest -q --check other "$run" | grep -c '^differs: '
zckpt digest -q -v --check other "$run" | grep -c '^differs: '
echo 'nothing like it' > other
zckpt digest --check other "$run"; echo "exit $?"
