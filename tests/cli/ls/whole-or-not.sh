# Steps are listed by number, each with its fault; what is no step yet is said to be none.
export TZ=UTC
DS=$FIXTURES/deepspeed
cp -r "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt" run && chmod -R u+w run
cp -r run/global_step4 run/global_step10
mkdir run/global_step12 && cp run/global_step4/mp_rank_00* run/global_step12
cp -r run/global_step4 run/global_step20.zckpt-partial
mkdir -p run/tmp-checkpoint-30 && cp -r run/global_step4 run/tmp-checkpoint-30/global_step4
ln -s global_step10 run/best
find run -type f -exec touch -d '2026-03-01 12:30' {} +
truncate -s -1 run/global_step10/mp_rank_00_model_states.pt
touch -d '2026-03-01 12:31' run/global_step10/mp_rank_00_model_states.pt
zckpt ls run; echo "exit $?"
zckpt ls --json run/ | grep -o '"\(name\|step\|time\|whole\|id\)": [^,}]*'
echo 'a step itself, and the folder above two runs:'
zckpt ls run/global_step2 | awk '{ print $1, $NF }'
mkdir two && mv run two && cp -r "$DS/ds0.19.8-z3-bf16-w2/ckpt" two/other
zckpt ls -q two | awk '{ print $1, $8 }'
zckpt ls -q two/run two/other | awk '{ print $1, $8 }'
echo 'no step:'
mkdir empty && zckpt ls empty; echo "exit $?"
zckpt ls nothing; echo "exit $?"
zckpt ls 2> err; echo "exit $?"
