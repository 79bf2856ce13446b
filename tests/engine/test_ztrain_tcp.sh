#!/bin/bash
# usage: test_ztrain_tcp.sh
#
# ztrain started without MPI, by the variables of torchrun and deepspeed's launcher.  If this fails,
# such ranks train each by itself or another run than under mpirun, or a job that was started wrongly
# waits where no rank connects and does not say why.
#
#   bits      2, 3 and 4 ranks, stages 0 to 3: losses, norms and digest of one rank (of 3 ranks: of 3
#             under mpirun), and the counters of ranks under mpirun
#   resume    saved by 4 ranks, gone on with by 2, as the run that never stopped
#   meeting   each way in which ranks may miss each other has a sentence that names it
#   nested    ranks below a launcher of another number of processes
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
envrun=$root/tests/lib/run/envrun
fixtures=${models%/models}
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE

# train START FOLDER WORLD STAGE UNITS OPTION...: 'steps' gets losses and norms, 'counters' the rest
train() {
	local start=$1 folder=$2 world=$3 stage=$4 units=$5
	shift 5
	echo "{\"train_batch_size\": $units, \"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0," \
		"\"zero_optimization\": {\"stage\": $stage}, \"bf16\": {\"enabled\": true}}" > z.json
	# shellcheck disable=SC2086
	timeout -k 5 100 $start "$ztrain" --model "$fixtures/models/llama3" --config z.json --seq 33 --lr 3e-3 \
		--data "$fixtures/train/data.safetensors" --save "$folder" --exact --counters "$@" > said 2>&1 < /dev/null || return
	sed -n '/^step/p' said > steps
	grep '^rank .* sent ' said | sort > counters
}
mpirun_of() { echo "$mpirun -n $1"; }

train '' base 1 0 12 --steps 3 || { bad 'one rank'; finish; exit; }
mv steps want
base=$(digest base)
for world in 2 4 3; do
	for stage in 0 1 2 3; do
		rm -rf other mine
		if [ $world = 3 ]; then
			has_ranks || continue
			train "$(mpirun_of 3)" mine 3 $stage 12 --steps 3 || bad '3 ranks under mpirun'
			mv steps want
			mv counters counted
			base=$(digest mine)
		fi
		if train "$envrun -n $world" other $world $stage 12 --steps 3 &&
			cmp -s want steps && [ "$(digest other)" = "$base" ]; then
			good
		else
			bad "$world ranks at stage $stage"
			diff want steps | head -n 4
		fi
		[ $world = 3 ] || continue
		# the data is the same, whatever carries it
		if [ -s counters ] && cmp -s counted counters; then good; else bad "the counters at stage $stage"; diff counted counters; fi
	done
done

rm -rf base
train '' base 1 0 8 --steps 4 && train "$envrun -n 4" moved 4 3 8 --steps 2 &&
	train "$envrun -n 2" moved 2 1 8 --steps 4 --resume auto &&
	[ "$(digest moved)" = "$(digest base)" ] && good || bad 'saved by 4 ranks, gone on with by 2'

# ---- how ranks may miss each other ----
port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
# rank R N FILE [NAME=VALUE...]: one process
rank() {
	local r=$1 n=$2 file=$3
	shift 3
	# shellcheck disable=SC2016
	env PATIENCE=2 "RANK=$r" "WORLD_SIZE=$n" "$@" timeout -k 5 60 sh -c '"$0" --check-launch --timeout $PATIENCE' "$ztrain" > "$file" 2>&1 < /dev/null
}
# says FILE WORDS...
says() {
	local file=$1
	shift
	if grep -q -- "$*" "$file"; then good; else cp "$file" said; bad "no rank says: $*"; fi
}
rank 0 3 zero & rank 1 3 one & wait $!
wait
says zero 'rank 2 did not connect to port [0-9]* within 2 s'
says one 'rank 0 ended the rendezvous: rank 2 did not connect'

# one is started twice: the second one ends at once, the first waits for those that are missing
rank 0 3 zero & rank 1 3 one &
sleep 1
rank 1 3 two && bad 'a rank that is there twice has status 0'
wait
says two 'refused by rank 0: rank 1 was started twice: it already runs as process'
says zero 'rank 2 did not connect .* 1 connection was refused: rank 1 was started twice'

