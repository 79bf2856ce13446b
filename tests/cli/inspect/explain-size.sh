# What the bytes are for sums to what lies on disk, for every step and file, and names copies,
# padding and storages that are larger than their tensors.
DS=$FIXTURES/deepspeed here=$PWD
cd "$DS/ds0.19.8-z3-bf16-w2-frozen/ckpt"
zckpt inspect -q --explain-size .
sum() { # PATH...: what is said, and what is there
	said=$(zckpt inspect --json --explain-size "$@" 2> /dev/null | sed -n '/"sizes"/,$s/^    "bytes": \([0-9]*\),$/\1/p')
	real=0
	for f in $(find "$@" -type f -printf '%s\n'); do real=$((real + f)); done
	n=$((n + 1))
	[ "$said" = $real ] || echo "$*: said $said, there are $real bytes"
}
n=0
cd "$DS"
for step in *z*-w2*/ckpt/*/ *z*-w3*/ckpt/*/ *uci/universal/*/; do
	zckpt inspect -q "$step" > /dev/null 2>&1 && sum "$step"
done
cd "$FIXTURES/formats"
for f in torch/v2.11/*.pt torch/v*/*.pt zip/*.pt pickle/*.pt legacy/*.pt safetensors/*.safetensors hf/*/; do
	zckpt inspect -q "$f" > /dev/null 2>&1 && sum "$f"
done
[ $n -gt 300 ] && echo 'more than 300 steps and files sum to the byte'
echo 'a file of the user in the step, and two roots:'
cd "$here"
mkdir -p a/global_step3 b/global_step3
cp "$DS"/ds0.19.8-z2-bf16-w2/ckpt/global_step3/*rank_0_* a/global_step3
cp "$DS"/ds0.19.8-z2-bf16-w2/ckpt/global_step3/*rank_1_* "$DS"/ds0.19.8-z2-bf16-w2/ckpt/global_step3/mp* b/global_step3
printf 'twelve bytes' > b/global_step3/notes
sum a/global_step3 b/global_step3
zckpt inspect --json --explain-size a/global_step3 b/global_step3 | grep -o '{"kind": "\(padding\|bloat\|other-files\)"[^}]*}'
