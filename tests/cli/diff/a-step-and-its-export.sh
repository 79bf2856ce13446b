# Is my export the trained model? A correct one is the same, with buffers and tied names, whatever its
# type; in a damaged one the tensor that is wrong is shown first.
DS=$FIXTURES/deepspeed
for case in ds0.19.8-z2-bf16-w2 ds0.19.8-z3-bf16-w2-frozen ds0.19.8-z0-bf16-w2 \
	ds0.19.8-z2-fp16-w2-overflow ds0.19.8-z1-bf16-w2-bf16opt ds0.19.8-z3-fp32-w2; do
	run=$DS/$case/ckpt
	for dtype in fp32 bf16 fp16 keep; do
		rm -rf out
		zckpt convert -q --dtype $dtype "$run" out 2> err || { cat err; continue; }
		zckpt diff "$run" out > text; one=$?
		zckpt diff out "$run" > /dev/null; echo "$case $dtype: exit $one $?"
		[ $one = 0 ] || cat text
	done
done
run=$DS/ds0.19.8-z2-bf16-w2/ckpt
zckpt convert -q "$run" good.safetensors && zckpt convert -q --dtype bf16 "$run" model.pt
zckpt diff "$run" good.safetensors; echo "exit $?"
zckpt diff "$run" model.pt | head -n 1
zckpt diff --json "$run" good.safetensors | grep -E '"(equal|answer|beside_left_out|not_read|differing)"'
echo '* tied names: an alias here, two tensors there'
zckpt convert -q --dtype bf16 --tied dup "$run" dup.safetensors
zckpt diff "$run" dup.safetensors | head -n 1; zckpt diff dup.safetensors "$run" | head -n 1
zckpt convert -q --tied dup "$run" twice.safetensors
zckpt diff good.safetensors twice.safetensors | head -n 1; zckpt diff twice.safetensors good.safetensors | head -n 1
echo '* but what is missing is no tied name, and a bias is none either'
zckpt convert -q --exclude 'blocks.0.up.*' "$run" less.safetensors
zckpt diff less.safetensors twice.safetensors | head -n 1
echo '* fp32 and bf16 exports differ by the rounding, and diff says how to allow for it'
zckpt convert -q --dtype bf16 "$run" half.safetensors
zckpt diff good.safetensors half.safetensors | sed -n '1p; $p'
zckpt diff --tolerance rel:0.004 good.safetensors half.safetensors; echo "exit $?"
echo '* damaged: one bit of the last tensor, and a name less'
# (without sums: with them damage is no difference, see the last line)
zckpt convert -q --no-sums --exclude emb.weight --exclude head.weight "$run" bad.safetensors
size=$(wc -c < bad.safetensors)
printf '\177' | dd of=bad.safetensors bs=1 seek=$((size - 1)) conv=notrunc 2> /dev/null
zckpt diff "$run" bad.safetensors 2>&1 
zckpt diff "$run" bad.safetensors > /dev/null 2>&1; echo "exit $?"
zckpt convert -q "$run" summed.safetensors && size=$(wc -c < summed.safetensors)
printf '\177' | dd of=summed.safetensors bs=1 seek=$((size - 1)) conv=notrunc 2> /dev/null
zckpt diff "$run" summed.safetensors 2>&1 | grep -c SUM_WRONG:; zckpt diff "$run" summed.safetensors > /dev/null 2>&1; echo "exit $?"
echo '* asked for by name, states are compared as they are'
zckpt diff "$run" good.safetensors --state weight > /dev/null; echo "exit $?"
echo '* within a tolerance is not "more"'
two="$DS/ds0.19.8-z2-bf16-w2-twotags/ckpt"
set -- $(cd "$two" && ls -d */ | tr -d /)
zckpt diff --tolerance 3e-3 "$two" --tag "$1" --tag2 "$2" | grep -nE '^\.\.\.|1 of|differ|exp_avg_sq'
zckpt diff --tolerance 1e3 "$two" --tag "$1" --tag2 "$2" | grep -nE '^\.\.\.|1 of|differ|exp_avg_sq'
echo '* what was not read is not called the same'
S=$FIXTURES/formats/torch/v2.11/sparse.pt
zckpt diff "$S" "$S"; echo "exit $?"
