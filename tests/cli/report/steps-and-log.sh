# The steps of the folder as ls has them, the one that is shown, and the log beside them.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" RUN
chmod -R u+w RUN
: > RUN/global_step2/mp_rank_00_model_states.pt
steps() { sed -n '/"steps": \[/,/^  \]/p' | sed 's/, "time": "[^"]*"//'; }
zckpt report --json --stats none RUN | steps
printf '{"step":1,"loss":2.5,"lr":0.1}\n{"step":2,"loss":"NaN","lr":0.1}\n{"step":3,"lo' > RUN/log.jsonl
zckpt report --json --stats none RUN | sed -n '/"log": {/,/^  }/p'
cp RUN/log.jsonl other.log
echo '{"step":9,"loss":1}' > other.log
zckpt report --json --stats none --log other.log RUN | grep -o '"path": "other.log"\|"last": 9'
zckpt report --json --stats none RUN/global_step4 | grep -c '"steps": \['
# Two steps, by name and by --tag2, are one answer.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt" TWO
zckpt report --json TWO/global_step4 TWO/global_step2 > a.json
zckpt report --json --tag2 global_step2 TWO > b.json
grep '"answer"\|"equal"\|"kind"\|"differing"' a.json
for key in answer equal differing rows; do
	[ "$(grep "\"$key\"" a.json)" = "$(grep "\"$key\"" b.json)" ] || echo "$key differs"
done
zckpt report --json TWO TWO | grep '"answer"\|"equal"'
