/* ck_watch.c -- see ck_watch.h. */
#include "libckpt/ops/ck_watch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/ops/ck_agree.h"
#include "libckpt/ops/ck_read.h"
#include "libckpt/tensor/ck_dtype.h"

#define CACHE_BYTES ((uint64_t)64 << 20)
#define BATCH_BYTES ((size_t)128 << 10)
#define CAST_ELEMS ((uint64_t)4096)
#define JOB_ELEMS ((uint64_t)1 << 20)
#define PAD UINT32_MAX

enum kind { MASTER, COPY, BUFFER };

/* Two states of one tensor: what is read anyway, and what it is compared with. */
struct pair {
	uint32_t tensor, state, mate;
	uint8_t kind;
	bool differs, loose;
	struct ck_agree_at at;	/* the lowest */
};

/* Bytes of a file that are compared. */
struct range {
	uint64_t off, bytes;
	uint64_t reach;		/* the farthest end of this and earlier ranges of the file */
	uint64_t first;		/* element of the state */
	uint32_t source;
	uint32_t pair;		/* or PAD */
	const char *state;	/* of padding */
	uint64_t bad;		/* of padding: first byte that is not zero, or CKPT_NO_OFFSET */
};

struct space {
	uint8_t *theirs, *cast, *scratch;
	uint64_t elements, copies, pad_bytes;
};

struct ck_watch {
	struct ckpt *ck;
	struct ck_reader *reader;
	struct pair *pair;
	uint64_t npairs, pair_cap;
	struct range *range;
	uint64_t nranges, range_cap;
	uint64_t *first_job, njobs;	/* of the loose ones, by pair */
	struct space *space;
	uint32_t nspaces;
	pthread_mutex_t lock;	/* guards what pairs and ranges have found */
	bool locked;		/* the mutex is there */
	const volatile int *cancel;
};

/* ------------------------------------------------------------------------ making */

static bool is_in_passing(const struct ck_index *ix, const struct ck_state *s)
{
	if (ckpt_dtype_bits(s->dtype) < 8)
		return false;
	for (uint64_t i = 0; i < s->nextents; i++) {
		const struct ck_extent *e = &ix->extent[s->extent + i];

		if (e->flags || e->runs != 1 || e->dtype != s->dtype)
			return false;
	}
	return true;
}

static int add_range(struct ck_watch *w, const struct range *r, struct ckpt_err *err)
{
	int rc = 0;

	if (!r->bytes)
		return 0;
	rc = ck_grow(&w->range, &w->range_cap, w->nranges + 1, sizeof(*r), err);
	if (!rc)
		w->range[w->nranges++] = *r;
	return rc;
}

static int add_pair(struct ck_watch *w, uint32_t tensor, uint32_t state, uint32_t mate,
		    enum kind kind, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const struct ck_state *s = &ix->state[state];
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct pair *p;
	int rc = ck_grow(&w->pair, &w->pair_cap, w->npairs + 1, sizeof(*p), err);

	if (rc)
		return rc;
	p = &w->pair[w->npairs];
	*p = (struct pair){
		.tensor = tensor, .state = state, .mate = mate, .kind = (uint8_t)kind,
		.loose = !is_in_passing(ix, s),
	};
	for (uint64_t i = 0; !rc && !p->loose && i < s->nextents; i++) {
		const struct ck_extent *e = &ix->extent[s->extent + i];
		const struct range r = {
			.off = e->off, .bytes = e->count * es, .first = e->first,
			.source = e->source, .pair = (uint32_t)w->npairs,
		};

		rc = add_range(w, &r, err);
	}
	w->npairs += !rc;
	return rc;
}

static int add_copies(struct ck_watch *w, uint32_t tensor, uint32_t state, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const enum kind kind = ix->tensor[tensor].role == CKPT_ROLE_BUFFER ? BUFFER : COPY;
	int rc = 0;

	for (uint32_t i = ix->state[state].replica; !rc && i != CK_NONE; i = ix->state[i].replica)
		if (ix->state[i].dtype == ix->state[state].dtype)
			rc = add_pair(w, tensor, i, state, kind, err);
	return rc;
}

