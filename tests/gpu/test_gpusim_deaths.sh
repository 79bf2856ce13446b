#!/bin/bash
# usage: test_gpusim_deaths.sh
#
# A rank on a GPU that is killed or stopped, wherever it is just then; on simulated GPUs
# (tests/gpusim).  If this fails, the others wait for their GPUs without end, which wait for a rank.
#
#   time    the others end when their time is up, or sooner
#   names   they name the rank, and what it is seen to be
#
# By torchrun's variables and under mpirun; the moment is chance, so that the host's collectives and
# the waits for the GPU (engine/zero/cuda/en_cuda_wait.c) are both met.
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/../engine/ztrain.sh"
need_models
sim=$build/ztrain-gpusim
envrun=$root/tests/lib/run/envrun
[ -x "$sim" ] || skip "$sim is missing (make gpusim)"
export FAKE_NCCL_TIMEOUT=60
echo '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}' > z.json
cat > each << 'END'
#!/bin/sh
# what each rank says, and its process
r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}
echo $$ > pid.$r
exec "$@" > said.$r 2>&1
END
chmod +x each
# fall SIGNAL NAP START...: rank 1 of 3
fall() {
	local signal=$1 nap=$2 job began took n
	shift 2
	rm -f said.* pid.*
	timeout -k 5 90 "$@" -n 3 "$PWD/each" "$sim" --device cuda --model "$models/llama3" --config z.json --seq 17 \
		--steps 1000000 --random --timeout 2 > out 2>&1 < /dev/null &
	job=$!
	for _ in $(seq 200); do grep -q '^step' said.0 2> /dev/null && break; sleep 0.05; done
	sleep "$nap"
	kill "-$signal" "$(cat pid.1)"
	began=$(date +%s%N)
	for n in 0 2; do
		while kill -0 "$(cat pid.$n)" 2> /dev/null && [ $((($(date +%s%N) - began) / 1000000)) -lt 30000 ]; do sleep 0.1; done
	done
	took=$((($(date +%s%N) - began) / 1000000))
	kill -9 "$(cat pid.1)" 2> /dev/null
	wait $job 2> /dev/null
	grep -h '^ztrain' said.0 said.2 > said
	if [ $took -ge 30000 ]; then
		bad "signal $signal after $nap s: they wait for $took ms"
	elif ! grep -q 'rank 1 (pid [0-9]*, \(stopped\|gone\|running\))' said.0 said.2 out &&
		! grep -q 'rank 1 .*signal 9' out; then
		cat out >> said
		bad "signal $signal after $nap s: nobody names it"
	else
		good
	fi
}
for i in 1 2 3; do
	fall 19 0.$((RANDOM % 9)) "$envrun"
	fall 9 0.$((RANDOM % 9)) "$envrun"
done
if has_mpirun && "$sim" --version | grep -q MPI; then
	fall 19 0.$((RANDOM % 9)) "$mpirun"
	fall 19 0.$((RANDOM % 9)) "$mpirun"
fi
finish
