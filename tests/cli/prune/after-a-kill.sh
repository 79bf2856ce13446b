# What a killed prune leaves is under hidden names, which no verb takes for a step; the next one ends it.
DS=$FIXTURES/deepspeed
cp -r "$DS/ds0.19.8-z2-bf16-w2/ckpt" run
mv run/global_step3 run/.global_step1.zckpt-removed
zckpt ls run; echo "exit $?"
zckpt latest --valid run; echo "exit $?"
zckpt inspect run 2>&1 | head -n 1
rm run/latest; zckpt inspect run 2>&1 | head -n 1
cp -r run/.global_step1.zckpt-removed run/global_step3
# a copy that had not taken its place, with the step and without; half a copy
cp -r run/global_step3 run/.global_step3.zckpt-slim
cp -r run/global_step3 run/.global_step2.zckpt-slim
mkdir -p run/.global_step4.zckpt-slim.zckpt-partial/data
zckpt prune --keep-last 9 run 2>&1 | tail -n 2
ls -a run
zckpt prune --keep-last 9 --apply run 2>&1 | tail -n 2
ls -a run
# what cannot be changed is left, and said
[ "$(id -u)" = 0 ] && exit 0
chmod a-w run; zckpt prune --keep-last 1 --apply run; echo "exit $?"; chmod u+w run
