/*
 * mpi_comm.c -- ranks that try the table of collectives; tests/engine/test_comm_mpi.sh runs it.
 *
 *	mpi_comm check                      every result, every counter
 *	mpi_comm fall OP RANK SIGNAL MS     loops OP; RANK gets SIGNAL in the fourth; deadline MS
 *	mpi_comm late OP RANK SIGNAL MS     the same, before it starts the fourth
 *	mpi_comm apart                      ranks that start all-gathers of different sizes
 *	mpi_comm pause RANK MS              RANK sleeps for MS, the others wait without a deadline
 *	mpi_comm start | bare               start-up times: the table, MPI_Init alone
 *	mpi_comm speed MIB                  reduce-scatter and all-gather of MIB a rank
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/comm/en_comm_mpi.h"
#include "engine/comm/en_bootstrap.h"
#include "tests/engine/mpi_comm.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* To stderr and to said.RANK, since a launcher that ends ranks may lose what they said last. */
static _Noreturn void give_up(struct en_comm *comm, const struct ckpt_err *err)
{
	char name[32];
	FILE *f;

	snprintf(name, sizeof(name), "said.%u", comm->rank);
	f = fopen(name, "w");
	if (f) {
		fprintf(f, "%s: %s\n", err->where, err->msg);
		fclose(f);
	}
	fprintf(stderr, "mpi_comm: %s: %s\n", err->where, err->msg);
	en_comm_abort(comm, 3);
}

static struct en_comm *open_table(uint32_t timeout_ms)
{
	struct ckpt_err err = { 0 };
	struct en_rendezvous rendezvous;
	enum en_bootstrap how;
	struct en_comm *comm;
	int rc = en_bootstrap_detect(true, &how, &rendezvous, &err);

	if (!rc)
		rc = how == EN_BOOT_TCP ? en_comm_tcp_open(&rendezvous, timeout_ms, &comm, &err)
					: en_comm_mpi_open(timeout_ms, &comm, &err);
	if (rc) {
		fprintf(stderr, "mpi_comm: %s: %s\n", err.where, err.msg);
		exit(3);
	}
	return comm;
}

static void close_table(struct en_comm *comm)
{
	struct ckpt_err err = { 0 };

	if (en_comm_close(comm, &err))
		give_up(comm, &err);
}

static int check(void)
{
	struct en_comm *comm = open_table(120000);
	struct ckpt_err err = { 0 };
	uint64_t bad = 0;

	bad += (uint64_t)mpi_check_sums(comm);
	bad += (uint64_t)mpi_check_copies(comm);
	bad += (uint64_t)mpi_check_flight(comm);
	bad += (uint64_t)mpi_check_counters(comm);
	if (comm->scratch_peak > (uint64_t)2 * 32 << 20)
		bad++;
	if (en_comm_all_reduce(comm, &bad, KN_NUM_U64, 1, EN_COMM_SUM, NULL, &err))
		give_up(comm, &err);
	if (!comm->rank)
		printf("%u ranks, %llu wrong, %llu bytes of scratch\n", comm->size,
		       (unsigned long long)bad, (unsigned long long)comm->scratch_peak);
	close_table(comm);
	return bad != 0;
}

#define FALL_BYTES ((uint64_t)9 << 18)	/* three chunks */

static int begin(struct en_comm *comm, const char *op, uint8_t *full, struct en_collective **work,
		 struct ckpt_err *err)
{
	uint8_t *own = full + comm->rank * FALL_BYTES;

	if (!strcmp(op, "gather"))
		return en_comm_all_gather(comm, full, own, FALL_BYTES, work, err);
	if (!strcmp(op, "reduce"))
		return en_comm_reduce_scatter(comm, (float *)(void *)own, full, KN_F32,
					      FALL_BYTES / 4, 1, work, err);
	if (!strcmp(op, "small"))
		return en_comm_all_reduce(comm, own, KN_NUM_F64, 3, EN_COMM_SUM, work, err);
	if (!strcmp(op, "broadcast"))
		return en_comm_broadcast(comm, full, FALL_BYTES, 0, work, err);
	return en_comm_barrier(comm, work, err);
}

