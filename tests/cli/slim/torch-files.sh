# Torch files lose what no tensor uses; one that cannot be written anew is left, and it is said.
t=$FIXTURES/formats
for f in torch/v2.11/sparse-more torch/v2.6/views legacy/view pickle/dup-keys zip/deflate-all torch/v2.6/quantized; do
	[ -f "$t/$f.pt" ] || { echo "$f is not there"; continue; }
	zckpt slim -q --views "$t/$f.pt" ${f##*/}.pt; echo "exit $?"
	zckpt digest -q "$t/$f.pt" > want 2> /dev/null; zckpt digest -q ${f##*/}.pt > got 2> /dev/null
	cmp want got
	[ $(stat -c %s ${f##*/}.pt) -lt $(stat -c %s "$t/$f.pt") ] && echo "${f##*/} is smaller"
done
zckpt slim --views "$t/torch/v2.6/views.pt" views.pt 2>&1; echo "exit $?"
zckpt slim "$t/safetensors/dt-C64.safetensors" no 2>&1; echo "exit $?"
zckpt slim 2>&1; zckpt slim "$t/torch/v2.6/views.pt" 2>&1; zckpt slim --dry-run "$t/torch/v2.6/views.pt" 2>&1
zckpt slim -q --force views.pt views.pt 2>&1; echo "exit $?"
ls
