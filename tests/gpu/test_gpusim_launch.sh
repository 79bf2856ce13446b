#!/bin/bash
# usage: test_gpusim_launch.sh
#
# Who has which GPU, on simulated GPUs (tests/gpusim).  If this fails, two ranks on one GPU
# wait for each other forever, or a rank computes on another one than its own.
#
#   table     a line for each rank, under mpirun and by torchrun's variables; one line for one rank
#   refused   two ranks on one GPU, more ranks than GPUs, by every rank and with the likely cause
#   blind     without --device: a list that names no GPU of the host, and ranks of which one sees none, are
#             refused; where nothing speaks of GPUs, and with --device cpu, ranks train on the CPU
#   runs      ranks by torchrun's variables have the losses of those under mpirun
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/../engine/ztrain.sh"
need_models
sim=$build/ztrain-gpusim
envrun=$root/tests/lib/run/envrun
[ -x "$sim" ] || skip "$sim is missing (make gpusim)"
unset CUDA_VISIBLE_DEVICES FAKE_GPUS RANK WORLD_SIZE LOCAL_RANK
echo '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}' > z.json
run() {
	# shellcheck disable=SC2086
	timeout -k 5 100 $1 "$sim" --device cuda --model "$models/llama3" --config z.json --seq 17 --steps 2 --random \
		--reduction tree --exact > said 2>&1 < /dev/null
}
has() { if grep -q -- "$2" said; then good; else bad "$1: nobody says: $2"; fi; }
lacks() { if grep -q -- "$2" said; then bad "$1: $2"; else good; fi; }
starts=("$envrun -n 2")
! "$sim" --version | grep -q MPI || ! has_mpirun || starts+=("$mpirun -n 2")

run '' && good || bad 'one rank'
has 'one rank' '^GPU 0 of [^ ]*: 0000:01:00.0, a fake GPU, [0-9.]* of 16.0 GiB free'
grep '^step' said > want
for start in "${starts[@]}"; do
	run "$start" && good || bad "$start"
	has "$start" '^rank  host .* GPU  bus '
	has "$start" '^ *0  [^ ]*  *0    0  0000:01:00.0  a fake GPU, '
	has "$start" '^ *1  [^ ]*  *1    1  0000:02:00.0  a fake GPU, '
	grep '^step' said > steps
	if cmp -s want steps; then good; else bad "$start: other losses"; fi

	# each of both sees one GPU, another one: the number is 0 for both
	run "$start env CUDA_VISIBLE_DEVICES=5" && bad "$start, one list for both"
	has "$start, one list" 'Ranks 0 and 1 would use one GPU, 0000:06:00.0 (GPU-.*CUDA_VISIBLE_DEVICES is "5" for all'
	[ "$(grep -c 'would use one GPU' said)" = 1 ] && good || bad "$start: it is said more than once"
	lacks "$start, one list" 'NCCL: joining'
	FAKE_GPUS=1 run "$start" && bad "$start, one GPU"
	has "$start, one GPU" '2 ranks were started on that host, which has 1 GPU: start at most one rank per GPU'
	lacks "$start, one GPU" '^step'
