/* ck_copy_compare.c -- see ck_copy_check.h: the comparisons. */
#include <inttypes.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/verify/ck_copy_check_priv.h"

#define CAST_ELEMS ((uint64_t)4096)
#define JOB_ELEMS ((uint64_t)1 << 20)

/* Elements of a weight that were read. */
static int tell_claimed(struct ck_copy_check *w, const struct ck_copy_check_pair *p, uint64_t first,
			uint64_t n, const uint8_t *bytes, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const struct ck_state *s = &ix->state[p->mate];
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_extents extents;
	const struct ck_extent *e;
	int rc = 0;

	if (!w->nclaims || !p->claims)
		return 0;
	ck_extents_begin(&extents, ix, s, first);
	while (!rc && n && (e = ck_extents_next(&extents))) {
		const uint64_t take = ck_min_u64(n, e->first + e->count - first);

		if (!take)
			continue;
		rc = w->claimed(w->claimed_arg, e->source, e->off + (first - e->first) * es, bytes,
				take * es, err);
		bytes += take * es;
		first += take;
		n -= take;
	}
	return rc;
}

static void note(struct ck_copy_check *w, struct ck_copy_check_pair *p,
		 const struct ck_master_check_at *at)
{
	pthread_mutex_lock(&w->lock);
	if (!p->differs || at->elem < p->at.elem)
		p->at = *at;
	p->differs = true;
	pthread_mutex_unlock(&w->lock);
}

static void count(struct ck_copy_check_space *s, const struct ck_copy_check_pair *p, uint64_t n)
{
	if (p->kind == CK_COPY_CHECK_MASTER)
		s->elements += n;
	else
		s->copies += n;
}

/* 'n' elements from 'first' on, at most a batch: 'mine' is of the type of the mate. */
static void judge(struct ck_copy_check *w, struct ck_copy_check_pair *p, uint64_t first, uint64_t n,
		  const uint8_t *mine, const uint8_t *theirs)
{
	const enum ckpt_dtype dtype = w->ck->ix.state[p->mate].dtype;
	const size_t es = ckpt_dtype_bits(dtype) / 8;
	struct ck_master_check_at at = { 0 };

	if (p->kind != CK_COPY_CHECK_MASTER) {
		const size_t bytes = n * ck_max_u64(es, 1);

		at.elem = kn_mismatch(mine, theirs, bytes) / ck_max_u64(es, 1);
		if (at.elem == n)
			return;
	} else if (!ck_master_check_differ(dtype, mine, theirs, n, &at)) {
		return;
	}
	at.elem += first;
	note(w, p, &at);
}

/* Of another type than the mate, whose elements have been read: as much as a cache holds. */
static void judge_cast(struct ck_copy_check *w, struct ck_copy_check_pair *p,
		       struct ck_copy_check_space *s,
		       uint64_t first, uint64_t n, const uint8_t *mine)
{
	const enum ckpt_dtype from = w->ck->ix.state[p->state].dtype;
	const enum ckpt_dtype to = w->ck->ix.state[p->mate].dtype;
	const size_t es = ckpt_dtype_bits(from) / 8, et = ckpt_dtype_bits(to) / 8;

	for (uint64_t i = 0; i < n; i += CAST_ELEMS) {
		const uint64_t k = ck_min_u64(CAST_ELEMS, n - i);

		kn_cast(s->cast, ck_read_kn(to), mine + i * es, ck_read_kn(from), k, NULL);
		judge(w, p, first + i, k, s->cast, s->theirs + i * et);
	}
}

static uint64_t batch_elems(const struct ck_state *a, const struct ck_state *b)
{
	const uint64_t bits = ck_max_u64(ckpt_dtype_bits(a->dtype), ckpt_dtype_bits(b->dtype));

	return CK_COPY_CHECK_BATCH / ck_max_u64(bits / 8, 1);
}

/* Elements whose bytes are at hand. */
static int compare(struct ck_copy_check *w, uint32_t worker, struct ck_copy_check_pair *p,
		   uint64_t first, uint64_t n, const uint8_t *mine, struct ckpt_err *err)
{
	const struct ck_state *a = &w->ck->ix.state[p->state], *b = &w->ck->ix.state[p->mate];
	const uint64_t most = batch_elems(a, b), es = ckpt_dtype_bits(a->dtype) / 8;
	struct ck_copy_check_space *s = &w->space[worker];
	int rc = 0;

	count(s, p, n);
	while (!rc && n) {
		const uint64_t take = ck_min_u64(n, most);

		rc = ck_reader_read(w->reader, b, first, take, b->dtype, s->theirs, s->scratch,
				    NULL, err);
		if (!rc)
			rc = tell_claimed(w, p, first, take, s->theirs, err);
		if (!rc && a->dtype == b->dtype)
			judge(w, p, first, take, mine, s->theirs);
		else if (!rc)
			judge_cast(w, p, s, first, take, mine);
		first += take;
		mine += take * es;
		n -= take;
	}
	return rc;
}

