# Slices of two dimensions, as Python cuts them, and what is none.
run=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt
for slice in '' '[0]' '[-1]' '[:, 1]' '[1:, ::-2]' '[..., -1]' '[0, ...]' '[2:9:2, 1:3]' '[9:]' '[1, 2]' \
	'[::-1, 4]' '[-2:-1]' '[]'; do
	echo "$slice:"
	zckpt cat "$run" "odd.w35$slice" --to text --state master
done
for slice in '[3]' '[-4]' '[0,0,0]' '[::0]' '[x]' '[0:1:2:3]' '[..., ...]' '[,]' '[99999999999999999999]'; do
	zckpt cat "$run" "odd.w35$slice" --to text 2>&1 | head -n 1
done
