#!/bin/bash
# usage: test_guide.sh [PAGE.md...] -- every command of README.md and docs/guide/, run as a user types it
#
# A user copies a command from a page.  One that is gone, fails, or prints something else than the page
# quotes must end up here, not with the user.
#
# A page is run from top to bottom in a fresh folder.  What a page can say in comments of its own line:
#
#   <!-- setup: WORDS -->     make a folder the page speaks of (setups.sh); 'fresh' empties it all first
#   <!-- needs: WORD... -->   the next block or table needs these programs ('python:NAME' a package)
#   <!-- skip: REASON -->     the next block or table is not run
#   <!-- file: NAME -->       the next block is the text of this file
#   <!-- rows -->             the commands in the next table are run, each with fresh setups
#
# Blocks marked ```sh are run, command by command; 'exit status N' in a comment at the end of a command is its
# status, else 0.  The lines of a ```text block after it must be in what it printed, in that order.  In
# them '...' is any text, sizes and times are equal to all others, and runs of spaces to one space.
# Commands that are skipped, and those in the text, must at least have a verb and options that exist.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export LC_ALL=C
program=${ZCKPT:-$root/build/zckpt}
build=${ZCKPT_BUILD:-$(dirname "$(readlink -f "$program")")}
fixtures=${ZCKPT_FIXTURES:-$root/build/fixtures}
steps=$fixtures/deepspeed
[ -x "$program" ] || { echo "$program is missing: run 'make tools'" >&2; exit 77; }
[ -x "$build/ztrain" ] || { echo "$build/ztrain is missing: run 'make train'" >&2; exit 77; }
[ -d "$steps" ] || { echo "$steps is missing: run 'make fixtures'" >&2; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-guide.XXXXXX") || exit 1
trap 'chmod -R u+rwX "$work" 2> /dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
outside=$PATH
MPIRUN=${MPIRUN:-$(command -v mpirun)} || :
PATH=$(dirname "$program"):$build:$(dirname "$(find "$root/tests" -name mpirun)"):$PATH
# The Python package, as the tree has it.
export PYTHONPATH="$root/python/src" PYTHONDONTWRITEBYTECODE=1 ZCKPT_LIBRARY="$build/libckpt.so"
export PATH MPIRUN ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES
# shellcheck source=tests/stories/layouts.sh
. "$root/tests/stories/layouts.sh"
# shellcheck source=tests/guide/setups.sh
. "$here/setups.sh"

fails() {
	bad=$((bad + 1))
	echo "FAILED $page:$number: $*"
}
# alike: lines with sizes, times and dates made equal, and one space for many
alike() {
	sed -E -e 's/[0-9][0-9.,]* ?(B|[kMGT]B|[KMGT]iB)\b/SIZE/g' -e 's/[0-9][0-9.,]* (s|ms)\b/TIME/g' \
		-e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:]+)?/DATE/g' -e 's/[[:space:]]+/ /g' -e 's/^ //; s/ $//'
}
# has NAME...: are these programs and packages on this machine?
has() {
	local one
	for one; do
		case $one in
		python:*) python3 -c "import ${one#python:}" > /dev/null 2>&1 || { lacking="Python's ${one#python:}"; return 1; } ;;
		mpirun) [ -x "$build/zckpt-mpi" ] && [ -n "$MPIRUN" ] || { lacking=mpirun; return 1; } ;;
		packs) ! zckpt unpack x y 2>&1 | grep -q 'has no packs' || { lacking='a zckpt with packs'; return 1; } ;;
		libckpt) library || { lacking='libckpt.so without sanitizers'; return 1; } ;;
		*) PATH=$outside command -v "$one" > /dev/null || { lacking=$one; return 1; } ;;
		esac
	done
}
# skipping: is the next block not run? Counts it, with the reason.
skipping() {
	# shellcheck disable=SC2086
	[ -n "$skip" ] || has $needs || skip="this machine lacks $lacking"
	[ -n "$skip" ] || return 1
	skipped=$((skipped + 1))
	printf '%s\n' "skipped: $skip" >> "$work/skips"
}
# known COMMAND...: has each zckpt and ztrain in it a verb and options that exist?
known() {
	local word program='' verb='' help=''
	local -a words
	read -r -d '' -a words < <(sed -e '/# exit status 2/d' -e 's/\(^\|[[:space:]]\)# .*//' <<< "$1")
	for word in "${words[@]}"; do
		word=${word#[\`\'\"(]} word=${word%%[=\`\'\")]*}
		case $word in
		zckpt | ztrain) program=$word verb='' help='' ; continue ;;
		'|' | '||' | '&&' | ';' | '\') program='' ; continue ;;
		esac
		[ -n "$program" ] || continue
		if [ -z "$help" ]; then
			verb=$word help=$work/help.$program.$verb
			if [ "$program" = ztrain ]; then
				case $verb in
				bench | generate | report | log) ;;
				*) verb='' help=$work/help.ztrain ;;
				esac
				[ -e "$help" ] || ztrain $verb --help --all > "$help" 2>&1
			elif [ "$verb" = help ] || [ "${verb#-}" != "$verb" ] || [ "$verb" = COMMAND ] || [ "$verb" = ... ]; then
				program='' ; continue
			elif [ ! -e "$help" ]; then
				zckpt "$verb" -h --all > "$help" 2> /dev/null ||
					{ rm -f "$help"; fails "there is no command 'zckpt $verb'"; program=''; continue; }
			fi
		fi
		case $word in
		--help) ;;
		--?*) grep -q -e "\(^\|[[:space:]]\)$word\([[:space:],.|]\|\$\)" "$help" ||
			fails "'$program${verb:+ $verb}' has no option $word" ;;
		esac
	done
}
# run COMMAND: eval it, what it prints goes to $work/out, and judge its status
run() {
	local rc=0 want=0 last=${1##*$'\n'}
	case $last in *"# exit status "*) want=${last##*"# exit status "} ;; esac
	eval "$1" >> "$work/out" 2>&1 < /dev/null
	rc=$?
	[ "$rc" = "$want" ] && return
	fails "status $rc, not $want: $1"
	tail -n 15 "$work/out" | sed 's/^/    /'
}
# block: the lines of $text, command by command
block() {
	local line command=
	: > "$work/out"
	while IFS= read -r line; do
		command=${command:+$command$'\n'}$line
		case $line in *\\) continue ;; esac
		bash -n -c "$command" 2> /dev/null || continue
		case $command in '#'* | '') ;; *) run "$command" ;; esac
		command=
	done <<< "$text"
	[ -z "$command" ] || fails "this command has no end: $command"
	ran=$((ran + 1))
}
# quoted: are the lines of $text in what the last block printed, in their order?
quoted() {
	local line part pattern at=1 i found
	local -a got
	mapfile -t got < <(alike < "$work/out")
	while IFS= read -r line; do
		pattern=
		# shellcheck disable=SC2125
		while [ "$line" != "${line#*...}" ]; do
			part=${line%%...*} line=${line#*...}
			pattern=$pattern${part//[\\*?\[]/\\&}*
		done
		pattern=$pattern${line//[\\*?\[]/\\&}
		found=0
		for ((i = at - 1; i < ${#got[@]}; i++)); do
			# shellcheck disable=SC2053
			if [[ ${got[i]} == $pattern ]]; then at=$((i + 2)) found=1; break; fi
		done
		[ $found = 1 ] || { fails "no longer printed: $pattern"; head -n 30 "$work/out" | sed 's/^/    /'; }
	done < <(grep -v '^ *\.\.\.$' <<< "$text" | alike)
}
# spans: the code spans of a line, one a line
spans() { grep -o '`[^`]*`' <<< "$1" | sed -e 's/^`//; s/`$//' -e 's/\\|/|/g'; }
# row LINE: the commands of a row of a table, each as the first one in its folder
row() {
	local span
	while IFS= read -r span; do
		case $span in 'zckpt '* | 'ztrain '* | 'mpirun '*) ;; *) continue ;; esac
		ran=$((ran + 1))
		setup_again
		: > "$work/out"
		run "$span"
		known "$span"
	done < <(spans "$1")
}
setup_again() {
	local words
	find . -mindepth 1 -delete
	for words in "${setups[@]}"; do setup_one "$words"; done
}
run_page() {
	local line text='' inside='' skip='' needs='' file='' rows=0 last=none words number=0 span lacking=
	local -a setups=()
	local bad=0 ran=0 skipped=0
	while IFS= read -r line; do
		number=$((number + 1))
		if [ -n "$inside" ]; then
			if [ "$line" != '```' ]; then text=$text${text:+$'\n'}$line; continue; fi
			case $inside in
			sh)
				last=ran
				known "$text"
				if skipping; then last=skipped; else block; fi
				;;
			text)
				[ "$last" != none ] || fails 'text that no command before it prints'
				[ "$last" != ran ] || quoted
				;;
			python) ;;      # there zckpt is a module
			*) known "$text" ;;
			esac
			[ -z "$file" ] || printf '%s\n' "$text" > "$file"
			inside='' text='' skip='' needs='' file=
			continue
		fi
		case $line in
		'```'?*) inside=${line#???} ;;
		'<!-- '*' -->')
			words=${line#<!-- } words=${words% -->}
			case $words in
			'setup: fresh') setups=() ; setup_again ;;
			'setup: '*) setups+=("${words#setup: }") ; setup_one "${words#setup: }" ;;
			'needs: '*) needs=${words#needs: } ;;
			'skip: '*) skip=${words#skip: } ;;
			'file: '*) file=${words#file: } ;;
			rows) rows=1 ;;
			*) fails "this comment means nothing: $line" ;;
			esac
			;;
		'|'*)
			if [ $rows = 1 ]; then row "$line"; else while IFS= read -r span; do known "$span"; done < <(spans "$line"); fi
			;;
		*)
			[ -z "$line" ] || rows=0
			case $line in *'`'*) while IFS= read -r span; do known "$span"; done < <(spans "$line") ;; esac
			;;
		esac
	done < "$1"
	[ -z "$inside" ] || fails 'a block has no end'
	echo "$ran $skipped $bad" > "$work/counts"
}
# links PAGE: does what it points to exist?
links() {
	local to bad=0 number=link
	while IFS= read -r to; do
		[ -e "$(dirname "$1")/${to%%#*}" ] || fails "there is no $to"
	done < <(grep -o ']([A-Za-z.][^):]*)' "$1" | sed 's/^](//; s/)$//')
	echo $bad > "$work/links"
}
# try PAGE: in a fresh folder; adds to the three sums
try() {
	page=${1#"$root"/}
	rm -rf "$work/here" "$work/counts" && mkdir "$work/here"
	(cd "$work/here" && run_page "$1")
	[ -e "$work/counts" ] || echo '0 0 1' > "$work/counts"
	read -r ran skipped bad < "$work/counts"
	links "$1"
	bad=$((bad + $(cat "$work/links")))
	sum_ran=$((sum_ran + ran)) sum_skipped=$((sum_skipped + skipped)) sum_bad=$((sum_bad + bad))
}
# A page that is wrong in eight ways: this test itself must see each of them.
can_fail() {
	cat > "$work/wrong.md" <<-'END'
	<!-- setup: deepspeed/ds0.19.8-z2-bf16-w2 as RUN -->
	```sh
	zckpt inspect NOWHERE
	zckpt inspect RUN         # exit status 1
	zckpt inspect RUN
	```
	```text
	format   ...
	this line is printed by no program
	```
	`zckpt transmogrify RUN`, `zckpt convert --no-such-option`, [a link](nowhere.md)
	<!-- skip: needs a GPU -->
	```sh
	zckpt diff --all-of-it A B
	```
	<!-- rows -->
	| `zckpt inspect NOWHERE2` |
	END
	sum_ran=0 sum_skipped=0 sum_bad=0
	try "$work/wrong.md" > "$work/said"
	[ "$sum_ran $sum_skipped $sum_bad" = '2 1 8' ] ||
		{ echo "a page with 8 faults: $sum_ran ran, $sum_skipped skipped, $sum_bad failed"; cat "$work/said"; return 1; }
}

can_fail || { echo '[  FAILED  ] 1 test(s)'; exit 1; }
rm -f "$work/skips"
sum_ran=0 sum_skipped=0 sum_bad=0
if [ $# = 0 ]; then
	set -- "$root/README.md" "$root"/docs/guide/*.md
	for one in "$root"/docs/guide/*.md; do
		grep -qF "(guide/${one##*/})" "$root/docs/README.md" ||
			{ page=docs/README.md number=0 bad=0; fails "it does not name ${one##*/}"; sum_bad=$((sum_bad + 1)); }
	done
	for one in README errors; do
		page=docs/$one.md
		links "$root/$page"
		sum_bad=$((sum_bad + $(cat "$work/links")))
	done
fi
for one; do
	try "$(cd "$(dirname "$one")" && pwd)/$(basename "$one")"
	printf '%-45s %3d run, %2d skipped, %2d failed\n' "$page" "$ran" "$skipped" "$bad"
done
[ ! -e "$work/skips" ] || sort "$work/skips" | uniq -c
echo "[  PASSED  ] $sum_ran test(s)."
[ $sum_skipped = 0 ] || echo "[  SKIPPED ] $sum_skipped test(s)."
[ $sum_bad = 0 ] || { echo "[  FAILED  ] $sum_bad test(s)"; exit 1; }
