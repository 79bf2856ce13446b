/*
 * ck_read.c -- see ck_read.h.
 *
 * A request is cut at extents and runs.  A piece that is stored as it is wanted is read
 * straight to its place; any other goes through the scratch, half of which holds what
 * was read and half what a first cast made of it.
 */
#include "libckpt/run/ck_read.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_blob.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define HALF (CK_READ_SCRATCH / 2)

struct ck_reader {
	const struct ck_index *ix;
	struct ck_blobs *blobs;
	ck_saw_fn saw;		/* NULL = nobody asks */
	void *saw_arg;
	_Atomic uint64_t bytes, reads;	/* without those of the blobs */
};

/* One piece: 'n' elements of extent 'e' from its element 'at' on. */
struct piece {
	const struct ck_extent *e;
	uint64_t at, n;
	uint64_t es;		/* bytes of a stored element */
};

int ck_reader_new(const struct ck_index *ix, const struct ckpt_limits *limits,
		  uint64_t cache_bytes, struct ck_reader **reader_out, struct ckpt_err *err)
{
	struct ck_reader *r = ck_zalloc(sizeof(*r));
	int rc;

	if (!r)
		return ck_fail_nomem(err, "a reader", sizeof(*r));
	r->ix = ix;
	rc = ck_blobs_new(ix, limits, cache_bytes, &r->blobs, err);
	if (rc) {
		ck_free(r);
		return rc;
	}
	*reader_out = r;
	return 0;
}

void ck_reader_observe(struct ck_reader *reader, ck_saw_fn fn, void *arg)
{
	reader->saw = fn;
	reader->saw_arg = arg;
}

void ck_reader_counts(struct ck_reader *reader, struct ck_read_counts *out)
{
	ck_blobs_counts(reader->blobs, out);
	out->bytes += atomic_load(&reader->bytes);
	out->reads += atomic_load(&reader->reads);
}

const struct ck_state *ck_reader_state(const struct ck_reader *reader, uint32_t state)
{
	return &reader->ix->state[state];
}

void ck_reader_free(struct ck_reader *reader)
{
	if (!reader)
		return;
	ck_blobs_free(reader->blobs);
	ck_free(reader);
}

static int from_blob(const struct ck_blob *blob, uint64_t off, void *dst, uint64_t n,
		     const char *where, struct ckpt_err *err)
{
	if (off > blob->n || n > blob->n - off)
		return ck_fail(err, CKPT_E_CORRUPT, where, off,
			       "cannot read %" PRIu64 " bytes here: the member has %" PRIu64 " "
			       "bytes", n, blob->n);
	memcpy(dst, blob->p + off, n);
	return 0;
}

int ck_reader_raw(struct ck_reader *reader, uint32_t source, uint64_t off, void *dst, uint64_t n,
		  struct ckpt_err *err)
{
	const int rc = ck_src_read(reader->ix->source[source].src, off, dst, n, err);

	if (rc)
		return rc;
	atomic_fetch_add_explicit(&reader->bytes, n, memory_order_relaxed);
	atomic_fetch_add_explicit(&reader->reads, 1, memory_order_relaxed);
	return reader->saw ? reader->saw(reader->saw_arg, source, off, dst, n, err) : 0;
}

/* 'n' bytes at 'off' of the file, or of the inflated member. */
static int fetch(struct ck_reader *r, const struct ck_extent *e, uint64_t off, void *dst,
		 uint64_t n, struct ckpt_err *err)
{
	const struct ck_source *s = &r->ix->source[e->source];
	struct ck_blob blob;
	int rc;

	if (!(e->flags & CKPT_EXTENT_DEFLATED))
		return ck_reader_raw(r, e->source, off, dst, n, err);
	rc = ck_blobs_member(r->blobs, e->member, &blob, err);
	if (rc)
		return rc;
	rc = from_blob(&blob, off, dst, n, s->path, err);
	ck_blobs_drop(r->blobs, &blob);
	return rc;
}

/*
 * How many whole runs to read at once: as many as half the scratch spans, where what
 * lies between them is little; else 1.
 */
static uint64_t rows_at_once(const struct ck_extent *e, uint64_t run_bytes, uint64_t wanted)
{
	const uint64_t near = ck_max_u64(4096, run_bytes * 4);

	if (wanted < 2 || !e->src_stride || e->src_stride > near || run_bytes > HALF / 2 ||
	    e->src_stride > HALF / 2)
		return 1;
	return ck_min_u64(wanted, (HALF - run_bytes) / e->src_stride + 1);
}

