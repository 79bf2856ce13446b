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
