/* en_comm.c -- see en_comm.h: what all backends of the table share, and the table of one rank. */
#include "engine/comm/en_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/comm/en_tree.h"
#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "tools/shared/cli_launched.h"

const char *en_comm_kind_name(enum en_comm_kind kind)
{
	static const char *const names[EN_COMM_KINDS] = {
		[EN_COMM_GATHER] = "all-gather", [EN_COMM_REDUCE] = "reduce-scatter",
		[EN_COMM_SMALL] = "small", [EN_COMM_BROADCAST] = "broadcast",
		[EN_COMM_BARRIER] = "barrier",
	};

	return (unsigned)kind < EN_COMM_KINDS ? names[kind] : "?";
}

uint32_t en_comm_launched(int32_t *rank_out)
{
	int rank;
	const int size = cli_launched(&rank, NULL);

	*rank_out = (int32_t)rank;
	return (uint32_t)size;
}

/* ---------------------------------------------------------------- checks */

static int wrong(struct ckpt_err *err, const char *what, const char *why)
{
	return ck_fail(err, CKPT_E_USAGE, what, CKPT_NO_OFFSET, "%s", why);
}

static int broken(const struct en_comm *comm, struct ckpt_err *err)
{
	if (!comm->broken.code)
		return 0;
	if (err && !err->code)
		*err = comm->broken;
	return -(int)comm->broken.code;
}

/* Whether [a, a + na) and [b, b + nb) share a byte. */
static bool overlap(const void *a, uint64_t na, const void *b, uint64_t nb)
{
	const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	return na && nb && x < y + nb && y < x + na;
}

static int check_gather(struct en_comm *comm, const char *what, const void *full,
			const void *shard, uint64_t bytes, struct ckpt_err *err)
{
	uint64_t all;

	if (broken(comm, err))
		return -(int)comm->broken.code;
	if (ck_mul_over(bytes, comm->size, &all) || all > PTRDIFF_MAX)
		return wrong(err, what, "more bytes than the address space");
	if (bytes && (!full || !shard))
		return wrong(err, what, "no buffer");
	if (bytes && shard != (const uint8_t *)full + comm->rank * bytes &&
	    overlap(full, all, shard, bytes))
		return wrong(err, what,
			     "the shard overlaps the full buffer but is not its own part of it");
	return 0;
}

static int check_reduce(struct en_comm *comm, const float *own, const void *full,
			enum kn_type type, uint64_t n, struct ckpt_err *err)
{
	static const char what[] = "reduce-scatter";
	const uint64_t size = kn_type_size(type);
	uint64_t all;

	if (broken(comm, err))
		return -(int)comm->broken.code;
	if (type != KN_F32 && type != KN_BF16 && type != KN_F16)
		return wrong(err, what, "elements are neither fp32, bf16 nor fp16");
	if (ck_mul_over(n, comm->size, &all) || ck_mul_over(all, 4, &all) || all > PTRDIFF_MAX)
		return wrong(err, what, "more bytes than the address space");
	if (n && (!own || !full))
		return wrong(err, what, "no buffer");
	if (type == KN_F32 && own == (const float *)full + comm->rank * n)
		return 0;
	if (n && overlap(own, n * 4, full, n * comm->size * size))
		return wrong(err, what, "the result overlaps the input");
	return 0;
}

static int check_small(struct en_comm *comm, const void *v, enum kn_num type, uint64_t n,
		       enum en_comm_op op, struct ckpt_err *err)
{
	static const char what[] = "all-reduce";

	if (broken(comm, err))
		return -(int)comm->broken.code;
	if (type != KN_NUM_F32 && type != KN_NUM_F64 && type != KN_NUM_U64)
		return wrong(err, what, "elements are neither fp32, fp64 nor 64-bit integers");
	if (op != EN_COMM_SUM && op != EN_COMM_MAX && op != EN_COMM_MIN)
		return wrong(err, what, "neither a sum, a maximum nor a minimum");
	if (n > PTRDIFF_MAX / 8 / comm->size)
		return wrong(err, what, "more bytes than the address space");
	return n && !v ? wrong(err, what, "no buffer") : 0;
}