done
cat > own << 'END'
#!/bin/sh
# a GPU for each rank by a list for each, as srun --gpus-per-task=1 has it
CUDA_VISIBLE_DEVICES=$((RANK + 2)) exec "$@"
END
chmod +x own
run "$envrun -n 2 $PWD/own" && good || bad 'a list for each'
has 'a list for each' '^ *1  [^ ]*  *1    0  0000:04:00.0  a fake GPU, '
FAKE_GPUS=2 run "$envrun -n 4" && bad '4 ranks, 2 GPUs'
has '4 ranks, 2 GPUs' 'local rank 2, but 2 GPUs are visible: this host has fewer GPUs than ranks'
# no launcher says which rank of its host a rank is: the hosts of the others do
cat > nolocal << 'END'
#!/bin/sh
unset LOCAL_RANK
exec "$@"
END
chmod +x nolocal
run "$envrun -n 2 $PWD/nolocal" && good || bad 'without LOCAL_RANK'
has 'without LOCAL_RANK' '^ *1  [^ ]*  *1    1  0000:02:00.0'
# all have one
sed 's/unset LOCAL_RANK/export LOCAL_RANK=0/' nolocal > samelocal
chmod +x samelocal
run "$envrun -n 2 $PWD/samelocal" && bad 'one LOCAL_RANK for all'
has 'one LOCAL_RANK for all' 'All have local rank 0: their launcher sets none, or LOCAL_RANK leaked'
# ---- a device for each, or for none: with --device auto
# auto START OPTION...
auto() {
	local start=$1
	shift
	# shellcheck disable=SC2086
	timeout -k 5 100 $start "$sim" --model "$models/llama3" --config z.json --seq 17 --steps 2 --random "$@" > said 2>&1 < /dev/null
}
host=$(hostname)
for start in '' "${starts[@]}"; do
	n=1
	[ -z "$start" ] || n=2
	for list in 21000,21001 NoDevFiles '' -1; do
		CUDA_VISIBLE_DEVICES=$list auto "$start" && bad "$start, CUDA_VISIBLE_DEVICES=$list trains on CPUs"
		has "$start, $list" "^ztrain: Rank 0 of $n on $host sees no GPU.*: CUDA_VISIBLE_DEVICES is \"$list\".* --device cpu"
		[ "$(grep -c 'CUDA_VISIBLE_DEVICES' said)" = 1 ] && good || bad "$start, $list: it is said more than once"
		lacks "$start, $list" '^step'
		CUDA_VISIBLE_DEVICES=$list run "$start" && bad "$start, --device cuda, $list"
		has "$start, --device cuda, $list" "ank 0 of $n on $host sees no GPU.*: CUDA_VISIBLE_DEVICES is \"$list\""
	done
	CUDA_VISIBLE_DEVICES=NoDevFiles auto "$start"
	has "$start, NoDevFiles" 'SLURM sets this for a job without GPUs'
	CUDA_VISIBLE_DEVICES=21000 auto "$start" --device cpu && good || bad "$start, --device cpu"
	FAKE_GPUS=0 auto "$start" && good || bad "$start, a host without GPUs"
	FAKE_GPUS=0 run "$start" && bad "$start, --device cuda without GPUs"
	has "$start, --device cuda without GPUs" "^ztrain: --device cuda: rank 0 of $n on $host sees no GPU"
	# shellcheck disable=SC2086
	CUDA_VISIBLE_DEVICES=21000 $start "$sim" --check-launch > said 2>&1 && bad "$start, --check-launch has status 0 after ERROR lines"
	has "$start, --check-launch" 'ERROR: No GPU is visible'
	CUDA_VISIBLE_DEVICES=' 0, 1' auto "$start" && good || bad "$start, a list with spaces"
done
sed 's/^CUDA.*/[ "$RANK" = 0 ] || export FAKE_GPUS=0; exec "$@"/' own > blind
chmod +x blind
auto "$envrun -n 2 $PWD/blind" && bad 'one rank without a GPU: all train on CPUs'
has 'one rank without a GPU' "^ztrain: Rank 1 of 2 on $host sees no GPU; rank 0 sees 8. Start all ranks on hosts with GPUs"
"$envrun" -n 2 "$PWD/blind" "$sim" --check-launch > said 2>&1 && bad 'one rank without a GPU: --check-launch has status 0'
has '--check-launch, one rank without a GPU' "Rank 1 of 2 on $host sees no GPU"
CUDA_VISIBLE_DEVICES=' 0, 1' "$envrun" -n 2 "$sim" --check-launch > said 2>&1 && good || bad 'a list with spaces'
lacks 'a list with spaces' 'CUDA stops'

"$envrun" -n 2 "$sim" --check-launch > said 2>&1 && good || bad '--check-launch'
has '--check-launch' '^2 ranks, connected by tcp'
has '--check-launch' '^rank 1 of 2 on .*, GPU 1: 0000:02:00.0, a fake GPU, GPU-'
finish
