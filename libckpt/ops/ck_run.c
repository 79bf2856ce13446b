/*
 * ck_run.c -- see ck_run.h.
 *
 * A worker takes the next unit and moves it in windows that stay in its core's cache: it
 * makes a window's bytes in a buffer of its own, hashes them, and writes them.  For a
 * stream the window is the whole unit, and workers wait for their turn; as units are
 * handed out in order, at most one per thread waits.
 */
#include "libckpt/ops/ck_run.h"

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
#include "libckpt/ops/ck_read.h"
#include "libckpt/ops/ck_seal.h"
#include "libckpt/ops/ck_seen.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"

/* A window: half of a small second-level cache. */
#define WINDOW_BYTES ((uint64_t)256 << 10)

struct worker {
	uint8_t *buf;		/* a window */
	uint8_t *scratch;	/* CK_READ_SCRATCH */
	struct ck_hasher *hash;	/* of the unit in work */
	struct ck_hash128 *sum;	/* per slot, lazily made */
	struct ck_crc_piece *piece;
	uint64_t npieces, piece_cap;
	uint64_t overflows;
};

struct run {
	const struct ck_run_job *job;
	struct ck_reader *reader;
	struct ck_reader *own;		/* of the plan's own index, if it has one */
	struct ck_seen *seen, *own_seen;	/* what they read; NULL = nobody asks */
	struct ck_fdpool *pool;		/* for files that are copied */
	struct worker *worker;
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

/* Bytes [skip, skip + n) of a segment. */
static int make_bytes(struct run *run, struct worker *w, const struct ck_seg *s, uint64_t skip,
		      uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	const uint32_t bits = ckpt_dtype_bits(s->dtype);
	const uint64_t es = bits < 8 ? 1 : bits / 8;
	struct ck_fdpool *pool;
	struct ck_src *src;
	int rc;

	switch ((enum ck_seg_kind)s->kind) {
	case CK_SEG_LITERAL:
		memcpy(dst, (const uint8_t *)s->text + skip, n);
		return 0;
	case CK_SEG_ZERO:
		memset(dst, 0, n);
		return 0;
	case CK_SEG_STATE:
		return ck_reader_read(run->reader, &run->job->ix->state[s->state],
				      s->first + skip / es, n / es, s->dtype, dst, w->scratch,
				      &w->overflows, err);
	case CK_SEG_OWN:
		return ck_reader_read(run->own, &run->job->plan->own->state[s->state],
				      s->first + skip / es, n / es, s->dtype, dst, w->scratch,
				      NULL, err);
	case CK_SEG_FILE:
		pool = ck_mount_holds(ck_fdpool_mount(run->job->pool), s->text) ? run->job->pool :
		       run->pool;
		rc = ck_src_open(pool, s->text, &src, err);
		if (rc)
			return rc;
		rc = ck_src_read(src, s->first + skip, dst, n, err);
		ck_src_close(src);
		if (!rc && run->seen)
			rc = ck_seen_add_file(run->seen, s->text, s->first + skip, dst, n, err);
		return rc;
	}
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "a segment of kind %u", s->kind);
}

static int add_digest(struct run *run, struct worker *w, const struct ck_seg *s, uint64_t skip,
		      const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	if (s->slot == CK_NONE)
		return 0;
	if (s->first)	/* a piece: it begins at a block */
		skip += s->first * (ckpt_dtype_bits(s->dtype) / 8);
	if (!w->sum) {
		w->sum = ck_zalloc(run->job->plan->nslots * sizeof(*w->sum));
		if (!w->sum)
			return ck_fail_nomem(err, "digests", run->job->plan->nslots);
	}
	w->sum[s->slot] = ck_hash128_add(w->sum[s->slot],
					 ck_digest_blocks(p, n, skip / CK_DIGEST_BLOCK));
	return 0;
}

