/* en_bench_fit.c -- how large a micro-batch can be; see en_bench.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/bench/en_bench.h"
#include "engine/zero/cpu/en_zero_cpu.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/*
 * What the driver, NCCL and the kernels of libraries may take when they are first used: chosen so
 * that a try seldom fails.  Where it is not enough the run has no memory, and one row less is
 * tried.
 */
#define MARGIN ((uint64_t)512 << 20)
#define MARGIN_OF_RANKS ((uint64_t)1 << 30)

/* ---- what is free ---- */

static bool available(uint64_t *bytes_out)
{
	FILE *f = fopen("/proc/meminfo", "r");
	uint64_t kib = 0;
	char line[128];

	while (f && !kib && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib);
	if (f)
		fclose(f);
	*bytes_out = kib * 1024;
	return kib != 0;
}

/* Ranks of this machine, by its name. */
static int ranks_here(struct en_comm *comm, uint32_t *n_out, struct ckpt_err *err)
{
	char own[64] = "", *all = ck_zalloc(comm->size * sizeof(own));
	int rc;

	if (!all)
		return ck_fail_nomem(err, "names of hosts", comm->size * sizeof(own));
	gethostname(own, sizeof(own) - 1);
	rc = en_comm_gather_small(comm, all, own, sizeof(own), NULL, err);
	*n_out = 0;
	for (uint32_t i = 0; i < comm->size; i++)
		*n_out += !memcmp(all + i * sizeof(own), own, sizeof(own));
	ck_free(all);
	return rc;
}

static int free_here(struct en_comm *comm, const struct en_cuda_opts *cuda, uint64_t *out,
		     struct ckpt_err *err)
{
	const uint64_t margin = comm->size > 1 ? MARGIN_OF_RANKS : MARGIN;
	uint32_t n = 1;
	uint64_t all;
	int rc = ranks_here(comm, &n, err);

	if (rc)
		return rc;
	if (!cuda) {
		if (!available(out))
			return ck_fail(err, CKPT_E_IO, "/proc/meminfo", CKPT_NO_OFFSET,
				       "available memory is unknown; give --memory");
		*out /= n ? n : 1;
		return 0;
	}
	rc = en_cuda_memory(cuda->device, out, &all, err);
	*out -= ck_min_u64(*out, margin);
	return rc;
}

int en_bench_free(struct en_comm *comm, const struct en_cuda_opts *cuda, uint64_t *bytes_out,
		  struct ckpt_err *err)
{
	uint64_t bytes = 0;
	double least;
	int rc = free_here(comm, cuda, &bytes, err), told;

	/* all ranks take part: a failure counts as nothing free */
	least = rc ? 0 : (double)bytes;
	told = comm->broken.code ? rc : en_comm_all_reduce(comm, &least, KN_NUM_F64, 1,
							   EN_COMM_MIN, NULL, rc ? NULL : err);
	*bytes_out = (uint64_t)least;
	return rc ? rc : told;
}

/* ---- what is wanted ---- */

static int bytes_of(const struct en_bench_opts *o, uint32_t rows, bool rooms_only, uint64_t *out,
		    struct ckpt_err *err)
{
	struct en_zero_opts zo = o->zero;
	struct en_mem mem;
	int rc;

	zo.rows = rows;
	rc = o->cuda ? en_zero_cuda_expect(o->model, &zo, o->comm->size, o->cuda, rooms_only, &mem,
					   err) :
	     en_zero_cpu_expect(o->model, &zo, o->comm->rank, o->comm->size,
			    o->messages, &mem, NULL, err);
	*out = rc ? 0 : en_bench_held(&mem, o->cuda != NULL);
	return rc;
}

/* By arithmetic alone, which grows with the rows; then with what libraries ask for on top. */
int en_bench_fit(const struct en_bench_opts *opts, uint64_t limit, uint32_t most,
		 uint32_t *rows_out, uint64_t *bytes_out, struct ckpt_err *err)
{
	const uint32_t can = (uint32_t)(INT32_MAX / opts->zero.tokens);
	uint32_t fits = 0, over = (most < can ? most : can) + 1;
	uint64_t bytes = 0;
	int rc = 0;

	while (!rc && over - fits > 1) {
		const uint32_t mid = fits + (over - fits) / 2;

		rc = bytes_of(opts, mid, true, &bytes, err);
		if (bytes <= limit)
			fits = mid;
		else
			over = mid;
	}
	if (!rc)
		rc = bytes_of(opts, fits ? fits : 1, false, &bytes, err);
	while (!rc && fits && bytes > limit) {
		/* a row takes less than its share of all: so many are too much at least */
		const uint64_t over_by = (bytes - limit) / (bytes / fits);

		fits -= (uint32_t)ck_max_u64(1, ck_min_u64(over_by, fits - 1));
		rc = bytes_of(opts, fits ? fits : 1, false, &bytes, err);
	}
	if (rc)
		return rc;
	*rows_out = fits;
	*bytes_out = bytes;
	return 0;
}
