/* cli_launched.h -- the variables by which mpirun and srun tell a process who it is. */
#ifndef CLI_LAUNCHED_H
#define CLI_LAUNCHED_H

#include <stdlib.h>

struct cli_launcher {
	const char *size, *rank;	/* names of variables */
};

enum { CLI_BY_OMPI, CLI_BY_MVAPICH, CLI_BY_PMI, CLI_BY_SRUN, CLI_LAUNCHERS };

/* mpirun under Slurm starts its daemons with srun: its own variables come first. */
static const struct cli_launcher cli_launchers[CLI_LAUNCHERS] = {
	[CLI_BY_OMPI] = { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" },
	[CLI_BY_MVAPICH] = { "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK" },
	[CLI_BY_PMI] = { "PMI_SIZE", "PMI_RANK" },
	[CLI_BY_SRUN] = { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID" },
};

/*
 * How many processes were started together with this one, 1 if no launcher says.  '*rank_out' is
 * its number, -1 = not said; '*by_out' (may be NULL) who says so, NULL = none.
 */
static inline int cli_launched(int *rank_out, const struct cli_launcher **by_out)
{
	const struct cli_launcher *by = cli_launchers, *end = by + CLI_LAUNCHERS;
	const char *size = NULL, *rank;

	while (by < end && ((size = getenv(by->size)) == NULL || atoi(size) < 1))
		by++;
	rank = by < end ? getenv(by->rank) : NULL;
	*rank_out = rank ? atoi(rank) : -1;
	if (by_out)
		*by_out = by < end ? by : NULL;
	return by < end ? atoi(size) : 1;
}

#endif
