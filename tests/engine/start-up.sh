#!/bin/bash
# usage: start-up.sh [RANKS [RUNS]]
#
# How long ranks take until the table of collectives is there, beyond a bare MPI_Init: the middle of
# RUNS (default 7) runs of RANKS (default 8).  Inside a process: en_comm_mpi_open() less its
# MPI_Init_thread(), of the slowest rank.  Outside: whole jobs, with and without the table.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${ZCKPT_BUILD:-$root/build}/tests/engine/mpi_comm
ranks=${1:-8} runs=${2:-7}
[ -x "$program" ] || { echo "$program is missing (make tests, ZCKPT_BUILD)" >&2; exit 1; }
middle() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# job MODE: seconds of a whole job; what it said is in 'said'
job() {
	local begin
	begin=$(date +%s%N)
	said=$("$root/tests/lib/run/mpirun" -n "$ranks" "$program" "$1") || exit 1
	echo "$(($(date +%s%N) - begin))" | awk '{ printf "%.3f\n", $1 / 1e9 }' >> "$work/$1"
}
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-start.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
for ((i = 0; i < runs; i++)); do
	job bare
	job start
	echo "$said" | sed -n 's/.*beyond MPI_Init \([0-9.]*\) s.*/\1/p' >> "$work/beyond"
done
echo "$ranks ranks, middle of $runs: beyond MPI_Init $(middle < "$work/beyond") s;" \
	"whole job with the table $(middle < "$work/start") s, bare $(middle < "$work/bare") s"
