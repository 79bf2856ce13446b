/* en_eval_set.c -- see en_eval_set.h. */
#include "engine/eval/en_eval_set.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct en_eval_set {
	struct en_zero *z;
	struct en_comm *comm;
	struct en_eval_loader loader;
	uint32_t rows, tokens;
	int32_t *ids, *labels, *starts;
	double *sums;		/* of losses of every micro-batch, then of tokens that count */
};

int en_eval_set_new(struct en_zero *z, struct en_comm *comm, const struct en_eval_loader *loader,
		    uint32_t rows, uint32_t tokens, struct en_eval_set **set_out,
		    struct ckpt_err *err)
{
	struct en_eval_set *s = ck_zalloc(sizeof(*s));
	const uint64_t n = (uint64_t)rows * tokens;

	if (!s)
		return ck_fail_nomem(err, "an evaluation", sizeof(*s));
	*s = (struct en_eval_set){
		.z = z, .comm = comm, .loader = *loader, .rows = rows, .tokens = tokens,
		.ids = ck_alloc_array(n, sizeof(int32_t)),
		.labels = ck_alloc_array(n, sizeof(int32_t)),
		.starts = loader->packed ? ck_alloc_array(n, sizeof(int32_t)) : NULL,
		.sums = ck_alloc_array(2 * loader->n_micro_batches + 1, sizeof(double)),
	};
	if (!s->ids || !s->labels || (loader->packed && !s->starts) || !s->sums) {
		en_eval_set_free(s);
		return ck_fail_nomem(err, "rows to evaluate", n);
	}
	*set_out = s;
	return 0;
}

void en_eval_set_free(struct en_eval_set *s)
{
	if (!s)
		return;
	ck_free(s->ids);
	ck_free(s->labels);
	ck_free(s->starts);
	ck_free(s->sums);
	ck_free(s);
}

/* A turn without a micro-batch: one row of which nothing counts. */
static void fill_idle(struct en_eval_set *s)
{
	memset(s->ids, 0, s->tokens * sizeof(*s->ids));
	for (uint32_t i = 0; i < s->tokens; i++)
		s->labels[i] = -100;
	if (s->starts)
		memset(s->starts, 0, s->tokens * sizeof(*s->starts));
}

static int eval_turn(struct en_eval_set *s, uint64_t micro_batch, struct ckpt_err *err)
{
	struct en_batch batch = { 1, s->tokens, s->ids, s->labels, s->starts, NULL };
	const bool mine = micro_batch < s->loader.n_micro_batches;
	struct en_loss loss;
	int rc = 0;

	if (mine)
		rc = s->loader.rows(s->loader.arg, micro_batch, s->ids, s->labels,
				    s->starts, &batch.rows, err);
	else
		fill_idle(s);
	if (!rc)
		rc = en_zero_eval(s->z, &batch, &loss, err);
	if (!rc && mine) {
		s->sums[micro_batch] = loss.sum;
		s->sums[s->loader.n_micro_batches + micro_batch] = (double)loss.count;
	}
	return rc;
}

int en_eval_set_loss(struct en_eval_set *s, double *loss_out, uint64_t *tokens_out,
		     struct ckpt_err *err)
{
	const uint64_t n = s->loader.n_micro_batches, size = s->comm->size;
	double sum, count;
	int rc = 0;

	memset(s->sums, 0, (2 * n + 1) * sizeof(*s->sums));
	for (uint64_t u = s->comm->rank; !rc && u < (n + size - 1) / size * size; u += size)
		rc = eval_turn(s, u, err);
	if (!rc)
		rc = en_comm_all_reduce(s->comm, s->sums, KN_NUM_F64, 2 * n, EN_COMM_SUM, NULL,
					err);
	if (rc)
		return rc;
	sum = kn_tree_sum(s->sums, n);
	count = kn_tree_sum(s->sums + n, n);
	*loss_out = count > 0 ? sum / count : NAN;
	if (tokens_out)
		*tokens_out = (uint64_t)count;
	return 0;
}
