# Files and folders that this user may not read.
if [ "$(id -u)" = 0 ]; then
	echo 'root reads everything' >&2
	exit 77
fi
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run && chmod -R u+w run
chmod 0 run/global_step3/mp_rank_00_model_states.pt
zckpt doctor run; echo "exit $?"
eval "$(zckpt doctor run | sed -n 's/^ *next: //p')" && zckpt doctor -q run | head -2
