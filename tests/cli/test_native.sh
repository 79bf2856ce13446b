#!/bin/bash
# usage: test_native.sh
#
# A native step holds the state of the step it was made from, at any number of ranks: if this fails, what
# a trainer saved is not what it goes on with.
#
# Every fixture that can be resharded (a seeded sample; all with ZCKPT_LONG=1) goes to native files of
# some ranks and must have the digest of its step, sums that verify --full finds right, and the same
# bytes when it is written twice. From there it goes to native files of other ranks, and to the universal
# form and each stage, where values must be those of a step that went there directly (zckpt diff).
. "$(dirname "$0")/resharding.sh"

# whole WHAT FOLDER
whole() {
	if "$zckpt" verify -q --full "$2" > "$work/out" 2>&1; then
		passed=$((passed + 1))
	else
		fail "$1" "not whole: $(head -n 1 "$work/out")"
	fi
}
# onward WHAT ARGS...: from the native step comes what comes from its source, or both are refused
onward() {
	local what="$1, then ${*:2}"
	if ! reshard "$work/a" "${@:2}" "$dir/ckpt"; then
		refused=$((refused + 1))
		! reshard "$work/b" "${@:2}" "$work/n" || fail "$what" 'only the source is refused'
	elif reshard "$work/b" "${@:2}" "$work/n" &&
		"$zckpt" diff "$work/a" "$work/b" > "$work/diff" 2>> "$work/err"; then
		passed=$((passed + 1))
	else
		fail "$what" "other values: $(tail -qn 2 "$work/err" "$work/diff")"
	fi
}

made=0
for name in $(ls "$fixtures"); do
	dir=$fixtures/$name
	grep -qs '"refuse": false' "$dir/case.json" && chance 8 || continue
	n=$((RANDOM % 8 + 1)) m=$((RANDOM % 8 + 1))
	what="$name, native for $n ranks"
	if ! reshard "$work/n" --to native --world $n "$dir/ckpt"; then
		is_refused || grep -q 'no optimizer shards' "$work/err" ||
			fail "$what" "$(tail -n 1 "$work/err")"
		continue
	fi
	made=$((made + 1))
	case $name in
	*17.6-z0* | *17.6*bf16opt) want= ;;	# the states that have no name are not there
	*) want=$(root_of "$dir/ckpt") ;;
	esac
	[ -z "$want" ] || same "$what" "$work/n" "$want"
	want=$(root_of "$work/n")
	whole "$what" "$work/n"
	reshard "$work/again" --to native --world $n --threads 1 "$dir/ckpt" &&
		diff -r "$work/n" "$work/again" > "$work/diff" 2>&1 ||
		fail "$what, twice" "$(cat "$work/err" "$work/diff" | head -n 2)"
	if reshard "$work/m" --to native --world $m "$work/n"; then
		same "$what, to native for $m" "$work/m" "$want"
		whole "$what, to native for $m" "$work/m"
	else
		fail "$what, to native for $m" "$(tail -n 1 "$work/err")"
	fi
	onward "$what" --world $m
	for stage in 0 1 2 3 bf16; do
		chance 3 && onward "$what" --stage $stage --world $m
	done
	case $name in
	ds0.1[4-9].*) chance 3 && onward "$what" --to universal ;;
	esac
done
echo "$made native steps; $refused calls were refused, as they must be"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $made -gt 5 ]
