# The first line answers: how many parameters, which step, and whether ranks are missing.  A user who
# reads only that line must not take half a copy for a checkpoint.
src=$FIXTURES/deepspeed
first() { zckpt inspect "$@" 2>&1 | sed -n 1p; }
first "$src/ds0.19.8-z3-bf16-w8/ckpt"
cp -r "$src/ds0.19.8-z3-bf16-w8/ckpt" half && rm half/global_step3/*rank_[4-7]_*; first half
cp -r "$src/ds0.19.8-z3-bf16-w8/ckpt" some && rm some/global_step3/zero*rank_[26]_*; first some
rm some/global_step3/bf16*rank_[013]_*; first some
cp -r "$src/ds0.19.8-z3-bf16-w8/ckpt" cut
for r in 1 2 3 5; do truncate -s 3000 cut/global_step3/bf16*rank_${r}_*; done; first cut
rm cut/global_step3/*rank_5_*; first cut
cp -r "$src/ds0.19.8-z3-bf16-w8/ckpt" mixed
cp "$src"/ds0.18.9-z3-bf16-w3/ckpt/global_step3/bf16*rank_1_* mixed/global_step3; first mixed
first "$src/ds0.19.8-z2-bf16-w2/ckpt/global_step3/mp_rank_00_model_states.pt"
first "$FIXTURES/formats/hf/good"
first "$FIXTURES/formats/hf/missing-shard"
first "$FIXTURES/honest/torch/scheduler.pt"
zckpt convert -q "$src/ds0.19.8-z3-bf16-w8/ckpt" m.safetensors && first m.safetensors
zckpt verify half 2> /dev/null; echo "exit $?"
zckpt verify cut 2> /dev/null; echo "exit $?"
echo 'many second names:'
zckpt inspect -q "$src/ds0.19.8-z3-bf16-w2-tied3/ckpt" | grep '^tied' -A 1
zckpt inspect -q --names "$src/ds0.19.8-z3-bf16-w2-tied3/ckpt" | grep -e ' = ' -e '^TENSOR' -e '^table'