static int fall(const char *op, uint32_t victim, int signal, uint32_t ms, bool late)
{
	struct en_comm *comm = open_table(ms);
	uint8_t *full = calloc(comm->size, FALL_BYTES);
	struct en_collective *work;
	struct ckpt_err err = { 0 };

	for (int i = 0; full && i < 40; i++) {
		if (i == 3 && comm->rank == victim && late)
			raise(signal);
		if (begin(comm, op, full, &work, &err) || en_comm_test(comm, &work, &err))
			give_up(comm, &err);
		if (i == 3 && comm->rank == victim)
			raise(signal);
		if (en_comm_wait(comm, &work, &err))
			give_up(comm, &err);
	}
	free(full);
	close_table(comm);
	return 0;
}

static int apart(void)
{
	static uint8_t full[64 * 100];
	struct en_comm *comm = open_table(5000);
	struct ckpt_err err = { 0 };
	const uint64_t n = comm->rank == 1 ? 50 : 100;

	if (en_comm_all_gather(comm, full, full + comm->rank * n, n, NULL, &err))
		give_up(comm, &err);
	close_table(comm);
	return 0;
}

static int late_rank(uint32_t who, uint32_t ms)
{
	struct en_comm *comm = open_table(0);
	struct ckpt_err err = { 0 };
	uint64_t v = 1;

	if (comm->rank == who)
		usleep(ms * 1000);
	if (en_comm_all_reduce(comm, &v, KN_NUM_U64, 1, EN_COMM_SUM, NULL, &err))
		give_up(comm, &err);
	v -= comm->size;
	close_table(comm);
	return v != 0;
}

static int start(void)
{
	const double begun = seconds();
	struct en_comm *comm = open_table(60000);
	double took[2] = { seconds() - begun, 0 };
	struct ckpt_err err = { 0 };

	took[1] = took[0] - mpi_count_now().init_seconds;
	if (en_comm_all_reduce(comm, took, KN_NUM_F64, 2, EN_COMM_MAX, NULL, &err))
		give_up(comm, &err);
	if (!comm->rank)
		printf("%u ranks: up after %.3f s, of which beyond MPI_Init %.3f s\n", comm->size,
		       took[0], took[1]);
	close_table(comm);
	return 0;
}

/* Best of five, of the slowest rank. */
static void timed(struct en_comm *comm, const char *name, uint64_t mib, uint8_t *full)
{
	const uint64_t bytes = (mib << 20) / comm->size / 4096 * 4096;
	uint8_t *own = full + comm->rank * bytes;
	const bool gathers = !strcmp(name, "all-gather");
	struct ckpt_err err = { 0 };
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		double took;
		int rc = en_comm_barrier(comm, NULL, &err);

		took = seconds();
		if (!rc && gathers)
			rc = en_comm_all_gather(comm, full, own, bytes, NULL, &err);
		else if (!rc)
			rc = en_comm_reduce_scatter(comm, (float *)(void *)own, full, KN_F32,
						    bytes / 4, 1, NULL, &err);
		took = seconds() - took;
		if (rc || en_comm_all_reduce(comm, &took, KN_NUM_F64, 1, EN_COMM_MAX, NULL, &err))
			give_up(comm, &err);
		best = took < best ? took : best;
	}
	if (!comm->rank)
		printf("%u ranks: %s of %llu MiB in %.4f s, %.2f GB/s sent and received a rank\n",
		       comm->size, name, (unsigned long long)mib, best,
		       (double)bytes * (comm->size - 1) / best / 1e9);
}

static int speed(uint64_t mib)
{
	struct en_comm *comm = open_table(60000);
	uint8_t *full = calloc(mib, 1 << 20);

	if (!full)
		return 3;
	timed(comm, "all-gather", mib, full);
	timed(comm, "reduce-scatter", mib, full);
	free(full);
	close_table(comm);
	return 0;
}

static int bare(void)
{
	mpi_count_bare();
	printf("up after %.3f s\n", mpi_count_now().init_seconds);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "check"))
		return check();
	if (argc == 6 && (!strcmp(mode, "fall") || !strcmp(mode, "late")))
		return fall(argv[2], (uint32_t)atoi(argv[3]), atoi(argv[4]),
			    (uint32_t)atoi(argv[5]), mode[0] == 'l');
	if (!strcmp(mode, "apart"))
		return apart();
	if (argc == 4 && !strcmp(mode, "pause"))
		return late_rank((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
	if (!strcmp(mode, "start"))
		return start();
	if (!strcmp(mode, "bare"))
		return bare();
	if (argc == 3 && !strcmp(mode, "speed"))
		return speed((uint64_t)atoll(argv[2]));
	fprintf(stderr, "mpi_comm: no such mode (see the head of tests/engine/mpi_comm.c)\n");
	return 2;
}
