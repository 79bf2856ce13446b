/* ck_master_check.c -- see ck_master_check.h. */
#include "libckpt/run/ck_master_check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/sums/ck_sum_check.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define WINDOW (2 * CK_MASTER_CHECK_ELEMS)
#define WIDE ((uint64_t)16 << 10)	/* elements at a time where all are compared */
#define ELEM_MOST 16			/* bytes */
#define CACHE_BYTES ((uint64_t)64 << 20)

/* Two states of a tensor; or, 'copy', a state and another copy of it. */
struct pair {
	uint32_t tensor, master, weight;
	bool copy;
	bool differs;
	struct ck_master_check_at at;	/* the first one met */
};

struct agreeing {
	const struct ck_index *ix;
	bool *unsummed;		/* of each source; NULL = ends are enough everywhere */
	uint64_t *stated;	/* of each state: elements that the index states sums of */
	uint8_t **wide;		/* per thread, made when it is needed: 2 * WIDE elements */
	struct ck_reader *reader;
	struct pair *pair;
	uint64_t npairs, cap;
	uint8_t **scratch;	/* per thread */
};

static bool is_nan(enum ckpt_dtype dtype, const uint8_t *p)
{
	double v;

	if (!ck_dtype_is_castable(dtype))
		return false;
	kn_cast(&v, KN_F64, p, ck_read_kn(dtype), 1, NULL);
	return isnan(v);
}

static double value_of(enum ckpt_dtype dtype, const uint8_t *p)
{
	double v = 0;

	if (ck_dtype_is_castable(dtype))
		kn_cast(&v, KN_F64, p, ck_read_kn(dtype), 1, NULL);
	return v;
}

bool ck_master_check_differ(enum ckpt_dtype dtype, const void *mine, const void *theirs, uint64_t n,
			    struct ck_master_check_at *out)
{
	const size_t es = ckpt_dtype_bits(dtype) / 8;
	const uint8_t *x = mine, *y = theirs;

	for (uint64_t i = kn_mismatch(x, y, n * es) / es; i < n; i++) {
		const uint8_t *p = x + i * es, *q = y + i * es;

		if (!memcmp(p, q, es) || (is_nan(dtype, p) && is_nan(dtype, q)))
			continue;
		*out = (struct ck_master_check_at){ i, value_of(dtype, p), value_of(dtype, q) };
		return true;
	}
	return false;
}

/* 'mine' and 'theirs' have room for n elements. */
static int compare(struct agreeing *a, struct pair *p, uint64_t first, uint64_t n, uint8_t *mine,
		   uint8_t *theirs, uint8_t *scratch, struct ckpt_err *err)
{
	const struct ck_state *m = &a->ix->state[p->master], *w = &a->ix->state[p->weight];
	int rc = ck_reader_read(a->reader, m, first, n, w->dtype, mine, scratch, NULL, err);

	if (!rc)
		rc = ck_reader_read(a->reader, w, first, n, w->dtype, theirs, scratch, NULL, err);
	if (!rc && ck_master_check_differ(w->dtype, mine, theirs, n, &p->at)) {
		p->differs = true;
		p->at.elem += first;
	}
	return rc;
}

static int compare_window(struct agreeing *a, struct pair *p, uint64_t first, uint64_t n,
			  uint8_t *scratch, struct ckpt_err *err)
{
	uint8_t mine[WINDOW * ELEM_MOST], theirs[WINDOW * ELEM_MOST];

	return compare(a, p, first, n, mine, theirs, scratch, err);
}

static int look_at_all(struct agreeing *a, struct pair *p, uint32_t worker, struct ckpt_err *err)
{
	const uint64_t numel = a->ix->tensor[p->tensor].numel;
	uint8_t **buf = &a->wide[worker];
	int rc = 0;

	if (!*buf)
		*buf = ck_alloc(2 * WIDE * ELEM_MOST);
	if (!*buf)
		return ck_fail_nomem(err, "buffers", 2 * WIDE * ELEM_MOST);
	for (uint64_t at = 0; !rc && !p->differs && at < numel; at += WIDE)
		rc = compare(a, p, at, ck_min_u64(WIDE, numel - at), *buf,
			     *buf + WIDE * ELEM_MOST, a->scratch[worker], err);
	return rc;
}

/* Some of it is in a file without checksums, and the checkpoint states no sums of all of it. */
static bool is_unsummed(const struct agreeing *a, uint32_t state)
{
	const struct ck_state *s = &a->ix->state[state];

	if (a->stated && a->stated[state] == a->ix->tensor[s->tensor].numel)
		return false;
	for (uint64_t i = 0; a->unsummed && i < s->nstored; i++)
		if (a->unsummed[ck_extent_stored(a->ix, s, i)->source])
			return true;
	return false;
}

