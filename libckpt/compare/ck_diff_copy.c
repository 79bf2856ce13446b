/*
 * ck_diff_copy.c -- weights that only one side has, and that are copies of weights which both have.
 *
 * An export writes tied weights once, or each name with its own copy, and its file does not say
 * that they are tied.  A name that is missing on one side holds nothing new if the other side has
 * the same values under a name that was compared.  Vectors are not considered, nor matrices of one
 * value: biases and norms of different layers may be equal without being tied.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/run/ck_read.h"

#define CHUNK ((uint64_t)1 << 20)	/* bytes that are compared at once */
#define FIRST_CHUNK 1024		/* what is no copy differs at once */
#define READ_CACHE ((uint64_t)64 << 20)

struct copies {
	const struct ck_index *ix;
	struct ck_reader *reader;
	unsigned char *a, *b, *scratch;
};

/* Whether its values may show that it is a copy: a matrix of weights. */
static bool is_matrix(const struct ck_index *ix, uint32_t tensor)
{
	const struct ck_tensor *t = &ix->tensor[tensor];
	const uint32_t state = ck_index_state_find(ix, tensor, "weight");

	return t->ndim > 1 && t->numel > 1 && state != CK_NONE &&
	       ckpt_dtype_bits((enum ckpt_dtype)ix->state[state].dtype) >= 8;
}

/* One with masters or moments holds more than its weight: that is a difference in any case. */
static bool is_candidate(const struct ck_index *ix, uint32_t tensor)
{
	return ix->tensor[tensor].nstates == 1 && is_matrix(ix, tensor);
}

/* Its weight itself was compared, and not only another state of it. */
static bool is_weight_met(const struct ck_diff *d, bool of_a, const struct ck_index *ix,
			  uint32_t tensor)
{
	const uint32_t weight = ck_index_state_find(ix, tensor, "weight");

	for (uint64_t i = 0; i < d->npairs; i++)
		if ((of_a ? d->pair[i].state_a : d->pair[i].state_b) == weight)
			return true;
	return false;
}

static bool is_alike(const struct ck_index *ix, uint32_t x, uint32_t y)
{
	const struct ck_tensor *a = &ix->tensor[x], *b = &ix->tensor[y];
	const struct ck_state *p, *q;

	if (x == y || !is_matrix(ix, y) || a->ndim != b->ndim ||
	    memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)))
		return false;
	p = &ix->state[ck_index_state_find(ix, x, "weight")];
	q = &ix->state[ck_index_state_find(ix, y, "weight")];
	return p->dtype == q->dtype;
}

/* '*equal_out': all bytes are the same, and not one element over and over. */
static int compare(struct copies *c, uint32_t x, uint32_t y, bool *equal_out,
		   struct ckpt_err *err)
{
	const struct ck_state *p = &c->ix->state[ck_index_state_find(c->ix, x, "weight")];
	const struct ck_state *q = &c->ix->state[ck_index_state_find(c->ix, y, "weight")];
	const uint64_t size = ckpt_dtype_bits((enum ckpt_dtype)p->dtype) / 8;
	const uint64_t numel = c->ix->tensor[x].numel;
	bool varied = false;
	uint64_t n;
	int rc = 0;

	*equal_out = false;
	for (uint64_t at = 0; at < numel; at += n) {
		n = at ? CHUNK / size : FIRST_CHUNK / size;
		n = numel - at < n ? numel - at : n;

		rc = ck_reader_read(c->reader, p, at, n, (enum ckpt_dtype)p->dtype, c->a,
				    c->scratch, NULL, err);
		if (!rc)
			rc = ck_reader_read(c->reader, q, at, n, (enum ckpt_dtype)q->dtype, c->b,
					    c->scratch, NULL, err);
		if (rc || memcmp(c->a, c->b, n * size))
			return rc;
		varied = varied || (n > 1 && memcmp(c->a, c->a + size, (n - 1) * size));
	}
	*equal_out = varied;
	return 0;
}

static int open_copies(struct copies *c, struct ckpt *ck, struct ckpt_err *err)
{
	*c = (struct copies){ .ix = &ck->ix, .a = ck_alloc(CHUNK), .b = ck_alloc(CHUNK),
			      .scratch = ck_alloc(CK_READ_SCRATCH) };
	if (!c->a || !c->b || !c->scratch)
		return ck_fail_nomem(err, "a buffer", CHUNK);
	return ck_reader_new(&ck->ix, &ck->limits, READ_CACHE, &c->reader, err);
}

static void close_copies(struct copies *c)
{
	ck_reader_free(c->reader);
	ck_free(c->scratch);
	ck_free(c->b);
	ck_free(c->a);
}

/* The lone name 'l': a copy of a tensor of the same side that was compared? */
static int settle(struct ck_diff *d, struct copies *c, const struct ck_diff_lone *l,
		  struct ckpt_err *err)
{
	struct ckpt_diff_row *row = &d->row[l->row];
	bool equal = false;
	int rc = 0;

	for (uint32_t t = 0; !rc && !equal && t < c->ix->ntensors; t++)
		if ((l->of_a ? d->met_a : d->met_b)[t] && is_alike(c->ix, l->tensor, t) &&
		    is_weight_met(d, l->of_a, c->ix, t))
			rc = compare(c, l->tensor, t, &equal, err);
	if (equal)
		row->what = l->of_a ? CKPT_DIFF_TIED_ONLY_A : CKPT_DIFF_TIED_ONLY_B;
	return rc;
}

int ck_diff_copies(struct ck_diff *d, struct ckpt_err *err)
{
	int rc = 0;

	for (int of_a = 0; !rc && of_a < 2; of_a++) {
		struct ckpt *ck = of_a ? d->a : d->b;
		struct copies c = { 0 };

		for (uint64_t i = 0; !rc && i < d->nlones; i++) {
			const struct ck_diff_lone *l = &d->lone[i];

			if (l->of_a != (of_a != 0) || !is_candidate(&ck->ix, l->tensor))
				continue;
			if (!c.reader)
				rc = open_copies(&c, ck, err);
			if (!rc)
				rc = settle(d, &c, l, err);
		}
		close_copies(&c);
	}
	return rc;
}

int ck_diff_names(const struct ck_diff *d, struct ck_naming *a, struct ck_naming *b,
		  struct ckpt_err *err)
{
	int rc = ck_naming_of_index(&d->a->ix, a, err);

	if (!rc)
		rc = ck_naming_of_index(&d->b->ix, b, err);
	if (!rc && a->rule && b->rule) {
		ck_naming_release(a);
		ck_naming_release(b);
	}
	return rc;
}
