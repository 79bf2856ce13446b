# A file that this user may not read is not called damaged.
if [ "$(id -u)" = 0 ]; then
	echo 'root reads everything' >&2
	exit 77
fi
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run && chmod -R u+w run
chmod 0 run/global_step3/*_rank_1_*
zckpt convert run out.safetensors 2>&1 | grep -c 'NO_PERMISSION: run'
zckpt convert run out.safetensors 2>&1 | grep -c RANK_FILE_MISSING
zckpt verify run 2>&1 | grep -c FILE_DAMAGED
true
