/*
 * ck_diff_run.c -- pairs of states, read and compared on a few threads.
 *
 * A unit is a fixed number of elements of a pair, cut into windows of fixed size.  Counts,
 * maxima and first places do not depend on the order in which units end; sums of floating-point
 * numbers do, so each unit keeps its own and they are added in the order of the units.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/sums/ck_source_check.h"
#include "libckpt/tensor/ck_dtype.h"

#define WINDOW_PARTS ((uint64_t)32 << 10)
#define UNIT_PARTS (16 * WINDOW_PARTS)
#define WINDOW_BYTES (WINDOW_PARTS * 8)

/* A worker's buffers: both windows as stored and as compared. */
enum { RAW_A, RAW_B, WIDE_A, WIDE_B, NBUFS };
#define WORKER_BYTES (NBUFS * WINDOW_BYTES + CK_READ_SCRATCH)

struct sums {
	double dd, aa, bb;
};

struct running {
	struct ck_diff *d;
	struct ck_reader *a, *b;
	struct ck_source_check proof_a, proof_b;	/* of what they read */
	uint8_t **memory;	/* per thread, WORKER_BYTES */
	struct sums *sum;	/* per unit */
	struct kn_diff_how how;
	pthread_mutex_t lock;	/* guards rows, pairs and the arena */
	pthread_mutex_t telling;
	_Atomic uint64_t done;
	uint64_t total;
};

/* The pair that has the unit. */
static struct ck_diff_pair *pair_of(struct ck_diff *d, uint64_t unit)
{
	uint64_t i;

	CK_LOWER_BOUND(i, d->npairs, d->pair[i].first_unit <= unit);
	return &d->pair[i ? i - 1 : 0];
}

/* 'n' numbers of 'from' as 'to': where they lie already, or in 'room'. */
static const void *widen(const void *p, enum kn_num from, enum kn_num to, void *room, uint64_t n)
{
	if (from == to)
		return p;
	if (ck_elem_type_is_castable(from) && ck_elem_type_is_castable(to))
		kn_cast(room, (enum kn_type)to, p, (enum kn_type)from, n, NULL);
	else
		kn_num_widen(room, from, p, n);		/* 'to' is F64 then */
	return room;
}

/* 'n' elements from 'first' on of one side, in the type that is compared. */
static int fetch(struct ck_reader *r, const struct ck_state *s, enum ckpt_dtype dtype,
		 const struct ck_elem_type *as, uint64_t first, uint64_t n, uint8_t *raw,
		 uint8_t *wide, uint8_t *scratch, const void **out, struct ckpt_err *err)
{
	int rc = ck_reader_read(r, s, first, n, dtype, raw, scratch, NULL, err);

	if (!rc)
		*out = widen(raw, ck_elem_type_of(dtype).type, as->type, wide, n * as->parts);
	return rc;
}

/* What was found from element 'base' of the pair on; under the lock. */
static int merge(struct running *r, struct ck_diff_pair *p, uint64_t base, const struct kn_diff *k,
		 struct ckpt_err *err)
{
	struct ckpt_diff_row *row = &r->d->row[p->row];
	uint64_t *ulps;

	row->nan_both += k->nan_both;
	if (!k->differ)
		return 0;
	if (!row->differ || base + k->first < p->first)
		p->first = base + k->first;
	if (k->beyond && (!row->beyond || base + k->first_beyond < p->first_beyond))
		p->first_beyond = base + k->first_beyond;
	row->differ += k->differ;
	row->beyond += k->beyond;
	row->nan_a += k->nan_a;
	row->nan_b += k->nan_b;
	if (k->max_abs > row->max_abs ||
	    (k->max_abs == row->max_abs && k->max_abs > 0 && base + k->max_at < row->max_at)) {
		row->max_abs = k->max_abs;
		row->max_at = base + k->max_at;
	}
	row->max_ulps = ck_max_u64(row->max_ulps, k->max_steps);
	if (p->as.type == KN_NUM_BYTE)
		return 0;
	if (!row->ulps) {
		row->ulps = ck_arena_zalloc(r->d->arena, CKPT_DIFF_ULPS * sizeof(*row->ulps));
		if (!row->ulps)
			return ck_fail_nomem(err, "a histogram", CKPT_DIFF_ULPS);
	}
	ulps = (uint64_t *)(uintptr_t)row->ulps;
	for (unsigned i = 1; i < CKPT_DIFF_ULPS; i++)
		ulps[i] += k->steps[i];
	return 0;
}

