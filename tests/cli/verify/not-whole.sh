# What is wrong is named: exit 1, also where the checkpoint cannot be opened at all.
src=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
cp -r "$src" run
rm run/global_step3/*rank_1*
zckpt verify run; echo "exit $?"
zckpt verify -q --expect-finding RANK_FILE_MISSING run; echo "exit $?"
zckpt verify -q --expect-finding RANK_FILE_MISSING,STEP_MIXED run; echo "exit $?"
echo global_step99 > run/latest
zckpt verify run 2> said; echo "exit $?"; cut -c 1-50 said
zckpt verify -q --expect-finding LATEST_LIES run 2> said; echo "exit $?"
zckpt verify --json run 2> said | grep -e '"ok"' -e '"id"'
head -c 1000 "$src"/global_step3/mp_rank_00_model_states.pt > half.pt
zckpt verify half.pt 2> said; echo "exit $?"
grep -c FILE_DAMAGED: said
# Two checkpoints at once are refused; a folder that adds nothing is named, and --strict stops.
cp -r "$src" one
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" two
truncate -s 1000 two/global_step4/*rank_1*
mkdir none
zckpt verify one two 2>&1 | grep -o 'are two checkpoints (steps 4 and 3)'
zckpt verify --strict one none 2> said; echo "exit $?"; grep -c OVERLAY_UNUSED said
mkdir -p a/global_step3 b/global_step3
mv one/global_step3/*rank_1* b/global_step3
mv one/latest a; mv one/global_step3/* a/global_step3
zckpt verify --strict a b/ 2> said; echo "exit $?"; grep -c OVERLAY_UNUSED said
# no answer about a checkpoint: 2 and 3
zckpt verify nothing-there; echo "exit $?"
zckpt verify --expect-finding NO_SUCH_FINDING "$src"; echo "exit $?"
zckpt verify --force "$src"; echo "exit $?"
cp -r "$src" nvme && mkdir nvme/global_step3/offloaded_tensors
zckpt verify nvme 2> said; echo "exit $?"
