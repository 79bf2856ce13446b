#!/bin/bash
# usage: test_parts_sums.sh
#
# Parts of one run each read some of an archive member, or of a piece that has a sum.  If this fails,
# a damaged source gets through because no part saw all of what was damaged, honest parts are
# refused, or parts read the source twice to compare it.
#
#   honest     parts of three formats, stages and verbs give what one process gives
#   damaged    one flipped bit in bytes that several parts share: `zckpt commit` names the member or
#              tensor, leaves nothing at the destination, and does so again
#   killed     a part that is killed and started again notes what it had noted
#   mixed      a part whose record lacks the notes is refused
#   a warning  --as-warning lets it pass
#   read once  three parts read together what one process reads, and no more than 5 % besides
set -u
zckpt=$(readlink -f "${ZCKPT:-build/zckpt}")
build=$(dirname "$zckpt")
skip() { echo "$1" >&2; exit 77; }
[ -x "$build/tests/bench/gen_zero" ] || skip 'tests/bench/gen_zero is not built (make tests)'
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-sums.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 1
passed=0 failed=0
# holds NAME COMMAND...
holds() {
	local name=$1
	shift
	if "$@" > why 2>&1; then passed=$((passed + 1)); else
		failed=$((failed + 1))
		echo "FAILED $name: $(head -n 1 why)"
		if [ -s said ]; then sed 's/^/    /' said | tail -n 5; fi
	fi
}
says() { grep -q -e "$1" said; }
# parts OUT VERB ARGUMENT...: three of them, in another order; 'read' is what they read
parts() {
	local out=$1 i
	shift
	: > said
	for i in 2 3 1; do
		"$zckpt" "$@" --sync none --json --part $i/3 "$out" >> said 2>&1 || return 1
	done
	read=$(bytes_read)
}
bytes_read() { sed -n 's/^  "read_bytes": \([0-9]*\),*$/\1/p' said | awk '{ n += $1 } END { print n + 0 }'; }
commit() { "$zckpt" commit --sync none --timeout 0 "$1" > said 2>&1; }
# flip FILE BYTE
flip() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1")
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# damaged NAME OUT FILE FINDING VERB ARGUMENT...: some bits, one after the other.  One part may answer
# for all of a small tensor: then that part fails.  'joined': commits that failed.
damaged() {
	local name=$1 out=$2 file=$3 finding=$4 size at
	shift 4
	size=$(stat -c %s "$file")
	joined=0
	for at in $((size / 2)) $((size / 2 + 4097)) $((size * 2 / 5)) $((size * 3 / 5)); do
		flip "$file" "$at"
		if parts "$out" "$@"; then
			joined=$((joined + 1))
			commit "$out"
			holds "$name: commit fails" test $? = 3
			holds "$name: commit says why" says "$finding"
			commit "$out"
			holds "$name: it fails again" says "$finding"
		else
			holds "$name: a part says why" says "$finding"
		fi
		holds "$name: nothing is placed" test ! -e "$out"
		"$zckpt" commit -q --discard "$out" > said 2>&1
		holds "$name: nothing is left" test ! -e "$out.zckpt-partial"
		flip "$file" "$at"
	done
	holds "$name: $joined were found by commit" test $joined -gt 0
}
# honest NAME SUFFIX VERB ARGUMENT...
honest() {
	local name=$1 many=many$2 one=one$2 all
	shift 2
	"$zckpt" "$@" --sync none --json "$one" > said 2>&1
	all=$(bytes_read)
	holds "$name: parts" parts "$many" "$@"
	holds "$name: commit" commit "$many"
	holds "$name: the same bytes" diff -r "$one" "$many"
	holds "$name: parts read $read of $all" test $((read * 100)) -le $((all * 105))
	rm -rf "$one" "$many"
}

sizes='--hidden 512 --layers 1 --vocab 12000 --ffn 1408 --kv 512 --world 3'
for stage in 2 3; do
	# shellcheck disable=SC2086
	"$build/tests/bench/gen_zero" -q $sizes --stage $stage z$stage || exit 1
	shard=$(find z$stage -name '*optim_states.pt' | sort | head -n 1)
	honest "reshard stage $stage" '' reshard '3->2' z$stage
	honest "convert stage $stage" .safetensors convert z$stage
	damaged "reshard stage $stage" out "$shard" 'CRC_WRONG' reshard '3->2' z$stage
done
"$zckpt" reshard -q --sync none --to native '3->2' z2 native > said 2>&1
rank=$(find native -name 'rank-00000.safetensors')
honest 'convert native' .safetensors convert native
honest 'reshard native' '' reshard --to deepspeed '2->3' native
damaged 'reshard native' out "$rank" 'MANIFEST_HASH_WRONG' reshard --to deepspeed '2->3' native
"$zckpt" convert -q --sync none z2 flat.safetensors > said 2>&1
honest 'a file' .safetensors convert --dtype bf16 flat.safetensors
damaged 'a file' out.safetensors flat.safetensors 'SUM_WRONG' convert --dtype bf16 flat.safetensors

# ---- a part is killed

"$zckpt" reshard -q --sync none '3->2' z2 one
rec=out.zckpt-partial/part-00001.rec
holds 'killed: parts' parts out reshard '3->2' z2
# What a kill amid its units leaves: their entries, and no more.
truncate -s $((128 + 40 * 2)) "$rec"
holds 'killed: started again' "$zckpt" reshard -q --sync none --part 2/3 '3->2' z2 out
holds 'killed: commit' commit out
holds 'killed: the same bytes' diff -r one out
rm -rf out
shard=$(find z2 -name '*optim_states.pt' | sort | head -n 1)
size=$(stat -c %s "$shard")
flip "$shard" $((size / 2))
holds 'killed: parts of a damaged file' parts out reshard '3->2' z2
truncate -s $((128 + 40 * 2)) "$rec"
holds 'killed: started again on it' "$zckpt" reshard -q --sync none --part 2/3 '3->2' z2 out
commit out
holds 'killed: found all the same' says 'CRC_WRONG: '
"$zckpt" commit -q --discard out

# ---- as a warning

holds 'a warning: parts' parts out reshard --as-warning CRC_WRONG '3->2' z2
holds 'a warning: commit' commit out
flip "$shard" $((size / 2))
rm -rf out

# ---- notes that are missing

holds 'no notes: parts' parts out reshard '3->2' z2
# An older program leaves units and an end entry.
units=$(od -An -v -w40 -j 128 -tx1 "$rec" | awk '$13 == "00" && $14 == "00" && $1 $2 $3 != "ffffff" { n++ }
	END { print n }')
{ head -c $((128 + 40 * units)) "$rec"; tail -c 40 "$rec"; } > short
cat short > "$rec"
commit out
holds 'no notes: refused' says 'the records of the parts lack check number'
holds 'no notes: nothing is placed' test ! -e out
"$zckpt" commit -q --discard out

echo "$passed held, $failed did not"
[ $failed = 0 ]
