#!/bin/bash
# usage: test_ztrain_deaths.sh ['RANK SIGNAL PHASE STEPS N GO_ON'...]
#
# Ranks of ztrain that stop or die in the midst of a run of 4.  If this fails, a job with a dead
# rank hangs until a person looks, no message names the rank, or what is left on the
# disk is not a run that resumes with the same bits.
#
# A rank sends itself SIGSTOP or SIGKILL at an event that tests/engine/watch.h names: in a layer's
# forward pass, between messages of a reduce-scatter, when a save begins, as it puts and writes its
# part, and as it waits for the last save.  Then
#
#   time      mpirun ends in time, with a status that is not 0, and leaves no process
#   names     every rank that prints something names the rank; of a killed one either mpirun does, or, where
#             it is configured to continue (Open MPI), the ranks do
#   disk      each step that is there is whole to the last byte, and so is that of 'latest'
#   bits      resumed from there, the run ends with the norms, losses and digest of one undisturbed,
#             and takes away what was left
#
# A few of them, by ZCKPT_SEED; with ZCKPT_LONG=1 all; or those that are named.  SIGTERM: to a rank, to mpirun, and twice.
# ZCKPT_START=tcp: ranks that were started without MPI (tests/lib/run/envrun), and of moments a few less.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
need_watched
slowest=0
# bad FOLDER WORDS...
bad() {
	local dir=$1
	shift
	failed=$((failed + 1))
	echo "FAILED $*"
	cat "$dir"/said.* "$dir"/again "$dir"/out 2> /dev/null | grep '^[a-z<>]' | sed 's/^/    /' | head -n 40
}
mpich=0 tcp=0
if [ "${ZCKPT_START:-mpi}" = tcp ]; then
	tcp=1 mpirun=$root/tests/lib/run/envrun
else
	case $("${MPIRUN:-mpirun}" --version 2> /dev/null) in *HYDRA* | *MPICH*) mpich=1 ;; esac
fi

patience=2	# seconds
most=45		# seconds a job may take: twice the patience, mpirun's own, and a busy machine
for stage in 2 3; do
	echo '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},' \
		"\"zero_optimization\": {\"stage\": $stage}, \"gradient_clipping\": 1.0}" > z$stage.json
done

# job FOLDER STAGE OPTION...: 4 ranks; what each says on stderr is in FOLDER/said.RANK
job() {
	local dir=$1 stage=$2
	shift 2
	# Jobs of Open MPI that start and end at once remove each other's folder in TMPDIR.
	# shellcheck disable=SC2016
	(cd "$dir" && TMPDIR=$work/$dir exec timeout -k 5 60 "$mpirun" -n 4 sh -c \
		'exec "$@" 2> "said.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}"' sh "$watched" \
		--model "$models/qwen3_tied" --config "../z$stage.json" --seq 17 --save s --save-every 2 \
		--timeout $patience --exact "$@" < /dev/null)
}

mkdir base
job base 2 --steps 6 > base/out 2>&1 || skip "mpirun does not run here: $(tail -n 1 base/out base/said.0)"
want=$(digest base/s)
[ "$(grep -c '^step' base/out)" = 6 ] || bad base 'the undisturbed run'

