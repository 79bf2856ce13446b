# What programs read from the mount is what convert writes: whole, in pieces from anywhere, and mapped.
. "$(dirname "$0")/lib.inc"
zckpt mount "$RUN" view; echo "exit $?"
find view | LC_ALL=C sort
readlink view/latest
for step in global_step2 global_step4; do
	for type in keep fp32 bf16 fp16; do
		zckpt convert -q -f --no-sums --dtype $type "$RUN/$step" want.safetensors
		folder=$type/
		[ $type != keep ] || folder=
		file=view/$step/${folder}model.safetensors
		cmp "$file" want.safetensors && [ "$(stat -c %s "$file")" = "$(wc -c < want.safetensors)" ] && echo "$step $type: same"
	done
	zckpt convert -q -f --no-sums --state all "$RUN/$step" states
	for name in states/*; do cmp "view/$step/state/${name#*/}" "$name" && echo "$step ${name#*/}: same"; done
done
file=view/latest/fp16/model.safetensors
dd if=$file of=got bs=777 status=none && cmp got want.safetensors && echo 'same in pieces'
cp $file got && cmp got want.safetensors && echo 'same by cp'
tar -cSf a.tar $file && tar -xOf a.tar $file | cmp - want.safetensors && echo 'same by tar --sparse'
for at in 1 4096 7000; do tail -c +$((at + 1)) $file > a; tail -c +$((at + 1)) want.safetensors | cmp - a && echo "same from $at on"; done
zckpt inspect $file | grep '^format'
zckpt diff -q "$RUN/global_step4" view/global_step4/fp32/model.safetensors && echo 'diff: equal'
stat -c '%A %h' view view/global_step2 $file
touch view/x 2> err; sed 's/.*: //' err
rm -f $file 2> err; sed 's/.*: //' err
cat view/.zckpt/findings.txt
zckpt mount --unmount view; echo "exit $?"
ls view
# A single step has its files at the top, with the model's own beside them.
zckpt mount -q --aux "$FIXTURES/model/models/qwen3" "$RUN/global_step2" view
ls view view/bf16 && grep -o '"\(torch_\)\?dtype": *"[a-z0-9]*"' view/bf16/config.json view/fp32/config.json
zckpt mount -q --tag 4 --include 'blocks.0.*' "$RUN" view2 && zckpt inspect --json view2/model.safetensors | grep -o '"tensors": [0-9]*'
