#!/bin/bash
# usage: tests/static-check.sh
#
# Builds the static programs and runs them in a root that has nothing but them and their input: no
# C library, no /etc, no /proc.  If this fails, a user who copies build/static/zckpt to a cluster
# gets "not found" or a crash.  Status 77: this system does not let us change the root.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-static.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
fail() {
	echo "static-check: $*" >&2
	[ ! -s "$dir/said" ] || tail -n 5 "$dir/said" >&2
	exit 1
}
jobs=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 1)
make -s -j"$jobs" static > "$dir/log" 2>&1 || { tail -n 30 "$dir/log" >&2; fail 'make static fails'; }
make -s fixtures > /dev/null || fail 'no fixtures'
for one in zckpt ztrain; do
	readelf -d "build/static/$one" 2> /dev/null | grep -q NEEDED && fail "$one needs a library"
	# what Debian's libarchive would bring with it
	grep -aqE 'xmlTextWriter|libxml2|ucnv_open|nettle_' "build/static/$one" && fail "$one has libxml2, ICU or nettle in it"
done

root=$dir/root
mkdir -p "$root/out"
cp build/static/zckpt build/static/ztrain "$root"
cp -r build/fixtures/deepspeed/ds0.19.8-z3-bf16-w8-tiny/{ckpt,expected_fp32.safetensors} "$root"
cp -r build/fixtures/model/models/qwen25 "$root/model"
cp build/fixtures/model/train/data.safetensors "$root"
chmod -R u+w "$root"
# inside COMMAND...: with that folder as the root
if [ "$(id -u)" = 0 ] && chroot "$root" /zckpt --version > /dev/null 2>&1; then
	inside() { chroot "$root" "$@"; }
elif unshare -r --root="$root" /zckpt --version > /dev/null 2>&1; then
	inside() { unshare -r --root="$root" "$@"; }
else
	[ "$(build/static/zckpt --version 2>&1 | head -n 1)" ] || fail 'zckpt --version fails'
	echo 'neither chroot nor unshare -r changes the root here' >&2
	exit 77
fi
# run COMMAND...: it must succeed
run() {
	inside "$@" > "$dir/said" 2>&1 < /dev/null || fail "in an empty root, status $?: $*"
}
run /zckpt --version
run /zckpt inspect /ckpt
grep -q complete "$dir/said" || fail 'inspect does not say that the checkpoint is complete'
run /zckpt verify --full /ckpt
run /zckpt convert /ckpt /out/model.safetensors
run /zckpt diff /out/model.safetensors /expected_fp32.safetensors
run /zckpt reshard --world 3 /ckpt /out/three
run /zckpt pack /ckpt /out/ckpt.tar.zst
run /zckpt verify --full /out/ckpt.tar.zst
run /zckpt unpack /out/ckpt.tar.zst /out/again
diff -r "$root/ckpt" "$root/out/again" > "$dir/said" || fail 'unpack gives other files than pack took'
# archives of others: names beyond ASCII take the tables that a C library has built in
mkdir "$dir/named" && cp -r "$root/ckpt" "$dir/named/modèle"
for form in ustar pax gnu; do
	tar -C "$dir/named" --format=$form -czf "$root/out/$form.tar.gz" . 2> "$dir/said" || fail "tar cannot write $form"
	run /zckpt unpack "/out/$form.tar.gz" "/out/of-$form"
	diff -r "$dir/named" "$root/out/of-$form" > "$dir/said" || fail "a name is lost in $form.tar.gz"
done
if command -v python3 > /dev/null; then
	for method in DEFLATED BZIP2 LZMA; do
		python3 - "$method" "$root/ckpt" "$root/out/a.zip" <<- 'END' 2> "$dir/said" || continue
			import os, sys, zipfile
			with zipfile.ZipFile(sys.argv[3], 'w', getattr(zipfile, 'ZIP_' + sys.argv[1])) as z:
			    for at, _, names in os.walk(sys.argv[2]):
			        for name in names:
			            path = os.path.join(at, name)
			            z.write(path, os.path.relpath(path, sys.argv[2]))
		END
		rm -rf "$root/out/of-zip"
		run /zckpt unpack /out/a.zip /out/of-zip
		diff -r "$root/ckpt" "$root/out/of-zip" > "$dir/said" || fail "a zip by $method is unpacked wrong"
	done
fi

# ztrain: YAML, two ranks that meet at a numeric address and prove a secret, a save that zckpt reads.
printf '%s\n' 'distributed_type: DEEPSPEED' 'deepspeed_config: {zero_stage: 2}' 'mixed_precision: bf16' \
	'num_machines: 1' 'num_processes: 2' > "$root/acc.yaml"
port=$((20000 + $$ % 20000))
rank() {
	RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 MASTER_ADDR=$2 MASTER_PORT=$port \
		inside /ztrain --model /model --config /acc.yaml --micro-batch 2 --data /data.safetensors --steps 2 --save "/out/$3"
}
run /ztrain --version
train() {
	rank 0 "$@" > "$dir/rank0" 2>&1 < /dev/null &
	rank 1 "$@" > "$dir/said" 2>&1 < /dev/null || { wait; cat "$dir/rank0" >> "$dir/said"; fail "rank 1 at $1"; }
	wait $! || { cp "$dir/rank0" "$dir/said"; fail "rank 0 at $1"; }
	run /zckpt verify --full "/out/$2"
}
export ZTRAIN_SECRET=not-a-secret-of-anyone
train 127.0.0.1 RUN
# A name takes /etc/hosts, as in every program, and no library of the system.
mkdir "$root/etc"
echo '127.0.0.1 localhost' > "$root/etc/hosts"
train localhost RUN-by-name
echo 'static-check: zckpt and ztrain run in an empty root'
