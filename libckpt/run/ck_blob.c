/*
 * ck_blob.c -- see ck_blob.h.  One lock: making a blob is rare, and two threads that want
 * the same one should not both make it.
 */
#include "libckpt/run/ck_blob.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"

/* More than threads can pin at once. */
#define KEPT 260

#define VIEW_KEY ((uint64_t)1 << 32)

struct kept {
	uint8_t *p;
	uint64_t n;
	uint64_t key;		/* member number, or VIEW_KEY + number of the extent */
	uint64_t used;		/* clock of last use */
	uint32_t pins;
};

struct ck_blobs {
	const struct ck_index *ix;
	struct ckpt_limits limits;
	uint64_t keep_bytes, bytes, clock;
	pthread_mutex_t lock;	/* guards everything below and above */
	struct kept kept[KEPT];
	struct ck_read_counts counts;
};

int ck_blobs_new(const struct ck_index *ix, const struct ckpt_limits *limits, uint64_t keep_bytes,
		 struct ck_blobs **out, struct ckpt_err *err)
{
	struct ck_blobs *b = ck_zalloc(sizeof(*b));

	if (!b)
		return ck_fail_nomem(err, "a cache", sizeof(*b));
	b->ix = ix;
	b->limits = *limits;
	b->keep_bytes = keep_bytes;
	pthread_mutex_init(&b->lock, NULL);
	*out = b;
	return 0;
}

static void forget(struct ck_blobs *b, struct kept *k)
{
	b->bytes -= k->n;
	ck_free(k->p);
	memset(k, 0, sizeof(*k));
}

void ck_blobs_free(struct ck_blobs *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < KEPT; i++)
		ck_free(b->kept[i].p);
	pthread_mutex_destroy(&b->lock);
	ck_free(b);
}

/* A free place for 'n' bytes; idle blobs used longest ago make room.  NULL = all pinned. */
static struct kept *place_for(struct ck_blobs *b, uint64_t n)
{
	for (;;) {
		struct kept *idle = NULL, *empty = NULL;

		for (size_t i = 0; i < KEPT; i++) {
			struct kept *k = &b->kept[i];

			if (!k->p)
				empty = k;
			else if (!k->pins && (!idle || k->used < idle->used))
				idle = k;
		}
		if (empty && (b->bytes + n <= b->keep_bytes || !idle))
			return empty;
		if (!idle)
			return NULL;
		forget(b, idle);
	}
}

static struct kept *find(struct ck_blobs *b, uint64_t key)
{
	for (size_t i = 0; i < KEPT; i++)
		if (b->kept[i].p && b->kept[i].key == key)
			return &b->kept[i];
	return NULL;
}

static int count_read(struct ck_blobs *b, int rc, uint64_t n)
{
	b->counts.bytes += rc ? 0 : n;
	b->counts.reads += !rc;
	return rc;
}

static int inflate_member(struct ck_blobs *b, uint32_t member, uint8_t **p_out, uint64_t *n_out,
			  struct ckpt_err *err)
{
	const struct ck_member *m = &b->ix->member[member];
	const struct ck_source *s = &b->ix->source[m->source];
	uint8_t *in = NULL, *out = NULL;
	int rc;

	if (m->bytes > b->limits.inflate_bytes)
		return ck_fail_limit(err, s->path, m->off, "inflate_bytes", b->limits.inflate_bytes,
				     "member %.100s inflates to %" PRIu64 " bytes", m->name,
				     m->bytes);
	if (m->off > s->bytes || m->packed > s->bytes - m->off)
		return ck_fail(err, CKPT_E_TRUNCATED, s->path, m->off,
			       "member %s takes %" PRIu64 " bytes from here on, but the file "
			       "has %" PRIu64 " in all", m->name, m->packed, s->bytes);
	in = ck_alloc(m->packed);
	out = ck_alloc(m->bytes);
	if (!in || !out) {
		rc = ck_fail_nomem(err, m->name, m->bytes + m->packed);
		goto fail;
	}
	rc = count_read(b, ck_src_read(s->src, m->off, in, m->packed, err), m->packed);
	if (!rc)
		rc = ck_zip_inflate(in, m->packed, out, m->bytes, s->path, err);
	if (!rc && ck_zip_crc32(0, out, m->bytes) != m->crc)
		rc = ck_fail(err, CKPT_E_CORRUPT, s->path, m->off,
			     "member %s: its CRC-32 differs from the one in the directory",
			     m->name);
	if (rc)
		goto fail;
	b->counts.inflated += m->packed;
	ck_free(in);
	*p_out = out;
	*n_out = m->bytes;
	return 0;
fail:
	ck_free(in);
	ck_free(out);
	return rc;
}

/* Pin what is kept under 'key', or what 'p' of 'n' bytes was just made for it. */
static int keep(struct ck_blobs *b, uint64_t key, uint8_t *p, uint64_t n, struct ck_blob *out,
		struct ckpt_err *err)
{
	struct kept *k = place_for(b, n);

	if (!k) {
		ck_free(p);
		return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
			       "more than %d views and members are in use at once", KEPT);
	}
	*k = (struct kept){ .p = p, .n = n, .key = key, .used = ++b->clock, .pins = 1 };
	b->bytes += n;
	*out = (struct ck_blob){ p, n };
	return 0;
}

static bool pin_kept(struct ck_blobs *b, uint64_t key, struct ck_blob *out)
{
	struct kept *k = find(b, key);

	if (!k)
		return false;
	k->pins++;
	k->used = ++b->clock;
	*out = (struct ck_blob){ k->p, k->n };
	return true;
}

