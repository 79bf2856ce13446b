/*
 * en_cuda_save.c -- a copy of the state for a save, made while the run continues.
 *
 * The thread that writes launches the copies, on a stream of their own, in the order of blocks,
 * which is that of the next update.  Pinned memory has a slot for every slice of the state, or, if
 * it is to be less, a few slots that go round: then a slice is copied when the one before it in
 * its slot has been taken.
 *
 *	the stream waits until the state is there, once
 *	an update waits until the last copy of its block has been launched (the host does, for no
 *	time where there is a slot for every slice), and then until it is over (the GPU does)
 */
#include <pthread.h>

#include "engine/zero/cuda/en_cuda_priv.h"
#include "engine/model/en_pool.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define SLOTS 8u		/* that go round */
/* Elements of one: what else goes to the host, a norm say, waits for a copy that is under way. */
#define SLOT_MOST ((uint64_t)16 << 20)
#define GRAIN 1024u		/* elements of a block of a digest: cuts of a parameter */
#define TOUCH ((uint64_t)16 << 20)
#define PAGE ((uintptr_t)4096)
#define OWN_PAGES ((uint64_t)1 << 20)	/* as much has pages of its own: en_mem.h */

struct slot {
	float *p;
	struct en_zero_slice slice;
	cudaEvent_t there;
};

struct en_cuda_snap {
	float *memory;
	void *pinned;		/* the pages of it */
	bool stays;		/* a slot for every slice */
	uint64_t most;		/* elements of a slice */
	struct slot *slot;
	uint32_t nslots;
	cudaStream_t stream;
	cudaEvent_t state;	/* it is there */
	cudaEvent_t *copied;	/* [blocks] */
	/* The writing thread's. */
	struct en_zero_slice next;	/* that is to be launched; n = 0: none */
	uint64_t launched, taken;	/* slices */
	pthread_mutex_t lock;	/* of the below */
	pthread_cond_t changed;
	uint32_t blocks;	/* all of the first so many have been launched */
	bool going;
};

/* ---- slices ---- */

/* Elements of this rank's shard that are no padding. */
static uint64_t own(const struct en_cuda *c, uint32_t block)
{
	const struct en_zero_block *b = &c->z.block[block];
	const uint64_t base = c->z.comm->rank * b->shard;

	return base >= b->numel ? 0 : ck_min_u64(b->shard, b->numel - base);
}

/* At most 'most' from 'at' on, cut where a parameter has whole blocks of its digest. */
static uint64_t cut(const struct en_cuda *c, uint32_t block, uint64_t at, uint64_t most)
{
	const uint64_t left = own(c, block) - at, end = at + most;

	if (left <= most)
		return left;
	for (uint64_t i = 0; i < c->z.npieces; i++) {
		const struct en_zero_piece *p = &c->z.piece[i];
		const uint64_t over = (p->first + (end - p->at)) % GRAIN;

		if (p->block == block && p->at <= end && end < p->at + p->count)
			return end - ck_max_u64(at, p->at) > over ? most - over : most;
	}
	return most;
}

/* The slice after '*s': states one after the other, block by block. */
static void next_slice(const struct en_cuda *c, uint64_t most, struct en_zero_slice *s)
{
	s->at += s->n;
	while (s->block < c->z.model->nblocks && s->at == own(c, s->block)) {
		s->at = 0;
		if (++s->state == EN_STATES || !own(c, s->block)) {
			s->state = EN_STATE_MASTER;
			s->block++;
		}
	}
	s->n = s->block < c->z.model->nblocks ? cut(c, s->block, s->at, most) : 0;
}

static void begin(const struct en_cuda *c, uint64_t most, struct en_zero_slice *s)
{
	*s = (struct en_zero_slice){ .block = 0 };
	if (own(c, 0))
		s->n = cut(c, 0, 0, most);
	else
		next_slice(c, most, s);
}

/* ---- memory ---- */

static void touch(void *arg, size_t job, uint32_t thread)
{
	const struct en_cuda_snap *s = arg;
	volatile uint8_t *p = (volatile uint8_t *)s->memory + job * TOUCH;

	(void)thread;
	for (uint64_t i = 0; i < TOUCH; i += PAGE)
		p[i] = 0;
}

