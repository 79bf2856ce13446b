#!/bin/bash
# If a checker of check-tree went blind, the tree would rot unseen.  Each rule
# gets a small tree with one offence that it must name, and a clean tree that
# must pass.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
toy=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-lint.XXXXXX") || exit 1
trap 'rm -rf "$toy"' EXIT
trap 'exit 130' INT TERM
cd "$toy" || exit 1
wrong=0

clean_tree() {
	rm -rf ./*
	mkdir -p tests/lint docs libckpt/base libckpt/include libckpt/io formats/safetensors tools
	cp "$here"/check-*.sh "$here"/*.awk "$here"/*.txt tests/lint/
	echo '# Makefile -- see tools/zckpt.c' > Makefile
	cp "$root/docs/layers.txt" docs/
	printf '| `base/` | |\n| `include/` | |\n| `io/` | |\n' > libckpt/README.md
	printf '/* the contract */\n#include <stdint.h>\nuint64_t ckpt_one(void);\n' > libckpt/include/ckpt.h
	printf '/* a header */\n#include <stddef.h>\nint ck_a(size_t n);\n' > libckpt/base/ck_a.h
	printf '/* a source */\n#include "libckpt/base/ck_a.h"\n\n#include <xxhash.h>\n' > libckpt/base/ck_a.c
	printf '/* another */\n#include "libckpt/base/ck_a.h"\n' > libckpt/io/src_b.c
	printf '/* the program */\n#include <ckpt.h>\n#include "cli.h"\n' > tools/zckpt.c
	printf '/* its header */\n' > tools/cli.h
}
# expect TEXT SCRIPT: the script fails and prints a line with TEXT.
expect() {
	local out rc
	out=$("tests/lint/$2" 2>&1)
	rc=$?
	if [ $rc = 0 ] || ! grep -qF -- "$1" <<< "$out"; then
		printf '%s: status %d without "%s"\n%s\n' "$2" $rc "$1" "$out"
		wrong=$((wrong + 1))
	fi
	clean_tree
}
layers() { expect "$1" check-layers.sh; }
names() { expect "$1" check-names.sh; }

clean_tree
for script in check-layers.sh check-names.sh; do
	tests/lint/$script || { echo "$script does not accept a clean tree"; wrong=$((wrong + 1)); }
done

echo '#include "libckpt/io/src_b.c"' >> libckpt/base/ck_a.c
layers 'libckpt/base/ck_a.c:5: libckpt/base may not include libckpt/io/src_b.c'
echo '#include "ck_a.h"' >> libckpt/base/ck_a.c
layers '"ck_a.h" is not a path from the root'
echo '# include <libdeflate.h>' >> libckpt/base/ck_a.c
layers '<libdeflate.h> may be included in libckpt/zip, tests only'
echo '#include <cmocka.h>' >> tools/zckpt.c
layers '<cmocka.h> may be included in tests only'
echo '#include "libckpt/base/ck_a.h"' >> tools/zckpt.c
layers 'tools sees <ckpt.h>, <ckpt_zero.h> and the headers beside it'
echo '#include <stdio.h>' >> libckpt/include/ckpt.h
layers 'a public header includes'
echo '#include <kn.h>' >> libckpt/io/src_b.c
layers 'libckpt/io may not include <kn.h>'
echo '#include <kn_cuda.h>' >> libckpt/io/src_b.c
mkdir -p kernels/include && echo '/* kernels */' > kernels/include/kn_cuda.h
layers 'libckpt/io may not include <kn_cuda.h>'
printf '/* src_priv.h */\n' > formats/safetensors/src_priv.h
printf '#include "formats/safetensors/src_priv.h"\n' >> libckpt/io/src_b.c
layers '"formats/safetensors/src_priv.h" is private to its folder'
printf '/*\n * src_c.h -- private to libckpt/base: numbers.\n */\n' > libckpt/base/src_c.h
printf '#include "libckpt/base/src_c.h"\n' >> libckpt/io/src_b.c
layers '"libckpt/base/src_c.h" is private to its folder'
mkdir libckpt/misc && echo '/* lost */' > libckpt/misc/lost.c
layers 'no layer of docs/layers.txt holds this file'

