/*
 * en_launch.h -- the rank and the GPU of this process, and contradictions between launchers.
 *
 * Launchers give a process its rank in environment variables, and a job that is started
 * by one launcher inside another sees those of both.  The program takes a snapshot of the
 * variables below and of the GPUs it sees; everything here is computed from that.
 */
#ifndef EN_LAUNCH_H
#define EN_LAUNCH_H

#include "libckpt/base/ck_base.h"

/*
 * Name, and the field of struct en_environ that holds its value.  torchrun, accelerate and
 * deepspeed set the first group; srun, Open MPI, MPICH (and other PMI) the others.
 */
#define EN_VARIABLES(X)                                            \
	X(RANK, rank)                                              \
	X(WORLD_SIZE, world_size)                                  \
	X(LOCAL_RANK, local_rank)                                  \
	X(LOCAL_WORLD_SIZE, local_world_size)                      \
	X(MASTER_ADDR, master_addr)                                \
	X(MASTER_PORT, master_port)                                \
	X(SLURM_PROCID, slurm_procid)                              \
	X(SLURM_NTASKS, slurm_ntasks)                              \
	X(SLURM_LOCALID, slurm_localid)                            \
	X(SLURM_STEP_ID, slurm_step_id)                            \
	X(SLURM_JOB_ID, slurm_job_id)                              \
	X(SLURM_GPUS_PER_TASK, slurm_gpus_per_task)                \
	X(OMPI_COMM_WORLD_RANK, ompi_rank)                         \
	X(OMPI_COMM_WORLD_SIZE, ompi_size)                         \
	X(OMPI_COMM_WORLD_LOCAL_RANK, ompi_local_rank)             \
	X(PMI_RANK, pmi_rank)                                      \
	X(PMI_SIZE, pmi_size)                                      \
	X(MPI_LOCALRANKID, mpi_localrankid)                        \
	X(CUDA_VISIBLE_DEVICES, cuda_visible_devices)              \
	X(ACCELERATE_MIXED_PRECISION, accelerate)

/* Values are lent; NULL = the variable is not set. */
struct en_environ {
#define X(name, field) const char *field;
	EN_VARIABLES(X)
#undef X
};

/* Launchers, in the order in which they are believed. */
enum en_launcher { EN_LAUNCHED_BY_TORCH = 1, EN_LAUNCHED_BY_OMPI, EN_LAUNCHED_BY_PMI,
		   EN_LAUNCHED_BY_SLURM, EN_LAUNCHED_ALONE };

enum en_launch_finding_id {
	EN_LAUNCH_BAD_VALUE = 1,	/* a variable is no number, or out of range */
	EN_LAUNCH_HALF_SAID,		/* a rank without a size, or the other way round */
	EN_LAUNCH_LAUNCHERS_DISAGREE,	/* two of them give another rank or size */
	EN_LAUNCH_NESTED,		/* variables of an outer job are there as well, and agree */
	EN_LAUNCH_DEVICE_LIST,		/* CUDA_VISIBLE_DEVICES hides GPUs by its form */
	EN_LAUNCH_NO_DEVICE,		/* no GPU is visible */
	EN_LAUNCH_ONE_DEVICE_EACH,	/* every task sees its own GPU as number 0 */
	EN_LAUNCH_TOO_FEW_DEVICES,	/* more ranks on this host than GPUs visible */
	EN_LAUNCH_NO_LOCAL_RANK,	/* the local rank is unknown */
	EN_LAUNCH_SAME_DEVICE,		/* two ranks use one GPU */
	EN_LAUNCH_LEFT_ALONE,		/* a launcher meant several processes, and this is one */
};

struct en_launch_finding {
	enum en_launch_finding_id id;
	bool fatal;		/* the run would fail, or compute on the wrong GPU */
	char text[400];		/* a sentence with the values, the cause and what to do */
};

#define EN_MAX_LAUNCH_FINDINGS 24

struct en_launched {
	enum en_launcher by;
	uint32_t rank, size;
	uint32_t local_rank;	/* 0 if unknown */
	bool has_local_rank;
	uint32_t device;	/* the GPU to use, as a number among those that are visible */
	uint32_t n_findings;
	struct en_launch_finding finding[EN_MAX_LAUNCH_FINDINGS];
};

/*
 * Who this process is, and on which GPU.  'devices' is how many GPUs it can see, or -1 for a run
 * without GPUs (nothing of them is looked at then).  The number of fatal findings.
 *
 * A launcher is believed in this order: RANK and WORLD_SIZE, Open MPI, PMI, SLURM; none of them:
 * one process.  'local' is which rank of its host this one is, as the others' hosts say (-1: not
 * known), where no launcher says it.
 * With one GPU visible it is that one; else the one of the local rank.  The trap this
 * is about: under `srun --gpus-per-task=1` (or a launcher that sets CUDA_VISIBLE_DEVICES for each
 * task) every process sees its own GPU as number 0, and a program that takes the number of its
 * local rank fails; with all GPUs visible and no local rank, all processes would take number 0.
 */
unsigned en_launch_check(const struct en_environ *env, int devices, int local,
			 struct en_launched *out);

/* What a rank sends the others before GPUs are used. */
struct en_seat {
	char host[64];		/* its name, ends with NUL */
	char device[64];	/* the GPU's UUID; "" without one */
	uint32_t rank, local_rank;
	char machine[40];	/* distinguishes hosts of one name; "" = not known */
	char bus[24];		/* the GPU's place; "" = not known */
	char visible[64];	/* CUDA_VISIBLE_DEVICES, or its beginning; "" = not set */
	uint32_t devices;	/* GPUs that it sees; 0 = not known */
	uint32_t present;	/* device files of GPUs on its host; 0 = none, or not known */
	bool has_visible;	/* CUDA_VISIBLE_DEVICES is set, maybe to nothing */
};

/* Which rank of its host rank 'of' is, by the hosts of the seats: 0, 1, ... */
uint32_t en_launch_local(const struct en_seat *seat, uint32_t of);

/*
 * The seats of all ranks, of which no two may have one device.  Adds to the findings of '*out', one
 * for each GPU; returns the number of fatal ones added.  Cost: 'n' squared comparisons.
 */
unsigned en_launch_seats(const struct en_seat *seat, uint32_t n, struct en_launched *out);

/*
 * Whether ranks that take a GPU where there is one mean what they get: a finding where some see
 * GPUs and others none, or where none does and CUDA_VISIBLE_DEVICES or the host speaks of some.
 * Adds to '*out'; the number of fatal findings added.
 */
unsigned en_launch_devices(const struct en_seat *seat, uint32_t n, struct en_launched *out);

/* "rank 1 of 2 on node3 sees no GPU: CUDA_VISIBLE_DEVICES is "7"", for the first that sees none. */
void en_launch_blind(const struct en_seat *seat, uint32_t n, char *text, size_t room);

/* "SLURM" for EN_LAUNCHED_BY_SLURM.  Static string, never freed. */
const char *en_launcher_name(enum en_launcher by);

#endif