/* Elements that have to be read for it. */
static int compare_read(struct ck_copy_check *w, uint32_t worker, struct ck_copy_check_pair *p,
			uint64_t first, uint64_t n, struct ckpt_err *err)
{
	const struct ck_state *a = &w->ck->ix.state[p->state], *b = &w->ck->ix.state[p->mate];
	const uint64_t most = batch_elems(a, b);
	struct ck_copy_check_space *s = &w->space[worker];
	int rc = 0;

	count(s, p, n);
	while (!rc && n) {
		const uint64_t take = ck_min_u64(n, most);

		rc = ck_reader_read(w->reader, a, first, take, b->dtype, s->cast, s->scratch, NULL,
				    err);
		if (!rc)
			rc = ck_reader_read(w->reader, b, first, take, b->dtype, s->theirs,
					    s->scratch, NULL, err);
		if (!rc)
			rc = tell_claimed(w, p, first, take, s->theirs, err);
		if (!rc)
			judge(w, p, first, take, s->cast, s->theirs);
		first += take;
		n -= take;
	}
	return rc;
}

static void look_at_padding(struct ck_copy_check *w, uint32_t worker, struct ck_copy_check_range *r,
			    uint64_t off, const uint8_t *p, uint64_t n)
{
	uint64_t i = 0;

	w->space[worker].pad_bytes += n;
	while (i < n && !p[i])
		i++;
	if (i == n)
		return;
	pthread_mutex_lock(&w->lock);
	r->bad = ck_min_u64(r->bad, off + i);
	pthread_mutex_unlock(&w->lock);
}

/* Elements [a, b) of a range; 'bytes', if they are at hand, are those of element a. */
static int compare_rows(struct ck_copy_check *w, uint32_t worker,
			const struct ck_copy_check_range *r, uint64_t a, uint64_t b,
			const uint8_t *bytes, struct ckpt_err *err)
{
	struct ck_copy_check_pair *pair = &w->pair[r->pair];
	const uint64_t es = ckpt_dtype_bits(w->ck->ix.state[pair->state].dtype) / 8;
	int rc = 0;

	for (uint64_t n; !rc && a < b; a += n) {
		const uint64_t first = r->first + a / r->row * r->step + a % r->row;

		n = ck_min_u64(b - a, r->row - a % r->row);
		rc = bytes ? compare(w, worker, pair, first, n, bytes, err) :
			     compare_read(w, worker, pair, first, n, err);
		bytes = bytes ? bytes + n * es : NULL;
	}
	return rc;
}

/*
 * Of range 'r' what lies in [off, off + n).  An element belongs to the piece that its first
 * byte is in; one that goes on behind it is read once more.
 */
static int compare_range(struct ck_copy_check *w, uint32_t worker, struct ck_copy_check_range *r,
			 uint64_t off, const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	const uint64_t from = ck_max_u64(off, r->off), end = ck_min_u64(off + n, r->off + r->bytes);
	uint64_t es, a, b, whole;
	int rc = 0;

	if (r->pair == CK_COPY_CHECK_PAD) {
		look_at_padding(w, worker, r, from, p + (from - off), end - from);
		return 0;
	}
	es = ckpt_dtype_bits(w->ck->ix.state[w->pair[r->pair].state].dtype) / 8;
	a = (from - r->off + es - 1) / es;
	b = (end - r->off + es - 1) / es;
	whole = (end - r->off) / es;
	if (whole > a)
		rc = compare_rows(w, worker, r, a, whole, p + (r->off + a * es - off), err);
	if (!rc && b > ck_max_u64(whole, a))
		rc = compare_rows(w, worker, r, ck_max_u64(whole, a), b, NULL, err);
	return rc;
}

/* The first range of 'source' that reaches behind 'off'. */
static uint64_t find(const struct ck_copy_check *w, uint32_t source, uint64_t off)
{
	const struct ck_copy_check_range *r = w->range;
	uint64_t i;

	CK_LOWER_BOUND(i, w->nranges, r[i].source < source ||
				      (r[i].source == source && r[i].reach <= off));
	return i;
}

