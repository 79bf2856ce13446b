#!/bin/bash
# usage: test_mpi.sh
#
# Ranks of a real MPI share one run.  If this fails, a cluster's ranks write other bytes than one
# process does, each of them reads everything, or one that dies takes the result along in silence.
#
#   same bytes      1, 2, 3 and 7 ranks (more than there is work for), reshard, convert and shard
#   fair shares     of some 150 MB, stages 2 and 3: each of 3 ranks reads at most 1/3 + 5 %,
#                   by its own count and by the kernel's (rchar)
#   a killed rank   is named, nothing stands at the destination, the same command goes on
#   a stopped rank  is named when its time is up
#   a failed rank   is told with its number, nothing is left
#   a damaged source is found by what all ranks saw of it; nothing is left
#   not one place   ranks that see different destinations, sources or arguments
#   by hand         --part 1/3 to 3/3 and commit
set -u
fixtures=$(readlink -f "${ZCKPT_FIXTURES:-build/fixtures}")/deepspeed
zckpt=$(readlink -f "${ZCKPT:-build/zckpt}")
build=$(dirname "$zckpt")
skip() { echo "$1" >&2; exit 77; }
command -v mpirun > /dev/null 2>&1 || skip 'no mpirun here (tools/deps.sh --mpi)'
[ -x "$zckpt-mpi" ] || skip "$zckpt was built without MPI"
[ -x "$build/tests/bench/gen_zero" ] || skip 'tests/bench/gen_zero is not built (make tests)'
top=${TMPDIR:-/tmp}
if [ -d /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -gt 1500000 ]; then top=/dev/shm; fi
work=$(mktemp -d "$top/zckpt-mpi.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0

# Open MPI as root, with more ranks than cores; its own leaks are not ours.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
cd "$work" || exit 1

good() { passed=$((passed + 1)); }
bad() {
	failed=$((failed + 1))
	echo "FAILED $*"
	if [ -s "$work/said" ]; then sed 's/^/    /' "$work/said" | tail -n 15; fi
}
# holds NAME COMMAND...
holds() {
	local name=$1
	shift
	if "$@" > "$work/why" 2>&1; then good; else bad "$name: $(head -n 1 "$work/why")"; fi
}
# mpi N ARGUMENT...: N ranks of zckpt; stdout and stderr to 'said'
mpi() {
	local n=$1
	shift
	timeout -k 5 100 mpirun -n "$n" "$zckpt" "$@" > "$work/said" 2>&1
}
says() { grep -q -e "$1" "$work/said"; }
nothing_at() { ! [ -e "$1" ] && ! [ -e "$1.zckpt-partial" ]; }
number() { sed -n "s/^  \"$1\": \([0-9]*\),*\$/\1/p" "$work/said"; }

mpi 1 inspect -h || skip "mpirun does not run here: $(tail -n 1 "$work/said")"

# ---- the same bytes, however many ranks

for step in ds0.19.8-z2-bf16-w8 ds0.19.8-z3-bf16-w8; do
	src=$fixtures/$step/ckpt
	"$zckpt" reshard -q --sync none '8->4' "$src" one || bad "reshard $step"
	"$zckpt" convert -q --sync none "$src" one.safetensors || bad "convert $step"
	for n in 1 2 3 7; do
		mpi $n reshard --sync none '8->4' "$src" many || bad "$step: $n ranks end with $?"
		holds "$step, $n ranks" diff -r one many
		holds "$step: one line of $n ranks" test "$(grep -c 'zckpt: wrote' said)" = 1
		mpi $n convert -q --sync none "$src" many.safetensors
		holds "$step, convert by $n ranks" cmp one.safetensors many.safetensors
		rm -rf many many.safetensors
	done
	"$zckpt" convert -q --only trainable --tied drop "$src" bare.safetensors
	"$zckpt" map --all "$src" | awk '$NF == "trainable" { print $1 }' > order
	set -- -q --sync none --world 4 --stage 2 --lr 1e-3 --order order bare.safetensors
	"$zckpt" shard "$@" seed 2> said
	mpi 3 shard "$@" seeds || bad "shard $step"
	holds "$step, shard by 3 ranks" diff -r seed seeds
	for i in 3 1 2; do "$zckpt" reshard -q --part $i/3 '8->4' "$src" hand || bad "part $i/3"; done
	holds "$step: not before commit" test ! -e hand
	holds "$step: commit" "$zckpt" commit -q --timeout 0 hand
	holds "$step: by hand" diff -r one hand
	rm -rf one one.safetensors hand seed seeds bare.safetensors order
done

# ---- fair shares

sizes='--hidden 512 --layers 2 --vocab 4000 --ffn 1408 --kv 512 --world 8'
for stage in 2 3; do
	# shellcheck disable=SC2086
	"$build/tests/bench/gen_zero" -q $sizes --stage $stage z$stage || bad "gen_zero --stage $stage"
done
# rank.sh FILE ARGUMENT...: what this rank read, by the kernel's count, goes to FILE.RANK
cat > rank.sh <<'END'
file=$1
shift
before=$(awk '$1 == "rchar:" { print $2 }' /proc/$$/io)
"$@"
status=$?
awk -v before="$before" '$1 == "rchar:" { print $2 - before }' /proc/$$/io > "$file.$OMPI_COMM_WORLD_RANK"
exit $status
END
for stage in 2 3; do
	for to in 2 3; do
		mpi 1 reshard --json --sync none --stage $to '8->3' z$stage one
		all=$(number read_bytes)
		timeout 100 mpirun -n 1 bash rank.sh "$work/all" "$zckpt" reshard -q --sync none --stage $to \
			'8->3' z$stage once > said 2>&1
		kernel=$(cat all.0)
		timeout 100 mpirun -n 3 bash rank.sh "$work/part" "$zckpt" reshard --json --sync none \
			--stage $to '8->3' z$stage three > said 2>&1 || bad "stage $stage to $to ends with $?"
		holds "stage $stage to $to: 3 ranks" diff -r one three
		shares=$(sed -n 's/.*"rank": [0-9].*"read_bytes": \([0-9]*\),.*/\1/p' said)
		holds "stage $stage to $to: 3 ranks are told" test "$(echo "$shares" | wc -w)" = 3
		holds "stage $stage to $to: shares $(echo $shares) of $all" \
			awk -v all="$all" 'BEGIN { RS = " "; if (all < 1e8) exit 1 }
				{ for (i = 1; i <= NF; i++) if ($i > all * (1 / 3 + .05)) exit 1 }' <<< "$shares"
		for r in 0 1 2; do
			holds "stage $stage to $to: rank $r read $(cat part.$r) of $kernel by the kernel" \
				test $(($(cat part.$r) * 1000)) -le $((kernel * 383))
		done
		echo "stage $stage to $to: of $all bytes the ranks read $(echo $shares);" \
			"by the kernel $(cat part.0 part.1 part.2 | xargs) of $kernel"
		rm -rf one once three part.* all.*
	done
done

# ---- ranks that end badly

# noted: units that rank 1 has noted
noted() { echo $((($(wc -c < out.zckpt-partial/part-00001.rec) - 128) / 40)); }
# ended: rank 1 has written all of its part (the end entry of docs/formats/partial.md), or is gone
ended() {
	! [ -e out.zckpt-partial/part-00001.rec ] ||
		[ "$(tail -c 40 out.zckpt-partial/part-00001.rec | head -c 8 | od -An -v -tx1 | tr -d ' \n')" = \
			ffffffffffffffff ]
}
# Rank 1 gets a signal while it writes; 1 if it was too fast, which its record tells.
hit() {
	local signal=$1 pid job
	shift
	rm -rf out out.zckpt-partial pid.*
	timeout -k 5 100 mpirun -n 3 bash -c 'echo $$ > pid.$OMPI_COMM_WORLD_RANK; exec nice "$@"' - \
		"$zckpt" reshard --threads 1 --sync none "$@" > said 2>&1 &
	job=$!
	while [ -d /proc/$job ] && ! [ -s out.zckpt-partial/part-00001.rec ]; do :; done
	pid=$(cat pid.1 2> /dev/null) || return 1
	while [ -d /proc/$job ] && [ "$(noted 2> /dev/null || echo 9)" -lt 2 ]; do :; done
	kill -s "$signal" "$pid" 2> /dev/null
	while [ -d "/proc/$pid" ] && ! grep -q '^State:.[TZ]' "/proc/$pid/status" 2> /dev/null; do :; done
	if ended; then
		kill -s CONT "$pid" 2> /dev/null
		wait $job
		return 1
	fi
	wait $job
	status=$?
	[ $status != 0 ]
}
tries() {
	for _ in 1 2 3 4 5 6 7 8; do hit "$@" && return 0; done
	return 1
}
"$zckpt" reshard -q --sync none '8->3' z2 one
if tries KILL '8->3' z2 out; then
	holds 'a killed rank is named' says 'rank 1 .*signal 9'
	holds 'a killed rank: no output' test ! -e out
	holds 'a killed rank: its record stays' test -s out.zckpt-partial/part-00001.rec
	mpi 3 reshard --json --sync none '8->3' z2 out || bad "going on ends with $?"
	holds 'going on: the same bytes' diff -r one out
	holds "going on: $(number resumed_bytes) bytes were there" test "$(number resumed_bytes)" -gt 0
	holds 'going on: nothing is left' test ! -e out.zckpt-partial
	echo "after the kill $(number resumed_bytes) bytes were found, $(number written_bytes) written"
else
	bad 'no rank could be killed in time'
fi
if tries STOP --timeout 2 '8->3' z2 out; then
	holds 'a stopped rank is named' says 'rank 1 of 3, which writes part 2, did not respond for 2 s'
	holds 'a stopped rank: no output' test ! -e out
	mpi 3 reshard -q --restart --sync none '8->3' z2 out || bad "--restart ends with $?"
	holds '--restart: the same bytes' diff -r one out
else
	bad 'no rank could be stopped in time'
fi
rm -rf out out.zckpt-partial
timeout 100 mpirun -n 3 bash -c '[ $OMPI_COMM_WORLD_RANK != 2 ] || ulimit -f 40000; exec "$@"' - \
	"$zckpt" reshard --json --sync none '8->1' z2 out > said 2>&1
holds 'a failed rank: status' test $? = 3
holds 'a failed rank is told' says 'rank 2 of 3, on .*File too large'
holds 'a failed rank is told once' test "$(grep -c 'zckpt: rank' said)" = 1
holds 'a failed rank: nothing is left' nothing_at out

# A bit of a member that no rank reads whole: the commit finds it.
shard=$(find z2 -name '*optim_states.pt' | sort | head -n 1)
cp "$shard" kept
at=$(($(stat -c %s "$shard") * 2 / 5))
byte=$(od -An -tu1 -j $at -N 1 "$shard")
# shellcheck disable=SC2059
printf "\\$(printf %o $((byte ^ 1)))" | dd of="$shard" bs=1 seek=$at conv=notrunc status=none
mpi 3 reshard --sync none '8->3' z2 out
holds 'a damaged source: status' test $? = 3
holds 'a damaged source is named' says 'CRC_WRONG: the bytes of '
holds 'a damaged source: nothing is left' nothing_at out
cat kept > "$shard"

# ---- ranks that do not see the same

mkdir a b
src=$fixtures/ds0.19.8-z2-bf16-w8/ckpt
timeout 100 mpirun -n 1 --wdir "$work/a" "$zckpt" reshard 8:4 "$src" out : \
	-n 1 --wdir "$work/b" "$zckpt" reshard 8:4 "$src" out > said 2>&1
holds 'two destinations: status' test $? = 3
holds 'two destinations' says 'rank 1 of 2, .*storage that all ranks share'
holds 'two destinations: nothing is left' test -z "$(ls -A a b | grep -v ':$')"
ln -s "$src" a/run
ln -s "$fixtures/ds0.19.8-z3-bf16-w8/ckpt" b/run
timeout 100 mpirun -n 1 --wdir "$work/a" "$zckpt" reshard 8:4 run "$work/out" : \
	-n 1 --wdir "$work/b" "$zckpt" reshard 8:4 run "$work/out" > said 2>&1
holds 'two sources: status' test $? = 3
holds 'two sources' says 'rank 1 of 2, .*the fingerprint of its source differs'
holds 'two sources: nothing is left' nothing_at out
timeout 100 mpirun -n 1 "$zckpt" reshard 8:4 "$src" out : -n 1 "$zckpt" reshard 8:2 "$src" out > said 2>&1
holds 'two calls: status' test $? = 2
holds 'two calls' says 'rank 1 of 2, .*its command or version differs'
mpi 3 reshard 9:4 "$src" out
holds 'a wrong call: status' test $? = 2
holds 'a wrong call is told once' test "$(grep -c 'ranks wrote this step' said)" = 1
holds 'a wrong call: nothing is left' nothing_at out
mpi 3 convert "$src" -o - --dry-run
holds 'a stream is refused' says 'a stream cannot be written in parts'
mpi 3 commit --timeout 0 out
holds 'commit is run once' test "$(grep -c 'no unfinished parts at this' said)" = 1

# ---- started by mpirun, and no MPI

mkdir plain
cp "$zckpt" plain/zckpt
# Rank 0 says it; mpirun may have stopped it by then, when another rank has ended first.
for _ in 1 2 3 4 5; do
	timeout 100 mpirun -n 3 plain/zckpt reshard 8:4 "$src" out > said 2>&1
	status=$?
	grep -q 'built without MPI' said && break
done
holds 'without MPI: status' test $status = 2
holds 'without MPI: told once' test "$(grep -c 'built without MPI' said)" = 1
holds 'without MPI: nothing is left' nothing_at out
timeout 100 mpirun -n 3 sh -c 'exec plain/zckpt reshard -q --part $((OMPI_COMM_WORLD_RANK + 1))/3 "$@"' - \
	8:4 "$src" out > said 2>&1
holds 'without MPI: parts by hand' "$zckpt" commit -q out

echo "$passed held, $failed did not"
[ $failed = 0 ]
