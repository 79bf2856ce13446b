# One page, whole or absent, that loads nothing; a file that is no report stays.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt
zckpt report "$run"
head -n 1 report.html
tail -n 1 report.html
grep -c "Content-Security-Policy\" content=\"default-src 'none'" report.html
grep -v www.w3.org report.html | grep -c 'src="\|href="[^#d]\|url(\|@import\|http:\|fetch(\|XMLHttp\|WebSocket\|innerHTML\|eval('
cp report.html first.html
zckpt report -q "$run" && cmp first.html report.html && echo "the same again"
zckpt report -o - "$run" | cmp - first.html && echo "the same on stdout"
zckpt report -q --seed 1 "$run" && ! cmp -s first.html report.html && echo "another sample"
echo mine > notes.html
zckpt report -o notes.html "$run"; echo "exit $?"
cat notes.html
zckpt report -q -f -o notes.html "$run"; head -n 1 notes.html
zckpt report -o missing/x.html "$run"; echo "exit $?"
cp -r "$run" RUN
zckpt report -f -o RUN RUN; echo "exit $?"
zckpt report -f -o RUN/global_step4/mp_rank_00_model_states.pt RUN; echo "exit $?"
zckpt report; echo "exit $?"
zckpt report RUN RUN RUN; echo "exit $?"
zckpt report --log RUN/latest RUN; echo "exit $?"
zckpt report -o /dev/full RUN; echo "exit $?"
ls