rank 0 2 zero & rank 1 3 one
wait
says one 'refused by rank 0: rank 1 was started as one of 3 ranks, rank 0 as one of 2'
says zero 'rank 1 was started as one of 3 ranks'

rank 1 2 one
says one 'rank 0 does not answer at port [0-9]* of "127.0.0.1" (.*Connection refused)'
rank 1 2 one MASTER_ADDR=no-such-host.invalid
says one '"no-such-host.invalid" (.*)'
rank 1 2 one MASTER_ADDR=
says one 'MASTER_ADDR: not set'
rank 1 2 one MASTER_PORT=many
says one 'MASTER_PORT: "many" is not a number'

# another job at the same port, and another program
rank 0 2 zero TORCHELASTIC_RUN_ID=a &
sleep 0.5
rank 1 2 one TORCHELASTIC_RUN_ID=b
wait
says one 'another job answers'
says zero 'refused: the last one belongs to another job'
if command -v python3 > /dev/null; then
	python3 -c 'import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
c, a = s.accept(); c.recv(4096); c.send(b"HTTP/1.0 400 Bad Request\r\n\r\n" + b"x" * 1000); time.sleep(9)' $port &
	other=$!
	sleep 0.5
	rank 1 2 one
	says one 'a program answers that is not ztrain'
	rank 0 2 zero
	says zero "rendezvous port $port is in use"
	# a store of torchrun's there, as far as ranks know: they meet at a later port
	if rank 0 2 zero TORCHELASTIC_RUN_ID=c TORCHELASTIC_USE_AGENT_STORE=True & rank 1 2 one TORCHELASTIC_RUN_ID=c \
		TORCHELASTIC_USE_AGENT_STORE=True && wait $!; then good; else bad 'beside a program at MASTER_PORT'; fi
	says zero 'rank 1 of 2'
	# a stranger who says nothing, or nonsense, is no rank and delays no rank
	kill $other
	wait $other 2> /dev/null
	rank 0 2 zero MASTER_ADDR=localhost PATIENCE=20 &
	python3 -c 'import socket, sys, time
def come():
    for i in range(100):
        try: return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except OSError: time.sleep(0.02)
s = come(); s.send(b"GET / HTTP/1.0\r\n\r\n"); t = come(); print("here", flush=True); t.recv(1)' $port > strangers &
	for _ in $(seq 100); do [ -s strangers ] && break; sleep 0.05; done
	if rank 1 2 one MASTER_ADDR=localhost PATIENCE=20 && wait; then good; else cat zero one > said; bad 'beside strangers'; fi
fi
# by name and by the other protocol
for address in localhost ::1 "$(hostname)"; do
	rank 0 2 zero "MASTER_ADDR=$address" &
	if rank 1 2 one "MASTER_ADDR=$address" && wait $!; then
		good
	elif [ "$address" = ::1 ] && grep -q 'not supported\|Cannot assign' zero one; then
		good	# a host without IPv6
	else
		cat zero one > said
		bad "MASTER_ADDR=$address"
	fi
	wait
done

# ---- one launcher inside another ----
unset MASTER_ADDR MASTER_PORT
if SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 "$envrun" -n 2 "$ztrain" --check-launch > said 2>&1 &&
	grep -q '^rank 1 of 2' said; then good; else bad 'below srun of one task'; fi
if has_ranks; then
	if "$mpirun" -n 1 "$envrun" -n 2 "$ztrain" --check-launch > said 2>&1 && grep -q '^rank 1 of 2' said; then
		good
	else
		bad 'below mpirun -n 1'
	fi
fi
# MPI that sees one rank of two: each would train by itself
PMI_SIZE=2 PMI_RANK=0 MASTER_ADDR='' timeout -k 5 60 "$ztrain" --check-launch > said 2>&1 && bad 'a rank that MPI leaves alone has status 0'
if "$ztrain" --version | grep -q MPI; then says said 'started 2 processes, but MPI counts 1'; fi
finish