static int add_tensor(struct ck_watch *w, uint32_t tensor, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	const uint32_t m = ck_index_state_find(ix, tensor, "master");
	const uint32_t v = ck_index_state_find(ix, tensor, "weight");
	int rc = 0;

	if (!ix->tensor[tensor].numel)
		return 0;
	if (m != CK_NONE && v != CK_NONE && ck_agree_is_pair(&ix->state[m], &ix->state[v]))
		rc = add_pair(w, tensor, m, v, MASTER, err);
	for (uint32_t s = ix->tensor[tensor].first_state; !rc && s != CK_NONE;
	     s = ix->state[s].next)
		rc = add_copies(w, tensor, s, err);
	return rc;
}

static int add_padding(struct ck_watch *w, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->npads; i++) {
		const struct range r = {
			.off = ix->pad[i].off, .bytes = ix->pad[i].bytes, .pair = PAD,
			.source = ix->pad[i].source, .state = ix->pad[i].state,
			.bad = CKPT_NO_OFFSET,
		};

		rc = add_range(w, &r, err);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->pair < y->pair ? -1 : x->pair > y->pair;
}

static void put_in_order(struct ck_watch *w)
{
	if (w->nranges)
		qsort(w->range, w->nranges, sizeof(*w->range), by_place);
	for (uint64_t i = 0; i < w->nranges; i++) {
		struct range *r = &w->range[i];
		const bool first = !i || r[-1].source != r->source;

		r->reach = ck_max_u64(first ? 0 : r[-1].reach, r->off + r->bytes);
	}
}

static int make_space(struct ck_watch *w, uint32_t threads, struct ckpt_err *err)
{
	w->space = ck_zalloc(threads * sizeof(*w->space));
	if (!w->space)
		return ck_fail_nomem(err, "buffers", threads);
	for (; w->nspaces < threads; w->nspaces++) {
		struct space *s = &w->space[w->nspaces];

		s->theirs = ck_alloc(BATCH_BYTES);
		s->cast = ck_alloc(BATCH_BYTES);
		s->scratch = ck_alloc(CK_READ_SCRATCH);
		if (!s->theirs || !s->cast || !s->scratch) {
			w->nspaces++;
			return ck_fail_nomem(err, "buffers", BATCH_BYTES);
		}
	}
	return 0;
}

int ck_watch_new(struct ckpt *ck, uint32_t threads, bool compare, struct ck_watch **out,
		 struct ckpt_err *err)
{
	struct ck_watch *w = ck_zalloc(sizeof(*w));
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
		ck_watch_free(w);
	else
		*out = w;
	return rc;
}

void ck_watch_free(struct ck_watch *w)
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
	ck_free(w);
}

/* --------------------------------------------------------------------- comparing */

static enum kn_type kn_of(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_F64:
		return KN_F64;
	case CKPT_F32:
		return KN_F32;
	case CKPT_F16:
		return KN_F16;
	default:
		return KN_BF16;
	}
}

static void note(struct ck_watch *w, struct pair *p, const struct ck_agree_at *at)
{
	pthread_mutex_lock(&w->lock);
	if (!p->differs || at->elem < p->at.elem)
		p->at = *at;
	p->differs = true;
	pthread_mutex_unlock(&w->lock);
}

static void count(struct space *s, const struct pair *p, uint64_t n)
{
	if (p->kind == MASTER)
		s->elements += n;
	else
		s->copies += n;
}

/* 'n' elements from 'first' on, at most a batch: 'mine' is of the type of the mate. */
static void judge(struct ck_watch *w, struct pair *p, uint64_t first, uint64_t n,
		  const uint8_t *mine, const uint8_t *theirs)
{
	const enum ckpt_dtype dtype = w->ck->ix.state[p->mate].dtype;
	const size_t es = ckpt_dtype_bits(dtype) / 8;
	struct ck_agree_at at = { 0 };

	if (p->kind != MASTER) {
		const size_t bytes = n * ck_max_u64(es, 1);

		at.elem = kn_mismatch(mine, theirs, bytes) / ck_max_u64(es, 1);
		if (at.elem == n)
			return;
	} else if (!ck_agree_differ(dtype, mine, theirs, n, &at)) {
		return;
	}
	at.elem += first;
	note(w, p, &at);
}

