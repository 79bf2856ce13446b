# story.sh -- read by every story: programs on PATH, a scratch folder, and how a story judges.
#
# A story is what one user had and typed.  The command typed first, with only the README read, comes
# first.  Each command is checked by status, words and files; values are compared with the state of
# the live engine that wrote the fixture, never with our own output alone.
#
#   types STATUS COMMAND...   run it; all it prints is in $said, its stdout in $answer
#   answers WORDS...          $said has these words (fixed text), or the story fails
#   answers_not WORDS...      it has not
#   present PATH..., absent PATH...
#   holds 'WORDS' COMMAND...  the command succeeds; WORDS say what must be true
#   masters OUT CASE          OUT has the fp32 master of every parameter, bit for bit
#   weights OUT CASE          OUT has what the model computed with, bit for bit
#   state OUT CASE NAME       OUT has this optimizer state of every parameter, bit for bit
#   same_state A B            every tensor and state of two checkpoints agrees
#   flip FILE BYTE            flip one bit there
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C
program=${ZCKPT:-$root/build/zckpt}
build=${ZCKPT_BUILD:-$root/build}
fixtures=${ZCKPT_FIXTURES:-$root/build/fixtures}
steps=$fixtures/deepspeed
[ -x "$program" ] || { echo "$program is missing: run 'make tools'" >&2; exit 77; }
[ -d "$steps" ] || { echo "$steps is missing: run 'make fixtures'" >&2; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-story.XXXXXX") || exit 1
trap 'chmod -R u+rwX "$work" 2> /dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
PATH=$(dirname "$program"):$build:$PATH
export PATH
said=$work/said answer=$work/answer want=$work/want got=$work/got
mkdir "$work/here" && cd "$work/here" || exit 1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES

fails() {
	echo "FAILED: $*"
	[ ! -s "$said" ] || { echo "  it said:"; sed 's/^/    /' "$said" | head -n 30; }
	exit 1
}
types() {
	local status=$1 rc=0
	shift
	"$@" > "$answer" 2> "$work/err" < /dev/null || rc=$?
	cat "$work/err" "$answer" > "$said"
	[ "$rc" = "$status" ] || fails "status $rc, not $status: $*"
}
answers() { grep -qF -- "$*" "$said" || fails "the answer lacks: $*"; }
answers_not() { ! grep -qF -- "$*" "$said" || fails "the answer has: $*"; }
present() {
	local path
	for path; do [ -e "$path" ] || { ls > "$said"; fails "$path is missing"; }; done
}
absent() {
	local path
	for path; do [ ! -e "$path" ] || { ls > "$said"; fails "$path exists"; }; done
}
holds() {
	local words=$1
	shift
	"$@" > "$said" 2>&1 || fails "$words ($*)"
}
# hashes FILE: 'HASH NAME' of each weight, sorted by name
hashes() { zckpt digest -q "$1" | sed -n 's/^\([0-9a-f]*\) weight /\1 /p'; }
# true_hashes CASE WHAT: the same of the live engine's state
true_hashes() { hashes "$steps/$1/truth.safetensors" | sed -n "s/|$2\(\"\{0,1\}\)\$/\1/p"; }
has_all() {
	local out=$1 case=$2 what=$3 lines
	true_hashes "$case" "$what" | sort > "$want"
	hashes "$out" | sort > "$got"
	lines=$(wc -l < "$want")
	[ "$lines" -gt 0 ] || fails "the truth of $case has no $what"
	comm -23 "$want" "$got" > "$said"
	[ ! -s "$said" ] || fails "$out lacks, or has otherwise, these $what of $case"
}
masters() { has_all "$1" "$2" master; }
weights() { has_all "$1" "$2" weight; }
state() { has_all "$1" "$2" "$3"; }
same_state() {
	zckpt digest -q "$1" > "$want" 2> "$said" && zckpt digest -q "$2" > "$got" 2>> "$said" || fails "digest of $1 or $2"
	diff "$want" "$got" > "$said" || fails "$1 and $2 differ"
}
flip() {
	local byte
	byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	# shellcheck disable=SC2059
	printf "\\$(printf '%03o' $((byte ^ 64)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
