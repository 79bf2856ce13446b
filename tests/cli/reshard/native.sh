# A native step is whole or says what is not, and keeps what is beside it; its options are its own.
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w4/ckpt" run
zckpt reshard -q --to native --world 3 run out && (cd out && find . -type f | sort)
zckpt reshard -q --to native run same && zckpt ls -q out | awk 'NR > 1 { print $5, $6, $7, $NF }'
zckpt inspect out | sed -n 's/^format  *//p'
sed -n '1,/^"files"/p' out/global_step3/manifest.json | sed 's/"[0-9a-f]\{32\}"/"..."/' | head -n 5
zckpt verify --full out
zckpt diff -q run out; echo "exit $?"
for o in '--stage 3' --round-robin '--ds-version 0.16.9' '--sub-group-size 5' '--part 1/2'; do
	zckpt reshard -q --to native --world 2 $o run no 2>&1 | head -n 1
done
# damage
break_it() { rm -rf bad; cp -r out bad; }
break_it; rm bad/global_step3/rank-00001.safetensors; zckpt verify -q bad 2>&1; echo "exit $?"
break_it; truncate -s -4 bad/global_step3/rank-00000.safetensors; zckpt verify -q bad 2>&1; echo "exit $?"
break_it; printf 'x' | dd of=bad/global_step3/rank-00002.safetensors bs=1 seek=5000 conv=notrunc status=none
zckpt verify -q bad; echo "exit $?"
zckpt verify -q --full bad 2>&1; echo "exit $?"
break_it; cp same/global_step3/rank-00002.safetensors bad/global_step3/; zckpt verify -q bad 2>&1; echo "exit $?"
break_it; cp same/global_step3/rest.pt bad/global_step3/; zckpt reshard -q --world 2 bad no 2>&1; echo "exit $?"
break_it; sed -i 's/"first": /"last": /; s/F32/F64/' bad/global_step3/manifest.json; zckpt verify -q bad 2>&1; echo "exit $?"
break_it; sed -i 's,native/1,native/2,' bad/global_step3/manifest.json; zckpt inspect bad 2>&1; echo "exit $?"
break_it; rm bad/global_step3/manifest.json; zckpt inspect bad 2>&1 | head -n 1
ls
# what is frozen has no mark of its saving: files of two steps are the same
zckpt reshard -q --to native "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt" one
zckpt reshard -q --to native --reset-optimizer "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt" two
for f in one/global_step*/*; do cmp -s $f two/${f#one/} && echo "same ${f##*/}" || echo "differs ${f##*/}"; done
zckpt diff -q --state weight,master one two; echo "exit $?"
