/*
 * ck_run.c -- see ck_run.h.
 *
 * A worker takes the next unit and moves it in windows that stay in its core's cache: it
 * makes a window's bytes in a buffer of its own, hashes them, and writes them.  For a
 * stream the window is the whole unit, and workers wait for their turn; as units are
 * handed out in order, at most one per thread waits.
 *
 * Units are a size of the plan and not of the machine, since a record names them by number: a run
 * that was killed may be continued with other threads and less memory.  What depends on
 * the machine is the number of threads, which is lowered until their buffers fit into the memory
 * limit.
 */
#include "libckpt/run/ck_run.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/run/ck_overflow.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/run/ck_run_check.h"
#include "libckpt/run/ck_seg_read.h"
#include "libckpt/sums/ck_digest_fill.h"
#include "libckpt/sums/ck_output_sums.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"

/* A window: half of a small second-level cache. */
#define WINDOW_BYTES ((uint64_t)256 << 10)

struct worker {
	uint8_t *buf;		/* a window */
	uint8_t *scratch;	/* CK_READ_SCRATCH */
	struct ck_hasher *hash;	/* of the unit in work */
	struct ck_output_sums tally;
	struct ck_overflow over;
};

struct run {
	const struct ck_run_job *job;
	struct ck_reader *reader;
	struct ck_reader *own;		/* of the plan's own index, if it has one */
	struct ck_run_check proof;	/* of what they read, if job->findings */
	struct ck_fdpool *pool;		/* for files that are copied */
	struct worker *worker;
	struct ck_hash_reuse *hashed;	/* per worker, of its buffer */
	uint32_t threads;
	uint64_t window;		/* bytes */
	uint64_t ours;			/* units of our part */
	_Atomic uint64_t done, resumed;
	uint64_t total;
	pthread_mutex_t telling;	/* around the progress call */
	pthread_mutex_t lock;		/* guards turn and failed */
	pthread_cond_t turned;
	uint64_t turn;			/* stream: unit whose turn it is */
	bool failed;
	struct ck_overflow over;		/* of all workers, at the end */
};

void ck_run_opts_fill(const struct ckpt_run_opts *in, struct ckpt_run_opts *out)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	memset(out, 0, sizeof(*out));
	if (in)
		memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	out->size = sizeof(*out);
	if (!out->threads)
		out->threads = cpus < 1 ? 1 : cpus > 8 ? 8 : (uint32_t)cpus;
	if (!out->mem_limit)
		out->mem_limit = (uint64_t)256 << 20;
}

static int saw_file(void *arg, const char *path, uint64_t off, const void *p, size_t n,
		    struct ckpt_err *err)
{
	struct run *run = arg;

	return ck_source_check_saw_file(&run->proof.proof, path, off, p, n, err);
}

/* Bytes [skip, skip + n) of a segment. */
static int make_bytes(struct run *run, struct worker *w, const struct ck_seg *s, uint64_t skip,
		      uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	const struct ck_seg_from from = {
		.plan = job->plan, .ix = job->ix, .reader = run->reader, .own = run->own,
		.change = job->change,
		.source_pool = job->pool, .pool = run->pool,
		.saw_file = job->findings ? saw_file : NULL, .arg = run,
	};
	uint64_t over = 0;
	const int rc = ck_seg_read(&from, s, skip, n, dst, w->scratch, &over, err);

	ck_overflow_add(&w->over, &(struct ck_overflow){ .n = over, .first = s });
	return rc;
}

/* Where a walk gets bytes from and where they go. */
enum walk {
	WALK_MAKE,	/* from the source to the target */
	WALK_REREAD,	/* from the stage, for digests and CRCs only */
};

/* The window's 'n' bytes are made: they go to byte 'off' of the unit. */
static int flush(struct run *run, struct worker *w, const struct ck_unit *u, uint64_t off,
		 uint64_t n, struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;

	if (job->to != CK_RUN_STAGE || !n)
		return 0;
	ck_hasher_add(w->hash, w->buf, n);
	return ck_stage_write(job->stage, job->stage_file[u->file], u->off + off, w->buf, n, err);
}

/*
 * How much of a segment to take that does not fit into 'room': up to a whole block of a digest,
 * also of what is stored, if that has another type.
 */
static uint64_t cut_window(const struct ck_seg *s, uint64_t skip, uint64_t room)
{
	const uint64_t grain = CK_DIGEST_BLOCK * 8;	/* of F64, made of types of a byte */
	uint64_t over = 0;

	if (s->kind == CK_SEG_STATE && s->slot == CK_NONE)	/* it may begin anywhere */
		over = (s->first * (ckpt_dtype_bits(s->dtype) / 8) + skip) % grain;
	if (s->kind == CK_SEG_FILE)
		over = (s->first + skip) % grain;
	return (room + over) / grain * grain > over ? (room + over) / grain * grain - over : 0;
}