/*
 * Both ends of every extent of one of the states; of a block of columns the begin of its first row
 * and the end of its last.
 */
static int look_at_ends(struct agreeing *a, struct pair *p, const struct ck_state *s,
			uint8_t *scratch, struct ckpt_err *err)
{
	struct ck_spans spans;
	struct ck_span span;
	int rc = 0;

	ck_spans_begin(&spans, a->ix, s, 0, a->ix->tensor[s->tensor].numel);
	while (!rc && !p->differs && ck_spans_next(&spans, &span)) {
		const bool dense = span.step == span.e->count;
		const uint64_t run = dense ? span.n : span.e->count, first = span.e->first;
		const uint64_t last = dense ? first : first + (span.e->runs - 1) * span.step;
		const uint64_t n = ck_min_u64(run, CK_MASTER_CHECK_ELEMS);

		if (dense && run <= WINDOW) {
			rc = compare_window(a, p, first, run, scratch, err);
			continue;
		}
		rc = compare_window(a, p, first, n, scratch, err);
		if (!rc && !p->differs)
			rc = compare_window(a, p, last + run - n, n, scratch, err);
	}
	return rc;
}

static int look_at_pair(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct agreeing *a = arg;
	struct pair *p = &a->pair[job];
	const struct ck_state *m = &a->ix->state[p->master], *w = &a->ix->state[p->weight];
	int rc;

	if (p->copy || is_unsummed(a, p->master) || is_unsummed(a, p->weight))
		return look_at_all(a, p, worker, err);
	rc = look_at_ends(a, p, m, a->scratch[worker], err);
	if (!rc && (m->nextents > 1 || w->nextents > 1))	/* else they are the same ends */
		rc = look_at_ends(a, p, w, a->scratch[worker], err);
	return rc;
}

bool ck_master_check_is_pair(const struct ck_state *m, const struct ck_state *w)
{
	if ((w->flags & CKPT_STATE_DERIVED) || ckpt_dtype_bits(w->dtype) < 8)
		return false;
	return m->dtype == w->dtype ||
	       (ck_dtype_is_castable(m->dtype) && ck_dtype_is_castable(w->dtype));
}

static int find_pairs(struct agreeing *a, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < a->ix->ntensors; i++) {
		const uint32_t m = ck_index_state_find(a->ix, i, "master");
		const uint32_t w = ck_index_state_find(a->ix, i, "weight");
		int rc;

		if (m == CK_NONE || w == CK_NONE ||
		    !ck_master_check_is_pair(&a->ix->state[m], &a->ix->state[w]))
			continue;
		rc = ck_grow(&a->pair, &a->cap, a->npairs + 1, sizeof(*a->pair), err);
		if (rc)
			return rc;
		a->pair[a->npairs++] = (struct pair){ .tensor = i, .master = m, .weight = w };
	}
	return 0;
}

static int add_copies(struct agreeing *a, uint32_t tensor, uint32_t state, struct ckpt_err *err)
{
	const struct ck_state *s = &a->ix->state[state];

	if (ckpt_dtype_bits(s->dtype) < 8)
		return 0;
	for (uint32_t k = s->replica; k != CK_NONE; k = a->ix->state[k].replica) {
		int rc;

		if (a->ix->state[k].dtype != s->dtype)
			continue;
		rc = ck_grow(&a->pair, &a->cap, a->npairs + 1, sizeof(*a->pair), err);
		if (rc)
			return rc;
		a->pair[a->npairs++] = (struct pair){ .tensor = tensor, .master = k,
						      .weight = state, .copy = true };
	}
	return 0;
}

/* Further copies of what is no buffer: buffers may differ (ck_buffers.h). */
static int find_copies(struct agreeing *a, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < a->ix->ntensors; i++) {
		uint32_t s = a->ix->tensor[i].first_state;

		if (a->ix->tensor[i].role == CKPT_ROLE_BUFFER)
			continue;
		for (; !rc && s != CK_NONE; s = a->ix->state[s].next)
			rc = add_copies(a, i, s, err);
	}
	return rc;
}

static bool is_known(const struct ck_findings *f, const char *where)
{
	const char *id = ck_finding_name(CK_FINDING_MASTER_WEIGHT_MISMATCH);

	for (uint64_t i = 0; i < f->n; i++)
		if (!strcmp(f->list[i].id, id) && !strcmp(f->list[i].where, where))
			return true;
	return false;
}

void ck_master_check_report(struct ckpt *ck, uint32_t tensor, const struct ck_master_check_at *at)
{
	const char *name = ck->ix.tensor[tensor].name;

	if (!is_known(&ck->findings, name))
		ck_findings_add(&ck->findings, CK_FINDING_MASTER_WEIGHT_MISMATCH, name,
				"element %" PRIu64 ": the master rounds to %.9g, the weight is "
				"%.9g; files of two saves, or changed after saving?",
				at->elem, at->m, at->w);
}