/* What follows the worker's last piece goes on with it: a few pieces a unit. */
static int add_crc(struct run *run, struct worker *w, const struct ck_seg *s, uint64_t skip,
		   const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	struct ck_crc_piece *last = w->npieces ? &w->piece[w->npieces - 1] : NULL;
	uint64_t off;
	int rc;

	if (s->crc == CK_NONE || run->job->to != CK_RUN_STAGE)
		return 0;
	off = s->off + skip - run->job->plan->crc[s->crc].begin;
	if (!last || last->slot != s->crc || last->off + last->bytes != off) {
		rc = ck_grow(&w->piece, &w->piece_cap, w->npieces + 1, sizeof(*w->piece), err);
		if (rc)
			return rc;
		last = &w->piece[w->npieces++];
		*last = (struct ck_crc_piece){ .off = off, .slot = s->crc };
	}
	last->crc = ck_zip_crc32(last->crc, p, n);
	last->bytes += n;
	return 0;
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
 * Walk the segments of a unit.  A window is cut at a multiple of CK_DIGEST_BLOCK of the
 * segment that goes on behind it; small segments share a window.
 */
static int walk_unit(struct run *run, struct worker *w, const struct ck_unit *u, enum walk walk,
		     struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	uint64_t skip = u->skip, at = 0, fill = 0, seg = u->seg;
	int rc = 0;

	while (!rc && at < u->bytes) {
		const struct ck_seg *s = &job->plan->seg[seg];
		const uint64_t left = ck_min_u64(s->bytes - skip, u->bytes - at);
		uint64_t n = left;

		if (n > run->window - fill)
			n = (run->window - fill) / CK_DIGEST_BLOCK * CK_DIGEST_BLOCK;
		if (n && walk == WALK_MAKE)
			rc = make_bytes(run, w, s, skip, n, w->buf + fill, err);
		else if (n)
			rc = ck_stage_read(job->stage, job->stage_file[u->file], u->off + at,
					   w->buf + fill, n, err);
		if (!rc && n)
			rc = add_digest(run, w, s, skip, w->buf + fill, n, err);
		if (!rc && n)
			rc = add_crc(run, w, s, skip, w->buf + fill, n, err);
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

static void tell(struct run *run)
{
	const struct ckpt_run_opts *o = run->job->opts;
	const struct ckpt_progress p = {
		.done_bytes = atomic_load(&run->done), .total_bytes = run->total,
	};

	if (o->progress)
		o->progress(o->progress_arg, &p);
}

/* A thread that finds another one telling goes on with its work. */
static void tell_progress(struct run *run, uint64_t bytes)
{
	atomic_fetch_add(&run->done, bytes);
	if (pthread_mutex_trylock(&run->telling))
		return;
	tell(run);
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
		tell_progress(run, job->plan->unit[unit].bytes);
	return rc;
}

static int make_workers(struct run *run, struct ckpt_err *err)
{
	const struct ckpt_run_opts *o = run->job->opts;
	uint64_t each;

	run->window = run->job->to == CK_RUN_STREAM ? CK_UNIT_BYTES : WINDOW_BYTES;
	each = run->window + CK_READ_SCRATCH;
	run->threads = (uint32_t)ck_max_u64(1, ck_min_u64(o->threads, o->mem_limit / each));
	run->worker = ck_zalloc(run->threads * sizeof(*run->worker));
	if (!run->worker)
		return ck_fail_nomem(err, "workers", run->threads);
	for (uint32_t i = 0; i < run->threads; i++) {
		struct worker *w = &run->worker[i];

		w->buf = ck_alloc(run->window);
		w->scratch = ck_alloc(CK_READ_SCRATCH);
		w->hash = ck_hasher_new();
		if (!w->buf || !w->scratch || !w->hash)
			return ck_fail_nomem(err, "buffers", each);
	}
	return 0;
}

static int collect_crcs(struct run *run, struct ck_run_stats *stats, struct ckpt_err *err)
{
	struct ck_crc_piece *all;
	uint64_t n = 0;

	for (uint32_t i = 0; i < run->threads; i++)
		n += run->worker[i].npieces;
	all = ck_alloc_array(n, sizeof(*all));
	if (!all)
		return ck_fail_nomem(err, "checksums", n);
	stats->piece = all;
	stats->npieces = n;
	for (uint32_t i = 0; i < run->threads; i++) {
		if (run->worker[i].npieces)
			memcpy(all, run->worker[i].piece,
			       run->worker[i].npieces * sizeof(*all));
		all += run->worker[i].npieces;
	}
	qsort(stats->piece, n, sizeof(*all), ck_crc_order);
	return 0;
}

static int collect(struct run *run, struct ck_run_stats *stats, struct ckpt_err *err)
{
	const struct ck_plan *plan = run->job->plan;
	struct ck_hash128 *digest = ck_zalloc(plan->nslots * sizeof(*digest));

	if (!digest)
		return ck_fail_nomem(err, "digests", plan->nslots);
	for (uint32_t i = 0; i < run->threads; i++) {
		stats->overflows += run->worker[i].overflows;
		for (uint64_t k = 0; run->worker[i].sum && k < plan->nslots; k++)
			digest[k] = ck_hash128_add(digest[k], run->worker[i].sum[k]);
	}
	ck_seal_close(plan, digest);
	stats->digest = digest;
	if (run->job->plan->ncrcs) {
		const int rc = collect_crcs(run, stats, err);

		if (rc) {
			ck_free(digest);
			return rc;
		}
	}
	stats->resumed = atomic_load(&run->resumed);
	stats->written = atomic_load(&run->done) - stats->resumed;
	stats->threads = run->threads;
	return 0;
}

static void release(struct run *run)
{
	for (uint32_t i = 0; run->worker && i < run->threads; i++) {
		ck_free(run->worker[i].buf);
		ck_free(run->worker[i].scratch);
		ck_hasher_free(run->worker[i].hash);
		ck_free(run->worker[i].sum);
		ck_free(run->worker[i].piece);
	}
	ck_free(run->worker);
	ck_reader_free(run->reader);
	ck_reader_free(run->own);
	ck_seen_free(run->seen);
	ck_seen_free(run->own_seen);
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

/*
 * At stage 0 the names of masters and moments follow from the weights (ds_z0_match.c), so these
 * count as read; where no name was found for some, the reason may be damage of what is not read.
 */
static int touch_weights(const struct run *run, struct ckpt_err *err)
{
	const struct ck_index *ix = run->job->ix;
	int rc = 0;

	if (ix->stage)
		return 0;
	if (run->job->findings->of_kind[CK_FINDING_NOT_IN_CHECKPOINT])
		ck_seen_all(run->seen);
	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		const uint32_t w = ck_index_state_find(ix, i, "weight");
		const struct ck_state *s = w == CK_NONE ? NULL : &ix->state[w];

		for (uint64_t k = 0; !rc && s && k < s->nextents; k++) {
			const struct ck_extent *e = &ix->extent[s->extent + k];

			if (!(e->flags & CKPT_EXTENT_DEFLATED))
				rc = ck_seen_add(run->seen, e->source, e->off, NULL, 0, err);
		}
	}
	return rc;
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
	rc = ck_seen_new(job->ix, &run->seen, err);
	if (!rc)
		rc = touch_weights(run, err);
	if (!rc)
		ck_reader_watch(run->reader, run->seen);
	if (!rc && own)
		rc = ck_seen_new(own, &run->own_seen, err);
	if (!rc && own)
		ck_reader_watch(run->own, run->own_seen);
	return rc;
}

static int check_seen(struct run *run, struct ckpt_err *err)
{
	const struct ck_run_job *job = run->job;
	const bool alone = job->nparts == 1;
	int rc = 0;

	if (run->seen)
		rc = ck_seen_check(run->seen, job->limits, alone, job->findings, err);
	if (!rc && run->own_seen)
		rc = ck_seen_check(run->own_seen, job->limits, alone, job->findings, err);
	return rc;
}

int ck_run(const struct ck_run_job *job, struct ck_run_stats *stats_out, struct ckpt_err *err)
{
	struct run run = { .job = job };
	struct ck_run_stats stats = { 0 };
	int rc;

	if (!job->nparts || job->part >= job->nparts ||
	    (job->to == CK_RUN_STREAM && job->nparts > 1))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "part %u of %u is not run%s", job->part, job->nparts,
			       job->to == CK_RUN_STREAM ? " to a stream" : "");
	if (job->to == CK_RUN_STREAM && job->plan->ncrcs)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "this format holds checksums of what is not written yet: it cannot "
			       "be streamed");
	count_ours(&run);
	pthread_mutex_init(&run.telling, NULL);
	pthread_mutex_init(&run.lock, NULL);
	pthread_cond_init(&run.turned, NULL);
	rc = make_workers(&run, err);
	if (!rc) {
		run.pool = ck_fdpool_new(16);
		if (!run.pool)
			rc = ck_fail_nomem(err, "a pool of files", 0);
	}
	if (!rc)
		rc = make_readers(&run, err);
	if (!rc)
		rc = ck_pool_run(run.threads, run.ours, run_unit, &run, err);
	if (!rc)
		rc = check_seen(&run, err);
	if (!rc)
		rc = collect(&run, &stats, err);
	if (!rc) {
		tell(&run);	/* the last call says all of it */
		*stats_out = stats;
	}
	release(&run);
	return rc;
}
