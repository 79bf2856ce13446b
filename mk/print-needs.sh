#!/bin/sh
# usage: print-needs.sh none|libc FILE...
#
# Prints what each program or library needs where it runs: its size, the libraries it names and the
# newest version of their symbols (of glibc, for example GLIBC_2.34).  Ends with status 1 if one
# names more than allowed: no library, or the C library and its parts alone.
set -eu
allowed=$1
shift
bad=0
for file in "$@"; do
	libs=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
	newest=$(objdump -T "$file" 2> /dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
	printf '%s: %s bytes, needs %s\n' "$file" "$(wc -c < "$file")" "${libs:-no library }${newest:+up to $newest}"
	for lib in $libs; do
		case $allowed:$lib in
		libc:libc.so.* | libc:libm.so.* | libc:libpthread.so.* | libc:libdl.so.* | libc:librt.so.* | libc:ld-*) ;;
		*) echo "$file needs $lib" >&2; bad=1 ;;
		esac
	done
done
exit $bad
