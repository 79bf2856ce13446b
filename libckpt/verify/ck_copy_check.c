/*
 * ck_copy_check.c -- see ck_copy_check.h: what is compared with what, and whose bytes are
 * claimed.
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/verify/ck_copy_check_priv.h"

#define CACHE_BYTES ((uint64_t)64 << 20)

/* ------------------------------------------------------------------------ making */

/* In one piece each: extents, or blocks of columns. */
static bool is_in_passing(const struct ck_index *ix, const struct ck_state *s)
{
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_spans spans;
	struct ck_span span;

	if (!es)
		return false;
	ck_spans_begin(&spans, ix, s, 0, ix->tensor[s->tensor].numel);
	while (ck_spans_next(&spans, &span)) {
		const struct ck_extent *e = span.e;

		if (e->flags || e->dtype != s->dtype ||
		    (e->runs != 1 &&
		     (span.step == e->count || e->src_stride != e->count * es)))
			return false;
	}
	return true;
}

static int add_range(struct ck_copy_check *w, const struct ck_copy_check_range *r,
		     struct ckpt_err *err)
{
	int rc = 0;

	if (!r->bytes)
		return 0;
	rc = ck_grow(&w->range, &w->range_cap, w->nranges + 1, sizeof(*r), err);
	if (!rc)
		w->range[w->nranges++] = *r;
	return rc;
}

static int add_pair(struct ck_copy_check *w, uint32_t tensor, uint32_t state, uint32_t mate,
		    enum ck_copy_check_kind kind, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const struct ck_state *s = &ix->state[state];
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_copy_check_pair *p;
	struct ck_spans spans;
	struct ck_span span;
	int rc = ck_grow(&w->pair, &w->pair_cap, w->npairs + 1, sizeof(*p), err);

	if (rc)
		return rc;
	p = &w->pair[w->npairs];
	*p = (struct ck_copy_check_pair){
		.tensor = tensor, .state = state, .mate = mate, .kind = (uint8_t)kind,
		.loose = !is_in_passing(ix, s),
	};
	ck_spans_begin(&spans, ix, s, 0, p->loose ? 0 : ix->tensor[s->tensor].numel);
	while (!rc && ck_spans_next(&spans, &span)) {
		const struct ck_copy_check_range r = {
			.off = span.e->off, .bytes = span.n * es, .first = span.e->first,
			.row = span.e->count, .step = span.step,
			.source = span.e->source, .pair = (uint32_t)w->npairs,
		};

		rc = add_range(w, &r, err);
	}
	w->npairs += !rc;
	return rc;
}

static int add_copies(struct ck_copy_check *w, uint32_t tensor, uint32_t state,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const enum ck_copy_check_kind kind = ix->tensor[tensor].role == CKPT_ROLE_BUFFER ?
						CK_COPY_CHECK_BUFFER : CK_COPY_CHECK_COPY;
	int rc = 0;

	for (uint32_t i = ix->state[state].replica; !rc && i != CK_NONE; i = ix->state[i].replica)
		if (ix->state[i].dtype == ix->state[state].dtype)
			rc = add_pair(w, tensor, i, state, kind, err);
	return rc;
}

static int add_tensor(struct ck_copy_check *w, uint32_t tensor, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const uint32_t m = ck_index_state_find(ix, tensor, "master");
	const uint32_t v = ck_index_state_find(ix, tensor, "weight");
	int rc = 0;

	if (!ix->tensor[tensor].numel)
		return 0;
	if (m != CK_NONE && v != CK_NONE && ck_master_check_is_pair(&ix->state[m], &ix->state[v]))
		rc = add_pair(w, tensor, m, v, CK_COPY_CHECK_MASTER, err);
	for (uint32_t s = ix->tensor[tensor].first_state; !rc && s != CK_NONE;
	     s = ix->state[s].next)
		rc = add_copies(w, tensor, s, err);
	return rc;
}

static int add_padding(struct ck_copy_check *w, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->npads; i++) {
		const struct ck_copy_check_range r = {
			.off = ix->pad[i].off, .bytes = ix->pad[i].bytes, .pair = CK_COPY_CHECK_PAD,
			.source = ix->pad[i].source, .state = ix->pad[i].state,
			.bad = CKPT_NO_OFFSET,
		};

		rc = add_range(w, &r, err);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_copy_check_range *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->pair < y->pair ? -1 : x->pair > y->pair;
}

static void put_in_order(struct ck_copy_check *w)
{
	if (w->nranges)
		qsort(w->range, w->nranges, sizeof(*w->range), by_place);
	for (uint64_t i = 0; i < w->nranges; i++) {
		struct ck_copy_check_range *r = &w->range[i];
		const bool first = !i || r[-1].source != r->source;

		r->reach = ck_max_u64(first ? 0 : r[-1].reach, r->off + r->bytes);
	}
}