/* ---------------------------------------------------------------- calls */

/* What was started is waited for where the caller takes no handle. */
static int hand_over(struct en_comm *comm, int rc, struct en_collective *work,
		     struct en_collective **work_out, struct ckpt_err *err)
{
	if (rc)
		return rc;
	if (!work_out)
		return en_comm_wait(comm, &work, err);
	*work_out = work;
	return 0;
}

static int gather(struct en_comm *comm, enum en_comm_kind kind, const char *what, void *full,
		  const void *shard, uint64_t bytes, struct en_collective **work_out,
		  struct ckpt_err *err)
{
	struct en_collective *work = NULL;
	uint8_t *own = (uint8_t *)full + (full ? comm->rank * bytes : 0);
	int rc = check_gather(comm, what, full, shard, bytes, err);

	if (rc)
		return rc;
	if (bytes && own != shard)
		memcpy(own, shard, bytes);
	rc = comm->ops->all_gather(comm, kind, full, bytes, &work, err);
	return hand_over(comm, rc, work, work_out, err);
}

int en_comm_all_gather(struct en_comm *comm, void *full, const void *shard, uint64_t bytes,
		       struct en_collective **work_out, struct ckpt_err *err)
{
	return gather(comm, EN_COMM_GATHER, "all-gather", full, shard, bytes, work_out, err);
}

int en_comm_gather_small(struct en_comm *comm, void *full, const void *own, uint64_t bytes,
			 struct en_collective **work_out, struct ckpt_err *err)
{
	return gather(comm, EN_COMM_SMALL, "small gather", full, own, bytes, work_out, err);
}

int en_comm_reduce_scatter(struct en_comm *comm, float *own, const void *full, enum kn_type type,
			   uint64_t n, float scale, struct en_collective **work_out,
			   struct ckpt_err *err)
{
	struct en_collective *work = NULL;
	int rc = check_reduce(comm, own, full, type, n, err);

	if (!rc)
		rc = comm->ops->reduce_scatter(comm, own, full, type, n, scale, &work, err);
	return hand_over(comm, rc, work, work_out, err);
}

int en_comm_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
		       enum en_comm_op op, struct en_collective **work_out, struct ckpt_err *err)
{
	struct en_collective *work = NULL;
	int rc = check_small(comm, v, type, n, op, err);

	if (!rc)
		rc = comm->ops->all_reduce(comm, v, type, n, op, &work, err);
	return hand_over(comm, rc, work, work_out, err);
}

int en_comm_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
		      struct en_collective **work_out, struct ckpt_err *err)
{
	struct en_collective *work = NULL;
	int rc = broken(comm, err);

	if (rc)
		return rc;
	if (root >= comm->size)
		return ck_fail(err, CKPT_E_USAGE, "broadcast", CKPT_NO_OFFSET,
			       "from rank %u of %u", root, comm->size);
	if ((bytes && !p) || bytes > PTRDIFF_MAX)
		return wrong(err, "broadcast", "no buffer");
	rc = comm->ops->broadcast(comm, p, bytes, root, &work, err);
	return hand_over(comm, rc, work, work_out, err);
}

int en_comm_barrier(struct en_comm *comm, struct en_collective **work_out, struct ckpt_err *err)
{
	struct en_collective *work = NULL;
	int rc = broken(comm, err);

	if (!rc)
		rc = comm->ops->barrier(comm, &work, err);
	return hand_over(comm, rc, work, work_out, err);
}

