# A smaller step has the weights and masters of the old one, and says what went.
ds=$FIXTURES/deepspeed
for src in z0-bf16-w2 z2-bf16-w2-lora z3-bf16-w3 z1-bf16-w2-bf16opt; do
	zckpt slim --moments "$ds/ds0.19.8-$src/ckpt" $src 2>&1 | grep -v '^zckpt: read'
	zckpt verify -q --full $src; echo "exit $?"
	for state in weight master exp_avg; do
		zckpt digest -q --state $state "$ds/ds0.19.8-$src/ckpt" > want 2> /dev/null
		zckpt digest -q --state $state $src > got 2> /dev/null
		cmp -s want got && echo "$state as before" || echo "$state: $(grep -vc root got)"
	done
done
zckpt slim --json --moments --dry-run "$ds/ds0.19.8-z2-bf16-w2-frozen/universal" |
	tr ',' '\n' | grep '_bytes\|files'
# native steps are laid out anew, and only for moments
zckpt reshard -q --to native "$ds/ds0.19.8-z2-bf16-w2-lora/ckpt" native
zckpt slim -q --views native same && diff -r native same && echo 'the same files'
zckpt slim -q --moments native less && zckpt verify -q --full less && zckpt inspect less | grep -c exp_avg
zckpt diff -q --state weight,master native less; echo "exit $?"
cmp native/*/frozen-00000.safetensors less/*/frozen-00000.safetensors && echo 'frozen as before'
echo '* files that go along with a native step: each once, however deep'
mkdir -p native/global_step3/a/b/c/d/e/f/g/h/i/j && echo deep > native/global_step3/a/b/c/d/e/f/g/h/i/j/deep.txt
zckpt reshard -q --to native native along && zckpt slim --moments along along-less 2>&1 | grep 'wrote along'
find along-less -type f | wc -l && find along-less -name deep.txt && zckpt verify -q --full along-less; echo "exit $?"
zckpt pack -q along along.tar.zst && zckpt unpack -q along.tar.zst back && find back -name deep.txt
