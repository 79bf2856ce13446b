#!/bin/bash
# What git would ship, in a folder of its own: builds without warnings,
# installs, can be linked against.  Without commits or git, the working tree.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-dist.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
if git rev-parse -q --verify HEAD > /dev/null 2>&1; then
	git archive HEAD | tar -x -C "$dir"
else
	tar -c --exclude=./build --exclude=./.git . | tar -x -C "$dir"
fi
cd "$dir"
make -s -j"$(getconf _NPROCESSORS_ONLN)" DEVELOPER=1 all > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
tests/install-check.sh
echo 'dist-check: builds, installs and links from the shipped files alone'