/* Many short runs: read what they span, then pick.  'dst' gets m whole runs. */
static int fetch_rows(struct ck_reader *r, const struct piece *p, uint64_t run, uint64_t m,
		      void *dst, uint8_t *tmp, struct ckpt_err *err)
{
	const struct ck_extent *e = p->e;
	const uint64_t span = (m - 1) * e->src_stride + e->count * p->es;
	int rc = fetch(r, e, e->off + run * e->src_stride, tmp, span, err);

	for (uint64_t i = 0; !rc && i < m; i++)
		memcpy((uint8_t *)dst + i * e->count * p->es, tmp + i * e->src_stride,
		       e->count * p->es);
	return rc;
}

/* Stored bytes of a piece into 'dst'; 'tmp' has HALF bytes. */
static int fetch_piece(struct ck_reader *r, const struct piece *p, uint8_t *dst, uint8_t *tmp,
		       struct ckpt_err *err)
{
	const struct ck_extent *e = p->e;
	uint64_t at = p->at, n = p->n;
	struct ck_blob blob;
	int rc = 0;

	if (e->flags & CKPT_EXTENT_GATHER) {
		rc = ck_blobs_view(r->blobs, e, &blob, err);
		if (rc)
			return rc;
		if (r->saw && !(e->flags & CKPT_EXTENT_DEFLATED))
			rc = r->saw(r->saw_arg, e->source, e->off, NULL, 0, err);
		if (rc)
			return rc;
		rc = from_blob(&blob, at * p->es, dst, n * p->es,
			       r->ix->source[e->source].path, err);
		ck_blobs_drop(r->blobs, &blob);
		return rc;
	}
	while (!rc && n) {
		const uint64_t run = at / e->count, in = at % e->count;
		uint64_t take = ck_min_u64(e->count - in, n);
		uint64_t rows = 1;

		if (!in && take == e->count && take * p->es <= HALF)
			rows = rows_at_once(e, take * p->es, n / e->count);
		if (rows > 1) {
			rc = fetch_rows(r, p, run, rows, dst, tmp, err);
			take = rows * e->count;
		} else {
			rc = fetch(r, e, e->off + run * e->src_stride + in * p->es, dst,
				   take * p->es, err);
		}
		dst += take * p->es;
		at += take;
		n -= take;
	}
	return rc;
}

enum kn_type ck_read_kn(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_F64:
		return KN_F64;
	case CKPT_F16:
		return KN_F16;
	case CKPT_BF16:
		return KN_BF16;
	default:
		return KN_F32;
	}
}

/* A flag that means nothing for the type is refused, not passed over. */
static int check_flags(const struct ck_extent *e, const char *name, struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info(e->dtype);
	const bool real = info->cls == CK_CLASS_FLOAT, complex_type = info->cls == CK_CLASS_COMPLEX;

	if ((e->flags & CKPT_EXTENT_NEG) && !real && !complex_type)
		return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			       "elements of type %s with a lazy negation are not supported",
			       info->name);
	return 0;
}

/* Byte order, lazy negation, lazy conjugation: in place. */
static void straighten(uint8_t *p, const struct piece *pc, uint64_t n)
{
	const struct ck_dtype_info *info = ck_dtype_info(pc->e->dtype);
	const bool complex_type = info->cls == CK_CLASS_COMPLEX;
	const size_t part = complex_type ? pc->es / 2 : pc->es;
	const uint64_t parts = complex_type ? n * 2 : n;

	if (pc->e->flags & CKPT_EXTENT_SWAPPED) {
		if (part == 2)
			kn_bswap16(p, p, parts);
		else if (part == 4)
			kn_bswap32(p, p, parts);
		else if (part == 8)
			kn_bswap64(p, p, parts);
	}
	if ((pc->e->flags & CKPT_EXTENT_CONJ) && complex_type)
		kn_conj(p, p, part, n);
	if (pc->e->flags & CKPT_EXTENT_NEG)
		kn_negate(p, p, part, parts);
}

