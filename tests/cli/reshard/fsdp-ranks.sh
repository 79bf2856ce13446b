# Rank files of FSDP: a step of them becomes one of another form or of other ranks and back, and every
# state keeps its digest.  What cannot be proven is refused, with nothing written.
ds=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt fsdp=$FIXTURES/fsdp

# same A B: every state of both has the same digest
same() {
	zckpt digest -q "$1" >a.digest && zckpt digest -q --check a.digest "$2" >/dev/null && echo "$2: same"
}

# step --to FORM OPTIONS... SRC DST
step() {
	zckpt reshard -q --sync none --to "$@" 2>/dev/null
}

for c in t2.1-fsdp1-verl-w4 t2.4-fsdp1-verl-w3-flat t2.6-fsdp1-verl-w3-bf16 t2.6-fsdp1-verl-w3-frozen \
	t2.11-fsdp2-verl-w2-lora t2.15-tp_fsdp2-verl-w4 t2.11-fsdp2-accel-w3-rank t2.6-fsdp1-fulldcpless-w2; do
	step native $fsdp/$c/ckpt $c-native && same $fsdp/$c/ckpt $c-native
	step fsdp-ranks --world 3 $fsdp/$c/ckpt $c-3 && same $fsdp/$c/ckpt $c-3
	step fsdp-ranks --world 2 $c-3 $c-2 && same $fsdp/$c/ckpt $c-2
done

# from DeepSpeed and back; the values that only DeepSpeed has come back, too
step fsdp-ranks --world 5 "$ds" ranks && (cd ranks/global_step3 && ls -1 && cat fsdp_config.json) && echo
step deepspeed --world 2 ranks back && same "$ds" back
zckpt diff "$ds" back | head -n 1
step native "$ds" native && step fsdp-ranks --world 4 native ranks4 && step native ranks4 native2
zckpt diff native native2 | head -n 1
step fsdp-ranks --world 4 ranks ranks-4 && step fsdp-ranks --world 5 ranks-4 ranks5 && diff -r ranks ranks5 && echo "5, 4 and 5 ranks: the same bytes"

# of a universal step nothing is lost
step universal "$ds" universal && zckpt reshard -q --to fsdp-ranks --world 2 universal from-universal
same universal from-universal

# states that are zero, left out, or have no place
step fsdp-ranks --reset-optimizer --world 3 "$ds" zero && step deepspeed --world 2 zero zero2 &&
	step deepspeed --reset-optimizer --world 2 "$ds" zero3 && same zero3 zero2
step fsdp-ranks --drop-state exp_avg_sq "$ds" without && zckpt digest without | cut -d ' ' -f 2 | sort | uniq -c
zckpt reshard -q --to fsdp-ranks --drop-state exp_avgsq "$ds" no 2>&1 | head -n 1
zckpt reshard -q --to fsdp-ranks $FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-muon/ckpt no 2>&1 | grep -v warning | head -n 1
zckpt reshard -q --to fsdp-ranks $FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-elastic/ckpt no 2>&1 | grep -v warning | head -n 1

# the extra states of as many ranks are kept
step fsdp-ranks --world 2 $fsdp/t2.8-fsdp2-verl-w2/ckpt kept
cmp $fsdp/t2.8-fsdp2-verl-w2/ckpt/extra_state_world_size_2_rank_1.pt kept/*/extra_state_world_size_2_rank_1.pt &&
	echo "extra state: kept"
step fsdp-ranks $fsdp/t2.11-fsdp2-verl-w4/ckpt verl && ls verl/global_step_3/actor | head -n 2

# refused
for c in t2.15-fsdp2-verl-w2-reversed bad-2.11-fsdp2-verl-w4-missing-rank bad-2.11-fsdp2-verl-w4-swapped-ranks \
	bad-2.11-hsdp2-verl-w4-replica-differs bad-2.4-fsdp1-verl-w3-flat-rank-truncated; do
	zckpt reshard -q --world 2 $fsdp/$c/ckpt no 2>&1 | grep -v warning | head -n 1
done
mkdir weights && cp $fsdp/t2.8-fsdp2-verl-w2/ckpt/model_*.pt weights
zckpt reshard -q --world 2 weights no 2>&1 | tail -n 1
for v in 2.4 2.7 2.10; do
	zckpt reshard -q --to fsdp-ranks --torch $v "$ds" no 2>&1 | grep -v warning | head -n 1
done
zckpt reshard -q --to fsdp-ranks --device tpu "$ds" no 2>&1 | head -n 1
zckpt reshard -q --to dcp --device cpu "$ds" no 2>&1 | head -n 1
zckpt reshard -q --to fsdp-ranks --stage 2 "$ds" no 2>&1 | head -n 1
ls -d no* 2>/dev/null
for v in 2.6 2.8.1 2.15; do
	step fsdp-ranks --torch $v --device cpu --world 2 "$ds" for-$v && same ranks for-$v
done
