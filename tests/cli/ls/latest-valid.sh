# The newest step without an error, whatever 'latest' says; and 'latest' set to it.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" run && chmod -R u+w run
zckpt latest run && zckpt latest --valid run
cp -r run/global_step4 run/global_step30
rm run/global_step30/*rank_1*
cp -r run/global_step4 run/global_step100
: > run/global_step100/mp_rank_00_model_states.pt
echo global_step100 > run/latest
zckpt latest run; zckpt latest --valid run 2>&1; echo "exit $?"
zckpt latest --valid --json -q run
for tag in global_step100 global_step5 a/b '' latest; do
	zckpt set-latest run "$tag" 2>&1 | grep -v 'lists the options'
	cat run/latest
done
zckpt set-latest run/ global_step4; cat run/latest; echo
zckpt set-latest --force -q run global_step30; cat run/latest; echo
zckpt inspect -q run > text 2> err; echo "inspect: exit $?"
ls run
rm -r run/global_step[24]; zckpt latest --valid -q run; echo "exit $?"
rm run/latest; zckpt latest run; echo "exit $?"
echo 'a universal checkpoint:'
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-uci/universal" uni && chmod -R u+w uni
rm -f uni/latest*
zckpt set-latest uni global_step3_universal && cat uni/latest_universal; echo
