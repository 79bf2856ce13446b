# What a user mistyped is said before gigabytes are written, and nothing is left.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
try() {
	zckpt convert "$@" "$run" out.safetensors > out 2> err
	echo "exit $?"
	sed -n 1p err
	rm -f out err
	ls
}
try --as-warning MASTER_WEIGHT_MISMACH
try --report -
try --report no/such/r.json
zckpt convert --part 1/1 "$run" one.safetensors 2> err; grep -c commit err; ls one.safetensors
zckpt convert -q --part 1/3 "$run" parts.safetensors
zckpt commit --timeout 0 parts.safetensors 2> err; echo "exit $?"; cat err
