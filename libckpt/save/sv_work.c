/*
 * sv_work.c -- the buffer of a saver and the threads that write from it.
 *
 * What is put becomes jobs: elements of one state, in a chunk of the buffer or in the caller's
 * memory.  Jobs are cut at blocks of the state's digest, so that cutting them leaves no block to be
 * hashed by somebody else.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/save/ck_save.h"

#define CHUNKS 16u
#define CHUNK_MOST ((uint64_t)8 << 20)
#define LENT_JOB ((uint64_t)8 << 20)
#define ALIGN 64u

struct chunk {
	struct chunk *next;	/* of those that are free */
	uint8_t *p;
	uint64_t used;
	uint32_t jobs;
	bool sealed;		/* nothing more goes in */
};

struct job {
	struct job *next;
	struct chunk *chunk;	/* NULL = lent */
	struct sv_run run;
};

struct worker {
	struct sv_work *work;
	pthread_t thread;
	struct sv_hand hand;
};

struct sv_work {
	pthread_mutex_t lock;
	pthread_cond_t some;	/* there are jobs, or the end */
	pthread_cond_t less;	/* a chunk is free, or all is done */
	uint8_t *buffer;
	uint64_t chunk_bytes;
	struct chunk *chunk;
	uint32_t nchunks;
	struct chunk *open, *free;
	struct job *head, **tail;
	uint32_t busy;		/* threads that have a job */
	bool go, quit, failed;
	struct ckpt_err err;	/* with 'failed' */
	struct sv_target to;
	struct worker *worker;
	uint32_t nworkers;
};

/* ---- the queue; the lock is held ---- */

static struct job *take_job(struct sv_work *w)
{
	struct job *job = w->head;

	w->head = job->next;
	if (!w->head)
		w->tail = &w->head;
	return job;
}

static void free_chunk(struct sv_work *w, struct chunk *c)
{
	if (c->jobs || !c->sealed)
		return;
	c->used = 0;
	c->sealed = false;
	c->next = w->free;
	w->free = c;
	pthread_cond_broadcast(&w->less);
}

static void end_job(struct sv_work *w, struct job *job)
{
	if (job->chunk) {
		job->chunk->jobs--;
		free_chunk(w, job->chunk);
	}
	ck_free(job);
	if (!w->head && !w->busy)
		pthread_cond_broadcast(&w->less);
}

static void seal(struct sv_work *w)
{
	if (w->open) {
		w->open->sealed = true;
		free_chunk(w, w->open);
	}
	w->open = NULL;
}

static void keep_failure(struct sv_work *w, const struct ckpt_err *err)
{
	if (!w->failed)
		w->err = *err;
	w->failed = true;
	pthread_cond_broadcast(&w->less);
}

