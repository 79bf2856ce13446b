#!/bin/bash
# What `make dist` ships, in a folder of its own and without git: builds without
# warnings, installs, can be linked against; and the archive is the same when it is
# made again.  Without commits or git, the working tree.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-dist.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
if git rev-parse -q --verify HEAD > /dev/null 2>&1; then
	archive=build/zckpt-$(sed -n 's/^.define CKPT_VERSION_STRING "\(.*\)"/\1/p' libckpt/include/ckpt.h).tar.gz
	make -s dist > /dev/null
	cp "$archive" "$dir/first"
	make -s dist > /dev/null
	cmp "$archive" "$dir/first" || { echo 'dist-check: the archive differs when it is made again' >&2; exit 1; }
	(cd build && sha256sum -c --quiet --ignore-missing SHA256SUMS)
	tar -x --strip-components=1 -C "$dir" -f "$archive"
else
	tar -c --exclude=./build --exclude=./.git . | tar -x -C "$dir"
fi
cd "$dir"
export GIT_DIR=/nowhere # make asks git for nothing
make -s -j"$(getconf _NPROCESSORS_ONLN)" DEVELOPER=1 all > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
tests/install-check.sh
echo 'dist-check: builds, installs and links from the shipped files alone'
