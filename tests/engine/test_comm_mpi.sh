#!/bin/bash
# usage: test_comm_mpi.sh [tcp]
#
# Ranks of a real MPI, or with "tcp" ranks without one (tests/lib/run/envrun), through the engine's table
# of collectives (tests/engine/mpi_comm.c).  If this fails, ranks train on other numbers than one
# rank does, the counters are wrong, or a job with a dead rank hangs until a person looks.
#
#   results      1, 2, 3, 4, 5, 7 and 8 ranks: every collective bit for bit as a plain loop has it,
#                three chunks and none, in place, seven at once in any order
#   counters     what the table counts is what passes between it and MPI, by kind, or to the sockets
#   dead ranks   each of 3 ranks is stopped and killed in each collective: the others end when
#                their time is up, and name it (of MPICH, mpirun may be faster)
#   apart        ranks that do not start the same
#   patience     without a deadline a late rank is waited for
#   no deadline  with Open MPI and with TCP, a killed rank ends a job that has none
#
# ZCKPT_LONG=1: each of 8 ranks, half-way and before it starts.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mpirun=$root/tests/lib/run/mpirun tcp=0
if [ "${1:-}" = tcp ]; then mpirun=$root/tests/lib/run/envrun tcp=1; fi
program=${ZCKPT_BUILD:-$root/build}/tests/engine/mpi_comm
skip() { echo "$1" >&2; exit 77; }
[ $tcp = 1 ] || command -v "${MPIRUN:-mpirun}" > /dev/null 2>&1 || skip 'no mpirun here (tools/deps.sh --mpi)'
[ -x "$program" ] || skip "$program is missing: built without MPI"
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-comm.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 1
# MPI's own leaks are not ours.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
passed=0 failed=0
good() { passed=$((passed + 1)); }
# bad FILE WORDS...: FILE is what was said
bad() {
	local said=$1
	shift
	failed=$((failed + 1))
	echo "FAILED $*"
	sed 's/^/    /' "$said" 2> /dev/null | grep -v '^ *-*$' | head -n 20
}
[ $tcp = 1 ] || "$mpirun" -n 1 "$program" bare > said 2>&1 || skip "mpirun does not run here: $(tail -n 1 said)"

counts='1 2 3 4 5 7 8'
[ $tcp = 0 ] || counts='2 3 4 5 7 8'	# one rank has no other to talk to
for n in $counts; do
	if timeout -k 5 200 "$mpirun" -n $n "$program" check > said 2>&1 &&
		grep -q "^$n ranks, 0 wrong" said; then
		good
		grep "^$n ranks" said
	else
		bad said "$n ranks"
	fi
done

# fall MODE OP RANK SIGNAL RANKS: one job whose RANK falls silent; its status and time to 'end'.
# A message counts that its rank wrote to a file: mpirun may lose what a rank says last.
patience=2000
mpich=0
kind=$([ $tcp = 1 ] && echo TCP || "${MPIRUN:-mpirun}" --version 2> /dev/null)
case $kind in *HYDRA* | *MPICH*) mpich=1 ;; esac
fall() {
	local mode=$1 op=$2 rank=$3 signal=$4 ranks=$5 go_on=0
	[ "$signal" != 9 ] || go_on=1
	mkdir -p "$op.$rank.$signal.$mode" && cd "$op.$rank.$signal.$mode" || exit 1
	# Jobs of Open MPI that start and end at once remove each other's folder in TMPDIR.
	TMPDIR=$PWD MPIRUN_GO_ON=$go_on timeout -k 5 60 "$mpirun" -n "$ranks" "$program" \
		"$mode" "$op" "$rank" "$signal" $patience > out 2>&1
	echo $? > end
}
# judge MODE OP RANK SIGNAL RANKS
judge() {
	local mode=$1 op=$2 rank=$3 signal=$4 dir=$2.$3.$4.$1 status state named others f
	local what="$5 ranks, $op, rank $3 gets signal $4 ($mode)"
	status=$(cat "$dir/end")
	# A killed process that MPI has noticed may still be on its way out.
	[ "$signal" = 9 ] && state='\(gone\|running\)' || state=stopped
	named=$(grep -l "ranks\? \([0-9].*, \)\?$rank (pid [0-9]*, $state)" "$dir"/said.* 2> /dev/null | wc -l)
	others=0
	for f in "$dir"/said.*; do
		case $f in */said."$rank" | *'*') continue ;; esac
		grep -q "[ks] \(.*, \)\?$rank (pid" "$f" || others=$((others + 1))
	done
	# In a broadcast a rank waits for the root, which may be waiting for another.
	[ "$op" != broadcast ] || others=0
	if [ "$status" = 124 ] || [ "$status" = 137 ] && [ "$signal" != 9 ]; then
		bad "$dir/out" "$what: it stood still"
	elif [ "$signal" != 9 ] && [ "$status" = 0 ]; then
		bad "$dir/out" "$what: status 0"
	elif [ $mpich = 1 ] && [ "$signal" = 9 ] && [ "$status" != 0 ] && ! ls "$dir"/said.* > said 2>&1; then
		good	# mpirun was faster
	elif [ "$named" = 0 ]; then
		bad "$dir/out" "$what: no rank names it"
	elif [ $others != 0 ]; then
		bad "$dir/out" "$what: $others name other ranks only"
	else
		good
	fi
	rm -rf "$dir"
}
ranks=3 modes=fall
if [ "${ZCKPT_LONG:-0}" != 0 ]; then ranks=8 modes='fall late'; fi
for op in gather reduce small broadcast barrier; do
	for mode in $modes; do
		# 9 kills, 19 stops; three jobs at a time, which mostly sleep
		for ((first = 0; first < ranks; first += 3)); do
			for signal in 9 19; do
				jobs=
				for ((r = first; r < first + 3 && r < ranks; r++)); do
					(fall "$mode" $op $r $signal $ranks) &
					jobs="$jobs $!"
				done
				# shellcheck disable=SC2086
				wait $jobs
				for ((r = first; r < first + 3 && r < ranks; r++)); do
					judge "$mode" $op $r $signal $ranks
				done
			done
		done
	done
done

timeout -k 5 60 "$mpirun" -n 3 "$program" apart > said 2>&1
if [ $? != 124 ] && cat said.[0-9]* | grep -q 'the ranks do not run the same step'; then
	good
else
	bad said 'ranks with different sizes'
fi
rm -f said.[0-9]*
if timeout -k 5 60 "$mpirun" -n 3 "$program" pause 2 1500 > said 2>&1; then good; else bad said 'a late rank'; fi
case $kind in
*'Open MPI'* | TCP)
	timeout -k 5 60 "$mpirun" -n 3 "$program" fall reduce 1 9 0 > said 2>&1
	status=$?
	if [ $status != 124 ] && [ $status != 0 ] && grep -q 'rank 1 .*\(signal 9\|(pid\)' said; then
		good
	else
		bad said "no deadline, and a killed rank: status $status"
	fi
	;;
esac

echo "$passed held, $failed did not"
[ $failed = 0 ]