int ck_copy_check_bytes(struct ck_copy_check *w, uint32_t worker, uint32_t source, uint64_t off,
			const void *p, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = find(w, source, off); !rc && i < w->nranges; i++) {
		struct ck_copy_check_range *r = &w->range[i];

		if (r->source != source || r->off >= off + n)
			break;
		if (r->off + r->bytes > off)
			rc = compare_range(w, worker, r, off, p, n, err);
	}
	return rc;
}

/* ---------------------------------------------------------------------- the rest */

/* Elements; of types under 8 bits bytes, as ck_reader_read() has it. */
static uint64_t units(const struct ck_index *ix, const struct ck_copy_check_pair *p)
{
	const uint64_t n = ix->tensor[p->tensor].numel;
	const uint32_t bits = ckpt_dtype_bits(ix->state[p->state].dtype);

	return bits < 8 ? n / 8 * bits + (n % 8 * bits + 7) / 8 : n;
}

static int rest_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct ck_copy_check *w = arg;
	uint64_t i, at, n;

	if (w->cancel && __atomic_load_n(w->cancel, __ATOMIC_RELAXED))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
	CK_LOWER_BOUND(i, w->npairs, w->first_job[i] <= job);
	i -= i > 0;	/* the last pair whose first job is not after this one */
	at = (job - w->first_job[i]) * JOB_ELEMS;
	n = ck_min_u64(JOB_ELEMS, units(&w->ck->ix, &w->pair[i]) - at);
	return compare_read(w, worker, &w->pair[i], at, n, err);
}

int ck_copy_check_rest(struct ck_copy_check *w, uint32_t threads, const volatile int *cancel,
		       struct ckpt_err *err)
{
	w->first_job = ck_alloc_array(w->npairs + 1, sizeof(*w->first_job));
	if (!w->first_job)
		return ck_fail_nomem(err, "a list of comparisons", w->npairs);
	w->cancel = cancel;
	w->njobs = 0;
	for (uint64_t i = 0; i < w->npairs; i++) {
		const uint64_t n = units(&w->ck->ix, &w->pair[i]);

		w->first_job[i] = w->njobs;
		if (w->pair[i].loose)
			w->njobs += n / JOB_ELEMS + (n % JOB_ELEMS != 0);
	}
	return ck_pool_run(threads, w->njobs, rest_job, w, err);
}

/* ----------------------------------------------------------------------- telling */

static void tell_pair(struct ck_copy_check *w, const struct ck_copy_check_pair *p)
{
	struct ck_index *ix = &w->ck->ix;
	struct ck_findings *f = &w->ck->findings;
	const struct ck_state *a = &ix->state[p->state];
	struct ck_state *b = &ix->state[p->mate];
	const struct ck_extent *x = ck_extent_stored(ix, a, 0), *y = ck_extent_stored(ix, b, 0);

	if (p->kind == CK_COPY_CHECK_MASTER) {
		ck_master_check_report(w->ck, p->tensor, &p->at);
	} else if (p->kind == CK_COPY_CHECK_COPY) {
		ck_findings_add(f, CK_FINDING_REPLICA_DIFFERS, ix->tensor[p->tensor].name,
				"element %" PRIu64 " of state %s differs between %s and %s; "
				"one of them is damaged", p->at.elem, b->name,
				ix->source[y->source].path, ix->source[x->source].path);
	} else if (!(b->flags & CKPT_STATE_PER_RANK)) {
		b->flags |= CKPT_STATE_PER_RANK;
		ck_findings_add(f, CK_FINDING_BUFFERS_DIFFER, ix->tensor[p->tensor].name,
				"the value of rank %d differs from that of rank %d, which is "
				"used", x->rank, y->rank);
	}
}

void ck_copy_check_report(struct ck_copy_check *w, struct ck_copy_check_counts *counts_out)
{
	struct ck_copy_check_counts sum = { 0 };

	for (uint64_t i = 0; i < w->npairs; i++)
		if (w->pair[i].differs)
			tell_pair(w, &w->pair[i]);
	for (uint64_t i = 0; i < w->nranges; i++) {
		const struct ck_copy_check_range *r = &w->range[i];

		if (r->pair == CK_COPY_CHECK_PAD && r->bad != CKPT_NO_OFFSET)
			ck_findings_add(&w->ck->findings, CK_FINDING_PADDING_NOT_ZERO,
					w->ck->ix.source[r->source].path,
					"byte %" PRIu64 ", in the padding of state %s, is not "
					"zero: no element is affected, but the file may be "
					"damaged",
					r->bad, r->state);
	}
	for (uint32_t i = 0; i < w->nspaces; i++) {
		sum.elements += w->space[i].elements;
		sum.copies += w->space[i].copies;
		sum.pad_bytes += w->space[i].pad_bytes;
	}
	*counts_out = sum;
}
