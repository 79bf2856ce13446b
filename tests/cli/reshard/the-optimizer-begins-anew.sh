# A user who changes the data or the optimizer wants the weights, not the old moments.
step=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w3/ckpt
kept() { zckpt digest "$1" | grep -E ' (weight|master) ' | cmp - want && echo "weights and masters are kept"; }
states() { zckpt digest "$1" | cut -d' ' -f2 | sort | uniq -c; }
zckpt digest "$step" | grep -E ' (weight|master) ' > want
zckpt reshard -q '3->2' --reset-optimizer "$step" reset
kept reset
states reset
zckpt digest reset | grep ' exp_avg ' | grep odd.w7	# the hash of seven zeros
zckpt reshard -q '3->2' --stage 3 --drop-state exp_avg_sq "$step" dropped
kept dropped
states dropped
zckpt reshard -q '3->2' --drop-state '*' "$step" bare
kept bare
states bare
zckpt reshard -q '3->2' --drop-state exp_avg_s,master "$step" wrong
echo "exit $?"
zckpt reshard -q '3->2' --ds-version 0.16.9 "$step" older
zckpt inspect older | grep written
for v in 0.16 0.9.1 0.20.0; do
	zckpt reshard -q '3->2' --ds-version $v "$step" wrong
	echo "exit $?"
done
ls
# a state that cannot be cut is refused, and can be left out
muon=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-muon/ckpt
zckpt reshard -q '2->3' "$muon" muon 2>&1 | tail -n 1
zckpt reshard -q '2->3' --drop-state momentum_buffer "$muon" muon 2> /dev/null
states muon
