#!/bin/bash
# usage: test_universal.sh
#
# DeepSpeed's universal checkpoints hold the state of the step they were made from: if this fails, a
# resumed run trains on with other parameters' moments and no message.
#
# Every universal/ folder of the fixtures, which DeepSpeed's converter made, must have the digest
# of its step, and go to 1, 3 and 4 ranks of every stage with that digest. Every fixture of 0.14 and
# later goes to universal and back (a seeded sample of stages and worlds; all with ZCKPT_LONG=1).
. "$(dirname "$0")/resharding.sh"
read=0

# ---- what DeepSpeed made ----

for name in $(ls "$fixtures"); do
	dir=$fixtures/$name
	[ -d "$dir/universal" ] || continue
	want=$(root_of "$dir/ckpt")
	case $name in
	*roundrobin*)	# its converter mixes them up: seen, not believed
		"$zckpt" digest "$dir/universal" > "$work/out" 2> "$work/err"
		if [ $? = 3 ] && grep -q MASTER_WEIGHT_MISMATCH "$work/err"; then
			passed=$((passed + 1)) read=$((read + 1))
		else
			fail "$name" 'a mixed-up folder was believed'
		fi
		continue
		;;
	esac
	read=$((read + 1))
	same "$name/universal" "$dir/universal" "$want"
	for stage in 0 1 2 3 bf16; do
		for world in 1 3 4; do
			chance 8 || continue
			what="$name/universal to stage $stage, $world ranks"
			if reshard "$work/there" --stage $stage --world $world \
				"$dir/universal"; then
				same "$what" "$work/there" "$want"
			else
				fail "$what" "$(tail -n 1 "$work/err")"
			fi
		done
	done
	# from the folder and from the step come the same files
	if reshard "$work/a" --world 3 "$dir/universal" &&
		reshard "$work/b" --world 3 "$dir/ckpt" &&
		diff <(cd "$work/a" && find . | sort) <(cd "$work/b" && find . | sort) \
			> "$work/diff"; then
		passed=$((passed + 1))
	else
		fail "$name/universal" "other files: $(head -n 2 "$work/diff")"
	fi
done
[ $read -gt 8 ] || fail 'universal folders' "only $read were read"

# ---- what is made of steps ----

for name in $(ls "$fixtures"); do
	dir=$fixtures/$name
	grep -qs '"refuse": false' "$dir/case.json" || continue
	case $name in
	*17.6-z0* | *17.6*bf16opt | *z0-fp32*) continue ;;	# no optimizer; masters are new
	*19.8-z0-*) version= stages="same 1 2 3 bf16" ;;
	ds0.1[4-9].*) version= stages="same 1 2 3 bf16" ;;
	ds0.9.5* | ds0.1[0-3]*) version="--ds-version 0.19.8" stages="same" ;;
	*) continue ;;
	esac
	want=$(root_of "$dir/ckpt")
	for stage in $stages; do
		chance 15 || continue
		how="$version --to universal"
		[ $stage = same ] || how="$how --stage $stage"
		if ! reshard "$work/u" $how "$dir/ckpt"; then
			is_refused || fail "$name, $how" "$(tail -n 1 "$work/err")"
			continue
		fi
		same "$name, $how" "$work/u" "$want"
		world=$((RANDOM % 8 + 1))
		if reshard "$work/there" --world $world "$work/u"; then
			same "$name, $how, to $world ranks" "$work/there" "$want"
		else
			fail "$name, $how, to $world ranks" "$(tail -n 1 "$work/err")"
		fi
		# one made of another is that one; of stage 2, frozen parameters are kept once
		reshard "$work/v" --to universal "$work/u" &&
			diff -r -x "*model_states.pt" "$work/u" "$work/v" > "$work/diff" 2>&1 ||
			fail "$name, $how, twice" "$(cat "$work/err" "$work/diff" | head -n 2)"
	done
done
echo "$refused were refused, as they must be"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed -gt 50 ]