# fall FOLDER RANK SIGNAL PHASE STEPS N GO_ON
fall() {
	local dir=$1 began
	for _ in 1 2; do
		rm -rf "$dir"
		mkdir "$dir"
		began=$(date +%s%N)
		WATCH_FALL="$2 $3 $4 $5 $6" MPIRUN_GO_ON=$7 job "$dir" $((2 + ($2 + $6) % 2)) --steps 6 > "$dir/out" 2>&1
		echo "$? $((($(date +%s%N) - began) / 1000000))" > "$dir/end"
		# A rank of Open MPI that did not start, as happens on a busy machine: the job once more.
		grep -qs 'fail during orte_init' "$dir"/out "$dir"/said.* || break
	done
}
# left FOLDER: processes that work there still; one that was killed may take a moment
left() {
	local p n
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		n=0
		for p in /proc/[0-9]*; do
			case $(readlink "$p/cwd" 2> /dev/null) in
			"$work/$1"*) [ "$(awk '{ print $3 }' "$p/stat" 2> /dev/null)" = Z ] || n=$((n + 1)) ;;
			esac
		done
		[ $n != 0 ] || return 1
		sleep 0.5
	done
	echo "$n processes are left"
}
# torn FOLDER: what is wrong with the steps there
torn() {
	local tag
	for tag in "$1"/s/global_step*; do
		case $tag in *.zckpt-partial | *'*') continue ;; esac
		"$zckpt" verify -q --full "$tag" 2>&1 || echo "$tag is not whole"
	done
	[ ! -e "$1/s/latest" ] || [ -d "$1/s/$(cat "$1/s/latest")" ] || echo "latest is $(cat "$1/s/latest")"
}
# again FOLDER WORDS: resumes, and ends as the base
again() {
	local dir=$1
	local n
	if ! job "$dir" 3 --steps 6 --resume auto > "$dir/again" 2>&1; then
		bad "$dir" "$2: it is not resumed"
		return
	fi
	n=$(grep -c '^step' "$dir/again")
	if ! diff <(grep '^step' "$dir/again") <(grep '^step' base/out | tail -n "$n") > "$dir/diff"; then
		cat "$dir/diff" >> "$dir/again"
		bad "$dir" "$2: resumed, it is another run"
	elif [ "$(digest "$dir/s")" != "$want" ]; then
		bad "$dir" "$2: resumed, it has another digest"
	elif [ "$n" != 0 ] && ls -d "$dir"/s/*.zckpt-partial > "$dir/diff" 2>&1; then
		cat "$dir/diff" >> "$dir/again"
		bad "$dir" "$2: resumed, it leaves what it found"
	else
		good
	fi
}
# judge FOLDER RANK SIGNAL PHASE STEPS N GO_ON
judge() {
	local dir=$1 rank=$2 signal=$3 status ms f said=0 silent=0
	local what="rank $2 gets signal $3 in $4 $6 after $5 steps"
	# (pid 1, stopped), rank 1 (pid 2, gone) | ranks 1, 3 of 4 did not | rank 0 did not
	local name="\(from\|by\|to\|responding:\) ranks\? \([^;]*, \)\?$rank (pid\|ranks\? \([0-9]*, \)*$rank\(, [0-9]*\)* of 4 did not\|rank $rank did not"
	[ "$7" = 0 ] || what="$what, and mpirun continues"
	read -r status ms < "$dir/end"
	[ "$ms" -le "$slowest" ] || slowest=$ms
	for f in "$dir"/said.*; do
		[ -s "$f" ] && [ "$f" != "$dir/said.$rank" ] && grep -q '^ztrain: ' "$f" || continue
		if grep -q "$name" "$f"; then said=$((said + 1)); else silent=$((silent + 1)); fi
	done
	[ "$signal" != 9 ] || [ "$7" != 0 ] || ! grep -q "rank $rank .*signal 9" "$dir/out" || said=$((said + 1))
	if [ "$status" = 124 ] || [ "$ms" -gt $((most * 1000)) ]; then
		bad "$dir" "$what: it stood still for $ms ms"
	elif [ "$status" = 0 ] && [ "$7" = 0 ]; then
		bad "$dir" "$what: status 0"
	elif [ $said = 0 ] && [ "$mpich$signal" != 19 ]; then
		bad "$dir" "$what: no rank names it"
	elif [ $silent != 0 ]; then
		bad "$dir" "$what: $silent name other ranks only"
	elif left "$dir" >> "$dir/out"; then
		bad "$dir" "$what: $(tail -n 1 "$dir/out")"
	elif [ -n "$(torn "$dir")" ]; then
		torn "$dir" >> "$dir/out"
		bad "$dir" "$what: a torn step"
	else
		again "$dir" "$what"
	fi
	rm -rf "$dir"
}

# 'PHASE STEPS N': of the third step of the second save, and of the last save
moments=('forward 4 2' 'reduce 4 5' 'begin 4 1' 'put 4 3' 'write 4 1' 'write 4 3' 'put 6 3' 'write 6 2' 'wait 6 1')
cases=()
for moment in "${moments[@]}"; do
	for rank in 0 1 2 3; do
		cases+=("$rank 19 $moment 0" "$rank 9 $moment 0")
		[ $mpich$tcp != 00 ] || cases+=("$rank 9 $moment 1")
	done
done
if [ $# -gt 0 ]; then
	cases=("$@")
elif [ "${ZCKPT_LONG:-0}" = 0 ]; then
	seed=${ZCKPT_SEED:-$(date +%j)}
	echo "seed $seed"
	# one of each moment
	each=$((${#cases[@]} / ${#moments[@]}))
	RANDOM=$seed
	for ((i = 0; i < ${#moments[@]}; i++)); do
		few[i]=${cases[i * each + RANDOM % each]}
	done
	cases=("${few[@]}")
fi
# Three at a time, which mostly sleep.
for ((first = 0; first < ${#cases[@]}; first += 3)); do
	jobs=
	for ((i = first; i < first + 3 && i < ${#cases[@]}; i++)); do
		# shellcheck disable=SC2086
		fall "case$i" ${cases[i]} &
		jobs="$jobs $!"
	done
	# shellcheck disable=SC2086
	wait $jobs
	for ((i = first; i < first + 3 && i < ${#cases[@]}; i++)); do
		# shellcheck disable=SC2086
		judge "case$i" ${cases[i]}
	done
done
echo "the slowest of ${#cases[@]} jobs took $slowest ms, with a time-out of $patience s"

# SIGTERM to one rank in the first micro-batch: all give the step up, save the one before and go.
fall term 1 15 forward 3 2 0
if [ "$(cut -d' ' -f1 term/end)" = 0 ] && grep -q 'stopped by a signal after step 3, saved' term/out && [ -z "$(torn term)" ]; then
	again term 'SIGTERM to a rank'
else
	bad term "SIGTERM to a rank: status $(cat term/end)"
fi

# By TCP a death is seen at once, also where a save waits for the one who died: no deadline is waited for.
if [ $tcp = 1 ]; then
	patience=60
	for moment in '1 9 forward 4 2' '2 9 put 4 3' '3 9 write 4 3' '0 9 write 6 2' '2 9 write 6 2' '1 9 wait 6 1' '0 9 wait 6 1'; do
		# shellcheck disable=SC2086
		fall quick $moment 0
		read -r status ms < quick/end
		if [ "$ms" -lt 20000 ] && [ "$status" != 0 ] && [ -z "$(torn quick)" ]; then
			again quick "$moment"
		else
			bad quick "$moment: status $status after $ms ms, and no rank needs to wait for one that has died"
		fi
		rm -rf quick
	done
	finish
	exit
fi
# Inside MPI no rank sees that another one dies: each of the others has a deadline of its own.
# inside RANK SIGNAL PHASE GO_ON WORDS...
inside() {
	local dir=inside status ms began
	mkdir $dir
	began=$(date +%s%N)
	WATCH_FALL="$1 $2 $3 0 1" MPIRUN_GO_ON=$4 job $dir 2 --steps 1 > $dir/out 2>&1
	status=$?
	ms=$((($(date +%s%N) - began) / 1000000))
	if [ $status = 124 ] || [ $ms -gt $((most * 1000)) ]; then
		bad $dir "rank $1 gets signal $2 in $3: the job hung for $ms ms"
	elif [ $status = 0 ] && [ "$4" = 0 ]; then
		bad $dir "rank $1 gets signal $2 in $3: status 0"
	elif [ $mpich = 0 ] && ! cat $dir/said.* | grep -q "^ztrain: rank [0-9] of 4: $5 did not return within $patience s"; then
		bad $dir "rank $1 gets signal $2 in $3: no line says that $5 hangs"
	elif left $dir >> $dir/out; then
		bad $dir "rank $1 gets signal $2 in $3: $(tail -n 1 $dir/out)"
	else
		good
	fi
	rm -rf $dir
}
inside 1 19 init 0 MPI_Init
inside 0 19 dup 0 'MPI_[A-Za-z_]*'
inside 3 19 finalize 0 MPI_Finalize
[ $mpich = 1 ] || inside 2 9 dup 1 'MPI_[A-Za-z_]*'

# All ranks refuse alike: that ends without the voice of MPI_Abort.
mkdir alike
job alike 2 --steps 1 --resume nowhere > alike/out 2>&1
status=$?
if [ $status = 0 ] || [ $status = 124 ] || grep -q MPI_ABORT alike/out alike/said.*; then
	bad alike "a refusal of all ranks: status $status"
else
	good
fi

# SIGTERM to mpirun, which gives its ranks a second (Open MPI): a step in work is ended and saved.
mkdir mpirun
job mpirun 3 --steps 100000 > mpirun/out 2>&1 &
pid=$!
for _ in $(seq 200); do [ "$(grep -c '^step' mpirun/out)" -ge 3 ] && break; sleep 0.05; done
p=$pid
while case $(cat "/proc/$p/comm") in *mpi* | *run*) false ;; esac; do
	p=$(cut -d' ' -f1 "/proc/$p/task/$p/children")
done
kill -TERM "$p"
wait $pid
n=$(sed -n 's/^stopped by a signal after step \([0-9]*\), saved/\1/p' mpirun/out)
if [ -n "$n" ] && [ "$(cat mpirun/s/latest)" = "global_step$n" ] && [ -z "$(torn mpirun)" ] && ! left mpirun; then
	mkdir other
	job other 2 --steps $((n + 2)) > other/out 2>&1 && job mpirun 2 --steps $((n + 2)) --resume auto > mpirun/again 2>&1 &&
		[ "$(digest other/s)" = "$(digest mpirun/s)" ] && good || bad mpirun 'SIGTERM to mpirun: resumed, it is another run'
else
	bad mpirun "SIGTERM to mpirun: $(torn mpirun)"
fi

# A second SIGTERM does not wait for a micro-batch that takes long; one that comes at once is the first.
echo '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 512}' > long.json
"$ztrain" --model "$models/llama3" --config long.json --seq 128 --steps 2 --save twice > out 2>&1 < /dev/null &
pid=$!
for _ in $(seq 200); do [ -d twice ] && break; sleep 0.05; done
kill -TERM $pid
sleep 0.2
kill -TERM $pid
sleep 0.2
if kill -0 $pid 2> /dev/null; then good; else bad . 'SIGTERM twice at once'; fi
sleep 0.9
kill -TERM $pid
wait $pid
[ $? = 143 ] && [ -z "$(ls twice)" ] && good || bad . 'a second SIGTERM ends the process'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