/* Read a piece that fits half the scratch and make it what is wanted. */
static int convert_piece(struct ck_reader *r, const struct piece *p, enum ckpt_dtype state,
			 enum ckpt_dtype want, uint8_t *dst, uint8_t *scratch,
			 uint64_t *overflows, struct ckpt_err *err)
{
	uint8_t *raw = scratch, *tmp = scratch + HALF;
	enum ckpt_dtype now = p->e->dtype;
	int rc = fetch_piece(r, p, raw, tmp, err);

	if (rc)
		return rc;
	straighten(raw, p, p->n);
	if (now != state) {
		kn_cast(tmp, ck_read_kn(state), raw, ck_read_kn(now), p->n, NULL);
		now = state;
		raw = tmp;
	}
	if (now == want)
		memcpy(dst, raw, p->n * (ckpt_dtype_bits(want) / 8));
	else
		kn_cast(dst, ck_read_kn(want), raw, ck_read_kn(now), p->n, overflows);
	return 0;
}

static int check_cast(enum ckpt_dtype from, enum ckpt_dtype to, const char *name,
		      struct ckpt_err *err)
{
	if (from == to || (ck_dtype_is_castable(from) && ck_dtype_is_castable(to)))
		return 0;
	return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET, "%s cannot be converted to %s",
		       ckpt_dtype_name(from), ckpt_dtype_name(to));
}

static int outside(const struct ck_tensor *t, uint64_t first, uint64_t count, uint64_t all,
		   struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
		       "cannot read %" PRIu64 " elements from element %" PRIu64 " on: it has "
		       "only %" PRIu64 " elements", count, first, all);
}

/* Types under 8 bits: one extent, counted in bytes. */
static int read_packed(struct ck_reader *r, const struct ck_state *state, uint64_t first,
		       uint64_t count, void *dst, struct ckpt_err *err)
{
	const struct ck_tensor *t = &r->ix->tensor[state->tensor];
	const struct ck_extent *e = ck_extent_stored(r->ix, state, 0);
	uint64_t bytes;
	int rc = ck_dtype_bytes(state->dtype, t->numel, &bytes, err);

	if (rc)
		return rc;
	if (first > bytes || count > bytes - first)
		return outside(t, first, count, bytes, err);
	if (state->nextents != 1 || e->runs != 1 || e->dtype != state->dtype ||
	    (e->flags & ~CKPT_EXTENT_DEFLATED))
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "a tensor of %u-bit elements in several pieces is not supported",
			       ckpt_dtype_bits(e->dtype));
	return fetch(r, e, e->off + first, dst, count, err);
}

static bool is_plain(const struct ck_extent *e, enum ckpt_dtype state, enum ckpt_dtype want)
{
	return e->dtype == state && state == want &&
	       !(e->flags & (CKPT_EXTENT_SWAPPED | CKPT_EXTENT_CONJ | CKPT_EXTENT_NEG));
}

int ck_reader_read(struct ck_reader *reader, const struct ck_state *state, uint64_t first,
		   uint64_t count, enum ckpt_dtype dtype, void *dst, void *scratch,
		   uint64_t *overflows, struct ckpt_err *err)
{
	const struct ck_index *ix = reader->ix;
	const struct ck_tensor *t = &ix->tensor[state->tensor];
	uint8_t *out = dst;
	const struct ck_extent *e;
	struct ck_extents extents;
	int rc = check_cast(state->dtype, dtype, t->name, err);

	if (rc || !count)
		return rc;
	if (ckpt_dtype_bits(dtype) < 8)
		return read_packed(reader, state, first, count, dst, err);
	if (first > t->numel || count > t->numel - first)
		return outside(t, first, count, t->numel, err);
	ck_extents_begin(&extents, ix, state, first);
	e = ck_extents_next(&extents);
	while (!rc && count) {
		const uint64_t in_extent = e->first + e->count * e->runs - first;
		struct piece p = {
			.e = e, .at = first - e->first, .n = ck_min_u64(in_extent, count),
			.es = ckpt_dtype_bits(e->dtype) / 8,
		};

		if (is_plain(e, state->dtype, dtype)) {
			rc = fetch_piece(reader, &p, out, scratch, err);
		} else {
			/* What is read and what a first cast makes of it fit a half each. */
			const uint64_t widest = ck_max_u64(p.es, ckpt_dtype_bits(state->dtype) / 8);

			rc = check_cast(e->dtype, state->dtype, t->name, err);
			if (!rc)
				rc = check_flags(e, t->name, err);
			p.n = ck_min_u64(p.n, HALF / ck_max_u64(widest, 1));
			if (!rc)
				rc = convert_piece(reader, &p, state->dtype, dtype, out,
						   scratch, overflows, err);
		}
		out += p.n * (ckpt_dtype_bits(dtype) / 8);
		first += p.n;
		count -= p.n;
		if (p.n == in_extent)
			e = ck_extents_next(&extents);
	}
	return rc;
}