static void tell_copy(struct ckpt *ck, const struct pair *p)
{
	const struct ck_index *ix = &ck->ix;
	const struct ck_state *a = &ix->state[p->weight], *b = &ix->state[p->master];

	ck_findings_add(&ck->findings, CK_FINDING_REPLICA_DIFFERS, ix->tensor[p->tensor].name,
			"element %" PRIu64 " of state %s differs between %s and %s; one of "
			"them is damaged", p->at.elem, a->name,
			ix->source[ck_extent_stored(ix, a, 0)->source].path,
			ix->source[ck_extent_stored(ix, b, 0)->source].path);
}

static int run_pairs(struct agreeing *a, uint32_t threads, struct ckpt_err *err)
{
	int rc = 0;

	a->scratch = ck_zalloc(threads * sizeof(*a->scratch));
	a->wide = ck_zalloc(threads * sizeof(*a->wide));
	if (!a->scratch || !a->wide)
		rc = ck_fail_nomem(err, "buffers", threads);
	for (uint32_t i = 0; !rc && i < threads; i++) {
		a->scratch[i] = ck_alloc(CK_READ_SCRATCH);
		if (!a->scratch[i])
			rc = ck_fail_nomem(err, "buffers", CK_READ_SCRATCH);
	}
	if (!rc)
		rc = ck_pool_run(threads, a->npairs, look_at_pair, a, err);
	for (uint32_t i = 0; i < threads; i++) {
		if (a->scratch)
			ck_free(a->scratch[i]);
		if (a->wide)
			ck_free(a->wide[i]);
	}
	ck_free(a->scratch);
	ck_free(a->wide);
	return rc;
}

/*
 * Formats without checksums: legacy streams, safetensors.  An archive whose writer had left them
 * out is read once, as any archive: its ends are looked at, and all of it by verify --full.
 */
static int find_unsummed(const struct ckpt *ck, struct agreeing *a, struct ckpt_err *err)
{
	int rc = 0;

	a->unsummed = ck_zalloc((ck->ix.nsources + 1) * sizeof(*a->unsummed));
	if (!a->unsummed)
		return ck_fail_nomem(err, "a list of files", ck->ix.nsources);
	for (uint64_t i = 0; !rc && i < ck->ix.nsources; i++) {
		struct ck_src *src = ck->ix.source[i].src;
		uint8_t head[4] = { 0 };

		rc = ck_src_read(src, 0, head,
				 (size_t)ck_min_u64(sizeof(head), ck_src_size(src)), err);
		a->unsummed[i] = memcmp(head, "PK\3\4", 4) != 0;
	}
	return rc;
}

/* Elements whose bytes are compared with a sum when they are read. */
static int find_stated(const struct ckpt *ck, struct agreeing *a, struct ckpt_err *err)
{
	const struct ck_index *ix = &ck->ix;

	a->stated = ck_zalloc((ix->nstates + 1) * sizeof(*a->stated));
	if (!a->stated)
		return ck_fail_nomem(err, "a list of sums", ix->nstates);
	for (uint64_t i = 0; i < ix->nstated_sums; i++) {
		const struct ck_stated_sum *s = &ix->stated_sum[i];

		if (ck_sum_check_compares(ix, s))
			a->stated[s->state] += s->count;
	}
	return 0;
}

int ck_master_check(struct ckpt *ck, uint32_t threads, bool before_writing, struct ckpt_err *err)
{
	struct agreeing a = { .ix = &ck->ix };
	int rc = find_pairs(&a, err);

	if (!rc && a.npairs && before_writing)
		rc = find_unsummed(ck, &a, err);
	if (!rc && a.npairs && before_writing && ck->ix.nstated_sums)
		rc = find_stated(ck, &a, err);
	if (!rc && before_writing)
		rc = find_copies(&a, err);
	if (!rc && a.npairs)
		rc = ck_reader_new(&ck->ix, &ck->limits, CACHE_BYTES, &a.reader, err);
	if (!rc && a.npairs)
		rc = run_pairs(&a, (uint32_t)ck_min_u64(threads, a.npairs), err);
	for (uint64_t i = 0; !rc && i < a.npairs; i++)
		if (a.pair[i].differs && a.pair[i].copy)
			tell_copy(ck, &a.pair[i]);
		else if (a.pair[i].differs)
			ck_master_check_report(ck, a.pair[i].tensor, &a.pair[i].at);
	ck_reader_free(a.reader);
	ck_free(a.unsummed);
	ck_free(a.stated);
	ck_free(a.pair);
	return rc;
}
