# A pack that was cut, or has a wrong bit, says so; nothing of it is taken for good.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
zckpt pack -q "$RUN" p.tar.zst
size=$(wc -c < p.tar.zst)
# flip AT: a copy with another byte there
flip() {
	cp p.tar.zst bad.tar.zst
	printf '\377' | dd of=bad.tar.zst bs=1 seek=$1 conv=notrunc 2> /dev/null
	cmp -s p.tar.zst bad.tar.zst && printf '\000' | dd of=bad.tar.zst bs=1 seek=$1 conv=notrunc 2> /dev/null
}
flip 5000; zckpt verify -q --full bad.tar.zst; echo "verify: $?"
zckpt unpack bad.tar.zst out; echo "unpack: $?"
flip $((size - 200)); zckpt inspect bad.tar.zst 2> err; echo "inspect: $?"
sed "s/byte [0-9]*/byte N/" err
head -c $((size / 2)) p.tar.zst > cut.tar.zst
zckpt inspect cut.tar.zst; echo "inspect: $?"
zckpt unpack cut.tar.zst out; echo "unpack: $?"
zckpt verify cut.tar.zst; echo "verify: $?"
ls
