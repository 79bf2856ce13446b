# Ranks that are missing hide none that are damaged, and one foreign file does not blame the others.
DS=$FIXTURES/deepspeed
z3=$DS/ds0.19.8-z3-bf16-w8/ckpt z2=$DS/ds0.19.8-z2-bf16-w2/ckpt
shard() { echo "$1/global_step3/bf16_zero_pp_rank_$2_mp_rank_00_optim_states.pt"; }
cp -r "$z3" some
for r in 2 5 6; do truncate -s 1000 "$(shard some $r)"; done
rm some/*/*_rank_7_*
zckpt ls some | tail -n 1
zckpt inspect some | sed -n 1p
zckpt verify some 2>&1 | grep -v '^  '
zckpt doctor some | tail -n 2
rm "$(shard some 3)"; zckpt ls some | tail -n 1
echo '* a shard of another stage'
cp -r "$z3" first && cp "$(shard "$z2" 0)" first/global_step3
zckpt verify first 2>&1 | grep -v '^  '
cp -r "$z3" fourth && cp "$(shard "$z2" 0)" "$(shard fourth 3)"
zckpt verify fourth 2>&1 | grep STEP_MIXED
cp -r "$z2" third && cp "$(shard "$z3" 1)" third/global_step3
zckpt verify third 2>&1 | grep STEP_MIXED
echo '* rank 0 of another world'
cp -r "$DS/ds0.19.8-z2-bf16-w8/ckpt" world && cp "$(shard "$z2" 0)" world/global_step3
zckpt verify world 2>&1 | grep -v '^  ' | cut -c 1-150
