# What somebody put into the tag folder goes along, in every form, and nothing of the step does twice.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2-client/ckpt" run
t=run/global_step3
cp $t/zero_pp_rank_0_mp_rank_00_model_states.pt $t/client_state.pt
mkdir -p $t/notes/deep
echo n > $t/notes/deep/n.txt
echo '{}' > $t/config.json
zckpt verify -q --write-manifest run
list() { (cd "$1" && find . -type f | sort | grep -v -e states.pt -e '/zero/'); }
echo '-- another number of ranks'; zckpt reshard -q --world 3 run wide; list wide
cmp $t/client_state.pt wide/global_step3/client_state.pt && echo same
echo '-- the tag folder given, another tag'; zckpt reshard -q --world 3 --new-tag x $t tag; list tag
echo '-- native, and back'; zckpt reshard -q --to native run nat; list nat
zckpt reshard -q --world 2 nat back; list back
echo '-- universal, and back'; zckpt reshard -q --to universal run uni 2> err; list uni
zckpt reshard -q --world 2 uni again; list again
echo '-- names of a native step'; echo x > $t/manifest.json
zckpt reshard -q --world 1 run one; list one
zckpt reshard --to native run two 2> err; list two; zckpt verify two; grep NOT_CARRIED err
grep 'tag folder' err
echo '-- and each with -v'; zckpt reshard -v --world 3 run said 2>&1 | grep CARRIED