mkdir libckpt/misc && echo '/* lost */' > libckpt/misc/lost.c
names 'misc/ is not in its table'
cp libckpt/base/ck_a.c libckpt/io/
names 'the name is taken by'
printf 'int x; /* %080d */\t/* %010d */\n' 0 0 >> libckpt/base/ck_a.c
names 'libckpt/base/ck_a.c:5: 112 columns'
yes 'int ck_x;' | head -n 600 >> libckpt/base/ck_a.c
names '604 lines'
echo 'int x; ' >> libckpt/base/ck_a.c
names 'blanks at the end of the line'
printf '\treturn f(\n                1);\n' >> libckpt/base/ck_a.c
names 'indented with blanks'
printf '/*\n * a list\n *run together\n */\n' >> libckpt/base/ck_a.c
names 'libckpt/base/ck_a.c:7: a comment line without a blank'
printf 'static int take(int a)\n{\n\treturn a;\n}\n' >> libckpt/base/ck_a.c
names 'a function named by a verb alone'
printf 'int x; // no\n' >> libckpt/base/ck_a.c
names 'a // comment'
printf '\tstrcpy(a, b);\n' >> tools/zckpt.c
names 'tools/zckpt.c:4: strcpy() is not for this folder'
printf '\tx = (popen (a, b));\n' >> tools/zckpt.c
names 'popen() is not for this folder'
for call in printf exit assert getenv; do
	printf '\t/* a */ %s("b");\n' $call >> libckpt/io/src_b.c
	names "libckpt/io/src_b.c:3: $call() is not for this folder"
done
echo 'int x;' | cat - libckpt/io/src_b.c > new && mv new libckpt/io/src_b.c
names 'does not open with a comment'
echo 'uint8_t ck_b(void);' >> libckpt/base/ck_a.h
names 'libckpt/base/ck_a.h alone:'

# What looks like an offence and is none.
printf '\tsnprintf(a, 2, "exit(");\n\t/* exit(1)\n\t * assert(0) */\n\ts->exit(1); ck_exit(2); static_assert(1, "printf(");\n' >> libckpt/io/src_b.c
printf '/* long on purpose: a table */\n' | cat - libckpt/base/ck_a.c > new && mv new libckpt/base/ck_a.c
yes 'int ck_x;' | head -n 700 >> libckpt/base/ck_a.c
tests/lint/check-names.sh || { echo 'check-names.sh refuses what is allowed'; wrong=$((wrong + 1)); }
clean_tree

# Symbols.
cc=${CC:-cc}
printf 'int ckpt_one(void);\nint ckpt_one(void) { return 1; }\nint stray(void);\nint stray(void) { return 1; }\n' > s.c
$cc -fPIC -c -o s.o s.c && ar rcs lib.a s.o && $cc -shared -o lib.so s.o || exit 1
out=$(tests/lint/check-names.sh lib.a lib.so)
for text in 'lib.a: stray is neither' 'lib.so: stray is exported, and not ckpt_*'; do
	grep -qF "$text" <<< "$out" || { printf 'no "%s" in:\n%s\n' "$text" "$out"; wrong=$((wrong + 1)); }
done
printf 'int ckpt_two(void);\nint ckpt_two(void) { return 1; }\n' > s.c
$cc -fPIC -c -o s.o s.c && ar rcs lib.a s.o && $cc -shared -o lib.so s.o || exit 1
out=$(tests/lint/check-names.sh lib.a lib.so)
for text in 'ckpt_one() is declared, and not exported' 'ckpt_two is exported, and no public header declares it'; do
	grep -qF "$text" <<< "$out" || { printf 'no "%s" in:\n%s\n' "$text" "$out"; wrong=$((wrong + 1)); }