/* Pages come by several threads; pinning them is the driver's, by one. */
static int pin(struct en_cuda *c, uint64_t bytes, uint32_t threads, struct ckpt_err *err)
{
	struct en_cuda_snap *s = c->snap;
	struct en_pool *pool = NULL;
	uintptr_t from;
	int rc = en_mem_new(&c->z.mem, EN_MEM_SAVE, bytes, &s->memory, err);

	if (!rc)
		rc = en_pool_new(threads ? threads : 1, &pool, err);
	if (rc)
		return rc;
	en_pool_run(pool, bytes / TOUCH, touch, s);
	en_pool_free(pool);
	from = (uintptr_t)s->memory & ~(PAGE - 1);
	rc = (int)cudaHostRegister((void *)from, (uintptr_t)s->memory + bytes - from,
				   cudaHostRegisterDefault);
	if (rc) {
		cudaGetLastError();
		return ck_fail(err, CKPT_E_NOMEM, "GPU", CKPT_NO_OFFSET,
			       "cannot pin %llu MiB of host memory for the save buffer: %s; use a "
			       "smaller --save-buffer",
			       (unsigned long long)bytes >> 20,
			       cudaGetErrorString((cudaError_t)rc));
	}
	s->pinned = (void *)from;
	return 0;
}

static int make_slots(struct en_cuda *c, uint64_t bytes, uint64_t *need_out, struct ckpt_err *err)
{
	struct en_cuda_snap *s = c->snap;
	struct en_zero_slice at;
	uint64_t n = 0;
	int rc = 0;

	s->stays = !bytes;
	s->most = bytes ? ck_min_u64(SLOT_MOST, bytes / SLOTS / sizeof(float)) : SLOT_MOST;
	if (s->most < 4 * GRAIN)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a save buffer of %llu bytes is too small",
			       (unsigned long long)bytes);
	s->most = s->most / GRAIN * GRAIN;
	for (begin(c, s->most, &at); s->stays && at.n; next_slice(c, s->most, &at))
		n++;
	s->nslots = s->stays ? (uint32_t)n : SLOTS;
	s->slot = ck_zalloc((s->nslots + 1ull) * sizeof(*s->slot));
	s->copied = ck_zalloc(c->z.model->nblocks * sizeof(cudaEvent_t));
	if (!s->slot || !s->copied)
		return ck_fail_nomem(err, "slots", s->nslots);
	for (uint32_t i = 0; !rc && i < s->nslots; i++)	/* who waits for it does not spin */
		rc = en_cuda_cuda((int)cudaEventCreateWithFlags(&s->slot[i].there,
								cudaEventDisableTiming |
								cudaEventBlockingSync), "an event",
				  err);
	for (uint32_t i = 0; !rc && i < c->z.model->nblocks; i++)
		rc = en_cuda_event(&s->copied[i], err);
	*need_out = s->nslots * s->most;
	if (s->stays)
		*need_out = 0;
	for (begin(c, s->most, &at); s->stays && at.n; next_slice(c, s->most, &at))
		*need_out += at.n;
	return rc;
}

static void place_slots(struct en_cuda *c)
{
	struct en_cuda_snap *s = c->snap;
	struct en_zero_slice at;
	float *p = s->memory;

	begin(c, s->most, &at);
	for (uint32_t i = 0; i < s->nslots; i++) {
		s->slot[i].p = p;
		p += s->stays ? at.n : s->most;
		if (s->stays)
			next_slice(c, s->most, &at);
	}
}

int en_cuda_snap_new(struct en_zero *z, uint64_t bytes, uint32_t threads, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	uint64_t n = 0;
	int rc;

	c->snap = ck_zalloc(sizeof(*c->snap));
	if (!c->snap)
		return ck_fail_nomem(err, "a copy of the state", sizeof(*c->snap));
	pthread_mutex_init(&c->snap->lock, NULL);
	pthread_cond_init(&c->snap->changed, NULL);
	rc = make_slots(c, bytes, &n, err);
	if (!rc && n)
		rc = pin(c, ck_max_u64(n * sizeof(float), OWN_PAGES), threads, err);
	if (!rc)
		rc = en_cuda_cuda((int)cudaStreamCreateWithFlags(&c->snap->stream,
								 cudaStreamNonBlocking),
				  "a stream", err);
	if (!rc)
		rc = en_cuda_event(&c->snap->state, err);
	if (!rc)
		place_slots(c);
	return rc;	/* en_cuda_free() frees what is there */
}

