# Every call with --json prints one object with "ok" and "exit", which is the exit status.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
chmod -R u+w run
cp -r run damaged
: > damaged/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
n=0
try() {
	zckpt "$@" > out 2> err
	rc=$?
	n=$((n + 1))
	[ "$(grep -c '"schema"' out)" = 1 ] && [ "$(head -c 1 out)" = '{' ] &&
		[ "$(tail -n 1 out)" = '}' ] && [ "$(grep -c '^  "ok": ' out)" = 1 ] &&
		[ "$(sed -n 's/^  "exit": \([0-9]*\),*$/\1/p' out)" = $rc ] && return
	echo "zckpt $*: exit $rc"
	cat out
}
try --json
try convrt --json a
try --json inspect run
try help --json
try help inspect --json
try inspect -h --json
try --version --json
for verb in audit inspect verify ls latest map digest doctor plan report; do
	try $verb --json
	try $verb --json run
	try $verb --json damaged
	try $verb --json nothing
done
try diff --json run run
try report --json run damaged
try diff --json run damaged
try diff --json run nothing
try convert --json run model.safetensors
try convert --json run model.safetensors
try convert --json run user@host:/model.safetensors
try reshard --json --world 1 run on-1
try pack --json run run.tar.zst
try unpack --json run.tar.zst unpacked
try slim --json run slim
try prune --json --keep 1 unpacked
try set-latest --json unpacked global_step3
try set-latest --json unpacked global_step9
try commit --json model
try cat --json run norm.bias
try explain --json
try explain --json NOTHING
try explain --json CKPT_E_FORMAT
echo "$n calls"
