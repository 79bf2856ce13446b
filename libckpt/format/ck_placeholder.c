/*
 * ck_placeholder.c -- see ck_placeholder.h.
 *
 * Not all tensors of such a file are empty: buffers are full, and so are parameters below
 * stage3_param_persistence_threshold (norms, biases), which every rank keeps.  Matrices are
 * what is missing.  Counted are floating tensors of exactly the shape [0]; integers of that
 * shape are honest (g_idx of quantised models).
 */
#include "libckpt/format/ck_placeholder.h"

#include <inttypes.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/tensor/ck_dtype.h"

struct counts {
	uint64_t all, empty, matrices;
	const char *first;	/* of the empty ones */
};

static bool is_float(const struct ck_index *ix, const struct ck_tensor *t)
{
	const struct ck_state *s = &ix->state[t->first_state];

	return s->dtype == CKPT_F16 || s->dtype == CKPT_BF16 || s->dtype == CKPT_F32 ||
	       s->dtype == CKPT_F64;
}

static void count(const struct ck_index *ix, struct counts *c)
{
	for (uint64_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS || t->first_state == CK_NONE)
			continue;
		c->all++;
		c->matrices += t->ndim >= 2 && t->numel > 0;
		if (t->ndim == 1 && !t->shape[0] && is_float(ix, t) && !c->empty++)
			c->first = t->name;
	}
}

/* The parameters are missing: most tensors, or a third of them, or every matrix. */
static bool are_placeholders(const struct counts *c)
{
	if (2 * c->empty > c->all)
		return true;
	return c->empty > 1 && (3 * c->empty >= c->all || !c->matrices);
}

void ck_placeholder_check(const struct ck_index *ix, const char *where, struct ck_findings *f)
{
	struct counts c = { 0 };

	count(ix, &c);
	if (!c.empty)
		return;
	if (c.empty == c.all)
		ck_findings_add(f, CK_FINDING_PLACEHOLDERS_ONLY, where,
				"its tensors are empty placeholders: ZeRO stage 3 was saved "
				"without gathering the weights");
	else if (are_placeholders(&c))
		ck_findings_add(f, CK_FINDING_PLACEHOLDERS_ONLY, where,
				"%" PRIu64 " of its %" PRIu64 " tensors are empty placeholders, "
				"the first is %s: ZeRO stage 3 was saved without gathering the "
				"weights", c.empty, c.all, c.first);
	else
		ck_findings_add(f, CK_FINDING_TENSORS_EMPTY, c.first,
				"%" PRIu64 " of the %" PRIu64 " tensors are empty (shape [0]); "
				"this is the first (placeholders of ZeRO stage 3?)", c.empty,
				c.all);
}
