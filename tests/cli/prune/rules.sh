# Which steps stay by which rule; nothing is done without --apply, and only what was shown with it.
DS=$FIXTURES/deepspeed
make() {
	rm -rf run; mkdir run
	cp -r "$DS/ds0.19.8-z2-bf16-w2-step0/ckpt/global_step0" "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step2" \
		"$DS/ds0.19.8-z2-bf16-w2/ckpt/global_step3" "$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step4" \
		"$DS/ds0.19.8-z2-fp16-w2-overflow/ckpt/global_step5" run
	printf global_step4 > run/latest; echo notes > run/notes.txt; mkdir run/logs
}
names() { (cd run && ls -d .[!.]* * 2> /dev/null | tr '\n' ' '); echo; }
make
for rule in '--keep-last 1' '--keep-last 3' '--keep-every 2' '--keep global_step3' '--keep-last 2 --keep-every 3' \
	'--moments-last 2' '--keep-last 4 --moments-last 1'; do
	echo "$rule:"; zckpt prune $rule run 2> said | awk 'NR > 1 { $1 = $2 = $3 = $4 = $5 = $6 = ""; print $0 }' | sed 's/^ *//'
	sed 's/; .* are free there/; ROOM are free there/' said >&2
done
names
for rule in '' '--keep no-such' '--keep-last'; do zckpt prune $rule run 2>&1 | head -n 1; done
zckpt prune --keep-last 1 run run 2>&1 | head -n 1
# done, and done again
zckpt prune --keep-last 3 --moments-last 1 --apply run 2>&1 | sed 's/  */ /g'; names
zckpt verify -q --full run; echo "exit $?"
zckpt diff -q --state weight,master run/global_step3 "$DS/ds0.19.8-z2-bf16-w2/ckpt"; echo "exit $?"
zckpt inspect run/global_step3 | grep -c exp_avg
zckpt prune --keep-last 3 --moments-last 1 --apply run 2>&1 | tail -n 1
zckpt prune --json --keep-last 1 --apply run | sed 's/"bytes": [0-9]*/"bytes": N/; s/"freed": [0-9]*/"freed": N/'; names
