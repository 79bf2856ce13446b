/* ck_buffers.c -- see ck_buffers.h. */
#include "libckpt/run/ck_buffers.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/tensor/ck_extents.h"

#define CACHE_BYTES ((uint64_t)16 << 20)
#define WIDEST 16	/* bytes of a complex128 */

struct comparing {
	struct ckpt *ck;
	struct ck_reader *reader;
	uint8_t *mine, *theirs, *scratch;
};

/* The copies of one buffer; the first that differs is named. */
static int compare_one(struct comparing *c, const struct ck_tensor *t, uint32_t state,
		       struct ckpt_err *err)
{
	const struct ck_index *ix = &c->ck->ix;
	const struct ck_state *first = &ix->state[state];
	const uint64_t n = ck_min_u64(t->numel, CK_BUFFERS_ELEMS);
	const size_t bytes = n * (ckpt_dtype_bits(first->dtype) / 8);
	int rc = ck_reader_read(c->reader, first, 0, n, first->dtype, c->mine, c->scratch, NULL,
				err);

	for (uint32_t i = first->replica; !rc && i != CK_NONE; i = ix->state[i].replica) {
		const struct ck_state *copy = &ix->state[i];

		rc = ck_reader_read(c->reader, copy, 0, n, copy->dtype, c->theirs, c->scratch, NULL,
				    err);
		if (rc || !memcmp(c->mine, c->theirs, bytes))
			continue;
		c->ck->ix.state[state].flags |= CKPT_STATE_PER_RANK;
		ck_findings_add(&c->ck->findings, CK_FINDING_BUFFERS_DIFFER, t->name,
				"the value of rank %d differs from that of rank %d, which is "
				"used",
				ck_extent_stored(ix, copy, 0)->rank,
				ck_extent_stored(ix, first, 0)->rank);
		break;
	}
	return rc;
}

static int compare_all(struct comparing *c, struct ckpt_err *err)
{
	const struct ck_index *ix = &c->ck->ix;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];
		const uint32_t s = ck_index_state_find(ix, i, "weight");

		if (t->role == CKPT_ROLE_BUFFER && s != CK_NONE && ix->state[s].nreplicas &&
		    t->numel && ckpt_dtype_bits(ix->state[s].dtype) >= 8)
			rc = compare_one(c, t, s, err);
	}
	return rc;
}

int ck_buffers_compare(struct ckpt *ck, struct ckpt_err *err)
{
	struct comparing c = { .ck = ck };
	int rc;

	if (ck->findings.of_kind[CK_FINDING_BUFFERS_DIFFER])
		return 0;
	rc = ck_reader_new(&ck->ix, &ck->limits, CACHE_BYTES, &c.reader, err);
	if (rc)
		return rc;
	c.mine = ck_alloc(CK_BUFFERS_ELEMS * WIDEST);
	c.theirs = ck_alloc(CK_BUFFERS_ELEMS * WIDEST);
	c.scratch = ck_alloc(CK_READ_SCRATCH);
	if (!c.mine || !c.theirs || !c.scratch)
		rc = ck_fail_nomem(err, "buffers", CK_READ_SCRATCH);
	if (!rc)
		rc = compare_all(&c, err);
	ck_free(c.scratch);
	ck_free(c.theirs);
	ck_free(c.mine);
	ck_reader_free(c.reader);
	return rc;
}
