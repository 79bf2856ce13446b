/*
 * op_load.c -- ranges of states into the caller's memory.
 *
 * What is made is numbered byte by byte in the order of the files, and threads take stretches of
 * that. Pieces that are stored as they are wanted are read to their place; where several follow
 * each other in the file, and at their places too, by one call; where they are small, by one call
 * into the scratch.  All others go through the reader.
 *
 * To be checked, bytes are summed as they pass by, in windows that are still in the cache and that
 * are cut at blocks of the digest.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/read/ck_load.h"
#include "libckpt/read/op_read.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/sums/ck_source_check.h"

#define MOST_JOB ((uint64_t)4 << 20)	/* bytes that a thread makes at a time */
#define LEAST_JOB ((uint64_t)256 << 10)
#define SMALL ((uint64_t)32 << 10)	/* pieces that are read together */
#define WINDOW_BLOCKS 64u		/* 256 KiB, that are summed at once */

struct ckpt_load_checks {
	const struct ckpt *ck;
	struct ck_source_check proof;
};

struct worker {
	uint8_t *scratch;	/* CK_READ_SCRATCH */
	uint64_t overflows;
};

struct load {
	const struct ckpt *ck;
	struct ckpt_run_opts run;
	struct ck_load_plan plan;
	struct ck_reader *reader;
	struct ck_source_check own;
	struct ck_source_check *proof;	/* our own, or of several calls; NULL: no check */
	uint64_t checked, again;
	struct worker *worker;
	uint32_t threads;
	uint64_t job, njobs;	/* bytes of one, how many */
	_Atomic uint64_t done;
	pthread_mutex_t telling;	/* around the progress call */
};

/* What of a piece lies in a job. */
struct part {
	const struct ck_load_piece *p;
	uint64_t first, n;	/* elements of the piece */
};

/* ---------------------------------------------------------------- reading */

static uint64_t part_off(const struct part *a)
{
	return a->p->off + a->first * a->p->es;
}

static uint64_t part_bytes(const struct part *a)
{
	return a->n * a->p->es;
}

static uint8_t *part_dst(const struct part *a)
{
	return a->p->dst + a->first * a->p->es;
}

/* Is 'b' plain and right behind 'n' bytes from 'off' on? */
static bool follows(const struct part *b, uint32_t source, uint64_t off, uint64_t n)
{
	return b->p->plain && b->p->source == source && part_off(b) == off + n;
}

/* As many parts as go straight to one place: how many they are and their bytes. */
static size_t straight(const struct part *a, size_t n, uint64_t *bytes_out)
{
	size_t k = 1;
	uint64_t bytes = part_bytes(a);

	while (k < n && follows(&a[k], a->p->source, part_off(a), bytes) &&
	       part_dst(&a[k]) == part_dst(a) + bytes)
		bytes += part_bytes(&a[k++]);
	*bytes_out = bytes;
	return k;
}

/* As many small ones as fill the scratch. */
static size_t small(const struct part *a, size_t n, uint64_t *bytes_out)
{
	size_t k = 0;
	uint64_t bytes = 0;

	while (k < n && follows(&a[k], a->p->source, part_off(a), bytes) &&
	       part_bytes(&a[k]) <= SMALL && part_bytes(&a[k]) <= CK_READ_SCRATCH - bytes)
		bytes += part_bytes(&a[k++]);
	*bytes_out = bytes;
	return k;
}

static int read_made(struct load *l, struct worker *w, const struct part *a, struct ckpt_err *err)
{
	return ck_reader_read(l->reader, &l->ck->ix.state[a->p->state], a->p->first + a->first,
			      a->n, (enum ckpt_dtype)a->p->dtype, part_dst(a), w->scratch,
			      &w->overflows, err);
}

/* In windows that begin at blocks, but for the first. */
static int read_summed(struct load *l, struct worker *w, const struct part *a,
		       struct ckpt_err *err)
{
	const uint64_t grain = (uint64_t)1 << a->p->grain;
	struct part win = *a;
	int rc = 0;

	for (uint64_t left = a->n; !rc && left; left -= win.n, win.first += win.n) {
		const uint64_t over = (a->p->first + win.first) % grain;

		win.n = ck_min_u64(left, over ? grain - over : WINDOW_BLOCKS * grain);
		rc = a->p->plain ? ck_reader_raw(l->reader, a->p->source, part_off(&win),
						 part_dst(&win), part_bytes(&win), err) :
		     read_made(l, w, &win, err);
	}
	return rc;
}

