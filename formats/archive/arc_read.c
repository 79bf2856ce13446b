/*
 * arc_read.c -- a pack read by position: whoever asks for a range decodes its frames, and the last
 * few decoded ones are kept.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"

/*
 * A tensor of a ZeRO step lies in a file of every rank, so readers go on in many places at once:
 * what is kept should hold a frame for each.
 */
#define KEPT_BYTES ((uint64_t)96 << 20)
#define KEPT_MAX 96u
#define NO_FRAME UINT64_MAX

struct slot {
	uint64_t frame;		/* NO_FRAME = none */
	uint64_t used;		/* when */
	uint8_t *p;
	uint32_t users;		/* reading it, or filling it */
	bool ready;
};

/* What decoding needs, one for each thread that is at it. */
struct decoder {
	ZSTD_DCtx *ctx;
	uint8_t *p;		/* a frame as stored */
	uint32_t room;
	struct decoder *next;
};

struct ck_pack {
	struct ck_src *src;
	struct ck_pack_index ix;
	uint64_t largest;	/* content of a frame */
	pthread_mutex_t lock;	/* of all below */
	pthread_cond_t changed;
	struct slot slot[KEPT_MAX];
	uint32_t nslots;
	uint64_t clock;
	struct decoder *idle;
};

int ck_pack_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_pack **pack_out,
		 struct ckpt_err *err)
{
	struct ck_pack *pack = ck_zalloc(sizeof(*pack));
	bool found = false;
	int rc;

	if (!pack)
		return ck_fail_nomem(err, "a pack", sizeof(*pack));
	rc = ck_pack_index_read(src, limits, &pack->ix, &found, err);
	if (rc || !found) {
		ck_free(pack);
		if (!rc)
			*pack_out = NULL;
		return rc;
	}
	pack->src = src;
	for (uint64_t i = 0; i < pack->ix.nframes; i++)
		pack->largest = ck_max_u64(pack->largest, pack->ix.frame[i].content);
	pack->nslots = (uint32_t)ck_min_u64(KEPT_MAX, KEPT_BYTES / (pack->largest + 1) + 2);
	for (uint32_t i = 0; i < pack->nslots; i++)
		pack->slot[i].frame = NO_FRAME;
	pthread_mutex_init(&pack->lock, NULL);
	pthread_cond_init(&pack->changed, NULL);
	*pack_out = pack;
	return 0;
}

static void decoder_free(struct decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->ctx);
	ck_free(d->p);
	ck_free(d);
}

void ck_pack_close(struct ck_pack *pack)
{
	struct decoder *next;

	if (!pack)
		return;
	for (struct decoder *d = pack->idle; d; d = next) {
		next = d->next;
		decoder_free(d);
	}
	for (uint32_t i = 0; i < pack->nslots; i++)
		ck_free(pack->slot[i].p);
	pthread_mutex_destroy(&pack->lock);
	pthread_cond_destroy(&pack->changed);
	ck_pack_index_release(&pack->ix);
	ck_free(pack);
}

const struct ck_pack_index *ck_pack_index(const struct ck_pack *pack)
{
	return &pack->ix;
}

/* ------------------------------------------------------------------------ decoding */

static struct decoder *decoder_take(struct ck_pack *pack)
{
	struct decoder *d;

	pthread_mutex_lock(&pack->lock);
	d = pack->idle;
	if (d)
		pack->idle = d->next;
	pthread_mutex_unlock(&pack->lock);
	if (d)
		return d;
	d = ck_zalloc(sizeof(*d));
	if (d)
		d->ctx = ZSTD_createDCtx();
	if (d && d->ctx)
		return d;
	decoder_free(d);
	return NULL;
}

static void decoder_give(struct ck_pack *pack, struct decoder *d)
{
	pthread_mutex_lock(&pack->lock);
	d->next = pack->idle;
	pack->idle = d;
	pthread_mutex_unlock(&pack->lock);
}

static int damaged(const struct ck_pack *pack, uint64_t frame, const char *what,
		   struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, ck_src_name(pack->src), pack->ix.frame[frame].off,
		       "frame %" PRIu64 " of %" PRIu64 " of the pack is damaged: %s", frame,
		       pack->ix.nframes, what);
}

static int decode(struct ck_pack *pack, struct decoder *d, uint64_t frame, uint8_t *content,
		  struct ckpt_err *err)
{
	const struct ck_pack_frame *f = &pack->ix.frame[frame];
	const char *wrong;
	size_t stored, n;
	int rc;

