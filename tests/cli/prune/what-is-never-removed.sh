# The newest complete step, newer ones, the target of a link, a step being written, and what is no step stay.
DS=$FIXTURES/deepspeed
step() { cp -r "$DS/ds0.19.8-z2-bf16-w2$1/ckpt/$2" "run/$3"; }
mkdir run
step -step0 global_step0 global_step0; step -twotags global_step2 global_step2; step '' global_step3 global_step3
step -twotags global_step4 global_step4; cp -r "$DS/ds0.19.8-z2-fp16-w2-overflow/ckpt/global_step5" run
show() { zckpt prune "$@" 2>&1 | awk '$1 == "STEP" { next } { $2 = $3 = ""; print }' | sed 's/  */ /g'; }
# a step that is not whole is newer than all that are; 'latest' names one that is missing
rm run/global_step5/*rank_1*; printf global_step9 > run/latest
show --keep-last 1 run
# links, also out of the folder; a partial folder beside a step; half a file in one; a step elsewhere
ln -s global_step0 run/best; cp -r run/global_step2 elsewhere; ln -s ../elsewhere run/global_step1
mkdir run/global_step2.zckpt-partial; : > run/global_step3/rank-00000.safetensors.part
mkdir -p run/tmp-checkpoint-7 run/docs/deep; cp run/global_step4/*model* run/docs/deep
show --keep-last 1 --apply run
ls -a run elsewhere
# none is whole
for s in 0 2 3 4; do : > "$(ls run/global_step$s/*optim* | head -n 1)"; done
zckpt prune -q --keep-last 1 --apply run | grep -c 'so all stay'
zckpt prune -q --keep-last 1 run > out; echo "exit $?"
mkdir empty; zckpt prune --keep-last 1 empty; echo "exit $?"
zckpt prune --keep-last 1 nothing-there; echo "exit $?"
zckpt prune --json --keep-last 1 nothing-there 2> err | grep -c NOTFOUND