static int make_space(struct ck_copy_check *w, uint32_t threads, struct ckpt_err *err)
{
	w->space = ck_zalloc(threads * sizeof(*w->space));
	if (!w->space)
		return ck_fail_nomem(err, "buffers", threads);
	for (; w->nspaces < threads; w->nspaces++) {
		struct ck_copy_check_space *s = &w->space[w->nspaces];

		s->theirs = ck_alloc(CK_COPY_CHECK_BATCH);
		s->cast = ck_alloc(CK_COPY_CHECK_BATCH);
		s->scratch = ck_alloc(CK_READ_SCRATCH);
		if (!s->theirs || !s->cast || !s->scratch) {
			w->nspaces++;
			return ck_fail_nomem(err, "buffers", CK_COPY_CHECK_BATCH);
		}
	}
	return 0;
}

int ck_copy_check_new(struct ckpt *ck, uint32_t threads, bool compare, struct ck_copy_check **out,
		      struct ckpt_err *err)
{
	struct ck_copy_check *w = ck_zalloc(sizeof(*w));
	int rc;

	if (!w)
		return ck_fail_nomem(err, "a comparison", sizeof(*w));
	w->ck = ck;
	w->locked = !pthread_mutex_init(&w->lock, NULL);
	rc = w->locked ? make_space(w, threads, err) : ck_fail_nomem(err, "a lock", 0);
	if (!rc)
		rc = ck_reader_new(&ck->ix, &ck->limits, CACHE_BYTES, &w->reader, err);
	if (!rc)
		rc = add_padding(w, err);
	for (uint32_t i = 0; !rc && compare && i < ck->ix.ntensors; i++)
		rc = add_tensor(w, i, err);
	put_in_order(w);
	if (rc)
		ck_copy_check_free(w);
	else
		*out = w;
	return rc;
}

void ck_copy_check_free(struct ck_copy_check *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->nspaces; i++) {
		ck_free(w->space[i].theirs);
		ck_free(w->space[i].cast);
		ck_free(w->space[i].scratch);
	}
	if (w->locked)
		pthread_mutex_destroy(&w->lock);
	ck_reader_free(w->reader);
	ck_free(w->space);
	ck_free(w->pair);
	ck_free(w->range);
	ck_free(w->first_job);
	ck_free(w->claim);
	ck_free(w);
}

/* --------------------------------------------------------------------- claiming */

static int add_claims(struct ck_copy_check *w, const struct ck_copy_check_pair *p,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const struct ck_state *s = &ix->state[p->mate];
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_spans spans;
	struct ck_span span;
	int rc = 0;

	ck_spans_begin(&spans, ix, s, 0, ix->tensor[s->tensor].numel);
	while (!rc && ck_spans_next(&spans, &span)) {
		rc = ck_grow(&w->claim, &w->claim_cap, w->nclaims + 1, sizeof(*w->claim), err);
		if (!rc)
			w->claim[w->nclaims++] = (struct ck_copy_check_claim){
				span.e->off, span.e->off + span.n * es, span.e->source };
	}
	return rc;
}

static int claims_by_place(const void *a, const void *b)
{
	const struct ck_copy_check_claim *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* The first claim of 'source' that ends behind 'off'. */
static uint64_t claim_at(const struct ck_copy_check *w, uint32_t source, uint64_t off)
{
	const struct ck_copy_check_claim *c = w->claim;
	uint64_t i;

	CK_LOWER_BOUND(i, w->nclaims, c[i].source < source ||
				      (c[i].source == source && c[i].end <= off));
	return i;
}

/* Is every claimed byte one that only its own comparison needs? */
static bool are_apart(const struct ck_copy_check *w)
{
	for (uint64_t i = 1; i < w->nclaims; i++)
		if (w->claim[i - 1].source == w->claim[i].source &&
		    w->claim[i - 1].end > w->claim[i].off)
			return false;
	for (uint64_t i = 0; i < w->nranges; i++) {
		const struct ck_copy_check_range *r = &w->range[i];
		const uint64_t k = claim_at(w, r->source, r->off);

		if (k < w->nclaims && w->claim[k].source == r->source &&
		    w->claim[k].off < r->off + r->bytes)
			return false;
	}
	return true;
}

int ck_copy_check_claim(struct ck_copy_check *w, ck_copy_check_claimed_fn fn, void *arg,
			struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < w->npairs; i++) {
		struct ck_copy_check_pair *p = &w->pair[i];

		p->claims = p->kind == CK_COPY_CHECK_MASTER && !p->loose &&
			    is_in_passing(&w->ck->ix, &w->ck->ix.state[p->mate]);
		if (p->claims)
			rc = add_claims(w, p, err);
	}
	if (w->nclaims)
		qsort(w->claim, w->nclaims, sizeof(*w->claim), claims_by_place);
	w->claimed = fn;
	w->claimed_arg = arg;
	if (!are_apart(w))
		w->nclaims = 0;
	return rc;
}

bool ck_copy_check_free_run(const struct ck_copy_check *w, uint32_t source, uint64_t off,
			    uint64_t end, uint64_t *from_out, uint64_t *to_out)
{
	while (off < end) {
		const uint64_t k = claim_at(w, source, off);
		const bool there = k < w->nclaims && w->claim[k].source == source;

		if (there && w->claim[k].off <= off) {
			off = w->claim[k].end;
			continue;
		}
		*from_out = off;
		*to_out = there ? ck_min_u64(end, w->claim[k].off) : end;
		return true;
	}
	return false;
}
