# A pack is not written under the name of another archive, and unpack is named where it reads one.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
cp -r "$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt" run
for f in p.tar.gz p.tgz p.zip p.tar dir.d/p.tar.xz; do
	zckpt pack run $f 2>&1; echo "exit $?"
done
ls
tar -czf 'my run.tar.gz' run && tar -cf other.tar run
for f in 'my run.tar.gz' other.tar; do
	zckpt inspect "$f" 2>&1; echo "exit $?"
	zckpt doctor "$f"; echo "exit $?"
done
mkdir other && zckpt convert other.tar x.safetensors 2>&1
zckpt unpack -q other.tar other-unpacked && zckpt inspect other-unpacked/run | head -n 1
echo '-- a file that only has such a name'
echo 'no archive' > text.tar.gz
zckpt inspect text.tar.gz 2>&1
true
