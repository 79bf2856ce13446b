#!/bin/bash
# usage: fuzz.sh [-t SECONDS] [TARGET...]
#
# Looks for inputs that break the targets (default: all), so long each, one after the other, from
# seeds that are made of the fixtures, the corpus of the tree and what earlier runs have found. The
# Makefile calls it (`make fuzz`). A new corpus grows in build/fuzz/TARGET; what breaks a target is
# left in build/fuzz/found/TARGET, and the status is 1.
#
#	-t SECONDS	for each target (default 60)
#	-m OUT		minimise: write to OUT/TARGET what covers all that is known, and run nothing
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C
seconds=60 out=
while getopts t:m: opt; do
	case $opt in
	t) seconds=$OPTARG ;;
	m) out=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
build=$PWD/build/fuzz
mkdir -p "$build"
if [ ! -d "$build/seeds" ]; then
	tests/fuzz/make-seeds.sh "$build/seeds.new" && mv "$build/seeds.new" "$build/seeds" || exit 1
fi
mapfile -t all < <("$ZCKPT_BUILD/tests/fuzz/fz_replay" 2>&1 | sed 's/.*one of: //' | tr ' ' '\n')
[ $# -gt 0 ] || set -- "${all[@]}"
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=16:malloc_context_size=4:detect_leaks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

bad=0
for target; do
	mkdir -p "$build/$target" "$build/found/$target"
	ln -sfn "$ZCKPT_BUILD/fuzzer" "$build/fuzz-$target"
	from=()
	for dir in "$build/seeds/$target" "$ZCKPT_FIXTURES/fuzz/$target" tests/fuzz/found/"$target"; do
		[ ! -d "$dir" ] || from+=("$dir")
	done
	max=16384
	case $target in
	torch | hf | manifest) max=32768 ;;
	step | universal | dcp | ranks) max=131072 ;;
	pack) max=65536 ;;
	esac
	limits=(-timeout=10 -rss_limit_mb=512 "-max_len=$max")
	if [ -n "$out" ]; then
		mkdir -p "$out/$target"
		"$build/fuzz-$target" -merge=1 "${limits[@]}" "$out/$target" "$build/$target" \
			"${from[@]}" > "$build/$target.log" 2>&1 || bad=1
		echo "$target: $(find "$out/$target" -type f | wc -l) inputs," \
			"$(cat "$out/$target"/* | wc -c) bytes"
		continue
	fi
	dict=()
	[ ! -f "tests/fuzz/dict/$target.dict" ] || dict=("-dict=tests/fuzz/dict/$target.dict")
	# With -entropic=1 half of the time goes into weighing inputs: these are slow.
	"$build/fuzz-$target" "-max_total_time=$seconds" "${limits[@]}" -print_final_stats=1 \
		-reload=0 -entropic=0 \
		"-artifact_prefix=$build/found/$target/" "${dict[@]}" "$build/$target" \
		"${from[@]}" > "$build/$target.log" 2>&1
	rc=$?
	awk -v target="$target" -v rc=$rc '
		/ cov: / {
			for (i = 1; i < NF; i++) if ($i == "cov:") now = $(i + 1); else if ($i == "ft:") ft = $(i + 1)
			if (now != cov) rose = substr($1, 2)
			cov = now
		}
		/number_of_executed_units/ { n = $2 }
		/average_exec_per_sec/ { each = $2 }
		/peak_rss_mb/ { rss = $2 }
		END { printf "%s: %s executions (%s/s), %s edges (the last new one at %s), %s features, %s MiB%s\n",
			target, n, each, cov, rose, ft, rss, rc ? ", FOUND SOMETHING" : "" }' "$build/$target.log"
	if [ $rc != 0 ]; then
		bad=1
		grep -a -m 3 '^fuzz: \|ERROR: \|runtime error' "$build/$target.log"
		grep -a -m 1 'Test unit written' "$build/$target.log"
	fi
done
exit $bad
