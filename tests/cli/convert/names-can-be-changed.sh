# --include, --exclude, --only, --rename, --strip-prefix choose and name tensors.
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt
names() { zckpt digest "$1" | sed '$d; s/^[^ ]* [^ ]* //' | sort; }
zckpt convert -q "$run" all.safetensors; names all.safetensors > all
zckpt convert -q --include '*weight' "$run" w.safetensors; names w.safetensors > w
grep 'weight$' all | cmp - w && echo include
zckpt convert -q --exclude '*weight' "$run" o.safetensors; names o.safetensors > o
grep -v 'weight$' all | cmp - o && echo exclude
zckpt convert -q --only trainable "$run" t.safetensors; names t.safetensors > t
zckpt convert -q --only frozen,buffers "$run" f.safetensors; names f.safetensors > f
sort t f | cmp all - && echo only
zckpt convert -q --rename '*weight=model.*w' "$run" r.safetensors; names r.safetensors > r
sed 's/^\(.*\)weight$/model.\1w/' all | sort | cmp - r && echo rename
zckpt convert -q --strip-prefix model. r.safetensors s.safetensors; names s.safetensors > s
sed 's/^model\.//' r | sort | cmp - s && echo strip-prefix
zckpt convert -q --include 'no such*' "$run" n.safetensors 2> err
echo "nothing selected: exit $?"
# A pattern that fits nothing is told, and --strict stops at it.
zckpt convert -q --include '*weight' --exclude '*.wieght' --rename 'ghost=x' --strip-prefix wrap. \
	--dtype 'norm?=bf16' "$run" u.safetensors 2>&1; echo "exit $?"
zckpt convert -q --strict --only trainable --exclude '*.wieght' "$run" v.safetensors 2> /dev/null
echo "strict: exit $?"
[ -e v.safetensors ] || echo "nothing written"
