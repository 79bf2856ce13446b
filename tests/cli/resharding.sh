# Sourced by the tests that reshard many fixtures and compare digests.
set -uf
fixtures=${ZCKPT_FIXTURES:-build/fixtures}/deepspeed
zckpt=${ZCKPT:-build/zckpt}
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-resharding.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
seed=${ZCKPT_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$((seed % 32768))
echo "seed $seed"
passed=0 failed=0 refused=0

root_of() { "$zckpt" digest "$1" 2> "$work/err" | tail -n 1; }
fail() { failed=$((failed + 1)); echo "FAILED $1: $2"; }
# chance N: one in N, always with ZCKPT_LONG
chance() { [ -n "${ZCKPT_LONG-}" ] || [ $((RANDOM % $1)) = 0 ]; }
# same WHAT FOLDER DIGEST
same() {
	if [ "$(root_of "$2")" = "$3" ]; then
		passed=$((passed + 1))
	else
		fail "$1" "another digest: $(head -n 1 "$work/err")"
	fi
}
# reshard OUT ARGS...
reshard() {
	rm -rf "$1"
	"$zckpt" reshard -q --sync none "${@:2}" "$1" 2> "$work/err"
}
# The last run was refused for a reason that a fixture of these kinds has.
is_refused() {
	tail -n 2 "$work/err" |
		grep -qE 'elastic|of param group [0-9]* is frozen|is for runs in bf16|Muon|re-partition|a placeholder|as the name of a step|by names|more than one type' &&
		refused=$((refused + 1))
}
