# What others packed is unpacked too, or refused as a whole.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
tar --version 2>&1 | grep -q GNU || { echo 'tar is not GNU tar' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
(cd "$RUN" && tar -cf - .) > a.tar
(cd "$RUN" && tar -czf - global_step3 latest) > b.tgz
for f in a.tar b.tgz; do
	zckpt unpack $f out.$f 2>&1 | sed 's/: [0-9.]* kB packed.*//'
	diff -r "$RUN" out.$f && echo "$f: the same"
done
mkdir step && echo x > step/a && ln -s /etc step/etc && tar -cf link.tar step
zckpt unpack link.tar out; echo "link: $?"
rm step/etc && ln step/a step/b && tar -cf hard.tar step
zckpt unpack hard.tar out; echo "hard link: $?"
rm step/b && mkfifo step/p && tar -cf fifo.tar step
zckpt unpack fifo.tar out; echo "fifo: $?"
rm step/p && tar -cf up.tar --transform 's|^step|../step|' -P step
zckpt unpack up.tar out; echo "above: $?"
tar -cf abs.tar --transform 's|^step|/tmp/zckpt-no|' -P step
zckpt unpack abs.tar out; echo "absolute: $?"
echo hello > text; zckpt unpack text out; echo "text: $?"
zckpt unpack nothing out; echo "nothing: $?"
ls -d out* ../step /tmp/zckpt-no 2> /dev/null || true
