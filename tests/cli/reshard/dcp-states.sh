# States of the optimizer: --drop-state leaves them out, --reset-optimizer makes them zero as for
# DeepSpeed, and what could not be joined over the ranks is refused.
D=$FIXTURES/deepspeed
run=$D/ds0.19.8-z2-bf16-w2-frozen/ckpt
states() { zckpt inspect "$1" 2> /dev/null | sed -n '/^STATE/,/^$/p'; }
zckpt reshard -q --to dcp "$run" all && states all
zckpt reshard -q --to dcp --drop-state exp_avg_sq "$run" dropped && states dropped
zckpt reshard -q --to dcp --drop-state nothing "$run" no 2>&1
# zeros, as --to deepspeed has them
zckpt reshard -q --to dcp --reset-optimizer "$run" zero && states zero
zckpt reshard -q --world 2 zero from-dcp 2> /dev/null && zckpt reshard -q --world 2 --reset-optimizer "$run" direct &&
	zckpt diff -q from-dcp direct && echo same
muon=$(ls -d "$D"/*muon*/ckpt | head -n 1)
zckpt reshard -q --to dcp "$muon" no 2>&1 | sed "s|$D|D|"
ls -d [a-z]*
# a run in 16 bits has no masters
zckpt reshard --world 2 "$FIXTURES/fsdp/t2.11-fsdp2-dcp-w2-bf16/ckpt" masters 2>&1 | grep masters: | head -n 1
# by way of native steps nothing changes, counts of DeepSpeed included
zckpt reshard -q --to native "$run" one && zckpt reshard -q --to dcp one two && zckpt reshard -q --to native two three &&
	zckpt diff -q one three && echo same