/*
 * Walk the segments of a unit.  A window is cut at a multiple of CK_DIGEST_BLOCK of the
 * segment that goes on behind it; small segments share a window.
 */
static int walk_unit(struct run *run, struct worker *w, const struct ck_unit *u, enum walk walk,
		     struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	struct ck_hash_reuse *hashed = &run->hashed[w - run->worker];
	uint64_t skip = u->skip, at = 0, fill = 0, seg = u->seg;
	int rc = 0;

	while (!rc && at < u->bytes) {
		const struct ck_seg *s = &job->plan->seg[seg];
		const uint64_t left = ck_min_u64(s->bytes - skip, u->bytes - at);
		uint64_t n = left;

		if (n > run->window - fill)
			n = cut_window(s, skip, run->window - fill);
		ck_hash_reuse_forget(hashed);
		if (n && walk == WALK_MAKE)
			rc = make_bytes(run, w, s, skip, n, w->buf + fill, err);
		else if (n)
			rc = ck_stage_read(job->stage, job->stage_file[u->file], u->off + at,
					   w->buf + fill, n, err);
		if (!rc && n)
			rc = ck_output_sums_digest(&w->tally, job->plan, s, skip, w->buf + fill, n,
						   hashed, err);
		if (!rc && n && job->to == CK_RUN_STAGE)
			rc = ck_output_sums_crc(&w->tally, job->plan, s, skip, w->buf + fill, n,
						err);
		at += n;
		fill += n;
		skip += n;
		if (n == left) {
			skip = 0;
			seg++;
		} else if (!rc) {
			rc = walk == WALK_MAKE ? flush(run, w, u, at - fill, fill, err) : 0;
			fill = 0;
		}
	}
	if (!rc && walk == WALK_MAKE)
		rc = flush(run, w, u, at - fill, fill, err);
	return rc;
}

/* True if an earlier process wrote the unit and its bytes are still there. */
static bool is_written(struct run *run, struct worker *w, uint64_t unit)
{
	const struct ck_run_job *job = run->job;
	const struct ck_unit *u = &job->plan->unit[unit];
	struct ck_hash128 want;

	if (job->strict && ck_overflow_casts(job, u))
		return false;
	if (!ck_stage_noted(job->stage, unit, &want))
		return false;
	ck_hasher_reset(w->hash);
	for (uint64_t at = 0; at < u->bytes; at += run->window) {
		const uint64_t n = ck_min_u64(run->window, u->bytes - at);

		if (ck_stage_read(job->stage, job->stage_file[u->file], u->off + at, w->buf, n,
				  NULL))
			return false;
		ck_hasher_add(w->hash, w->buf, n);
	}
	return ck_hash128_equal(ck_hasher_sum(w->hash), want);
}

static int stage_unit(struct run *run, struct worker *w, uint64_t unit, struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	const struct ck_unit *u = &job->plan->unit[unit];
	int rc;

	if (is_written(run, w, unit)) {
		atomic_fetch_add(&run->resumed, u->bytes);
		return job->plan->nslots || job->plan->ncrcs ?
		       walk_unit(run, w, u, WALK_REREAD, err) : 0;
	}
	ck_hasher_reset(w->hash);
	rc = walk_unit(run, w, u, WALK_MAKE, err);
	if (!rc)
		rc = ck_stage_note(job->stage, unit, ck_hasher_sum(w->hash), err);
	return rc;
}

