# Given the folder of a trainer's checkpoint, the result is one: what is no shard goes along,
# random states are made for the new number of ranks, no stale file is left.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-client/ckpt" checkpoint-3
echo '{}' > checkpoint-3/config.json
echo zero > checkpoint-3/rng_state_0.pth
echo one > checkpoint-3/rng_state_1.pth
zckpt reshard -q '2->3' checkpoint-3 out && find out | sort
cat out/rng_state_0.pth out/rng_state_1.pth out/rng_state_2.pth
cmp out/config.json checkpoint-3/config.json && echo same
zckpt inspect out | sed -n 's/^format *//p'

echo '-- folders go along, other steps and what a killed run left do not'
mkdir -p checkpoint-3/adapter/deep checkpoint-3/checkpoint-2/global_step2 checkpoint-3/x.zckpt-partial
echo a > checkpoint-3/adapter/a.json
echo d > checkpoint-3/adapter/deep/d.json
echo r > checkpoint-3/adapter/rng_state_0.pth
echo x > checkpoint-3/x.zckpt-partial/x
echo l > checkpoint-3/checkpoint-2/latest
cp -r checkpoint-3/global_step3 checkpoint-3/older
mkdir -p checkpoint-3/uni/zero
zckpt reshard -q '2->3' checkpoint-3 folders && find folders -type f | grep -v states.pt | sort

echo '-- one rank has its state in rng_state.pth'
zckpt reshard -q '2->1' checkpoint-3 one && ls one | grep rng && cat one/rng_state.pth
zckpt reshard -q '1->3' one three && ls three | grep rng && cat three/rng_state_2.pth

echo '-- accelerate names them otherwise'
mkdir save
cp -r checkpoint-3/global_step3 save/pytorch_model
printf pytorch_model > save/latest
echo zero > save/random_states_0.pkl
echo one > save/random_states_1.pkl
echo s > save/scheduler.bin
zckpt reshard -q '2->3' save wide && ls wide && cat wide/random_states_2.pkl
zckpt reshard -q '2->1' save narrow && ls narrow

echo '-- the folders of two machines'
mkdir a b
cp -r save a/ckpt
cp -r save b/ckpt
rm a/ckpt/random_states_1.pkl a/ckpt/scheduler.bin a/ckpt/pytorch_model/*rank_1*
zckpt reshard -q '2->3' a/ckpt b/ckpt both && diff -r both wide && echo same

echo '-- a link that leads back'
ln -s . checkpoint-3/adapter/self
zckpt reshard -q '2->3' checkpoint-3 loop; echo "exit $?"; ls