/* Of another type than the mate, whose elements have been read: a little at a time, as caches go. */
static void judge_cast(struct ck_watch *w, struct pair *p, struct space *s, uint64_t first,
		       uint64_t n, const uint8_t *mine)
{
	const enum ckpt_dtype from = w->ck->ix.state[p->state].dtype;
	const enum ckpt_dtype to = w->ck->ix.state[p->mate].dtype;
	const size_t es = ckpt_dtype_bits(from) / 8, et = ckpt_dtype_bits(to) / 8;

	for (uint64_t i = 0; i < n; i += CAST_ELEMS) {
		const uint64_t k = ck_min_u64(CAST_ELEMS, n - i);

		kn_cast(s->cast, kn_of(to), mine + i * es, kn_of(from), k, NULL);
		judge(w, p, first + i, k, s->cast, s->theirs + i * et);
	}
}

static uint64_t batch_elems(const struct ck_state *a, const struct ck_state *b)
{
	const uint64_t bits = ck_max_u64(ckpt_dtype_bits(a->dtype), ckpt_dtype_bits(b->dtype));

	return BATCH_BYTES / ck_max_u64(bits / 8, 1);
}

/* Elements whose bytes are at hand. */
static int compare(struct ck_watch *w, uint32_t worker, struct pair *p, uint64_t first,
		   uint64_t n, const uint8_t *mine, struct ckpt_err *err)
{
	const struct ck_state *a = &w->ck->ix.state[p->state], *b = &w->ck->ix.state[p->mate];
	const uint64_t most = batch_elems(a, b), es = ckpt_dtype_bits(a->dtype) / 8;
	struct space *s = &w->space[worker];
	int rc = 0;

	count(s, p, n);
	while (!rc && n) {
		const uint64_t take = ck_min_u64(n, most);

		rc = ck_reader_read(w->reader, b, first, take, b->dtype, s->theirs, s->scratch,
				    NULL, err);
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
static int compare_read(struct ck_watch *w, uint32_t worker, struct pair *p, uint64_t first,
			uint64_t n, struct ckpt_err *err)
{
	const struct ck_state *a = &w->ck->ix.state[p->state], *b = &w->ck->ix.state[p->mate];
	const uint64_t most = batch_elems(a, b);
	struct space *s = &w->space[worker];
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
			judge(w, p, first, take, s->cast, s->theirs);
		first += take;
		n -= take;
	}
	return rc;
}

static void look_at_padding(struct ck_watch *w, uint32_t worker, struct range *r, uint64_t off,
			    const uint8_t *p, uint64_t n)
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

/*
 * Of range 'r' what lies in [off, off + n).  An element belongs to the piece that its first
 * byte is in; one that goes on behind it is read once more.
 */
static int look(struct ck_watch *w, uint32_t worker, struct range *r, uint64_t off,
		const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	const uint64_t from = ck_max_u64(off, r->off), end = ck_min_u64(off + n, r->off + r->bytes);
	struct pair *pair;
	uint64_t es, a, b, whole;
	int rc = 0;

	if (r->pair == PAD) {
		look_at_padding(w, worker, r, from, p + (from - off), end - from);
		return 0;
	}
	pair = &w->pair[r->pair];
	es = ckpt_dtype_bits(w->ck->ix.state[pair->state].dtype) / 8;
	a = (from - r->off + es - 1) / es;
	b = (end - r->off + es - 1) / es;
	whole = (end - r->off) / es;
	if (whole > a)
		rc = compare(w, worker, pair, r->first + a, whole - a,
			     p + (r->off + a * es - off), err);
	if (!rc && b > ck_max_u64(whole, a))
		rc = compare_read(w, worker, pair, r->first + ck_max_u64(whole, a),
				  b - ck_max_u64(whole, a), err);
	return rc;
}

/* The first range of 'source' that reaches behind 'off'. */
static uint64_t find(const struct ck_watch *w, uint32_t source, uint64_t off)
{
	uint64_t lo = 0, hi = w->nranges;

	while (lo < hi) {
		const uint64_t mid = lo + (hi - lo) / 2;
		const struct range *r = &w->range[mid];

		if (r->source < source || (r->source == source && r->reach <= off))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int ck_watch_bytes(struct ck_watch *w, uint32_t worker, uint32_t source, uint64_t off,
		   const void *p, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = find(w, source, off); !rc && i < w->nranges; i++) {
		struct range *r = &w->range[i];

		if (r->source != source || r->off >= off + n)
			break;
		if (r->off + r->bytes > off)
			rc = look(w, worker, r, off, p, n, err);
	}
	return rc;
}

/* ---------------------------------------------------------------------- the rest */

/* Elements; of types under 8 bits bytes, as ck_reader_read() has it. */
static uint64_t units(const struct ck_index *ix, const struct pair *p)
{
	const uint64_t n = ix->tensor[p->tensor].numel;
	const uint32_t bits = ckpt_dtype_bits(ix->state[p->state].dtype);

	return bits < 8 ? n / 8 * bits + (n % 8 * bits + 7) / 8 : n;
}

static int rest_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct ck_watch *w = arg;
	uint64_t lo = 0, hi = w->npairs, at, n;

	if (w->cancel && __atomic_load_n(w->cancel, __ATOMIC_RELAXED))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
	while (hi - lo > 1) {	/* the last pair whose first job is not behind this one */
		const uint64_t mid = lo + (hi - lo) / 2;

		if (w->first_job[mid] <= job)
			lo = mid;
		else
			hi = mid;
	}
	at = (job - w->first_job[lo]) * JOB_ELEMS;
	n = ck_min_u64(JOB_ELEMS, units(&w->ck->ix, &w->pair[lo]) - at);
	return compare_read(w, worker, &w->pair[lo], at, n, err);
}

int ck_watch_rest(struct ck_watch *w, uint32_t threads, const volatile int *cancel,
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

static void tell_pair(struct ck_watch *w, const struct pair *p)
{
	struct ck_index *ix = &w->ck->ix;
	struct ck_findings *f = &w->ck->findings;
	const struct ck_state *a = &ix->state[p->state];
	struct ck_state *b = &ix->state[p->mate];
	const struct ck_extent *x = &ix->extent[a->extent], *y = &ix->extent[b->extent];

	if (p->kind == MASTER) {
		ck_agree_tell(w->ck, p->tensor, &p->at);
	} else if (p->kind == COPY) {
		ck_findings_add(f, CK_FINDING_REPLICA_DIFFERS, ix->tensor[p->tensor].name,
				"element %" PRIu64 " of state %s is not the same in %s and %s; "
				"which of them is damaged?", p->at.elem, b->name,
				ix->source[y->source].path, ix->source[x->source].path);
	} else if (!(b->flags & CKPT_STATE_PER_RANK)) {
		b->flags |= CKPT_STATE_PER_RANK;
		ck_findings_add(f, CK_FINDING_BUFFERS_DIFFER, ix->tensor[p->tensor].name,
				"rank %d has another value than rank %d, which is used",
				x->rank, y->rank);
	}
}

void ck_watch_tell(struct ck_watch *w, struct ck_watch_counts *counts_out)
{
	struct ck_watch_counts sum = { 0 };

	for (uint64_t i = 0; i < w->npairs; i++)
		if (w->pair[i].differs)
			tell_pair(w, &w->pair[i]);
	for (uint64_t i = 0; i < w->nranges; i++) {
		const struct range *r = &w->range[i];

		if (r->pair == PAD && r->bad != CKPT_NO_OFFSET)
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