static int write_fd(int fd, const uint8_t *p, size_t n, struct ckpt_err *err)
{
	while (n) {
		const ssize_t k = ck_sys.write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ck_fail_sys(err, errno, "write", "the output stream");
		if (!k)
			return ck_fail_sys(err, EIO, "write", "the output stream");
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static bool is_canceled(const struct run *run)
{
	const volatile int *cancel = run->job->opts->cancel;

	return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

static int fail_canceled(struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
}

static void stop_stream(struct run *run)
{
	pthread_mutex_lock(&run->lock);
	run->failed = true;
	pthread_cond_broadcast(&run->turned);
	pthread_mutex_unlock(&run->lock);
}

/*
 * A unit that failed waits for its turn like any other before it says so: units before
 * it may still be written, and one of them may fail first.
 */
static int stream_unit(struct run *run, struct worker *w, uint64_t unit, struct ckpt_err *err)
{
	const struct ck_unit *u = &run->job->plan->unit[unit];
	int rc = walk_unit(run, w, u, WALK_MAKE, err);
	bool ours;

	pthread_mutex_lock(&run->lock);
	while (run->turn != unit && !run->failed)
		pthread_cond_wait(&run->turned, &run->lock);
	ours = run->turn == unit && !run->failed;
	pthread_mutex_unlock(&run->lock);
	if (!rc)
		rc = ours ? write_fd(run->job->fd, w->buf, u->bytes, err) : fail_canceled(err);
	if (rc) {
		stop_stream(run);
		return rc;
	}
	pthread_mutex_lock(&run->lock);
	run->turn++;
	pthread_cond_broadcast(&run->turned);
	pthread_mutex_unlock(&run->lock);
	return 0;
}

static void report_progress(struct run *run)
{
	const struct ckpt_run_opts *o = run->job->opts;
	const struct ckpt_progress p = {
		.done_bytes = atomic_load(&run->done), .total_bytes = run->total,
	};

	if (o->progress)
		o->progress(o->progress_arg, &p);
}

/* A thread that finds another one telling goes on with its work. */
static void count_progress(struct run *run, uint64_t bytes)
{
	atomic_fetch_add(&run->done, bytes);
	if (pthread_mutex_trylock(&run->telling))
		return;
	report_progress(run);
	pthread_mutex_unlock(&run->telling);
}

/*
 * A file takes one writer at a time, so threads at work on neighbours would wait for each
 * other: as many stretches of the plan as there are threads are walked side by side, where it
 * has files enough.  A stream is written in order.
 */
static uint64_t unit_of(const struct run *run, uint64_t number)
{
	const uint64_t n = run->job->to != CK_RUN_STAGE ? 1 :
			   ck_min_u64(run->threads, run->job->plan->nfiles);
	const uint64_t stretch = number % n;

	return stretch * (run->ours / n) + ck_min_u64(stretch, run->ours % n) + number / n;
}

static int run_unit(void *arg, uint64_t number, uint32_t worker, struct ckpt_err *err)
{
	struct run *run = arg;
	const struct ck_run_job *job = run->job;
	const uint64_t unit = unit_of(run, number) * job->nparts + job->part;
	struct worker *w = &run->worker[worker];
	int rc;

	if (is_canceled(run)) {
		stop_stream(run);
		return fail_canceled(err);
	}
	if (job->to == CK_RUN_STAGE)
		rc = stage_unit(run, w, unit, err);
	else if (job->to == CK_RUN_STREAM)
		rc = stream_unit(run, w, unit, err);
	else
		rc = walk_unit(run, w, &job->plan->unit[unit], WALK_MAKE, err);
	if (!rc)
		count_progress(run, job->plan->unit[unit].bytes);
	return rc;
}

static int make_workers(struct run *run, struct ckpt_err *err)
{
	const struct ckpt_run_opts *o = run->job->opts;
	uint64_t each;

	run->window = run->job->to == CK_RUN_STREAM ? CK_UNIT_BYTES : WINDOW_BYTES;
	each = run->window + CK_READ_SCRATCH;
	run->threads = (uint32_t)ck_max_u64(1, ck_min_u64(o->threads, o->mem_limit / each));
	if (run->job->most_threads)
		run->threads = (uint32_t)ck_min_u64(run->threads, run->job->most_threads);
	run->worker = ck_zalloc(run->threads * sizeof(*run->worker));
	run->hashed = ck_zalloc(run->threads * sizeof(*run->hashed));
	if (!run->worker || !run->hashed)
		return ck_fail_nomem(err, "workers", run->threads);
	for (uint32_t i = 0; i < run->threads; i++) {
		struct worker *w = &run->worker[i];

		w->buf = ck_alloc(run->window);
		w->scratch = ck_alloc(CK_READ_SCRATCH);
		w->hash = ck_hasher_new();
		if (!w->buf || !w->scratch || !w->hash)
			return ck_fail_nomem(err, "buffers", each);
		run->hashed[i].buf = w->buf;
		run->hashed[i].bytes = run->window;
	}
	return 0;
}

static int collect(struct run *run, struct ck_run_stats *stats, struct ckpt_err *err)
{
	const struct ck_plan *plan = run->job->plan;
	struct ck_output_sums all = { 0 };
	int rc = 0;

	for (uint32_t i = 0; !rc && i < run->threads; i++)
		rc = ck_output_sums_join(&all, &run->worker[i].tally, plan, err);
	if (rc) {
		ck_output_sums_release(&all);
		return rc;
	}
	if (all.npieces)
		qsort(all.piece, all.npieces, sizeof(*all.piece), ck_crc_order);
	ck_digest_fill_close(plan, all.sum);
	stats->digest = all.sum;
	stats->piece = all.piece;
	stats->npieces = all.npieces;
	stats->resumed = atomic_load(&run->resumed);
	stats->written = atomic_load(&run->done) - stats->resumed;
	stats->threads = run->threads;
	stats->overflows = run->over.n;
	return 0;
}

static void release(struct run *run)
{
	for (uint32_t i = 0; run->worker && i < run->threads; i++) {
		ck_free(run->worker[i].buf);
		ck_free(run->worker[i].scratch);
		ck_hasher_free(run->worker[i].hash);
		ck_output_sums_release(&run->worker[i].tally);
	}
	ck_free(run->worker);
	ck_free(run->hashed);
	ck_reader_free(run->reader);
	ck_reader_free(run->own);
	ck_run_check_release(&run->proof);
	ck_fdpool_free(run->pool);
	pthread_mutex_destroy(&run->telling);
	pthread_mutex_destroy(&run->lock);
	pthread_cond_destroy(&run->turned);
}

/* Units and bytes of our part. */
static void count_ours(struct run *run)
{
	const struct ck_run_job *job = run->job;

	for (uint64_t u = job->part; u < job->plan->nunits; u += job->nparts) {
		run->total += job->plan->unit[u].bytes;
		run->ours++;
	}
}

static int make_readers(struct run *run, struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	const struct ck_index *own = job->plan->own;
	int rc = ck_reader_new(job->ix, job->limits, job->opts->mem_limit / (own ? 4 : 2),
			       &run->reader, err);

	if (!rc && own)
		rc = ck_reader_new(own, job->limits, job->opts->mem_limit / 4, &run->own, err);
	if (rc || !job->findings)
		return rc;
	rc = ck_run_check_begin(job, &run->proof, err);
	if (!rc && run->proof.proof.passed)
		ck_sum_check_note(run->proof.proof.passed, run->hashed, run->threads);
	if (!rc)
		ck_reader_observe(run->reader, ck_source_check_saw, &run->proof.proof);
	if (!rc && own)
		ck_reader_observe(run->own, ck_source_check_saw, &run->proof.own);
	return rc;
}

/* What is in the stage: written by this run, or noted by an earlier one, verified yet or not. */
static uint64_t count_kept(const struct run *run)
{
	const struct ck_run_job *job = run->job;
	uint64_t sum = atomic_load(&run->done) - atomic_load(&run->resumed);
	struct ck_hash128 hash;

	for (uint64_t u = job->part; job->stage && u < job->plan->nunits; u += job->nparts)
		if (ck_stage_noted(job->stage, u, &hash))
			sum += job->plan->unit[u].bytes;
	return sum;
}

int ck_run(const struct ck_run_job *job, struct ck_run_stats *stats_out, struct ckpt_err *err)
{
	struct run run = { .job = job };
	struct ck_run_stats stats = { 0 };
	int rc;

	if (!job->nparts || job->part >= job->nparts ||
	    (job->to == CK_RUN_STREAM && job->nparts > 1))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "part %u of %u cannot be run%s", job->part, job->nparts,
			       job->to == CK_RUN_STREAM ? " to a stream" : "");
	if (job->to == CK_RUN_STREAM && job->plan->ncrcs)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "this format cannot be streamed: it stores checksums of bytes "
			       "that come later");
	count_ours(&run);
	pthread_mutex_init(&run.telling, NULL);
	pthread_mutex_init(&run.lock, NULL);
	pthread_cond_init(&run.turned, NULL);
	rc = make_workers(&run, err);
	if (!rc) {
		run.pool = ck_fdpool_new_of(job->pool, 16);
		if (!run.pool)
			rc = ck_fail_nomem(err, "a pool of files", 0);
	}
	if (!rc)
		rc = make_readers(&run, err);
	if (!rc)
		rc = ck_pool_run(run.threads, run.ours, run_unit, &run, err);
	if (!rc)
		rc = ck_run_check_end(job, &run.proof, atomic_load(&run.resumed) != 0,
				      run.threads, err);
	for (uint32_t i = 0; !rc && i < run.threads; i++)
		ck_overflow_add(&run.over, &run.worker[i].over);
	if (!rc && job->strict)
		rc = ck_overflow_check(job, &run.over, err);
	if (!rc)
		rc = collect(&run, &stats, err);
	if (!rc) {
		report_progress(&run);	/* the last call says all of it */
		*stats_out = stats;
	}
	release(&run);
	stats_out->done = atomic_load(&run.done);
	stats_out->kept = rc ? count_kept(&run) : 0;
	return rc;
}
