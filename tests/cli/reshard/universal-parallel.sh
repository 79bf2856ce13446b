# The universal form of a tensor parallel step at its own ranks; joined forms, and what is refused.
src=$FIXTURES/parallel/ds0.19.8-megtp-z1-bf16-w4-uci
zckpt reshard --to universal --world 8 "$src/ckpt" out; echo "exit $?"
zckpt reshard --to universal --stage 2 "$src/ckpt" out; echo "exit $?"
zckpt reshard --tp 2 "$src/ckpt" out; echo "exit $?"
zckpt reshard --pp 1 "$src/ckpt" out; echo "exit $?"
pipe=$FIXTURES/parallel/ds0.19.8-pipe-z1-bf16-w8-tp2-tied
zckpt reshard --tp 1 --world 2 "$pipe/ckpt" out; echo "exit $?"
zckpt reshard --world 2 "$pipe/universal" out; echo "exit $?"
zckpt reshard --to universal "$pipe/universal" out; echo "exit $?"
ls
zckpt reshard -q --tp 1 --world 3 "$src/ckpt" out && zckpt diff "$src/ckpt" out | head -1
zckpt inspect out | grep -E '^(format|layout)'
rm -r out
zckpt reshard -q --stage 3 --world 2 "$src/universal" out && zckpt diff "$src/universal" out | head -1
rm -r out
zckpt reshard -q --tp 1 "$src/ckpt" out && zckpt inspect out | grep -E '^format'
rm -r out
zckpt reshard -q --to universal "$src/ckpt" out; echo "exit $?"
zckpt diff -q "$src/universal" out; echo "diff $?"
zckpt inspect out | sed -n 's/^layout *//p'
zckpt reshard -q --to universal --drop-state exp_avg_sq "$src/ckpt" less; echo "exit $?"
ls less/global_step2_universal/zero/language_model.encoder.final_layernorm.bias
rm -r out less