done
# Calls of a folder into another, by the symbols of the objects.
clean_tree
for name in include base io tensor; do echo "libckpt/$name libckpt/include"; done > docs/layers.txt
echo 'libckpt/io libckpt/base' >> docs/layers.txt
mkdir -p objects/libckpt/base objects/libckpt/io objects/libckpt/tensor
mkdir -p libckpt/tensor && touch libckpt/io/ck_b.c libckpt/tensor/ck_c.c libckpt/tensor/ck_d.c
printf 'int ck_a(void);\nint ck_a(void) { return 1; }\n' > a.c
printf 'int ck_a(void);\nint ck_b(void);\nint ck_b(void) { return ck_a(); }\n' > b.c
printf 'int ck_d(void);\nint ck_d(void) { return 1; }\n' > d.c
$cc -c -o objects/libckpt/tensor/ck_d.o d.c && $cc -c -o objects/libckpt/base/ck_a.o a.c && $cc -c -o objects/libckpt/io/ck_b.o b.c || exit 1
tests/lint/check-symbols.sh objects || { echo 'check-symbols.sh refuses what is allowed'; wrong=$((wrong + 1)); }
symbols() {
	out=$(tests/lint/check-symbols.sh objects)
	if [ $? = 0 ] || ! grep -qF -- "$1" <<< "$out"; then
		printf 'check-symbols.sh without "%s":\n%s\n' "$1" "$out"
		wrong=$((wrong + 1))
	fi
}
echo 'libckpt/tensor libckpt/io' >> docs/layers.txt
symbols 'no file of libckpt/tensor uses libckpt/io'
cp objects/libckpt/io/ck_b.o objects/libckpt/tensor/ck_c.o
cp objects/libckpt/io/ck_b.o objects/libckpt/tensor/ck_moved.o
symbols 'libckpt/tensor may not use libckpt/base'
out=$(tests/lint/check-symbols.sh objects)
grep -q ck_moved <<< "$out" && { printf 'an object without a source is looked at:\n%s\n' "$out"; wrong=$((wrong + 1)); }
sed -i '$d' docs/layers.txt && echo 'symbol ck_a libckpt/tensor' >> docs/layers.txt
tests/lint/check-symbols.sh objects || { echo 'check-symbols.sh refuses a named symbol'; wrong=$((wrong + 1)); }
clean_tree
# The engine's archive has names of its own.
printf 'int en_one(void);\nint en_one(void) { return 1; }\nint ckpt_stray(void);\nint ckpt_stray(void) { return 1; }\n' > e.c
$cc -c -o e.o e.c && ar rcs train.a e.o || exit 1
out=$(tests/lint/check-names.sh lib.a lib.so train.a)
grep -qF 'train.a: ckpt_stray is neither' <<< "$out" || { printf 'a stray name of the engine:\n%s\n' "$out"; wrong=$((wrong + 1)); }
grep -qF 'en_one' <<< "$out" && { printf 'en_one is refused:\n%s\n' "$out"; wrong=$((wrong + 1)); }
# Calls beside the table: one that is seen in any object, and in ck_sys.o is none.
printf '#include <stdio.h>\n#include <stdlib.h>\nint ckpt_one(void);\nint ckpt_one(void) { char *p = malloc(1); int rc = p ? rename("a", "b") : fopen("a", "r") != 0; free(p); return rc; }\n' > s.c
for object in ck_sys s; do
	rm -f lib.a
	$cc -fPIC -c -o $object.o s.c && ar rcs lib.a $object.o && $cc -shared -o lib.so $object.o || exit 1
	out=$(tests/lint/check-names.sh lib.a lib.so)
	for call in malloc rename fopen free; do
		case $object:$(grep -c "s.o calls $call\(64\)\?() itself, not through ck_sys" <<< "$out") in
		ck_sys:0 | s:1) ;;
		*) printf 'calls beside the table, %s.o, %s:\n%s\n' $object $call "$out"; wrong=$((wrong + 1)) ;;
		esac
	done
