# To DeepSpeed's universal form and back: how the folder is called, what lies in it, what
# DeepSpeed's loader will not take of it.
F=$FIXTURES/deepspeed
zckpt reshard -q --to universal "$F/ds0.19.8-z2-bf16-w2-frozen/ckpt" u 2>&1
cat u/latest_universal && echo
(cd u/global_step3_universal && ls | sort && ls zero | wc -l && ls zero/norm.weight)
zckpt inspect u | sed -n 's/^format *//p; s/^chosen *//p'
zckpt reshard -q --world 3 u back && cat back/latest && echo && ls back/global_step3
[ "$(zckpt digest back | tail -n 1)" = "$(zckpt digest u | tail -n 1)" ] && echo 'the same state'
for i in 1 2; do
	zckpt reshard -q --to universal --part $i/2 "$F/ds0.19.8-z2-bf16-w2-frozen/ckpt" p 2> /dev/null
done
zckpt commit -q p && diff -r u p && echo 'the same in parts'
echo '-- stage 3'
zckpt reshard -q --to universal "$F/ds0.19.8-z3-bf16-w2-subgroup300/ckpt" u3 2>&1
ls u3/global_step3_universal/zero/norm.weight
zckpt reshard -q --to universal --strict "$F/ds0.19.8-z3-bf16-w2-subgroup300/ckpt" no 2> err ||
	echo "stopped, $(ls -d no 2> /dev/null | wc -l) folders"
zckpt reshard -q --to universal "$F/ds0.14.5-z3-bf16-w2/ckpt" old 2>&1 | grep 'before 0.18'
zckpt reshard -q --to universal "$F/ds0.19.8-z3-bf16-w2-amsgrad/ckpt" ams 2>&1 | grep only
zckpt reshard -q --to universal "$F/ds0.19.8-z3-bf16-w2-step0/ckpt" none 2>&1 | grep needs
zckpt reshard -q --to universal --drop-state exp_avg_sq "$F/ds0.19.8-z3-bf16-w2/ckpt" dr 2>&1 |
	grep needs
zckpt reshard -q --to universal --drop-state '*' "$F/ds0.19.8-z2-bf16-w2/ckpt" bare 2> /dev/null
ls bare/global_step3_universal/zero/norm.weight
echo '-- what cannot be'
zckpt reshard -q --to universal "$F/ds0.19.8-z1-bf16-w2-elastic/ckpt" no; echo "exit $?"
zckpt reshard -q --to universal "$F/ds0.12.6-z2-bf16-w2/ckpt" no; echo "exit $?"
zckpt reshard -q --to universal --ds-version 0.16.9 "$F/ds0.12.6-z2-bf16-w2/ckpt" new 2> /dev/null
zckpt inspect new | sed -n 's/^written by *//p'
echo '-- round robin'
zckpt reshard -q --to universal "$F/ds0.19.8-z2-bf16-w4-roundrobin/ckpt" rr 2>&1 | grep round_robin
zckpt reshard -q --world 2 "$F/ds0.19.8-z2-bf16-w4-roundrobin/universal" no 2>&1 |
	grep -c MASTER_WEIGHT_MISMATCH:
echo '-- beside a step'
cp -r "$F/ds0.19.8-z2-bf16-w2-frozen/ckpt" both
cp -r u/latest_universal u/global_step3_universal both
zckpt inspect both | sed -n 's/^format *//p; s/^also here *//p'
zckpt inspect --tag global_step3_universal both | sed -n 's/^format *//p'
