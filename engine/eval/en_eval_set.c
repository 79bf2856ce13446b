/* en_eval_set.c -- see en_eval_set.h. */
#include "engine/eval/en_eval_set.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct en_eval_set {
	struct en_zero *z;
	struct en_comm *comm;
	struct en_eval_set_feed feed;
	uint32_t rows, tokens;
	int32_t *ids, *labels;
	double *sums;		/* of losses of every unit, then of tokens that count */
};

int en_eval_set_new(struct en_zero *z, struct en_comm *comm, const struct en_eval_set_feed *feed,
		    uint32_t rows, uint32_t tokens, struct en_eval_set **held_out,
		    struct ckpt_err *err)
{
	struct en_eval_set *h = ck_zalloc(sizeof(*h));
	const uint64_t n = (uint64_t)rows * tokens;

	if (!h)
		return ck_fail_nomem(err, "an evaluation", sizeof(*h));
	*h = (struct en_eval_set){
		.z = z, .comm = comm, .feed = *feed, .rows = rows, .tokens = tokens,
		.ids = ck_alloc_array(n, sizeof(int32_t)),
		.labels = ck_alloc_array(n, sizeof(int32_t)),
		.sums = ck_alloc_array(2 * feed->units + 1, sizeof(double)),
	};
	if (!h->ids || !h->labels || !h->sums) {
		en_eval_set_free(h);
		return ck_fail_nomem(err, "rows to evaluate", n);
	}
	*held_out = h;
	return 0;
}

void en_eval_set_free(struct en_eval_set *h)
{
	if (!h)
		return;
	ck_free(h->ids);
	ck_free(h->labels);
	ck_free(h->sums);
	ck_free(h);
}

/* A turn without a unit: one row of which nothing counts. */
static void fill_idle(struct en_eval_set *h)
{
	memset(h->ids, 0, h->tokens * sizeof(*h->ids));
	for (uint32_t i = 0; i < h->tokens; i++)
		h->labels[i] = -100;
}

static int take_turn(struct en_eval_set *h, uint64_t unit, struct ckpt_err *err)
{
	struct en_batch batch = { 1, h->tokens, h->ids, h->labels };
	const bool mine = unit < h->feed.units;
	struct en_loss loss;
	int rc = 0;

	if (mine)
		rc = h->feed.rows(h->feed.arg, unit, h->ids, h->labels, &batch.rows, err);
	else
		fill_idle(h);
	if (!rc)
		rc = en_zero_eval(h->z, &batch, &loss, err);
	if (!rc && mine) {
		h->sums[unit] = loss.sum;
		h->sums[h->feed.units + unit] = (double)loss.count;
	}
	return rc;
}

int en_eval_set_loss(struct en_eval_set *h, double *loss_out, struct ckpt_err *err)
{
	const uint64_t n = h->feed.units, size = h->comm->size;
	double sum, count;
	int rc = 0;

	memset(h->sums, 0, (2 * n + 1) * sizeof(*h->sums));
	for (uint64_t u = h->comm->rank; !rc && u < (n + size - 1) / size * size; u += size)
		rc = take_turn(h, u, err);
	if (!rc)
		rc = en_comm_all_reduce(h->comm, h->sums, KN_NUM_F64, 2 * n, EN_COMM_SUM, NULL,
					err);
	if (rc)
		return rc;
	sum = kn_tree_sum(h->sums, n);
	count = kn_tree_sum(h->sums + n, n);
	*loss_out = count > 0 ? sum / count : NAN;
	return 0;
}
