# A damaged checkpoint has a page that says so; --verify reads every byte, and answers.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w8/ckpt" RUN
chmod -R u+w RUN
rm RUN/global_step3/bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt
: > RUN/global_step3/bf16_zero_pp_rank_5_mp_rank_00_optim_states.pt
say() { zckpt report --json "$@" | grep -o '"answer": .*\|"whole": .*\|"full": [a-z]*\|"id": "[A-Z_]*"\|"failed": [0-9]*'; }
say RUN
zckpt report RUN; echo "exit $?"
zckpt report -q --verify -o verified.html RUN; echo "exit $?"
# One byte of a tensor, which headers do not show.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" FLIP
chmod -R u+w FLIP
at=$(zckpt map FLIP emb.weight | sed -n 's/.*elements.*model_states.pt at byte \([0-9]*\) .*/\1/p')
printf '\377' | dd of=FLIP/global_step3/mp_rank_00_model_states.pt bs=1 seek=$((at + 7)) conv=notrunc 2> dd.err || cat dd.err
zckpt report -q -o flip.html FLIP; echo "exit $?"
zckpt report -q --verify -o flip.html FLIP; echo "exit $?"
say --verify FLIP
ls -- *.html