/* The first of 'n' parts, which is plain, and those that are read with it. */
static int read_plain(struct load *l, struct worker *w, const struct part *a, size_t n,
		      size_t *taken_out, struct ckpt_err *err)
{
	uint64_t bytes, together;
	const size_t one = straight(a, l->proof ? 1 : n, &bytes), few = small(a, n, &together);
	const uint8_t *from = w->scratch;
	int rc;

	*taken_out = ck_max_u64(one, few);
	if (few <= one && l->proof)
		return read_summed(l, w, a, err);
	if (few <= one)
		return ck_reader_raw(l->reader, a->p->source, part_off(a), part_dst(a), bytes,
				     err);
	rc = ck_reader_raw(l->reader, a->p->source, part_off(a), w->scratch, together, err);
	for (size_t i = 0; !rc && i < few; i++) {
		memcpy(part_dst(&a[i]), from, part_bytes(&a[i]));
		from += part_bytes(&a[i]);
	}
	return rc;
}

/* ---------------------------------------------------------------- jobs */

static bool is_canceled(const struct load *l)
{
	const volatile int *cancel = l->run.cancel;

	return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

/* A thread that finds another one telling goes on with its work. */
static void report_progress(struct load *l, uint64_t made)
{
	struct ckpt_progress p = { .total_bytes = l->plan.bytes };

	atomic_fetch_add(&l->done, made);
	if (!l->run.progress || pthread_mutex_trylock(&l->telling))
		return;
	p.done_bytes = atomic_load(&l->done);
	l->run.progress(l->run.progress_arg, &p);
	pthread_mutex_unlock(&l->telling);
}

/* The parts of a job, from piece '*next' on: as many as 'part' has room for. */
static size_t parts_of(const struct load *l, uint64_t begin, uint64_t end, uint64_t *next,
		       struct part *part, size_t room)
{
	size_t n = 0;

	for (; n < room && *next < l->plan.n && l->plan.piece[*next].at < end; ++*next) {
		const struct ck_load_piece *p = &l->plan.piece[*next];
		const uint64_t from = ck_load_cut(p, begin), to = ck_load_cut(p, end);

		if (to > from)
			part[n++] = (struct part){ p, from, to - from };
	}
	return n;
}

static int run_parts(struct load *l, struct worker *w, const struct part *part, size_t n,
		     uint64_t *made, struct ckpt_err *err)
{
	size_t k;
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i += k) {
		k = 1;
		if (part[i].p->plain)
			rc = read_plain(l, w, &part[i], n - i, &k, err);
		else if (l->proof)
			rc = read_summed(l, w, &part[i], err);
		else
			rc = read_made(l, w, &part[i], err);
		for (size_t j = i; !rc && j < i + k; j++)
			*made += part_bytes(&part[j]);
	}
	return rc;
}

static int run_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct load *l = arg;
	const uint64_t begin = job * l->job, end = begin + l->job;
	struct part part[64];
	uint64_t next = ck_load_piece_at(&l->plan, begin), made = 0;
	int rc = 0;
	size_t n;

	while (!rc && (n = parts_of(l, begin, end, &next, part, CK_ARRAY_LEN(part)))) {
		if (is_canceled(l))
			rc = ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET,
				     "the run was canceled");
		else
			rc = run_parts(l, &l->worker[worker], part, n, &made, err);
	}
	if (!rc)
		report_progress(l, made);
	return rc;
}

/* ---------------------------------------------------------------- checking */

static int begin_checking(struct load *l, struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	const struct ck_index *ix = &l->ck->ix;
	bool *only = NULL;
	int rc = 0;

	if (checks) {
		l->proof = &checks->proof;
	} else {
		only = ck_zalloc((ix->nsources + 1) * sizeof(*only));
		for (uint64_t i = 0; only && i < l->plan.n; i++)
			only[l->plan.piece[i].source] = true;
		rc = only ? ck_source_check_init(&l->own, ix, &l->ck->limits, only, err) :
		     ck_fail_nomem(err, "a list of files", ix->nsources);
		l->proof = &l->own;
	}
	ck_free(only);
	if (!rc)
		ck_reader_observe(l->reader, ck_source_check_saw, l->proof);
	return rc;
}

struct ending {
	const struct ckpt *ck;
	const struct ck_load_plan *plan;	/* NULL: of several calls */
	uint64_t checked, again;
};

