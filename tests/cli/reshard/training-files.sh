# A file of torch.save with model and optimizer is a step: to ZeRO, to each other form, and back. What
# has no certain owner, and what is no training state, is refused.
H=$FIXTURES/honest/torch
try() {
	zckpt "$@" > said 2>&1; rc=$?
	sed "s|$H/||g; / in [0-9.]* s/d" said; echo "exit $rc"
}
same() { zckpt diff -q "$1" "$2" > said; echo "$3: exit $?"; }
echo '* a ZeRO step'
try reshard --world 2 --stage 2 "$H/model-optimizer.pt" z2
zckpt verify --full -q z2 && zckpt inspect z2 | sed -n '/^ROLE/,/^next/p'
try shard --with-states --world 3 --stage 3 --dtype bf16 "$H/groups.pt" z3
zckpt inspect z3 | sed -n '/^STATE/,/^next/p'
echo '* and back, from each form'
for form in universal native dcp fsdp-ranks; do
	zckpt reshard -q --to $form --world 2 "$H/groups.pt" $form
	zckpt convert -q --to torch-training $form $form.pth
	same "$H/groups.pt" $form.pth $form
done
zckpt convert -q --to=torch-training z3 z3.pth && same "$H/groups.pt" z3.pth z3
zckpt convert -q --to torch-training "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run.pth
zckpt reshard -q --world 4 --stage 3 --dtype bf16 run.pth run-4
zckpt reshard -q --world 4 --stage 3 "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" want
for s in master exp_avg exp_avg_sq; do
	zckpt digest --state $s run-4 > one; zckpt digest --state $s want > two
	cmp one two && echo "$s: the same"
done
echo '* frozen by their place'
try reshard --world 2 "$H/frozen.pt" frozen
echo '* fp16: the weights and the scale, and back'
F=$FIXTURES/deepspeed/ds0.19.8-z2-fp16-w2-overflow/ckpt
mkdir half wide half-back wide-back	# a file has its own name in it
zckpt convert -q --to torch-training --dtype fp16 "$F" half/f.pth
zckpt convert -q --to torch-training "$F" wide/f.pth
for f in half wide; do
	try reshard --world 3 --stage 3 --dtype fp16 $f/f.pth $f-3
	zckpt inspect $f-3 | sed -n '/^STATE/,/^$/p'
	zckpt convert -q --to torch-training --dtype fp16 $f-3 $f-back/f.pth
	cmp half/f.pth $f-back/f.pth && echo "$f, back: every byte"
done
for s in master exp_avg exp_avg_sq; do
	zckpt digest --state $s wide-3 > one; zckpt digest --state $s "$F" > two
	cmp one two && echo "$s: the same"
done
echo '* names that the user gives'
printf '%s\n' head.weight block.0.weight block.1.weight block.0.bias block.1.bias norm.weight norm.bias > names
head -n 6 names > short; (cat names; echo norm.running_mean) > long; sort names > wrong	# head.weight is embed.weight
try reshard --world 2 --stage 2 --order names "$H/groups.pt" by-list
zckpt reshard -q --world 2 --stage 2 "$H/groups.pt" by-shape
same by-shape by-list 'the list is what the shapes say'
for list in short long wrong none; do
	try reshard --world 2 --order $list "$H/groups.pt" x
done
try reshard --world 2 --frozen embed.weight "$H/groups.pt" x
try reshard --world 2 --frozen no-such "$H/groups.pt" x
try reshard --world 2 --frozen embed.weight "$H/frozen.pt" frozen-said
try reshard --world 2 --order names z2 x
try reshard --world 2 --buffer embed.weight "$H/state-dict.pt" x
echo '* refused'
try reshard --world 2 "$H/state-dict.pt" x
try reshard --world 2 "$H/optimizer-object.pt" x
try reshard --to torch-training z2 x
try reshard --to torch-training z2 x.pth/
try reshard --dtype bf16 --world 4 z2 x
try reshard --dtype int8 --world 4 run.pth x
try shard --with-states --lr 1e-5 --world 2 "$H/model-optimizer.pt" x
head -c 3000 "$H/model-optimizer.pt" > cut.pt; try reshard --world 2 cut.pt x
[ -e x ] || [ -e x.pth ] || echo 'nothing was written'
