/* ck_load_plan.c -- see ck_load.h: every range is looked at here, before anything is read. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/read/ck_load.h"
#include "libckpt/select/ck_select.h"
#include "libckpt/select/ck_states.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define NOT_PLAIN (CKPT_EXTENT_SWAPPED | CKPT_EXTENT_CONJ | CKPT_EXTENT_NEG | \
		   CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER)

/* A range that was looked at. */
struct wanted {
	const struct ck_state *state;
	enum ckpt_dtype dtype;
	uint64_t first, n;	/* of types under 8 bits: bytes */
	uint64_t bytes;		/* at 'dst' */
	uint8_t es;
	uint8_t *dst;
};

/* Where elements go. */
struct place {
	uintptr_t begin, end;
	size_t range;
};

/* ---------------------------------------------------------------- one range */

/* "master" where there is none: the weight, in fp32 if it is floating. */
static uint32_t find_state(const struct ck_index *ix, uint32_t tensor, const char *name,
			   enum ckpt_dtype *dtype, bool *made_out)
{
	uint32_t s = ck_index_state_find(ix, tensor, name);

	*made_out = false;
	if (s == CK_NONE && !strcmp(name, "master")) {
		s = ck_index_state_find(ix, tensor, "weight");
		*made_out = s != CK_NONE;
		if (*made_out && !*dtype &&
		    ck_dtype_is_castable((enum ckpt_dtype)ix->state[s].dtype))
			*dtype = CKPT_F32;
	}
	if (s != CK_NONE && !*dtype)
		*dtype = (enum ckpt_dtype)ix->state[s].dtype;
	return s;
}

static int check_cast(const struct ck_tensor *t, enum ckpt_dtype from, enum ckpt_dtype to,
		      struct ckpt_err *err)
{
	if (!ckpt_dtype_bits(to))
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET, "%d is not an "
			       "element type", (int)to);
	if (from != to && !(ck_dtype_is_castable(from) && ck_dtype_is_castable(to)))
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET, "%s cannot be "
			"converted to %s",
			       ckpt_dtype_name(from), ckpt_dtype_name(to));
	return 0;
}

/* Elements as they are counted, and the bytes that they become. */
static int measure(const struct ck_tensor *t, const struct ckpt_load_range *r, struct wanted *w,
		   struct ckpt_err *err)
{
	const uint32_t bits = ckpt_dtype_bits(w->dtype);
	uint64_t all;

	if (r->first > t->numel || r->count > t->numel - r->first)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "cannot read %" PRIu64 " elements from element %" PRIu64 " on: "
			       "it has only %" PRIu64 " elements", r->count, r->first, t->numel);
	if (ck_mul_over(t->numel, bits, &all))
		return ck_fail(err, CKPT_E_LIMIT, t->name, CKPT_NO_OFFSET,
			       "the size of %" PRIu64 " elements of %u bits exceeds 64 bits",
			       t->numel, bits);
	if (bits < 8 && (r->first * bits % 8 || r->count * bits % 8))
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "a range of %u-bit elements must begin and end at whole bytes; "
			       "this one has %" PRIu64 ", from element %" PRIu64 " on",
			       bits, r->count, r->first);
	w->first = bits < 8 ? r->first * bits / 8 : r->first;
	w->n = bits < 8 ? r->count * bits / 8 : r->count;
	w->es = bits < 8 ? 1 : (uint8_t)(bits / 8);
	w->bytes = w->n * w->es;
	return 0;
}

static int check_place(const struct ck_tensor *t, const struct wanted *w, struct ckpt_err *err)
{
	uint64_t end;

	if (w->bytes && !w->dst)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "the pointer to the buffer for %" PRIu64 " bytes is NULL", w->bytes);
	if (ck_add_over((uintptr_t)w->dst, w->bytes, &end) || end > UINTPTR_MAX)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "a buffer of %" PRIu64 " bytes at this address would exceed the "
			       "address space", w->bytes);
	return 0;
}

static int resolve_range(const struct ck_index *ix, const struct ckpt_load_range *r,
			 struct wanted *w, bool *made_out, struct ckpt_err *err)
{
	const char *name = r->state ? r->state : "weight";
	const struct ck_tensor *t;
	uint32_t tensor, s;
	int rc;

	if (r->tensor >= ix->ntensors)
		return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
			       "tensor %" PRIu64 " does not exist: there are %" PRIu64 ", "
			       "counted from 0", r->tensor, ix->ntensors);
	tensor = ck_select_stored(ix, (uint32_t)r->tensor);
	t = &ix->tensor[tensor];
	w->dtype = r->dtype;
	w->dst = r->dst;
	s = find_state(ix, tensor, name, &w->dtype, made_out);
	if (s == CK_NONE)
		return ck_states_fail(ix, tensor, name, err);
	w->state = &ix->state[s];
	rc = check_cast(t, (enum ckpt_dtype)w->state->dtype, w->dtype, err);
	if (!rc)
		rc = measure(t, r, w, err);
	return rc ? rc : check_place(t, w, err);
}

/* ---------------------------------------------------------------- its pieces */

static uint8_t grain_of(const struct ck_extent *e)
{
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)e->dtype);
	uint8_t log = 0;

	for (uint32_t n = CK_DIGEST_BLOCK / (bits < 8 ? 1 : bits / 8); n > 1; n >>= 1)
		log++;
	return log;
}

