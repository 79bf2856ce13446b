# A step as one file: any tar unpacks it, zckpt unpacks and verifies it, nothing is lost.
zckpt unpack x y 2>&1 | grep -q 'has no packs' && { echo 'packs are not built' >&2; exit 77; }
RUN=$FIXTURES/deepspeed/ds0.19.8-z3-bf16-w2/ckpt
zckpt pack -q "$RUN" run.tar.zst; echo "pack: $?"
zckpt pack -q "$RUN/global_step3" step.tar.zst
zckpt verify --full -q run.tar.zst; echo "verify: $?"
zckpt unpack -q run.tar.zst back; echo "unpack: $?"
diff -r "$RUN" back && echo 'the folder is back'
if tar --version 2>&1 | grep -q GNU && command -v zstd > /dev/null; then
	tar --zstd -tf run.tar.zst
	mkdir by-tar && tar --zstd -C by-tar -xf run.tar.zst && diff -r "$RUN" by-tar
	mkdir by-both && zstd -qdc step.tar.zst | tar -C by-both -xf - &&
		diff -r "$RUN/global_step3" by-both/global_step3
	zstd -qt run.tar.zst step.tar.zst
else
	cat "${0%.sh}.stdout" | sed -n '/^global_step3/p; /^latest/p'
fi
zckpt pack -q "$RUN" - > stream.tar.zst && cmp run.tar.zst stream.tar.zst && echo 'a stream has the same bytes'
ls
