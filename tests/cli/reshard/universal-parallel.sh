# The universal form of a tensor parallel step: at its own ranks; neither other ones nor a way back.
src=$FIXTURES/parallel/ds0.19.8-megtp-z1-bf16-w4-uci
zckpt reshard --to universal --world 8 "$src/ckpt" out; echo "exit $?"
zckpt reshard --to universal --stage 2 "$src/ckpt" out; echo "exit $?"
zckpt reshard --to dcp "$src/ckpt" out; echo "exit $?"
zckpt reshard --world 2 "$src/universal" out; echo "exit $?"
ls
zckpt reshard -q --to universal "$src/ckpt" out; echo "exit $?"
zckpt diff -q "$src/universal" out; echo "diff $?"
zckpt inspect out | sed -n 's/^layout *//p'
zckpt reshard -q --to universal --drop-state exp_avg_sq "$src/ckpt" less; echo "exit $?"
ls less/global_step2_universal/zero/language_model.encoder.final_layernorm.bias
rm -r out less
