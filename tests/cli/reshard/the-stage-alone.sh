# Another stage, and nothing said of ranks: the same number, which is said. --gpus, --world-size and -n are --world.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt" run
zckpt reshard --stage 3 run z3 2>&1 | grep -v ' s, '
zckpt reshard --stage bf16 -q run bf16 && zckpt inspect --json bf16 | grep -e '"world"' -e '"stage"'
for name in --gpus --world-size --world_size --num-gpus -n --world; do
	zckpt reshard -q $name 2 run out && ls out/global_step3 | grep -c optim
	rm -r out
done
zckpt reshard -q --to universal run u 2> warned
zckpt reshard --stage 2 u out 2> said; echo "exit $?"; grep keeping said
