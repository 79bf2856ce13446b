#!/bin/bash
# usage: tests/bundle-check.sh [--built]
#
# Builds the bundle (--built: takes what is in build/bundle) and uses it as a Python package would:
# the library by its path, beside a zckpt of its own.  If this fails, a wheel is refused for what it
# needs, or its zstd is mixed up with the one of another package in the same process.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-bundle.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
fail() {
	echo "bundle-check: $*" >&2
	exit 1
}
if [ "${1-}" != --built ]; then
	jobs=$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 1)
	make -s -j"$jobs" bundle > "$dir/log" 2>&1 || { tail -n 30 "$dir/log" >&2; fail 'make bundle fails'; }
fi
make -s fixtures > /dev/null
mk/print-needs.sh libc build/bundle/libckpt.so build/bundle/zckpt
nm -D --defined-only build/bundle/libckpt.so | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort > "$dir/exports"
grep -v '^ckpt_' "$dir/exports" && fail 'the library exports more than ckpt_*'
grep -q '^ckpt_open$' "$dir/exports" || fail 'the library does not export ckpt_open'
tar -C build/bundle -cf - . | gzip -9 > "$dir/bundle.tar.gz"
size=$(wc -c < "$dir/bundle.tar.gz")
[ "$size" -le 3145728 ] || fail "$size bytes, compressed: a wheel of at most 3 MiB is the aim"

# The library by itself, in a program that has no other library of ours.
ln -s "$PWD/build/bundle/libckpt.so" "$dir/libckpt.so.0"
ckpt=$PWD/build/fixtures/deepspeed/ds0.19.8-z3-bf16-w8-tiny/ckpt
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -Ilibckpt/include -o "$dir/convert" examples/convert-progress.c \
	build/bundle/libckpt.so -Wl,-rpath,"$dir"
zckpt=$PWD/build/bundle/zckpt
"$zckpt" pack -q "$ckpt" "$dir/ckpt.tar.zst"
"$dir/convert" "$dir/ckpt.tar.zst" "$dir/model.safetensors" > "$dir/said" 2>&1 || { cat "$dir/said"; fail 'a program with the library fails'; }
"$zckpt" convert -q --dtype bf16 "$ckpt" "$dir/wanted.safetensors"
"$zckpt" diff -q "$dir/model.safetensors" "$dir/wanted.safetensors" > "$dir/said" || { cat "$dir/said"; fail 'its result differs'; }
"$zckpt" unpack -q "$dir/ckpt.tar.zst" "$dir/again"
diff -r "$ckpt" "$dir/again" || fail 'unpack gives other files than pack took'
echo "bundle-check: $size bytes compressed, $(wc -l < "$dir/exports") functions, needs the C library alone"