int en_comm_test(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
{
	int rc = broken(comm, err);

	return rc ? rc : comm->ops->test(comm, work, err);
}

int en_comm_wait(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
{
	int rc = broken(comm, err);

	if (rc || !*work)
		return rc;
	return comm->ops->wait(comm, work, err);
}

int en_comm_close(struct en_comm *comm, struct ckpt_err *err)
{
	int rc = comm ? broken(comm, err) : 0;

	return rc || !comm ? rc : comm->ops->close(comm, err);
}

void en_comm_lost(struct en_comm *comm, char *text, size_t n)
{
	*text = '\0';
	if (comm->ops->lost)
		comm->ops->lost(comm, text, n);
}

void en_comm_gone(struct en_comm *comm, uint8_t *gone)
{
	memset(gone, 0, comm->size);
	if (comm->ops->gone)
		comm->ops->gone(comm, gone);
}

_Noreturn void en_comm_abort(struct en_comm *comm, int status)
{
	fflush(NULL);
	if (comm->size > 1)
		usleep(100000);
	comm->ops->abort(comm, status);
	_exit(status);
}

/* ---------------------------------------------------------------- one rank */

static int local_gather(struct en_comm *comm, enum en_comm_kind kind, void *full, uint64_t bytes,
			struct en_collective **work_out, struct ckpt_err *err)
{
	(void)full, (void)bytes, (void)work_out, (void)err;
	comm->counter[kind].calls++;
	return 0;
}

/* As en_tree_join() of one piece: made fp32 and scaled. */
static int local_reduce(struct en_comm *comm, float *own, const void *full, enum kn_type type,
			uint64_t n, float scale, struct en_collective **work_out,
			struct ckpt_err *err)
{
	const struct en_tree tree = {
		.type = (enum kn_num)type, .op = EN_COMM_SUM, .scale = scale,
	};
	void *work = ck_alloc(en_tree_work(1));

	(void)work_out;
	if (!work)
		return ck_fail_nomem(err, "a reduce-scatter", en_tree_work(1));
	comm->counter[EN_COMM_REDUCE].calls++;
	en_tree_join(&tree, &full, 1, n, own, work);
	ck_free(work);
	return 0;
}

static int local_all_reduce(struct en_comm *comm, void *v, enum kn_num type, uint64_t n,
			    enum en_comm_op op, struct en_collective **work_out,
			    struct ckpt_err *err)
{
	(void)v, (void)type, (void)n, (void)op, (void)work_out, (void)err;
	comm->counter[EN_COMM_SMALL].calls++;
	return 0;
}

static int local_broadcast(struct en_comm *comm, void *p, uint64_t bytes, uint32_t root,
			   struct en_collective **work_out, struct ckpt_err *err)
{
	(void)p, (void)bytes, (void)root, (void)work_out, (void)err;
	comm->counter[EN_COMM_BROADCAST].calls++;
	return 0;
}

static int local_barrier(struct en_comm *comm, struct en_collective **work_out,
			 struct ckpt_err *err)
{
	(void)work_out, (void)err;
	comm->counter[EN_COMM_BARRIER].calls++;
	return 0;
}

/* Nothing is ever in flight. */
static int local_wait(struct en_comm *comm, struct en_collective **work, struct ckpt_err *err)
{
	(void)comm, (void)work, (void)err;
	return 0;
}

static int local_close(struct en_comm *comm, struct ckpt_err *err)
{
	(void)err;
	ck_free(comm);
	return 0;
}

static void local_abort(struct en_comm *comm, int status)
{
	(void)comm, (void)status;
}

static const struct en_comm_ops local_ops = {
	.name = "local",
	.all_gather = local_gather,
	.reduce_scatter = local_reduce,
	.all_reduce = local_all_reduce,
	.broadcast = local_broadcast,
	.barrier = local_barrier,
	.test = local_wait,
	.wait = local_wait,
	.close = local_close,
	.abort = local_abort,
};

int en_comm_local_open(struct en_comm **comm_out, struct ckpt_err *err)
{
	struct en_comm *comm = ck_zalloc(sizeof(*comm));

	if (!comm)
		return ck_fail_nomem(err, "collectives", sizeof(*comm));
	comm->ops = &local_ops;
	comm->size = 1;
	*comm_out = comm;
	return 0;
}