static void report_progress(struct running *r)
{
	struct ckpt_progress now = { .total_bytes = r->total };

	if (!r->d->run.progress)
		return;
	pthread_mutex_lock(&r->telling);
	now.done_bytes = atomic_load(&r->done);
	r->d->run.progress(r->d->run.progress_arg, &now);
	pthread_mutex_unlock(&r->telling);
}

static int run_window(struct running *r, struct ck_diff_pair *p, uint64_t at, uint64_t n,
		      uint8_t *memory, struct sums *sum, struct ckpt_err *err)
{
	const struct ck_state *a = &r->d->a->ix.state[p->state_a];
	const struct ck_state *b = &r->d->b->ix.state[p->state_b];
	const unsigned parts = p->as.parts;
	struct kn_diff_how how = r->how;
	uint8_t *buf[NBUFS], *scratch = memory + NBUFS * WINDOW_BYTES;
	const void *x = NULL, *y = NULL;
	struct kn_diff k;
	int rc;

	for (int i = 0; i < NBUFS; i++)
		buf[i] = memory + (uint64_t)i * WINDOW_BYTES;
	how.parts = parts;
	rc = fetch(r->a, a, p->read_a, &p->as, at / parts, n / parts, buf[RAW_A], buf[WIDE_A],
		   scratch, &x, err);
	if (!rc)
		rc = fetch(r->b, b, p->read_b, &p->as, at / parts, n / parts, buf[RAW_B],
			   buf[WIDE_B], scratch, &y, err);
	if (rc)
		return rc;
	kn_diff(p->as.type, &how, x, y, n, &k);
	sum->dd += k.sum_dd;
	sum->aa += k.sum_aa;
	sum->bb += k.sum_bb;
	atomic_fetch_add(&r->done, n * (kn_num_size(p->a.type) + kn_num_size(p->b.type)));
	if (!k.differ && !k.nan_both)
		return 0;
	pthread_mutex_lock(&r->lock);
	rc = merge(r, p, at / parts, &k, err);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static int run_unit(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct running *r = arg;
	struct ck_diff_pair *p = pair_of(r->d, job);
	const volatile int *cancel = r->d->run.cancel;
	uint64_t at = (job - p->first_unit) * UNIT_PARTS;
	const uint64_t end = ck_min_u64(at + UNIT_PARTS, p->nparts);
	int rc = 0;

	if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
	for (; !rc && at < end; at += WINDOW_PARTS)
		rc = run_window(r, p, at, ck_min_u64(WINDOW_PARTS, end - at), r->memory[worker],
				&r->sum[job], err);
	if (!rc)
		report_progress(r);
	return rc;
}

static void cut(struct running *r)
{
	struct ck_diff *d = r->d;

	d->nunits = 0;
	for (uint64_t i = 0; i < d->npairs; i++) {
		struct ck_diff_pair *p = &d->pair[i];

		p->first_unit = d->nunits;
		d->nunits += (p->nparts + UNIT_PARTS - 1) / UNIT_PARTS;
		r->total += p->nparts * (kn_num_size(p->a.type) + kn_num_size(p->b.type));
	}
}

/* Norms, in the order of the units; of rows where something differs. */
static void settle_norms(struct running *r)
{
	for (uint64_t i = 0; i < r->d->npairs; i++) {
		struct ck_diff_pair *p = &r->d->pair[i];
		const uint64_t end = i + 1 < r->d->npairs ? p[1].first_unit : r->d->nunits;
		struct sums s = { 0, 0, 0 };

		for (uint64_t u = p->first_unit; u < end; u++) {
			s.dd += r->sum[u].dd;
			s.aa += r->sum[u].aa;
			s.bb += r->sum[u].bb;
		}
		if (s.dd > 0) {
			struct ckpt_diff_row *row = &r->d->row[p->row];

			row->rel_l2 = sqrt(s.dd) / sqrt(fmax(s.aa, s.bb));
			row->rms = sqrt(s.dd) / sqrt((double)row->numel);
		}
	}
}

static int text_of(struct ck_reader *reader, const struct ck_state *s, enum ckpt_dtype dtype,
		   uint64_t elem, void *scratch, char out[CK_ELEM_TYPE_TEXT], struct ckpt_err *err)
{
	uint8_t p[16];
	int rc = ck_reader_read(reader, s, elem, 1, dtype, p, scratch, NULL, err);

	if (!rc)
		ck_elem_type_text(dtype, p, out);
	return rc;
}

/* First differences as text, and the bucket of what does not differ. */
static int settle_rows(struct running *r, struct ckpt_err *err)
{
	struct ck_diff *d = r->d;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->npairs; i++) {
		const struct ck_diff_pair *p = &d->pair[i];
		struct ckpt_diff_row *row = &d->row[p->row];
		uint64_t others = row->nan_a + row->nan_b;

		if (!row->differ)
			continue;
		row->first = row->beyond ? p->first_beyond : p->first;
		if (!(d->opts->flags & CKPT_DIFF_TOLERANCE)) {
			row->first = p->first;
			row->beyond = row->differ;
		}
		for (unsigned k = 1; row->ulps && k < CKPT_DIFF_ULPS; k++)
			others += row->ulps[k];
		if (row->ulps)
			*(uint64_t *)(uintptr_t)row->ulps = p->nparts - others;
		rc = text_of(r->a, &d->a->ix.state[p->state_a], p->read_a, row->first,
			     r->memory[0], row->first_a, err);
		if (!rc)
			rc = text_of(r->b, &d->b->ix.state[p->state_b], p->read_b, row->first,
				     r->memory[0], row->first_b, err);
	}
	return rc;
}

