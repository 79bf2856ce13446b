# --limit: every verb that reads takes it, names what it met, and says what it cannot be.
src=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
try() {
	zckpt "$@" 2>&1 > /dev/null | sed -n '1s/^zckpt: [^:]*: /zckpt: /p'
}
for verb in inspect verify digest map; do
	echo "== $verb"
	try $verb --limit zip_entries=3 "$src"
done
echo '== others'
zckpt doctor --limit zip_entries=3 "$src" | grep zip_entries
try convert --limit zip-entries=3 "$src" out.safetensors
try reshard --limit zip_entries=3 --world 1 "$src" out
try diff --limit zip_entries=3 "$src" "$src"
try cat --limit zip_entries=3 "$src" norm.weight
zckpt audit --limit pickles=1 --limit pickle_nodes=9 "$src" > /dev/null 2>&1; echo "audit: exit $?"
zckpt inspect --json --limit zip_entries=3 "$src" 2> /dev/null | grep -o 'CKPT_E_LIMIT'
zckpt ls --limit zip_entries=3 "$src" | grep -c zip_entries
zckpt latest --valid --limit zip_entries=3 "$src" > /dev/null 2>&1; echo "latest: exit $?"
zckpt latest --valid --limit zip_entries=30 "$src" > /dev/null 2>&1; echo "latest: exit $?"
echo '== wrong'
for what in zip_entries zip_entrys=3 nothing=3 zip_entries=0 zip_entries=3k tensor_dims=65 memory_bytes=x \
	memory_bytes=1GiB; do
	zckpt inspect -q --limit $what "$src" 2>&1 > /dev/null | head -n 1
done
