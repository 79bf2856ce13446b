/*
 * zero_norm.c -- the norm of all gradients, from sums of squares of chunks.
 *
 * With z->sums_of_all the chunks of all ranks are summed as one tree, blocks one after the other
 * without what only pads them: the same bits at every number of ranks.
 */
#include <math.h>

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_base.h"

/* Chunks of a block that hold elements, counted over all ranks. */
static uint64_t real_chunks(const struct en_zero_block *b)
{
	return (b->numel + EN_ZERO_CHUNK - 1) / EN_ZERO_CHUNK;
}

uint64_t en_zero_all_chunks(const struct en_zero *z)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < z->model->nblocks; i++)
		n += real_chunks(&z->block[i]);
	return n;
}

/* Ranks one after the other become blocks one after the other. */
static int put_in_order(struct en_zero *z, struct ckpt_err *err)
{
	uint64_t to = 0;
	int rc = 0;

	for (uint32_t i = 0; i < z->model->nblocks; i++) {
		const struct en_zero_block *b = &z->block[i];
		const uint64_t each = b->shard / EN_ZERO_CHUNK, n = real_chunks(b);

		for (uint64_t at = 0; !rc && at < n; at += each) {
			const uint64_t count = ck_min_u64(each, n - at);

			rc = z->backend->norm_order(z, to, at / each * z->nsums + b->first_sum,
						    count, err);
			to += count;
		}
	}
	return rc;
}

int en_zero_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err)
{
	uint64_t n = z->nsums;
	double sum;
	int rc = z->backend->norm_begin(z, err);

	if (!rc && z->sums_of_all) {
		n = en_zero_all_chunks(z);
		rc = put_in_order(z, err);
	}
	if (!rc)
		rc = z->backend->norm_end(z, n, &sum, err);
	if (!rc)
		*norm_out = sqrt(sum);
	return rc;
}
