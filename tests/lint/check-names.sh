#!/bin/bash
# usage: check-names.sh [LIBCKPT.A LIBCKPT.SO [LIBZTRAIN.A...]]
#
# What the compiler does not look at: names of files and symbols, lengths of
# lines and files, banned calls, headers that do not compile alone.  Prints one
# line an offence; status 1 if there is one.  Without libraries, symbols are
# not looked at.
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
bad=0
# report: offences on stdin, '%s' each; remembers that there was one.
report() {
	local lines
	lines=$(cat)
	[ -n "$lines" ] || return 0
	printf '%s\n' "$lines"
	bad=1
}
sources() {
	find libckpt formats kernels tools engine tests examples -type f \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2> /dev/null | sort
}
mapfile -t files < <(sources)
mapfile -t headers < <(printf '%s\n' "${files[@]}" | grep '\.h$' | grep -v '^tools/\|^tests/api/')

# Names of files.
report < <(printf '%s\n' "${files[@]}" | awk -F/ '
	$NF in at { print $0 ": the name is taken by " at[$NF] }
	{ at[$NF] = $0 }')

# Lines and files.  A tab is eight columns.
report < <(awk '
function width(s,   i, n, w, piece) {
	n = split(s, piece, "\t")
	for (i = 1; i <= n; i++) {
		w += length(piece[i])
		if (i < n)
			w = int(w / 8) * 8 + 8
	}
	return w
}
function close_file() {
	if (lines > 600 && !excused)
		print last ": " lines " lines; split it, or say in its first 10 lines why it is \"long on purpose\""
}
FNR == 1 { close_file(); last = FILENAME; excused = 0 }
{ lines = FNR; line = $0; gsub(/[\200-\277]/, "", line) }
FNR <= 10 && /long on purpose/ { excused = 1 }
length(line) > 50 && width(line) > 100 { print FILENAME ":" FNR ": " width(line) " columns, 100 is the limit" }
/[ \t]+$/ { print FILENAME ":" FNR ": blanks at the end of the line" }
/^ \*[A-Za-z0-9"(`.<]/ { print FILENAME ":" FNR ": a comment line without a blank after its *: was a list run together?" }
/^        / { print FILENAME ":" FNR ": indented with blanks, not tabs" }
/^[a-z][a-z0-9_ *]*[ *](take|tell|look|go)\(/ && FILENAME !~ /^tests/ { print FILENAME ":" FNR ": a function named by a verb alone; say what it acts on" }
/\r$/ { print FILENAME ":" FNR ": a carriage return at the end of the line" }
/^[ \t]*\/\// || /[;{}][ \t]+\/\// { print FILENAME ":" FNR ": a // comment; the tree has /* */ ones" }
END { close_file() }' "${files[@]}" < /dev/null)

# Banned calls, outside comments and strings.
report < <(awk '
BEGIN {
	copies = "strcpy|strcat|sprintf|vsprintf|gets|alloca"
	shells = "system|popen"
	prints = "printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|abort|assert|getenv|secure_getenv|setenv"
}
FNR == 1 {
	inside = 0
	list = copies
	if (FILENAME !~ /^tests\//) list = list "|" shells
	if (FILENAME ~ /^(libckpt|formats|kernels)\//) list = list "|" prints
	call = "(^|[^A-Za-z0-9_>.])(" list ")[ \t]*\\("
}
{
	s = $0
	gsub(/\\./, "", s)
	gsub(/"[^"]*"/, "\"\"", s)
	code = ""
	while (s != "") {
		if (inside) {
			if (!(at = index(s, "*/"))) break
			s = substr(s, at + 2)
			inside = 0
		} else if (at = index(s, "/*")) {
			code = code substr(s, 1, at - 1) " "
			s = substr(s, at + 2)
			inside = 1
		} else {
			code = code s
			s = ""
		}
	}
	if (match(code, call)) {
		word = substr(code, RSTART, RLENGTH)
		gsub(/^[^A-Za-z_]|[ \t]*\($/, "", word)
		print FILENAME ":" FNR ": " word "() is not for this folder"
	}
}' "${files[@]}" < /dev/null)

# Every .c file opens with what it is.
report < <(awk 'FNR == 1 && !/^\/\*/ { print FILENAME ":1: the file does not open with a comment saying what it is" }' \
	"${files[@]}" < /dev/null)

# libckpt/README.md names every folder of the library.
report < <(for dir in libckpt/*/; do
	name=$(basename "$dir")
	grep -q "^| \`$name/\`" libckpt/README.md || echo "libckpt/README.md: $name/ is not in its table"
done)

# Headers compile alone: the program's and the public ones without -I.  Those that need CUDA's
# headers are left out where the compiler finds none.
printf '#include <cublasLt.h>\n#include <cudnn.h>\n' | ${CC:-cc} -x c -fsyntax-only - 2> /dev/null ||
	mapfile -t headers < <(printf '%s\n' "${headers[@]}" | grep -v '^kernels/cuda/\|^tests/gpu')
alone() {
	case $1 in
	libckpt/include/*) inc='-Ilibckpt/include' ;;
	*) inc='-I. -Ilibckpt/include -Ikernels/include' ;;
	esac
	printf '#include "%s"\nextern int ck_one;\n' "$PWD/$1" |
		${CC:-cc} ${CPPFLAGS--D_GNU_SOURCE=} $inc -std=c11 -Wall -Wextra -Werror -x c -fsyntax-only - 2>&1 |
		sed "s|^|$1 alone: |;4q"
}
export -f alone
report < <(printf '%s\n' "${headers[@]}" | xargs -P 4 -I{} bash -c 'alone {}')

# Symbols.
if [ $# -ge 2 ]; then
	report < <(nm -g --defined-only "$1" 2> /dev/null | awk -v lib="$1" '
		NF == 3 && $3 !~ /^(ckpt_|ck_|kn_)/ { print lib ": " $3 " is neither ckpt_*, ck_*, kn_* nor static" }')
	# nvcc adds names of its own to what it compiles
	for lib in "${@:3}"; do
		report < <(nm -g --defined-only "$lib" 2> /dev/null | awk -v lib="$lib" '
			NF == 3 && $3 !~ /^(en_|kn_|_Z|__)/ { print lib ": " $3 " is neither en_*, kn_* nor static" }')
	done
	# Files, memory and threads are asked of the system through ck_sys alone (ck_sys.h), so that
	# tests can make every such call fail.
	report < <(nm -A -u "$1" 2> /dev/null | awk -v lib="$1" '
	BEGIN {
		n = split("malloc calloc realloc reallocarray free posix_memalign aligned_alloc memalign valloc " \
			"strdup strndup asprintf vasprintf getline getdelim open_memstream mmap munmap mremap msync " \
			"open openat creat close read pread readv preadv write pwrite writev pwritev lseek dup dup2 dup3 " \
			"fopen fdopen freopen fclose fread fwrite fseek fflush fgets fgetc getc ungetc " \
			"stat lstat fstat fstatat statx access faccessat euidaccess statfs fstatfs statvfs fstatvfs " \
			"fallocate posix_fallocate posix_fadvise readahead truncate ftruncate fsync fdatasync sync syncfs " \
			"sync_file_range flock lockf fcntl ioctl mkdir mkdirat rmdir unlink unlinkat remove rename " \
			"renameat renameat2 link linkat symlink symlinkat readlink readlinkat realpath " \
			"canonicalize_file_name getcwd get_current_dir_name chdir fchdir opendir fdopendir readdir " \
			"readdir_r closedir scandir ftw nftw fts_open glob wordexp copy_file_range sendfile splice " \
			"mkstemp mkdtemp mkostemp tmpfile tempnam utimensat futimens chmod fchmod chown fchown mknod " \
			"mkfifo pipe pipe2 socket pthread_create thrd_create fork vfork dlopen", word, " ")
		for (i = 1; i <= n; i++)
			at_table[word[i]] = 1
	}
	$2 == "U" {
		object = $1
		gsub(/:$/, "", object)
		sub(/.*:/, "", object)
		name = $3
		sub(/@.*/, "", name)
		sub(/^__/, "", name)		# __read_chk, __open64_2, __fxstat
		sub(/(_chk|_2)$/, "", name)
		sub(/64$/, "", name)
		sub(/^(fx|lx|x)stat$/, "stat", name)
		if (name in at_table && object != "ck_sys.o")
			print lib ": " object " calls " $3 "() itself, not through ck_sys"
	}')
	nm -D --defined-only "$2" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u > "${TMPDIR:-/tmp}/exports.$$"
	trap 'rm -f "${TMPDIR:-/tmp}/exports.$$"' EXIT
	report < <(awk -v lib="$2" '!/^ckpt_/ { print lib ": " $1 " is exported, and not ckpt_*" }
		END { if (!NR) print lib ": nothing is exported" }' "${TMPDIR:-/tmp}/exports.$$")
	# What the public headers declare is exported, and nothing else.
	report < <(for h in libckpt/include/*.h; do
		${CC:-cc} -E -P -std=c11 -Ilibckpt/include "$h" | tr '\n' ' ' |
			sed -e ':a' -e 's/{[^{}]*}/;/g' -e 'ta' -e 's/;/&\n/g' |
			grep -v 'static\|typedef' | grep -o '\bckpt_[a-z0-9_]* *(' | tr -d ' ('
	done | sort -u | comm -3 - "${TMPDIR:-/tmp}/exports.$$" | awk -F'\t' -v lib="$2" '
		$1 != "" { print "libckpt/include: " $1 "() is declared, and not exported by " lib }
		$2 != "" { print lib ": " $2 " is exported, and no public header declares it" }')
fi
exit $bad
