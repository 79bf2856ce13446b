# Every reading verb takes a pack as it takes the folder.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.16.9-z2-bf16-w2/ckpt
zckpt pack -q "$RUN" p.tar.zst
# same VERB...: the same words, but for the paths
same() {
	verb=$1 && shift
	zckpt $verb "$RUN" "$@" > a 2> a.err; echo "exit $?" >> a
	zckpt $verb p.tar.zst "$@" > b 2> b.err; echo "exit $?" >> b
	sed "s|$RUN|SRC|g" a > a2; sed 's|p\.tar\.zst|SRC|g' b > b2
	sed "s|$RUN|SRC|g" a.err > a3; sed 's|p\.tar\.zst|SRC|g' b.err > b3
	cmp a2 b2 && cmp a3 b3 && echo "$verb: the same"
}
same inspect
same 'inspect --explain-size'
same 'inspect --json'
same map
same digest
same 'verify --full'
same audit
same doctor
name=$(zckpt inspect --tensors --json "$RUN" | grep -o '"name": *"[^"]*"' | head -1 | cut -d'"' -f4)
same cat "$name"
zckpt diff -q "$RUN" p.tar.zst && echo 'diff: no difference'
for src in "$RUN" p.tar.zst; do
	out=${src%.tar.zst} out=${out##*/}
	zckpt convert -q "$src" $out.safetensors
	zckpt convert -q --state all "$src" $out.states
	zckpt reshard -q '2->3' "$src" $out.three
	zckpt reshard -q --to universal "$src" $out.uni
done
cmp ckpt.safetensors p.safetensors && diff -r ckpt.states p.states && echo 'convert: the same'
diff -r ckpt.three p.three && diff -r ckpt.uni p.uni && echo 'reshard: the same'
TZ=UTC touch -d '2026-03-01 12:30' p.tar.zst; TZ=UTC zckpt ls p.tar.zst | awk '{ print $1, $6, $(NF - 1), $NF }'
zckpt pack -q --level 19 p.tar.zst again.tar.zst && zckpt diff -q again.tar.zst "$RUN" && echo 'packed again'
