# With --json a wrong call is one object as well, so that scripts need not read stderr.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
try() {
	zckpt "$@" > out 2> err
	echo "exit $?: $(grep -c '"schema"' out) object, $(sed -n 's/.*"text": "\(.*\)"/\1/p' out)"
}
try inspect --json
try convert --json --part 5/3 "$run" x.safetensors
try convert --nonsense --json "$run" x.safetensors
try digest --threads x --json "$run"
try map --json nothing/here
cat out
try convert -- --json