/* Where element 'at' of an extent lies, or near it. */
static uint64_t offset_of(const struct ck_index *ix, const struct ck_extent *e, uint64_t at)
{
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)e->dtype);

	if (e->member != CK_NONE)
		return ix->member[e->member].off;
	if (e->flags & CKPT_EXTENT_GATHER || !e->count)
		return e->off;
	return e->off + at / e->count * e->src_stride + at % e->count * (bits < 8 ? 1 : bits / 8);
}

static int add_piece(const struct ck_index *ix, const struct wanted *w, const struct ck_extent *e,
		     uint64_t first, uint64_t n, struct ck_load_plan *plan, struct ckpt_err *err)
{
	const bool packed = ckpt_dtype_bits(w->dtype) < 8;
	const uint64_t at = packed ? first : first - e->first;
	int rc = ck_grow(&plan->piece, &plan->cap, plan->n + 1, sizeof(*plan->piece), err);

	if (rc)
		return rc;
	plan->piece[plan->n++] = (struct ck_load_piece){
		.off = packed && e->member == CK_NONE ? e->off + at : offset_of(ix, e, at),
		.first = first, .n = n, .dst = w->dst + (first - w->first) * w->es,
		.source = e->source, .state = (uint32_t)(w->state - ix->state), .es = w->es,
		.dtype = (uint8_t)w->dtype, .grain = grain_of(e),
		.plain = e->runs == 1 && e->dtype == w->state->dtype && e->dtype == w->dtype &&
			 !(e->flags & NOT_PLAIN) && (!packed || w->state->nextents == 1),
	};
	return 0;
}

static int cut_range(const struct ck_index *ix, const struct wanted *w, struct ck_load_plan *plan,
		     struct ckpt_err *err)
{
	uint64_t first = w->first, left = w->n;
	struct ck_extents extents;
	const struct ck_extent *e;
	int rc = 0;

	if (!left)
		return 0;
	plan->ranges++;
	if (ckpt_dtype_bits(w->dtype) < 8)
		return add_piece(ix, w, ck_extent_stored(ix, w->state, 0), first, left, plan, err);
	ck_extents_begin(&extents, ix, w->state, first);
	while (!rc && left && (e = ck_extents_next(&extents))) {
		const uint64_t n = ck_min_u64(left, e->first + e->count * e->runs - first);

		rc = n ? add_piece(ix, w, e, first, n, plan, err) : 0;
		first += n;
		left -= n;
	}
	return rc;
}

/* ---------------------------------------------------------------- all of them */

static int by_begin(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int check_apart(struct place *place, size_t n, struct ckpt_err *err)
{
	if (n)
		qsort(place, n, sizeof(*place), by_begin);
	for (size_t i = 1; i < n; i++)
		if (place[i].begin < place[i - 1].end)
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "the buffer of range %zu overlaps that of range %zu by "
				       "%zu bytes", place[i].range, place[i - 1].range,
				       (size_t)(place[i - 1].end - place[i].begin));
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_load_piece *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static int add_all(const struct ck_index *ix, const struct ckpt_load_range *range, size_t n,
		   struct place *place, struct ck_load_plan *plan, struct ckpt_err *err)
{
	size_t nplaces = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		struct wanted w = { .n = 0 };
		bool made = false;

		rc = resolve_range(ix, &range[i], &w, &made, err);
		if (rc)
			break;
		plan->masters += made && w.n;
		if (w.bytes)
			place[nplaces++] = (struct place){
				(uintptr_t)w.dst, (uintptr_t)w.dst + w.bytes, i,
			};
		rc = cut_range(ix, &w, plan, err);
	}
	return rc ? rc : check_apart(place, nplaces, err);
}

int ck_load_plan_make(const struct ck_index *ix, const struct ckpt_load_range *range, size_t n,
		      struct ck_load_plan *plan, struct ckpt_err *err)
{
	struct place *place = ck_alloc_array((uint64_t)n, sizeof(*place));
	int rc = place ? 0 : ck_fail_nomem(err, "a list of ranges", n);

	if (!rc)
		rc = add_all(ix, range, n, place, plan, err);
	ck_free(place);
	if (rc)
		return rc;
	if (plan->n)
		qsort(plan->piece, plan->n, sizeof(*plan->piece), by_place);
	for (uint64_t i = 0; i < plan->n; i++) {
		plan->piece[i].at = plan->bytes;
		plan->bytes += plan->piece[i].n * plan->piece[i].es;
	}
	return 0;
}

void ck_load_plan_release(struct ck_load_plan *plan)
{
	ck_free(plan->piece);
	memset(plan, 0, sizeof(*plan));
}

uint64_t ck_load_piece_at(const struct ck_load_plan *plan, uint64_t at)
{
	uint64_t i;

	CK_LOWER_BOUND(i, plan->n, plan->piece[i].at <= at);
	return i ? i - 1 : 0;
}

uint64_t ck_load_cut(const struct ck_load_piece *p, uint64_t at)
{
	const uint64_t mask = ((uint64_t)1 << p->grain) - 1;
	uint64_t k;

	if (at <= p->at)
		return 0;
	k = (at - p->at + p->es - 1) / p->es;
	if (k < p->n)
		k = ((p->first + k + mask) & ~mask) - p->first;
	return ck_min_u64(k, p->n);
}

const struct ck_load_piece *ck_load_piece_in(const struct ck_load_plan *plan, uint32_t source,
					     uint64_t off, uint64_t n)
{
	const struct ck_load_piece *p = plan->piece;
	uint64_t i;

	CK_LOWER_BOUND(i, plan->n, p[i].source < source ||
				   (p[i].source == source && p[i].off < off));
	return i < plan->n && p[i].source == source && p[i].off - off < n ? &p[i] : NULL;
}
