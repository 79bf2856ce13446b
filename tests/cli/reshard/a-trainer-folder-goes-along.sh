# Given the folder of a trainer's checkpoint, the result is one: what is no shard goes along,
# random states are made for the new number of ranks, no stale file is left.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-client/ckpt" checkpoint-3
echo '{}' > checkpoint-3/config.json
echo zero > checkpoint-3/rng_state_0.pth
echo one > checkpoint-3/rng_state_1.pth
zckpt reshard -q '2->3' checkpoint-3 out && find out | sort
cat out/rng_state_0.pth out/rng_state_1.pth out/rng_state_2.pth
cmp out/config.json checkpoint-3/config.json && echo same
zckpt reshard -q '2->3' checkpoint-3 out 2> err; echo "exit $?"; head -n 1 err
zckpt reshard -q 2:1 checkpoint-3 out --force 2> err; echo "exit $?"; head -n 1 err
zckpt inspect out | sed -n 's/^format *//p'
