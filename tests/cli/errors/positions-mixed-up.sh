# Files of tensor ranks, stages and layers that are missing, exchanged or damaged are found and refused, each by its name.
P=$FIXTURES/parallel
pipe=$P/ds0.19.8-pipe-z1-bf16-w8-tp2-tied/ckpt tp=$P/ds0.19.8-autotp-z2-bf16-w4-qwen2/ckpt
pp=$P/ds0.19.8-pipe-z1-bf16-w3-pp3/ckpt
layer() { echo "$1/global_step2/layer_0$2-model_0$3-model_states.pt"; }
model() { echo "$1/global_step2/mp_rank_0$2_model_states.pt"; }
shard() { echo "$1/global_step2/bf16_zero_pp_rank_$2_mp_rank_0$3_optim_states.pt"; }
swap() { mv "$1" swap && mv "$2" "$1" && mv swap "$2"; }
both() {
	zckpt verify "$1" 2>&1 | grep -v '^  ' | grep -v NOT_IN_CHECKPOINT
	zckpt convert -q "$1" out.safetensors 2> lines
	test -e out.safetensors && echo 'convert wrote it'
	rm -rf "$1" lines
}
echo '* layer missing'
cp -r "$pipe" one && rm "$(layer one 2 1)" && both one
cp -r "$pipe" one && rm "$(layer one 2 1)" "$(layer one 2 0)" && both one
cp -r "$pipe" one && rm "$(layer one 0 1)" "$(layer one 0 0)" && both one
cp -r "$pipe" one && rm "$(layer one 4 1)" "$(layer one 4 0)" && both one
cp -r "$pp" one && rm one/global_step2/layer* && both one
echo '* layer damaged'
cp -r "$pipe" cut && truncate -s 900 "$(layer cut 2 1)" && both cut
cp -r "$pipe" cut && printf 'XXXX' | dd of="$(layer cut 2 1)" bs=1 seek=200 conv=notrunc status=none && both cut
echo '* layer exchanged'
cp -r "$pipe" two && swap "$(layer two 1 0)" "$(layer two 2 0)" && both two
cp -r "$pipe" two && swap "$(layer two 1 0)" "$(layer two 1 1)" && both two
cp -r "$pipe" two && cp "$(layer two 1 0)" "$(layer two 5 0)" && both two
cp -r "$pipe" two && cp "$(layer "$pp" 1 0)" "$(layer two 1 0)" && both two
cp -r "$pipe" two && cp "$(layer "$pp" 0 0)" "$(layer two 3 0)" && both two
echo '* mp_rank missing'
cp -r "$pipe" one && rm "$(model one 1)" && both one
cp -r "$tp" one && rm "$(model one 0)" && both one
cp -r "$tp" one && rm "$(model one 1)" && both one
cp -r "$tp" one && rm one/global_step2/mp_rank* && both one
cp -r "$tp" one && rm one/global_step2/*mp_rank_01* && both one
echo '* mp_rank exchanged'
cp -r "$pipe" two && swap "$(model two 1)" "$(model two 2)" && both two
cp -r "$tp" two && swap "$(model two 0)" "$(model two 1)" && both two
cp -r "$tp" two && swap "$(model two 0)" "$(model two 1)" && swap "$(shard two 0 0)" "$(shard two 0 1)" && swap "$(shard two 1 0)" "$(shard two 1 1)" && both two
cp -r "$tp" over && cp "$(model over 0)" "$(model over 1)" && both over
cp -r "$tp" more && cp "$(model more 0)" "$(model more 2)" && both more
cp -r "$tp" run && cp "$(model $P/ds0.19.8-autotp-z1-bf16-w4-llama/ckpt 1)" "$(model run 1)" && both run
echo '* shards'
cp -r "$tp" two && swap "$(shard two 0 0)" "$(shard two 0 1)" && both two
cp -r "$tp" one && rm "$(shard one 1 1)" && both one
cp -r "$tp" one && rm one/global_step2/*_mp_rank_01_optim* && both one
cp -r "$tp" cut && truncate -s 900 "$(shard cut 1 1)" && both cut
cp -r "$tp" cut && truncate -s 900 "$(model cut 1)" && both cut
echo '* a layer file that is left over from a deeper model'
cp -r "$P/ds0.19.8-pipe-z1-bf16-w4-tied/ckpt" deep && cp "$(layer "$pp" 5 0)" deep/global_step2
zckpt verify deep 2>&1 | grep -v '^  '
