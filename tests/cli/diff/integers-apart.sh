# A step counter is no distance of weights: integers are named, and neither the maximum nor the first row.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
zckpt diff --tag 2 --tag2 4 "$run" 2>&1 | sed -n '1,3p; /^tensor/,/^tensor/p; /^state/,/^weight/p'
zckpt diff --all --tag global_step2 --tag2 global_step4 --state weight --no-scalars "$run" | awk '$1 == "seen" { print NR ": " $0 } END { print NR " lines" }'
zckpt diff --include seen --no-scalars "$run" --tag2 global_step2 | head -n 1
# an error of B is printed once
cp -r "$run" run; chmod -R u+w run
head -c 5000 "$run/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" > run/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt
zckpt diff --tag 2 --tag2 4 run 2>&1 | grep -c FILE_DAMAGED
zckpt diff --tag 2 --tag2 7 run 2>&1; echo "exit $?"