static int make_memory(struct running *r, struct ckpt_err *err)
{
	const uint64_t most = r->d->run.mem_limit / 2 / WORKER_BYTES;
	uint32_t threads = (uint32_t)ck_min_u64(r->d->run.threads, ck_max_u64(most, 1));

	threads = (uint32_t)ck_min_u64(threads, ck_max_u64(r->d->nunits, 1));
	r->d->threads = threads;
	r->memory = ck_zalloc(threads * sizeof(*r->memory));
	r->sum = ck_alloc_array(r->d->nunits, sizeof(*r->sum));
	if (!r->memory || !r->sum)
		return ck_fail_nomem(err, "sums", r->d->nunits);
	memset(r->sum, 0, r->d->nunits * sizeof(*r->sum));
	for (uint32_t i = 0; i < threads; i++) {
		r->memory[i] = ck_alloc(WORKER_BYTES);
		if (!r->memory[i])
			return ck_fail_nomem(err, "buffers", WORKER_BYTES);
	}
	return 0;
}

static int make_reader(struct running *r, const struct ckpt *ck, struct ck_reader **reader,
		       struct ck_source_check *proof, struct ckpt_err *err)
{
	int rc = ck_reader_new(&ck->ix, &ck->limits, r->d->run.mem_limit / 4, reader, err);

	if (!rc)
		rc = ck_source_check_init(proof, &ck->ix, &ck->limits, NULL, err);
	if (!rc)
		ck_reader_observe(*reader, ck_source_check_saw, proof);
	return rc;
}

/* Damage is no difference: it is said before anything else is. */
static int check_side(struct running *r, struct ckpt *ck, struct ck_source_check *proof,
		      bool second, struct ckpt_err *err)
{
	const struct ck_source_check_ask ask = {
		.ix = &ck->ix, .members = { .rest = CK_CRC_CHECK_ALONE },
		.pieces = { .rest = CK_REST_WANTED, .threads = r->d->threads,
			    .cancel = r->d->run.cancel },
	};

	for (uint64_t i = 0; i < r->d->npairs; i++)
		ck_source_check_want_state(proof,
					   second ? r->d->pair[i].state_b : r->d->pair[i].state_a);
	return ck_source_check_check(proof, &ask, &ck->findings, err);
}

int ck_diff_run(struct ck_diff *d, struct ckpt_err *err)
{
	struct running r = { .d = d };
	int rc;

	if (d->opts->flags & CKPT_DIFF_TOLERANCE) {
		r.how.abs = d->opts->abs_tolerance;
		r.how.rel = d->opts->rel_tolerance;
	}
	pthread_mutex_init(&r.lock, NULL);
	pthread_mutex_init(&r.telling, NULL);
	cut(&r);
	rc = make_memory(&r, err);
	if (!rc)
		rc = make_reader(&r, d->a, &r.a, &r.proof_a, err);
	if (!rc)
		rc = make_reader(&r, d->b, &r.b, &r.proof_b, err);
	if (!rc)
		rc = ck_pool_run(d->threads, d->nunits, run_unit, &r, err);
	if (!rc)
		rc = check_side(&r, d->a, &r.proof_a, false, err);
	if (!rc)
		rc = check_side(&r, d->b, &r.proof_b, true, err);
	if (!rc) {
		settle_norms(&r);
		rc = settle_rows(&r, err);
	}
	if (!rc)
		report_progress(&r);
	ck_reader_free(r.a);
	ck_reader_free(r.b);
	ck_source_check_release(&r.proof_a);
	ck_source_check_release(&r.proof_b);
	for (uint32_t i = 0; r.memory && i < d->threads; i++)
		ck_free(r.memory[i]);
	ck_free(r.memory);
	ck_free(r.sum);
	pthread_mutex_destroy(&r.lock);
	pthread_mutex_destroy(&r.telling);
	return rc;
}
