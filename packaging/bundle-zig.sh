#!/bin/sh
# usage: packaging/bundle-zig.sh [GLIBC [ZIG...]]
#
# `make bundle` for machines with an older glibc than this one: by zig, which links with the symbols
# of any glibc (GLIBC, default 2.28: renameat2() is not in older ones).  ZIG is the command,
# default: python3 -m ziglang, of `pip install ziglang`.  The libraries are this machine's archives,
# which name no newer symbol; make prints what the result needs.
#
# zig does not look into /usr/include: the headers of those libraries are copied to build/zig/include,
# without the system's.  libgcc has the processor's features (__cpu_model), which zig's runtime lacks.
set -eu
cd "$(dirname "$0")/.."
glibc=${1:-2.28}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- python3 -m ziglang
from=$(pkg-config --variable=includedir libzstd)
rm -rf build/zig
mkdir -p build/zig/include
for header in archive.h archive_entry.h zstd.h zstd_errors.h xxhash.h libdeflate.h; do
	cp "$from/$header" build/zig/include
done
cpu=
case $(uname -m) in x86_64) cpu='-mcpu=x86_64+evex512' ;; esac # or 512-bit vectors are refused, also where a function asks for them
exec make bundle CC="$* cc -target $(uname -m)-linux-gnu.$glibc $cpu" \
	CPPFLAGS="-isystem $PWD/build/zig/include" LDFLAGS="$(gcc -print-libgcc-file-name)"