static int check_member(void *arg, const struct ck_crc_check_member *m, struct ckpt_err *err)
{
	struct ending *e = arg;
	const struct ck_index *ix = &e->ck->ix;
	const struct ck_load_piece *p =
		e->plan ? ck_load_piece_in(e->plan, m->source, m->off, m->bytes) : NULL;

	e->checked += m->read;
	e->again += m->again;
	if (m->crc == m->want)
		return 0;
	if (!p)	/* it was read for another one of its piece: a view */
		return ck_fail(err, CKPT_E_CORRUPT, m->path, m->off,
			       "CRC_WRONG: the bytes of '%.100s' have the CRC-32 %08x, the archive "
			       "says %08x", m->name, m->crc, m->want);
	return ck_fail(err, CKPT_E_CORRUPT, m->path, m->off,
		       "CRC_WRONG: the bytes of '%.100s' have the CRC-32 %08x, the archive says "
		       "%08x; they hold %s of %.160s, elements %" PRIu64 " to %" PRIu64 ", or "
		       "elements after these", m->name, m->crc, m->want, ix->state[p->state].name,
		       ix->tensor[ix->state[p->state].tensor].name, p->first, p->first + p->n - 1);
}

/* The caller has said that such a finding is a warning. */
static bool is_borne(const struct ckpt *ck, const struct ck_stated_sum *says)
{
	struct ck_findings found = { .as_warning = ck->findings.as_warning };
	bool borne;

	ck_stated_wrong(&found, &ck->ix, says);
	borne = !ck_findings_worst(&found, CKPT_ERROR);
	ck_findings_release(&found);
	return borne;
}

static int check_piece(void *arg, const struct ck_sum_check_piece *piece, struct ckpt_err *err)
{
	struct ending *e = arg;
	const struct ck_index *ix = &e->ck->ix;
	const struct ck_stated_sum *says = piece->says;
	const struct ck_state *state = &ix->state[says->state];

	e->checked += piece->bytes - ck_min_u64(piece->again, piece->bytes);
	e->again += piece->again;
	if (piece->good || is_borne(e->ck, says))
		return 0;
	if (says->of_file)
		return ck_fail(err, CKPT_E_CORRUPT, ix->source[piece->source].path, piece->off,
			       "SUM_WRONG: the bytes of %.200s differ from those that were "
			       "written here (damage, or another program changed them and kept "
			       "the metadata)", ix->tensor[state->tensor].name);
	return ck_fail(err, CKPT_E_MISMATCH, ix->source[piece->source].path, piece->off,
		       "MANIFEST_HASH_WRONG: %s of %.200s, elements %" PRIu64 " to %" PRIu64 ": "
		       "the bytes differ from the manifest (damage, or a file of another step)",
		       state->name, ix->tensor[state->tensor].name, says->first,
		       says->first + says->count - 1);
}

static int end_proof(struct ck_source_check *proof, struct ending *e,
		     const struct ckpt_run_opts *run, struct ckpt_err *err)
{
	const bool together = !e->plan;	/* other ranks read what this one does not */
	const struct ck_sum_check_ask pieces = {
		.rest = together ? CK_REST_WITNESS : CK_REST_NONE, .threads = run->threads,
		.cancel = run->cancel,
	};
	const struct ck_crc_check_ask members = {
		.rest = together ? CK_CRC_CHECK_WITNESS : CK_CRC_CHECK_AMONG,
	};
	int rc = ck_crc_check_each(proof->seen, &members, check_member, e, err);

	if (!rc && proof->passed)
		rc = ck_sum_check_each(proof->passed, &pieces, check_piece, e, err);
	return rc;
}

static int end_checking(struct load *l, struct ckpt_err *err)
{
	struct ending e = { .ck = l->ck, .plan = &l->plan };
	int rc = l->proof == &l->own ? end_proof(l->proof, &e, &l->run, err) : 0;

	l->checked += e.checked;
	l->again += e.again;
	return rc;
}

int ck_load_checks_new(const struct ckpt *ck, struct ckpt_load_checks **out, struct ckpt_err *err)
{
	struct ckpt_load_checks *checks = ck_zalloc(sizeof(*checks));
	int rc = checks ? 0 : ck_fail_nomem(err, "checksums", sizeof(*checks));

	if (!rc)
		rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = ck_source_check_init(&checks->proof, &ck->ix, &ck->limits, NULL, err);
	if (rc) {
		ck_free(checks);
		return rc;
	}
	checks->ck = ck;
	*out = checks;
	return 0;
}

int ck_load_checks_end(struct ckpt_load_checks *checks, const struct ckpt_run_opts *run,
		       struct ckpt_load_checked *out, struct ckpt_err *err)
{
	struct ending e = { .ck = checks->ck };
	struct ckpt_run_opts full;
	int rc;

