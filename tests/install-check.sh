#!/bin/bash
# Installs into a fresh folder, as a packager would, and builds a program
# against what is there by pkg-config alone, with the shared library and with
# the static one; then uninstalls and looks for what is left.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-install.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
fail() {
	echo "install-check: $*" >&2
	exit 1
}
make -s install DESTDIR="$dir/root" PREFIX=/opt/zckpt > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
top=$dir/root/opt/zckpt
"$top/bin/zckpt" inspect -h > /dev/null || fail 'the installed zckpt does not run'
for one in bash-completion/completions/zckpt bash-completion/completions/ztrain \
	zsh/site-functions/_zckpt fish/vendor_completions.d/zckpt.fish fish/vendor_completions.d/ztrain.fish; do
	grep -q __complete "$top/share/$one" || fail "the completion $one is not installed"
done

# A program as a stranger writes it: a wrong path must give an error, not a handle.
cat > "$dir/try.c" <<'END'
#include <ckpt.h>
#include <ckpt_zero.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	const char *path = "/nonexistent/checkpoint";
	struct ckpt *ck = NULL;
	struct ckpt_err err = { 0 };

	if (strcmp(ckpt_version(), CKPT_VERSION_STRING))
		return 1;
	if (ckpt_open(&path, 1, NULL, &ck, &err) != -CKPT_E_NOTFOUND || ck)
		return 2;
	printf("%s\n", ckpt_code_name(err.code));
	return 0;
}
END
export PKG_CONFIG_PATH=$top/lib/pkgconfig
conf() { pkg-config --define-variable=prefix="$top" "$@" libckpt; }
[ "$(pkg-config --modversion libckpt)" = \
	"$(sed -n 's/^.define CKPT_VERSION_STRING "\(.*\)"/\1/p' libckpt/include/ckpt.h)" ] ||
	fail 'libckpt.pc names another version'
cc=${CC:-cc}
# shellcheck disable=SC2046
$cc -std=c11 -Wall -Wextra -Werror $(conf --cflags) -o "$dir/try" "$dir/try.c" $(conf --libs)
[ "$(LD_LIBRARY_PATH=$top/lib "$dir/try")" = CKPT_E_NOTFOUND ] || fail 'the program with libckpt.so fails'
readelf -d "$dir/try" | grep -q 'NEEDED.*libckpt\.so\.0\]' || fail 'the program does not name libckpt.so.0'
rm "$top"/lib/libckpt.so*
# shellcheck disable=SC2046
$cc -std=c11 $(conf --cflags) -o "$dir/try-static" "$dir/try.c" $(conf --static --libs)
[ "$("$dir/try-static")" = CKPT_E_NOTFOUND ] || fail 'the program with libckpt.a fails'
# The examples build from what is installed below a private prefix, by their own Makefile, by the
# line of their README, and find the library; so do links from one installed page to another.
make -s install PREFIX="$dir/private" > "$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
doc=$dir/private/share/doc/zckpt
for one in LICENSE README.md docs/findings.md docs/guide/five-minutes.md docs/formats/deepspeed.md examples/README.md; do
	cmp -s "$one" "$doc/$one" || fail "$one is not installed"
done
[ -s "$dir/private/share/man/man3/ckpt.3" ] || fail 'ckpt(3) is not installed'
(cd "$doc" && grep -roE '\]\([^)#:]+[)#]' --include='*.md' . | sed 's/](//; s/[)#]$//') |
	while IFS=: read -r page link; do
		[ -e "$doc/$(dirname "$page")/$link" ] || [ ! -e "$(dirname "$page")/$link" ] ||
			echo "$page: $link"
	done | grep -v ': \.\./\(\.\./\)*\(libckpt\|formats\|engine\|tests\|tools\|kernels\|packaging\|third_party\)/' > "$dir/links" || true
[ ! -s "$dir/links" ] || fail "installed pages link what is not installed: $(cat "$dir/links")"
cp -r "$doc/examples" "$dir/examples"
make -s -C "$dir/examples" CC="$cc" CFLAGS='-Wall -Wextra -Werror' PKG_CONFIG_PATH="$dir/private/lib/pkgconfig" ||
	fail 'the installed examples do not build'
# The program of the guide.
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' docs/guide/read-from-python-and-c.md > "$dir/examples/first.c"
grep -q ckpt_state_find "$dir/examples/first.c" || fail 'the guide has no program'
make -s -C "$dir/examples" ALL=first CC="$cc" CFLAGS='-Wall -Wextra -Werror' PKG_CONFIG_PATH="$dir/private/lib/pkgconfig" ||
	fail 'the program of the guide does not build'
run=${ZCKPT_FIXTURES:-build/fixtures}/deepspeed/ds0.19.8-z3-bf16-w2/ckpt
if [ -d "$run" ]; then
	"$dir/examples/first" "$run" | grep -q '^emb.weight: 732 elements' || fail 'the program of the guide fails'
	env -u LD_LIBRARY_PATH ZCKPT_EXAMPLES="$dir/examples" ZCKPT="$dir/private/bin/zckpt" ZCKPT_BUILD=/nowhere \
		ZCKPT_FIXTURES="${ZCKPT_FIXTURES:-$PWD/build/fixtures}" bash tests/api/test_examples.sh || fail 'the installed examples fail'
else
	env -u LD_LIBRARY_PATH "$dir/examples/read-range" /nowhere a b 0 1 2>&1 | grep -q nowhere || fail 'an installed example does not run'
fi
export PKG_CONFIG_PATH=$dir/private/lib/pkgconfig
# shellcheck disable=SC2046
(cd "$dir/examples" && $cc -o by-line read-range.c $(pkg-config --cflags --libs libckpt) \
	-Wl,-rpath,$(pkg-config --variable=libdir libckpt)) || fail 'the line of examples/README.md fails'
# shellcheck disable=SC2046
(cd "$dir/examples" && $cc -o with-archive read-range.c $(pkg-config --cflags libckpt) \
	-Wl,--as-needed -l:libckpt.a $(pkg-config --static --libs libckpt)) || fail 'the line for libckpt.a fails'
readelf -d "$dir/examples/with-archive" | grep -q 'NEEDED.*libckpt' && fail 'the line for libckpt.a links libckpt.so'
"$dir/examples/with-archive" 2>&1 | grep -q '^usage: ' || fail 'a program with libckpt.a does not run'
env -u LD_LIBRARY_PATH "$dir/examples/by-line" 2>&1 | grep -q '^usage: ' || fail 'a program does not find libckpt.so'
make -s uninstall PREFIX="$dir/private" > /dev/null
left=$(find "$dir/private" -type f -o -type l)
[ -z "$left" ] || fail "uninstall leaves $left"
[ ! -e "$doc" ] || fail "uninstall leaves $doc"
export PKG_CONFIG_PATH=$top/lib/pkgconfig
# A header must serve C++ too, where there is a compiler for it.
if command -v c++ > /dev/null 2>&1; then
	# shellcheck disable=SC2046
	printf '#include <ckpt.h>\n#include <ckpt_zero.h>\n' | c++ -x c++ -fsyntax-only $(conf --cflags) - ||
		fail 'the public headers are not C++'
fi
make -s uninstall DESTDIR="$dir/root" PREFIX=/opt/zckpt > /dev/null
left=$(find "$dir/root" -type f -o -type l)
[ -z "$left" ] || fail "uninstall leaves $left"
echo 'install-check: installed, linked both ways, removed'