	if (d->room < f->bytes) {
		ck_free(d->p);
		d->room = 0;
		d->p = ck_alloc(f->bytes);
		if (!d->p)
			return ck_fail_nomem(err, "a frame", f->bytes);
		d->room = f->bytes;
	}
	rc = ck_src_read(pack->src, f->off, d->p, f->bytes, err);
	if (rc)
		return rc;
	wrong = ck_pack_trailer_check(d->p, f->bytes, &stored);
	if (wrong)
		return damaged(pack, frame, wrong, err);
	if (ZSTD_getFrameContentSize(d->p, stored) != f->content)
		return damaged(pack, frame, "its size differs", err);
	n = ZSTD_decompressDCtx(d->ctx, content, f->content, d->p, stored);
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return ck_fail_nomem(err, "decoding", f->content);
	if (ZSTD_isError(n))
		return damaged(pack, frame, ZSTD_getErrorName(n), err);
	if (n != f->content || ck_hash64(content, n) != f->hash)
		return damaged(pack, frame, "the hash of its content differs", err);
	return 0;
}

int ck_pack_frame(struct ck_pack *pack, uint64_t frame, uint8_t *content, struct ckpt_err *err)
{
	struct decoder *d = decoder_take(pack);
	int rc;

	if (!d)
		return ck_fail_nomem(err, "a decoder", sizeof(*d));
	rc = decode(pack, d, frame, content, err);
	decoder_give(pack, d);
	return rc;
}

/* ------------------------------------------------------------------------ what is kept */

/* The frame's, or the one that may be filled with it; NULL = all are in use. */
static struct slot *choose(struct ck_pack *pack, uint64_t frame)
{
	struct slot *best = NULL;

	for (uint32_t i = 0; i < pack->nslots; i++) {
		struct slot *s = &pack->slot[i];

		if (s->frame == frame)
			return s;
		if (!s->users && (!best || s->used < best->used))
			best = s;
	}
	return best;
}

/* Under the lock, which is open while it decodes. */
static int fill(struct ck_pack *pack, struct slot *s, uint64_t frame, struct ckpt_err *err)
{
	int rc = 0;

	s->frame = frame;
	s->ready = false;
	pthread_mutex_unlock(&pack->lock);
	if (!s->p)
		s->p = ck_alloc(pack->largest);
	rc = s->p ? ck_pack_frame(pack, frame, s->p, err) :
	     ck_fail_nomem(err, "a frame", pack->largest);
	pthread_mutex_lock(&pack->lock);
	s->ready = !rc;
	if (rc)
		s->frame = NO_FRAME;
	pthread_cond_broadcast(&pack->changed);
	return rc;
}

/* '*slot_out' is ready and stays until slot_leave(). */
static int slot_enter(struct ck_pack *pack, uint64_t frame, struct slot **slot_out,
		      struct ckpt_err *err)
{
	struct slot *s;
	int rc = 0;

	pthread_mutex_lock(&pack->lock);
	for (;;) {
		s = choose(pack, frame);
		if (s && s->frame == frame && s->ready)
			break;
		if (s && s->frame != frame && !s->users) {
			s->users++;
			rc = fill(pack, s, frame, err);
			s->users--;
			break;
		}
		pthread_cond_wait(&pack->changed, &pack->lock);
	}
	if (!rc) {
		s->users++;
		s->used = ++pack->clock;
		*slot_out = s;
	}
	pthread_mutex_unlock(&pack->lock);
	return rc;
}

static void slot_leave(struct ck_pack *pack, struct slot *s)
{
	pthread_mutex_lock(&pack->lock);
	s->users--;
	pthread_cond_broadcast(&pack->changed);
	pthread_mutex_unlock(&pack->lock);
}

static uint64_t frame_at(const struct ck_pack_index *ix, uint64_t at)
{
	uint64_t i;

	CK_LOWER_BOUND(i, ix->nframes, ix->frame[i].at <= at);
	return i ? i - 1 : 0;
}

int ck_pack_read(void *arg, uint64_t at, void *buf, size_t n, struct ckpt_err *err)
{
	struct ck_pack *pack = arg;
	uint8_t *to = buf;
	int rc = 0;

	if (at > pack->ix.content || n > pack->ix.content - at)
		return ck_fail(err, CKPT_E_TRUNCATED, ck_src_name(pack->src), CKPT_NO_OFFSET,
			       "cannot read %zu bytes at byte %" PRIu64 " of the pack's "
			       "contents, which have %" PRIu64 " bytes", n, at, pack->ix.content);
	for (uint64_t k = n ? frame_at(&pack->ix, at) : 0; !rc && n; k++) {
		const struct ck_pack_frame *f = &pack->ix.frame[k];
		const uint64_t skip = at - f->at, take = ck_min_u64(n, f->content - skip);
		struct slot *s;

		if (take == f->content) {
			rc = ck_pack_frame(pack, k, to, err);
		} else {
			rc = slot_enter(pack, k, &s, err);
			if (!rc) {
				memcpy(to, s->p + skip, take);
				slot_leave(pack, s);
			}
		}
		to += take;
		at += take;
		n -= take;
	}
	return rc;
}