void en_cuda_snap_free(struct en_cuda *c)
{
	struct en_cuda_snap *s = c->snap;

	if (!s)
		return;
	if (s->stream) {
		cudaStreamSynchronize(s->stream);
		cudaStreamDestroy(s->stream);
	}
	if (s->state)
		en_cuda_event_free(s->state);
	for (uint32_t i = 0; s->slot && i < s->nslots; i++)
		if (s->slot[i].there)
			en_cuda_event_free(s->slot[i].there);
	for (uint32_t i = 0; s->copied && i < c->z.model->nblocks; i++)
		if (s->copied[i])
			en_cuda_event_free(s->copied[i]);
	if (s->pinned)
		cudaHostUnregister(s->pinned);
	en_mem_free(&c->z.mem, EN_MEM_SAVE, s->memory);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->changed);
	ck_free(s->slot);
	ck_free(s->copied);
	ck_free(s);
	c->snap = NULL;
}

/* ---- a save ---- */

int en_cuda_snap_begin(struct en_zero *z, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct en_cuda_snap *s = c->snap;

	begin(c, s->most, &s->next);
	s->launched = s->taken = 0;
	pthread_mutex_lock(&s->lock);
	s->blocks = s->next.block;
	s->going = true;
	pthread_mutex_unlock(&s->lock);
	return en_cuda_cuda((int)cudaEventRecord(s->state, c->work), "an event", err);
}

/* All of the blocks before this one have been launched. */
static void note_launched(struct en_cuda_snap *s, uint32_t blocks)
{
	pthread_mutex_lock(&s->lock);
	s->blocks = blocks;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int launch_one(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_cuda_snap *s = c->snap;
	struct slot *slot = &s->slot[s->launched % s->nslots];
	const struct en_zero_slice at = s->next;
	int rc = (int)cudaMemcpyAsync(slot->p, en_cuda_state(c, at.block, at.state) + at.at,
				      at.n * sizeof(float), cudaMemcpyDeviceToHost, s->stream);

	if (!rc)
		rc = (int)cudaEventRecord(slot->there, s->stream);
	slot->slice = at;
	next_slice(c, s->most, &s->next);
	if (!rc && s->next.block != at.block)
		rc = (int)cudaEventRecord(s->copied[at.block], s->stream);
	if (rc)
		return en_cuda_cuda(rc, "copying the state", err);
	if (s->next.block != at.block)
		note_launched(s, s->next.block);
	s->launched++;
	return 0;
}

static int launch(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_cuda_snap *s = c->snap;
	int rc = 0;

	while (!rc && s->next.n && s->launched - s->taken < s->nslots)
		rc = launch_one(c, err);
	return rc;
}

int en_cuda_snap_start(struct en_zero *z, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc = (int)cudaSetDevice((int)c->cuda.device);

	if (!rc)
		rc = (int)cudaStreamWaitEvent(c->snap->stream, c->snap->state, 0);
	return rc ? en_cuda_cuda(rc, "copying the state", err) : launch(c, err);
}

int en_cuda_snap_next(struct en_zero *z, struct en_zero_copied *out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	struct en_cuda_snap *s = c->snap;
	const struct slot *slot = s->nslots ? &s->slot[s->taken % s->nslots] : NULL;
	int rc = launch(c, err);

	*out = (struct en_zero_copied){ .p = NULL };
	if (rc || s->taken == s->launched)
		return rc;
	rc = en_cuda_cuda((int)cudaEventSynchronize(slot->there), "copying the state", err);
	if (rc)
		return rc;
	*out = (struct en_zero_copied){ slot->slice, slot->p, s->stays };
	s->taken++;
	return 0;
}

/* After a failure copies may be under way, of a block whose event is not recorded yet. */
void en_cuda_snap_end(struct en_zero *z)
{
	struct en_cuda_snap *s = en_cuda_of(z)->snap;

	cudaStreamSynchronize(s->stream);
	pthread_mutex_lock(&s->lock);
	s->going = false;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

int en_cuda_snap_wait(struct en_cuda *c, uint32_t block, struct ckpt_err *err)
{
	struct en_cuda_snap *s = c->snap;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->lock);
	while (s->going && s->blocks <= block)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return en_cuda_cuda((int)cudaStreamWaitEvent(c->work, s->copied[block], 0), "waiting", err);
}

int en_cuda_frozen_get(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n, void *p,
		       struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const enum kn_type type = z->opts.type;
	cudaStream_t stream = c->snap && c->snap->stream ? c->snap->stream : c->work;
	int rc = (int)cudaMemcpyAsync(p, en_cuda_at(z->block[block].frozen, at, type),
				      n * kn_type_size(type), cudaMemcpyDefault, stream);

	if (!rc)
		rc = (int)cudaStreamSynchronize(stream);
	return en_cuda_cuda(rc, "frozen parameters", err);
}