static int member_locked(struct ck_blobs *b, uint32_t member, struct ck_blob *out,
			 struct ckpt_err *err)
{
	uint64_t n = 0;
	uint8_t *p = NULL;
	int rc;

	if (pin_kept(b, member, out))
		return 0;
	rc = inflate_member(b, member, &p, &n, err);
	return rc ? rc : keep(b, member, p, n, out, err);
}

int ck_blobs_member(struct ck_blobs *b, uint32_t member, struct ck_blob *out,
		    struct ckpt_err *err)
{
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = member_locked(b, member, out, err);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static void drop_locked(struct ck_blobs *b, const struct ck_blob *blob)
{
	for (size_t i = 0; i < KEPT; i++)
		if (b->kept[i].p == blob->p && b->kept[i].pins)
			b->kept[i].pins--;
}

void ck_blobs_drop(struct ck_blobs *b, const struct ck_blob *blob)
{
	pthread_mutex_lock(&b->lock);
	drop_locked(b, blob);
	pthread_mutex_unlock(&b->lock);
}

/* Bytes of the source that a view touches, from its first element on. */
static int view_span(const struct ck_view *v, uint64_t es, uint64_t *span_out,
		     struct ckpt_err *err)
{
	uint64_t last = 0, part;

	for (uint32_t d = 0; d < v->ndim; d++)
		if (v->shape[d] && (ck_mul_over(v->shape[d] - 1, v->stride[d], &part) ||
				    ck_add_over(last, part, &last)))
			goto limit;
	if (ck_add_over(last, 1, &last) || ck_mul_over(last, es, span_out))
		goto limit;
	return 0;
limit:
	return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET, "the size of a view exceeds 64 "
		       "bits");
}

/* Row-major walk over all dimensions but the last, which kn_gather() does. */
static void gather(const struct ck_view *v, size_t es, const uint8_t *src, uint8_t *dst)
{
	const uint32_t nd = v->ndim;
	const uint64_t inner = nd ? v->shape[nd - 1] : 1;
	const ptrdiff_t step = nd ? (ptrdiff_t)v->stride[nd - 1] : 1;
	const bool dense = step == 1;
	uint64_t idx[64] = { 0 }, at = 0;

	for (;;) {
		uint32_t d = nd > 1 ? nd - 1 : 0;

		kn_gather(dst, 1, src + at * es, step, es, dense ? inner : 1, dense ? 1 : inner);
		dst += inner * es;
		while (d > 0) {
			d--;
			at += v->stride[d];
			if (++idx[d] < v->shape[d])
				break;
			at -= v->stride[d] * v->shape[d];
			idx[d] = 0;
			if (!d)
				return;
		}
		if (nd < 2)
			return;
	}
}

static int make_view(struct ck_blobs *b, const struct ck_extent *e, uint8_t **p_out,
		     uint64_t *n_out, struct ckpt_err *err)
{
	const struct ck_view *v = &b->ix->view[e->view];
	const struct ck_source *s = &b->ix->source[e->source];
	const size_t es = ckpt_dtype_bits(e->dtype) / 8;
	struct ck_blob whole = { 0 };
	uint8_t *in = NULL, *out = NULL;
	uint64_t span = 0, n;
	int rc = ck_dtype_bytes(e->dtype, e->count, &n, err);

	if (!rc)
		rc = view_span(v, es, &span, err);
	if (rc)
		return rc;
	if (n > b->limits.gather_bytes || span > b->limits.gather_bytes)
		return ck_fail_limit(err, s->path, e->off, "gather_bytes", b->limits.gather_bytes,
				     "a strided view has %" PRIu64 " bytes, spread over %" PRIu64
				     " bytes", n, span);
	if (!(e->flags & CKPT_EXTENT_DEFLATED) && (e->off > s->bytes || span > s->bytes - e->off))
		return ck_fail(err, CKPT_E_TRUNCATED, s->path, e->off,
			       "a strided view reaches %" PRIu64 " bytes from here, but the "
			       "file has %" PRIu64 " in all", span, s->bytes);
	out = ck_alloc(n);
	if (!out)
		return ck_fail_nomem(err, "a strided view", n);
	if (e->flags & CKPT_EXTENT_DEFLATED) {
		rc = member_locked(b, e->member, &whole, err);
		if (!rc && (e->off > whole.n || span > whole.n - e->off))
			rc = ck_fail(err, CKPT_E_CORRUPT, s->path, e->off,
				     "a view reaches beyond its member");
	} else {
		in = ck_alloc(span);
		rc = in ? count_read(b, ck_src_read(s->src, e->off, in, span, err), span) :
		     ck_fail_nomem(err, "a strided view", span);
	}
	if (!rc && n)
		gather(v, es, in ? in : whole.p + e->off, out);
	if (whole.p)
		drop_locked(b, &whole);
	ck_free(in);
	if (rc) {
		ck_free(out);
		return rc;
	}
	*p_out = out;
	*n_out = n;
	return 0;
}

int ck_blobs_view(struct ck_blobs *b, const struct ck_extent *e, struct ck_blob *out,
		  struct ckpt_err *err)
{
	const uint64_t key = VIEW_KEY + (uint64_t)(e - b->ix->stored);
	uint64_t n = 0;
	uint8_t *p = NULL;
	int rc = 0;

	pthread_mutex_lock(&b->lock);
	if (!pin_kept(b, key, out)) {
		rc = make_view(b, e, &p, &n, err);
		if (!rc)
			rc = keep(b, key, p, n, out, err);
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}

void ck_blobs_counts(struct ck_blobs *b, struct ck_read_counts *out)
{
	pthread_mutex_lock(&b->lock);
	*out = b->counts;
	pthread_mutex_unlock(&b->lock);
}
