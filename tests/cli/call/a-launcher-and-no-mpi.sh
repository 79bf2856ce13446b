# Three processes of a launcher, and a program without MPI: none of them writes, rank 0 says what to do;
# what only reads is read. One process that has its part, or is alone, goes on.
cp "$(command -v zckpt)" zckpt
run=$FIXTURES/deepspeed/ds0.19.8-z2-bf16-w2/ckpt
as() { OMPI_COMM_WORLD_SIZE=$1 OMPI_COMM_WORLD_RANK=$2; export OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK; }
as 3 0; ./zckpt reshard --world 1 "$run" out; echo "exit $?"
as 3 2; ./zckpt reshard --world 1 "$run" out; echo "exit $?"
as 3 0; ./zckpt convert --json "$run" out.safetensors 2> /dev/null; echo "exit $?"
as 3 1; ./zckpt inspect "$run" | grep -o "^path"
as 3 1; ./zckpt convert -q --part 1/1 "$run" one.safetensors; echo "exit $?"
as 1 0; ./zckpt convert -q "$run" two.safetensors; echo "exit $?"
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
SLURM_NTASKS=4 SLURM_PROCID=0 ./zckpt convert -q "$run" batch.safetensors; echo "a batch script: exit $?"
SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 ./zckpt convert -q "$run" step.safetensors; echo "exit $?"
rm zckpt; ls
