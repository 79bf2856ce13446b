# What stands at a destination is replaced when asked for; unpacked steps go beside others.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
echo mine > p.tar.zst
zckpt pack -q "$RUN" p.tar.zst; echo "exit $?"; cat p.tar.zst
zckpt pack -q --dry-run "$RUN" p.tar.zst; echo "dry run: exit $?"
zckpt pack --dry-run "$RUN" q.tar.zst 2>&1 | sed 's/; .* free there/; ROOM free there/'; ls q* 2> /dev/null
zckpt pack -q --force "$RUN" p.tar.zst && zckpt inspect p.tar.zst | grep '^path'
cp -r "$RUN" here; zckpt pack -q here here/p.tar.zst && zckpt pack -q here here/q.tar.zst && cmp here/*.tar.zst && echo 'no pack in a pack'
zckpt pack --force here here/global_step3/mp_rank_00_model_states.pt; echo "exit $?"
zckpt pack --level 20 here x.tar.zst; echo "exit $?"
zckpt pack here; echo "exit $?"
zckpt pack --json here x.tar.zst | sed 's/"\(archive_bytes\|seconds\|threads\|zckpt\)": [^,}]*/"\1": N/'
mkdir run && cp -r here/global_step3 run/global_step1 && echo global_step1 > run/latest
zckpt unpack -q p.tar.zst run && ls run && cat run/latest && echo
zckpt unpack -q p.tar.zst run; echo "exit $?"
zckpt unpack -q --dry-run p.tar.zst run; echo "exit $?"
zckpt unpack -q --force p.tar.zst run && ls run && diff -r run/global_step3 here/global_step3 && echo replaced
echo file > f; zckpt unpack -q p.tar.zst f; echo "exit $?"
zckpt unpack p.tar.zst; echo "exit $?"
ls