done
# Files that comments name.
mentions() {
	local out
	out=$(tests/lint/check-mentions.sh Makefile libckpt/base/ck_a.c tools/*)
	[ "$out" = "${1:+$1, which is no file of the tree}" ] || { echo "not '$1' but '$out'"; wrong=$((wrong + 1)); }
	clean_tree
}
echo '/* see ck_a.c, ck_a.[ch], libckpt/base/ck_a.h, base/ck_a.c, ck_*.h, NAME.c, llm.c, <gone.h> */' >> libckpt/base/ck_a.c
mentions ''
echo '/* as in ck_gone.c */' >> libckpt/base/ck_a.c
mentions 'libckpt/base/ck_a.c:5: the comment names ck_gone.c'
printf '/*\n * of tools/ck_a.c\n */\n' >> tools/cli.h
mentions 'tools/cli.h:3: the comment names tools/ck_a.c'
comment='# by none.sh'
echo "x='none.c'	$comment" > tools/made.sh
mentions 'tools/made.sh:1: the comment names none.sh'
comment='# docs/none.md'
echo "$comment" >> Makefile
mentions 'Makefile:2: the comment names docs/none.md'
echo 'static const char *const name = "gone.c /* gone.c */"; /* zz_*.c */' >> tools/zckpt.c
mentions 'tools/zckpt.c:4: the comment names zz_*.c'
# A limit whose numbers differ, and one that only the table has.
clean_tree
mkdir -p libckpt/format
printf '	X(depth, 1000, 4000, 0, "a")\n	X(bytes, (uint64_t)1 << 30, BIG, 1, "b")\n' > libckpt/format/ck_limits.h
printf 'struct ckpt_limits {\n	uint32_t depth;	/* nesting (1,000) */\n	uint64_t bytes;	/* one (1 GiB) */\n};\n' > libckpt/include/ckpt.h
printf '| `depth` | 1,000 | 4,000 | a |\n| `bytes` | 1 GiB | big | b |\n' > docs/limits.md
tests/lint/check-limits.sh || { echo 'check-limits.sh refuses what agrees'; wrong=$((wrong + 1)); }
for text in "s/1,000/2,000/ docs/limits.md table" "s/.GiB/4&/ libckpt/include/ckpt.h header" \
	"1d docs/limits.md table"; do
	read -r edit file what <<< "$text"
	cp "$file" saved
	sed -i "$edit" "$file"
	out=$(tests/lint/check-limits.sh) && { echo "check-limits.sh is blind to $text"; wrong=$((wrong + 1)); }
	grep -q "is not so in the $what" <<< "$out" || { echo "$text: $out"; wrong=$((wrong + 1)); }
	mv saved "$file"
done
# Prose of public headers: seven lines of ten with a comment are enough, a body does not count.
clean_tree
{
	printf '/*\n * 2\n * 3\n * 4\n */\n\nint a;\t/* 6 */\nint b;\t/* 7 */\nint c;\nint d;\nint e(void)\n'
	printf '{\n\treturn 0;\n}\n'
} > libckpt/include/ckpt.h
tests/lint/check-prose.sh || { echo 'check-prose.sh refuses seven of ten'; wrong=$((wrong + 1)); }
echo 'int f;' >> libckpt/include/ckpt.h
expect 'libckpt/include/ckpt.h: 63 % of its lines have a comment, 70 are demanded' check-prose.sh
# Words and lengths of what users read: in a message, a help, a text over two lines, a page; and the
# words that a list allows.
words() { expect "$1" check-words.sh; }
messages() { expect "$1" check-messages.sh; }
clean_tree
for script in check-words.sh check-messages.sh; do
	tests/lint/$script || { echo "$script does not accept a clean tree"; wrong=$((wrong + 1)); }
done
planted='it was kept for ever'
printf '\tck_fail(err, 1, "", 0, "%%u: %s", n);\n' "$planted" >> libckpt/io/src_b.c
words 'libckpt/io/src_b.c:3: "for ever": write: '
printf '\t{ "all", 0, OPT_FLAG, &all, NULL, "print it FOR\\n"\n\t  "ever, %%s", 0 },\n' >> tools/zckpt.c
words 'tools/zckpt.c:4: "for ever"'
printf 'A page that is kept for\never.\n' > README.md
words 'README.md:2: "for ever"'
mkdir -p docs/man && printf 'kept \\fBfor\\fR ever\n' > docs/man/zckpt.1
words 'docs/man/zckpt.1:1: "for ever"'
mkdir -p docs/guide && printf 'whatever goes in forevermore\nis no offence for everyone\n' > docs/guide/one.md
printf '/* kept for ever */\nstatic const char *const s = "forever";\t/* for ever */\n' >> libckpt/io/src_b.c
tests/lint/check-words.sh || { echo 'check-words.sh refuses what is allowed'; wrong=$((wrong + 1)); }
printf 'one that goes on strike for ever so long\n' > README.md
printf 'ok: for ever so long\ngoes on | continues\nok: goes on strike\n' >> tests/lint/words.txt
tests/lint/check-words.sh || { echo 'check-words.sh refuses a phrase of its list'; wrong=$((wrong + 1)); }
echo 'it goes on' >> README.md
words 'README.md:2: "goes on": write: continues'
long=$(printf '%0300d' 0 | tr 0 'a')
printf '\tck_fail(err, 1, "", 0, "it is %%s"\n\t\t" a%s", n);\n' "$long" >> libckpt/io/src_b.c
messages 'libckpt/io/src_b.c:3: a text of 310 characters, 300 are allowed'
printf '\tck_fail(err, 1, "", 0, "a list: %%s\\n" "a%s", n);\n' "$long" >> libckpt/io/src_b.c
printf '\tck_fail(err, 1, "", 0, "it is short", n);\n' >> libckpt/io/src_b.c
tests/lint/check-messages.sh || { echo 'check-messages.sh refuses a list'; wrong=$((wrong + 1)); }
printf '\tck_fail(err, 1, "", 0, "it is %s", n);\n' "${long:0:120}" > libckpt/io/src_b.c
messages 'the median of 1 messages is 126 characters, 120 are allowed'
[ $wrong = 0 ] || echo "$wrong rules are blind or wrong"
[ $wrong = 0 ]
