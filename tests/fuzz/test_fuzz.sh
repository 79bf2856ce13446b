#!/bin/bash
# Replays the corpus of every fuzz target, and what fuzzing has found (docs/internals/fuzzing.md):
# what was fixed stays fixed. Any compiler; with SAN=address,undefined it sees more.
set -u
cd "$(dirname "$0")/../.." || exit 1
replay=$ZCKPT_BUILD/tests/fuzz/fz_replay
[ -x "$replay" ] || {
	echo "$replay is not there: make check builds it" >&2
	exit 1
}
status=0
for target in $("$replay" 2>&1 | sed 's/.*one of: //'); do
	from=()
	for dir in "$ZCKPT_FIXTURES/fuzz/$target" tests/fuzz/found/"$target"; do
		[ ! -d "$dir" ] || from+=("$dir")
	done
	case $target in
	config | accelerate) from+=("$ZCKPT_FIXTURES"/config/odd "$ZCKPT_FIXTURES"/config/fragments) ;;
	esac
	[ ${#from[@]} -gt 0 ] || {
		echo "$target has no corpus" >&2
		exit 1
	}
	"$replay" "$target" "${from[@]}" || status=1
done

# Every file and folder of the formats corpus under the same eyes, with the default limits: at most
# 64 MiB of memory and ten seconds each, and what is accepted is written and read again.
rows=$ZCKPT_FIXTURES/formats
export FZ_DEFAULTS=1
"$replay" legacy "$rows"/{zip,pickle,torch,legacy,detect,big} || status=1
"$replay" safetensors "$rows"/{safetensors,detect} || status=1
"$replay" pickle "$rows"/detect/*.pkl || status=1
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-fuzz.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
for dir in "$rows"/hf/*/ "$rows"/dcp/*/*/; do
	"${replay%replay}pack" -r "$dir" > "$work/$(basename "$(dirname "$dir")")-$(basename "$dir")" || status=1
done
"$replay" hf "$work" || status=1
exit $status
