/* ck_source_check.c -- see ck_source_check.h. */
#include "libckpt/sums/ck_source_check.h"

#include <inttypes.h>
#include <stdio.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/sums/ck_part_sums.h"
#include "libckpt/sums/ck_stated_sum.h"

#define SHAPE_BYTES 700

int ck_source_check_init(struct ck_source_check *proof, const struct ck_index *ix,
			 const struct ckpt_limits *limits, const bool *only, struct ckpt_err *err)
{
	int rc;

	*proof = (struct ck_source_check){ .seen = NULL };
	rc = ck_crc_check_new(ix, limits, &proof->seen, err);
	proof->ix = ix;
	if (!rc && ix->nstated_sums)
		rc = ck_sum_check_new(ix, only, &proof->passed, err);
	if (rc)
		ck_source_check_release(proof);
	return rc;
}

void ck_source_check_release(struct ck_source_check *proof)
{
	ck_crc_check_free(proof->seen);
	ck_sum_check_free(proof->passed);
	*proof = (struct ck_source_check){ .seen = NULL };
}

int ck_source_check_saw(void *proof, uint32_t source, uint64_t off, const void *p, size_t n,
			struct ckpt_err *err)
{
	const struct ck_source_check *it = proof;

	if (it->passed && n)
		ck_sum_check_add(it->passed, source, off, p, n);
	return ck_crc_check_add(it->seen, source, off, p, n, err);
}

int ck_source_check_saw_file(struct ck_source_check *proof, const char *path, uint64_t off,
			     const void *p, size_t n, struct ckpt_err *err)
{
	uint32_t source;

	if (!ck_crc_check_source(proof->seen, path, &source))
		return 0;
	if (proof->passed && p)
		ck_sum_check_add(proof->passed, source, off, p, n);
	return ck_crc_check_add_raw(proof->seen, source, off, p, n, err);
}

void ck_source_check_want_state(struct ck_source_check *proof, uint32_t state)
{
	if (proof->passed)
		ck_sum_check_want_state(proof->passed, state);
}

void ck_source_check_want_file(struct ck_source_check *proof, const char *path, uint64_t bytes)
{
	uint32_t source;

	if (!ck_crc_check_source(proof->seen, path, &source) ||
	    bytes < ck_src_size(proof->ix->source[source].src))
		return;
	ck_crc_check_whole(proof->seen, source);
	if (proof->passed)
		ck_sum_check_want_source(proof->passed, source);
}

struct telling {
	const struct ck_index *ix;
	struct ck_findings *findings;
	struct ck_part_sums *share;
};

/* Of a digest of a whole state: "F32 4 128"; else "". */
static bool print_shape(const struct ck_index *ix, const struct ck_stated_sum *says, char *text,
			size_t room)
{
	const struct ck_state *state = &ix->state[says->state];
	const struct ck_tensor *t = &ix->tensor[state->tensor];
	size_t n = 0;

	text[0] = 0;
	if (!says->closed)
		return true;
	n = (size_t)snprintf(text, room, "%s", ckpt_dtype_name((enum ckpt_dtype)state->dtype));
	for (uint32_t i = 0; n < room && i < t->ndim; i++)
		n += (size_t)snprintf(text + n, room - n, " %" PRIu64, t->shape[i]);
	return n < room;
}

static int want_piece(const struct telling *t, const struct ck_sum_check_piece *piece,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = t->ix;
	const struct ck_state *state = &ix->state[piece->says->state];
	struct ck_findings finding = { .as_warning = t->share->as_warning };
	char shape[SHAPE_BYTES];
	int rc = 0;

	if (!print_shape(ix, piece->says, shape, sizeof(shape)))
		rc = ck_fail(err, CKPT_E_LIMIT, ix->tensor[state->tensor].name, CKPT_NO_OFFSET,
			     "the tensor has too many dimensions for a run in parts");
	ck_stated_wrong(&finding, ix, piece->says);
	if (!rc)
		rc = ck_part_sums_want_sum(t->share, piece->number, piece->all, piece->says->sum,
					   shape, &finding, err);
	ck_findings_release(&finding);
	return rc;
}

static int tell_piece(void *arg, const struct ck_sum_check_piece *piece, struct ckpt_err *err)
{
	const struct telling *t = arg;
	int rc = 0;

	if (!piece->good)
		ck_stated_wrong(t->findings, t->ix, piece->says);
	if (piece->number == CK_NOT_SHARED)
		return 0;
	if (piece->blocks)
		rc = ck_part_sums_term(t->share, piece->number, piece->blocks, piece->sum, err);
	return rc || t->share->part ? rc : want_piece(t, piece, err);
}

int ck_source_check_check(struct ck_source_check *proof, const struct ck_source_check_ask *ask,
			  struct ck_findings *findings, struct ckpt_err *err)
{
	struct telling t = { ask->ix, findings, ask->members.share };
	const struct ckpt_finding *f;
	int rc = ck_crc_check_check(proof->seen, &ask->members, findings, err);

	if (!rc && proof->passed)
		rc = ck_sum_check_each(proof->passed, &ask->pieces, tell_piece, &t, err);
	f = ck_findings_worst(findings, CKPT_ERROR);
	return rc || !f ? rc : ck_findings_fail(f, err);
}
