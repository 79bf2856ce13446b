# The expp_rank files of a step are as many as its expert ranks, and of its stage and its run.
P=$FIXTURES/parallel
old=$P/ds0.16.9-moe-z2-bf16-w2-ep2/ckpt z0=$P/ds0.19.8-moe-z0-bf16-w4-ep2-z0/ckpt
optim() { echo "$1/global_step2/expp_rank_$2_mp_rank_00_optim_states.pt"; }
swap() { mv "$1" swap && mv "$2" "$1" && mv swap "$2"; }
both() {
	zckpt verify "$1" 2>&1 | grep -v '^  ' | grep -v NOT_IN_CHECKPOINT
	zckpt convert -q "$1" out.safetensors 2> lines
	test -e out.safetensors && echo 'convert wrote it'
	rm -rf "$1" lines
}
for run in "$z0" "$old"; do
	echo "* $(basename "$(dirname "$run")")"
	cp -r "$run" some && rm "$(optim some 1)" && both some
	cp -r "$run" two && swap "$(optim two 0)" "$(optim two 1)" && both two
	cp -r "$run" more && cp "$(optim more 1)" "$(optim more 2)" && both more
	cp -r "$run" cut && truncate -s 900 "$(optim cut 1)" && both cut
done
echo '* all are missing'
cp -r "$z0" all && rm "$(optim all 0)" "$(optim all 1)" && both all
echo '* one is of another stage'
cp -r "$z0" run && cp "$(optim "$old" 1)" "$(optim run 1)" && both run
cp -r "$old" run && cp "$(optim "$z0" 1)" "$(optim run 1)" && both run
