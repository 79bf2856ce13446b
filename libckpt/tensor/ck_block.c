/* ck_block.c -- see ck_block.h. */
#include "libckpt/tensor/ck_block.h"

#include <stdlib.h>

#include "libckpt/base/ck_sys.h"

uint64_t ck_block_run(const struct ck_block *b, uint32_t *rows_out)
{
	uint64_t n = 1;
	uint32_t k = b->ndim;

	while (k > 0 && b->size[k - 1] == b->shape[k - 1])
		n *= b->shape[--k];
	if (k > 0)
		n *= b->size[--k];
	*rows_out = k;
	return n;
}

uint64_t ck_block_first(const struct ck_block *b, uint32_t rows, uint64_t row)
{
	uint64_t at = 0, stride = 1;

	for (uint32_t k = b->ndim; k > 0; k--) {
		uint64_t i = b->offset[k - 1];

		if (k <= rows) {
			i += row % b->size[k - 1];
			row /= b->size[k - 1];
		}
		at += i * stride;
		stride *= b->shape[k - 1];
	}
	return at;
}

int ck_runs_room(struct ck_runs *runs, uint64_t more, struct ckpt_err *err)
{
	return ck_grow(&runs->run, &runs->cap, runs->n + more, sizeof(*runs->run), err);
}

static int by_first(const void *a, const void *b)
{
	const struct ck_extent *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

void ck_runs_sort(struct ck_runs *runs)
{
	if (runs->n)
		qsort(runs->run, runs->n, sizeof(*runs->run), by_first);
}

bool ck_runs_odd(const struct ck_runs *runs, uint64_t numel, uint64_t *at_out, bool *twice_out)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < runs->n; i++) {
		*twice_out = runs->run[i].first < at;
		*at_out = *twice_out ? runs->run[i].first : at;
		if (runs->run[i].first != at)
			return true;
		at += runs->run[i].count * runs->run[i].runs;
	}
	*at_out = at;
	*twice_out = false;
	return at != numel;
}

int ck_runs_put(const struct ck_runs *runs, struct ck_index *ix, uint32_t tensor,
		const char *state, enum ckpt_dtype dtype, struct ckpt_err *err)
{
	int rc = ck_index_state_begin(ix, tensor, state, dtype, 0, err);

	for (uint64_t i = 0; !rc && i < runs->n; i++)
		rc = ck_index_state_extent(ix, &runs->run[i], err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

void ck_runs_release(struct ck_runs *runs)
{
	ck_free(runs->run);
	*runs = (struct ck_runs){ .run = NULL };
}
