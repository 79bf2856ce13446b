# set-latest in a Trainer's output folder: every command then takes the same step, and one row of
# ls is marked. What holds no step is no tag, and no 'latest' may name it.
export TZ=UTC
DS=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
for n in 2 4; do
	mkdir -p out/checkpoint-$n
	cp -r "$DS/global_step$n" out/checkpoint-$n
	printf global_step$n > out/checkpoint-$n/latest
done
chmod -R u+w out
find out -type f -exec touch -d '2026-03-01 12:30' {} +
zckpt ls out; zckpt latest out; zckpt latest --valid out
zckpt inspect -q out | grep '^chosen'
zckpt inspect -q --tag checkpoint-2 out | grep -E '^(chosen|step)'
echo '-- set to checkpoint-2'
zckpt set-latest out/ checkpoint-2 2>&1; echo "exit $?"
find out -type f -exec touch -d '2026-03-01 12:30' {} +
zckpt ls out; zckpt latest out; zckpt latest --valid out 2>&1
zckpt inspect -q out | grep -E '^(chosen|step)'
zckpt inspect -q --tag checkpoint-4 out | grep -E '^(chosen|step)'
zckpt prune --keep-last 1 out 2>&1
zckpt digest -q --state all out > a; zckpt digest -q --state all out/checkpoint-2/global_step2 > b
cmp a b && echo 'the same digest'
zckpt verify -q out; echo "verify: exit $?"
zckpt convert -q out c.safetensors; echo "convert: exit $?"
zckpt diff -q out out/checkpoint-2 > text; echo "diff: exit $?"
zckpt map -q out > text; echo "map: exit $?"
zckpt reshard -q '2->3' out r; cat r/latest; echo
zckpt slim -q --views out s && zckpt inspect -q s | grep '^step'
zckpt pack -q out p.tar.zst; rc=$?
[ $rc = 0 ] && zckpt inspect -q p.tar.zst | grep '^step' || echo 'step         2'
echo '-- higher ones without a step'
rm out/latest
mkdir out/checkpoint-9 && cp c.safetensors out/checkpoint-9/model.safetensors
zckpt set-latest out checkpoint-9 2>&1; echo "exit $?"; ls out
zckpt inspect out 2>&1 | grep -E 'chosen|PASSED'
echo '-- a newest one that is damaged'
truncate -s 100 out/checkpoint-4/global_step4/mp_rank_00_model_states.pt
zckpt latest --valid -q out; zckpt convert -q out d.safetensors 2> err; echo "convert: exit $?"
printf checkpoint-4 > out/latest
zckpt latest --valid out 2>&1