static void *run(void *arg)
{
	struct worker *me = arg;
	struct sv_work *w = me->work;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct ckpt_err err = { 0 };
		struct job *job;
		int rc = 0;

		while (!w->quit && (!w->go || !w->head))
			pthread_cond_wait(&w->some, &w->lock);
		if (w->quit)
			break;
		job = take_job(w);
		w->busy++;
		if (!w->failed) {
			pthread_mutex_unlock(&w->lock);
			rc = ck_sv_write(&w->to, &me->hand, &job->run, &err);
			pthread_mutex_lock(&w->lock);
		}
		if (rc)
			keep_failure(w, &err);
		w->busy--;
		end_job(w, job);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* ---- the caller's side ---- */

static int failure(const struct sv_work *w, struct ckpt_err *err)
{
	if (!w->failed)
		return 0;
	if (err && !err->code)
		*err = w->err;
	return -(int)w->err.code;
}

/* What was put before this is half of a range: the save must not end well. */
static int fail_for_good(struct sv_work *w, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int rc;

	ck_fail_nomem(&inner, "a job", sizeof(struct job));
	pthread_mutex_lock(&w->lock);
	keep_failure(w, &inner);
	rc = failure(w, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static int add_job(struct sv_work *w, const struct job *like, struct ckpt_err *err)
{
	struct job *job = ck_alloc(sizeof(*job));
	int rc;

	if (!job)
		return fail_for_good(w, err);
	*job = *like;
	job->next = NULL;
	pthread_mutex_lock(&w->lock);
	rc = failure(w, err);
	if (!rc) {
		if (job->chunk)
			job->chunk->jobs++;
		*w->tail = job;
		w->tail = &job->next;
		w->go |= !job->chunk;
		if (w->go)
			pthread_cond_signal(&w->some);
	}
	pthread_mutex_unlock(&w->lock);
	if (rc)
		ck_free(job);
	return rc;
}

/* A chunk with room for 'least' bytes is open. */
static int open_chunk(struct sv_work *w, uint64_t least, struct ckpt_err *err)
{
	int rc;

	if (w->open && w->chunk_bytes - w->open->used >= least)
		return 0;
	pthread_mutex_lock(&w->lock);
	seal(w);
	if (!w->free) {
		w->go = true;
		pthread_cond_broadcast(&w->some);
	}
	while (!w->free && !w->failed)
		pthread_cond_wait(&w->less, &w->lock);
	rc = failure(w, err);
	if (!rc) {
		w->open = w->free;
		w->free = w->open->next;
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

/* As many elements as 'bytes' hold, ending at a block unless they are the last. */
static uint64_t cut(uint64_t first, uint64_t count, uint64_t bytes, uint64_t es, uint64_t grain)
{
	uint64_t n = bytes / es;

	return n >= count ? count : n - (first + n) % grain;
}

static int put_copy(struct sv_work *w, struct job job, uint64_t es, uint64_t grain,
		    struct ckpt_err *err)
{
	struct sv_run *run = &job.run;
	const uint8_t *p = run->p;
	uint64_t left = run->count;
	int rc = 0;

	while (!rc && left) {
		rc = open_chunk(w, ck_min_u64(left * es, 2 * CK_DIGEST_BLOCK), err);
		if (rc)
			break;
		run->count = cut(run->first, left, w->chunk_bytes - w->open->used, es, grain);
		job.chunk = w->open;
		run->p = w->open->p + w->open->used;
		kn_copy_past(w->open->p + w->open->used, p, run->count * es);
		w->open->used += (run->count * es + ALIGN - 1) / ALIGN * ALIGN;
		w->open->used = ck_min_u64(w->open->used, w->chunk_bytes);
		rc = add_job(w, &job, err);
		p += run->count * es;
		run->first += run->count;
		left -= run->count;
	}
	return rc;
}

int ck_sv_work_put(struct sv_work *w, uint32_t state, uint64_t first, uint64_t count, const void *p,
		bool lent, struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)w->to.ix->state[state].dtype) / 8;
	const uint64_t grain = ck_sv_grain(w->to.refs, state);
	struct job job = { .run = { .p = p, .first = first, .count = count, .state = state } };
	struct sv_run *run = &job.run;
	int rc = 0;

	if (!lent)
		return put_copy(w, job, es, grain, err);
	for (uint64_t left = count; !rc && left; left -= run->count) {
		run->count = cut(run->first, left, LENT_JOB, es, grain);
		rc = add_job(w, &job, err);
		run->p += run->count * es;
		run->first += run->count;
	}
	return rc;
}

int ck_sv_work_check(struct sv_work *w, struct ckpt_err *err)
{
	int rc;

	pthread_mutex_lock(&w->lock);
	rc = failure(w, err);
	pthread_mutex_unlock(&w->lock);
	return rc;
}

void ck_sv_work_begin(struct sv_work *w, const struct sv_target *t)
{
	pthread_mutex_lock(&w->lock);
	w->to = *t;
	w->go = false;
	w->failed = false;
	memset(&w->err, 0, sizeof(w->err));
	pthread_mutex_unlock(&w->lock);
}

/* ---- the end of a save ---- */

static void wait_for_all(struct sv_work *w)
{
	pthread_mutex_lock(&w->lock);
	seal(w);
	w->go = true;
	pthread_cond_broadcast(&w->some);
	while (w->head || w->busy)
		pthread_cond_wait(&w->less, &w->lock);
	w->go = false;
	pthread_mutex_unlock(&w->lock);
}

static struct ck_hash128 sum_of(const struct sv_work *w, uint32_t slot)
{
	struct ck_hash128 sum = { 0 };

	for (uint32_t i = 0; i < w->nworkers; i++)
		if (w->worker[i].hand.sum)
			sum = ck_hash128_add(sum, w->worker[i].hand.sum[slot]);
	return sum;
}

/* By state and first element, which other ranks know: slots are this plan's. */
static int collect_terms(const struct sv_work *w, struct sv_part *part, struct ckpt_err *err)
{
	const struct ck_hash128 none = { 0 };
	int rc = 0;

	for (uint64_t i = 0; !rc && i < w->to.refs->n; i++) {
		const struct sv_ref *ref = &w->to.refs->ref[i];
		const uint32_t slot = w->to.plan->seg[ref->seg].slot;
		struct sv_term t = { .first = ref->first, .state = ref->state };

		if (slot == CK_NONE)
			continue;
		t.sum = sum_of(w, slot);
		if (ck_hash128_equal(t.sum, none))
			continue;
		rc = ck_grow(&part->term, &part->term_cap, part->nterms + 1, sizeof(t), err);
		if (!rc)
			part->term[part->nterms++] = t;
	}
	return rc;
}

static int collect_crcs(const struct sv_work *w, struct sv_part *part, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < w->nworkers; i++) {
		const struct sv_hand *me = &w->worker[i].hand;
		int rc = ck_grow(&part->crc, &part->crc_cap, part->ncrcs + me->ncrcs,
				 sizeof(*part->crc), err);

		if (rc)
			return rc;
		if (me->ncrcs)
			memcpy(part->crc + part->ncrcs, me->crc, me->ncrcs * sizeof(*me->crc));
		part->ncrcs += me->ncrcs;
	}
	return 0;
}

int ck_sv_work_finish(struct sv_work *w, struct sv_part *part, uint64_t *written_out,
		   struct ckpt_err *err)
{
	int rc;

	wait_for_all(w);
	rc = ck_sv_work_check(w, err);
	if (!rc)
		rc = collect_terms(w, part, err);
	if (!rc)
		rc = collect_crcs(w, part, err);
	*written_out = 0;
	for (uint32_t i = 0; i < w->nworkers; i++) {
		*written_out += w->worker[i].hand.written;
		ck_sv_hand_forget(&w->worker[i].hand);
	}
	return rc;
}

void ck_sv_work_cancel(struct sv_work *w)
{
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		w->err = (struct ckpt_err){ .code = CKPT_E_CANCELED };
	w->failed = true;
	pthread_mutex_unlock(&w->lock);
	wait_for_all(w);
	for (uint32_t i = 0; i < w->nworkers; i++)
		ck_sv_hand_forget(&w->worker[i].hand);
}

/* ---- life ---- */

/* Touched, so that the first save does not wait for pages. */
static int make_chunks(struct sv_work *w, uint64_t bytes, struct ckpt_err *err)
{
	w->chunk_bytes = ck_min_u64(CHUNK_MOST, bytes / CHUNKS) / CK_DIGEST_BLOCK *
			 CK_DIGEST_BLOCK;
	w->nchunks = (uint32_t)ck_min_u64(UINT32_MAX, bytes / w->chunk_bytes);
	w->buffer = ck_alloc(w->nchunks * w->chunk_bytes);
	w->chunk = ck_zalloc(w->nchunks * sizeof(*w->chunk));
	if (!w->buffer || !w->chunk)
		return ck_fail_nomem(err, "the buffer of a saver", bytes);
	memset(w->buffer, 0, w->nchunks * w->chunk_bytes);
	for (uint32_t i = w->nchunks; i > 0; i--) {
		struct chunk *c = &w->chunk[i - 1];

		c->p = w->buffer + (i - 1) * w->chunk_bytes;
		c->next = w->free;
		w->free = c;
	}
	return 0;
}

static int start(struct sv_work *w, uint32_t threads, struct ckpt_err *err)
{
	int failed = 0;

	w->worker = ck_zalloc(threads * sizeof(*w->worker));
	if (!w->worker)
		return ck_fail_nomem(err, "threads", threads);
	while (w->nworkers < threads) {
		struct worker *me = &w->worker[w->nworkers];

		me->work = w;
		if (ck_sv_hand_init(&me->hand, err))
			return -CKPT_E_NOMEM;
		failed = ck_thread(&me->thread, run, me);
		if (failed)
			break;
		w->nworkers++;
	}
	if (failed)
		ck_sv_hand_release(&w->worker[w->nworkers].hand);
	return w->nworkers ? 0 : ck_fail_sys(err, failed, "start", "a thread that writes");
}

int ck_sv_work_new(uint32_t threads, uint64_t buffer_bytes, struct sv_work **out,
		struct ckpt_err *err)
{
	struct sv_work *w = ck_zalloc(sizeof(*w));
	int rc;

	if (!w)
		return ck_fail_nomem(err, "a saver", sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->some, NULL);
	pthread_cond_init(&w->less, NULL);
	w->tail = &w->head;
	rc = make_chunks(w, buffer_bytes, err);
	if (!rc)
		rc = start(w, threads, err);
	if (rc)
		ck_sv_work_free(w);
	else
		*out = w;
	return rc;
}

void ck_sv_work_free(struct sv_work *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_broadcast(&w->some);
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < w->nworkers; i++) {
		pthread_join(w->worker[i].thread, NULL);
		ck_sv_hand_release(&w->worker[i].hand);
	}
	ck_free(w->worker);
	ck_free(w->chunk);
	ck_free(w->buffer);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->some);
	pthread_cond_destroy(&w->less);
	ck_free(w);
}