	ck_run_opts_fill(run, &full);
	rc = end_proof(&checks->proof, &e, &full, err);
	if (!rc && out) {
		out->checked_bytes = e.checked;
		out->again_bytes = e.again;
	}
	return rc;
}

bool ck_load_checks_of(const struct ckpt_load_checks *checks, const struct ckpt *ck)
{
	return checks->ck == ck;
}

void ck_load_checks_free(struct ckpt_load_checks *checks)
{
	if (checks)
		ck_source_check_release(&checks->proof);
	ck_free(checks);
}

/* ---------------------------------------------------------------- the verb */

/* A thread takes many jobs, so that all end at about the same time; none is tiny. */
static void size_jobs(struct load *l)
{
	const uint64_t share = l->plan.bytes / l->threads / 4;

	l->job = ck_min_u64(MOST_JOB, ck_max_u64(LEAST_JOB, share));
	l->njobs = l->plan.bytes / l->job + (l->plan.bytes % l->job != 0);
}

static int make_workers(struct load *l, struct ckpt_err *err)
{
	const uint64_t most = ck_max_u64(1, l->run.mem_limit / CK_READ_SCRATCH);

	l->threads = (uint32_t)ck_max_u64(1, ck_min_u64(l->run.threads, most));
	size_jobs(l);
	l->threads = (uint32_t)ck_max_u64(1, ck_min_u64(l->threads, l->njobs));
	l->worker = ck_zalloc(l->threads * sizeof(*l->worker));
	if (!l->worker)
		return ck_fail_nomem(err, "workers", l->threads);
	for (uint32_t i = 0; i < l->threads; i++) {
		l->worker[i].scratch = ck_alloc(CK_READ_SCRATCH);
		if (!l->worker[i].scratch)
			return ck_fail_nomem(err, "buffers", CK_READ_SCRATCH);
	}
	return 0;
}

static void report(struct load *l, double began, struct ckpt_loaded *out)
{
	struct ck_read_counts counts;

	ck_reader_counts(l->reader, &counts);
	l->checked += counts.inflated;
	*out = (struct ckpt_loaded){
		.ranges = l->plan.ranges, .bytes_made = l->plan.bytes, .bytes_read = counts.bytes,
		.reads = counts.reads, .checked_bytes = l->checked,
		.unchecked_bytes = counts.bytes - l->checked, .again_bytes = l->again,
		.masters_made = l->plan.masters, .threads = l->threads,
		.seconds = ck_clock_seconds() - began,
	};
	for (uint32_t i = 0; i < l->threads; i++)
		out->overflows += l->worker[i].overflows;
}

static void release(struct load *l)
{
	for (uint32_t i = 0; l->worker && i < l->threads; i++)
		ck_free(l->worker[i].scratch);
	ck_free(l->worker);
	ck_reader_free(l->reader);
	ck_source_check_release(&l->own);
	ck_load_plan_release(&l->plan);
	pthread_mutex_destroy(&l->telling);
}

int ck_load(const struct ckpt *ck, const struct ckpt_load_range *range, size_t n,
	    const struct ckpt_load_opts *opts, struct ckpt_loaded *out, struct ckpt_err *err)
{
	const struct ckpt_finding *bad = ck_findings_worst(&ck->findings, CKPT_ERROR);
	struct load l = { .ck = ck };
	const double began = ck_clock_seconds();
	int rc;

	if (bad && !(opts->flags & CKPT_LOAD_DESPITE_FINDINGS))
		return ck_findings_fail(bad, err);
	ck_run_opts_fill(opts->run, &l.run);
	pthread_mutex_init(&l.telling, NULL);
	rc = ck_load_plan_make(&ck->ix, range, n, &l.plan, err);
	if (!rc && !(opts->flags & CKPT_LOAD_DESPITE_FINDINGS))
		rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = make_workers(&l, err);
	if (!rc)
		rc = ck_reader_new(&ck->ix, &ck->limits, l.run.mem_limit / 2, &l.reader, err);
	if (!rc && (opts->checks || opts->flags & CKPT_LOAD_CHECK))
		rc = begin_checking(&l, opts->checks, err);
	if (!rc)
		rc = ck_pool_run(l.threads, l.njobs, run_job, &l, err);
	if (!rc)
		rc = end_checking(&l, err);
	rc = ck_fdpool_check(ck->pool, rc, err);
	if (!rc && out)
		report(&l, began, out);
	release(&l);
	return rc;
}
