/*
 * ck_pt_extent.c -- where the elements of a tensor lie.
 *
 * Dimensions of size 1 say nothing, and two neighbours of which the outer steps exactly
 * over the inner are one; what remains tells the kinds apart: nothing or one dimension
 * of stride 1 is one run, two dimensions with an inner stride of 1 are runs at a
 * distance, anything else is a gather over the original shape.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"

/* The view with as few dimensions as it needs; only the innermost two are kept. */
struct folded {
	uint32_t ndim;
	uint64_t size[2], stride[2];	/* inner first */
};

static struct folded view_fold(const struct ck_tensor_ref *t)
{
	struct folded f = { 0 };

	for (uint32_t i = t->ndim; i-- > 0;) {
		const uint32_t at = ck_min_u64(f.ndim, 2) - 1;

		if (t->shape[i] == 1)
			continue;
		if (f.ndim && f.ndim <= 2 && t->stride[i] == f.size[at] * f.stride[at]) {
			f.size[at] *= t->shape[i];
			continue;
		}
		if (f.ndim < 2) {
			f.size[f.ndim] = t->shape[i];
			f.stride[f.ndim] = t->stride[i];
		}
		f.ndim++;
	}
	return f;
}

const char *ck_pt_view_key(struct ck_arena *a, const struct ck_tensor_ref *t, uint64_t apart,
			   size_t *n_out)
{
	const size_t n = (4 + 2 * (size_t)t->ndim) * sizeof(uint64_t);
	uint64_t *k = ck_arena_alloc(a, n);

	if (!k)
		return NULL;
	k[0] = t->storage;
	k[1] = t->dtype | (uint64_t)t->conj << 8 | (uint64_t)t->neg << 9;
	k[2] = t->offset;
	k[3] = t->numel ? 0 : apart;
	for (uint32_t i = 0; i < t->ndim; i++) {
		k[4 + i] = t->shape[i];
		k[4 + t->ndim + i] = t->numel && t->shape[i] != 1 ? t->stride[i] : 0;
	}
	*n_out = n;
	return (const char *)k;
}

/* The member of a deflated storage in the index; several tensors share it. */
static int member_get(const struct ck_pt_storage *s, uint32_t source, struct ck_index *ix,
		      uint32_t *out, struct ckpt_err *err)
{
	const struct ck_member m = {
		.name = s->key, .off = s->off, .packed = s->packed, .bytes = s->bytes,
		.source = source, .crc = s->crc,
	};

	/* A second entry for one member is harmless; a long search is not. */
	for (uint64_t i = ix->nmembers; i > 0 && ix->nmembers - i < 64;)
		if (ix->member[--i].source == source && ix->member[i].off == s->off) {
			*out = (uint32_t)i;
			return 0;
		}
	return ck_index_add_member(ix, &m, out, err);
}

static int no_extent(const struct ck_pt *pt, uint64_t begin, uint64_t count, uint64_t numel,
		     struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, pt->where, CKPT_NO_OFFSET,
		       "elements %" PRIu64 " to %" PRIu64 " of a strided view of %" PRIu64 " "
		       "elements are not in one extent", begin, begin + count, numel);
}

/* Runs of f->size[0] elements, f->stride[1] apart: whole, or a part of one of them. */
static int runs_fill(const struct ck_pt *pt, const struct ck_tensor_ref *t,
		     const struct folded *f, uint64_t begin, uint64_t count, uint64_t esize,
		     struct ck_extent *e, struct ckpt_err *err)
{
	const uint64_t run = f->size[0], row = begin / run, col = begin % run;

	if (count && col + count <= run) {
		e->off += (row * f->stride[1] + col) * esize;
		return 0;
	}
	if (col || count % run)
		return no_extent(pt, begin, count, t->numel, err);
	e->off += row * f->stride[1] * esize;
	e->count = run;
	e->runs = count / run;
	e->src_stride = f->stride[1] * esize;
	return 0;
}

int ck_pt_extent(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t begin,
		 uint64_t count, uint64_t first, uint32_t source, int32_t rank,
		 struct ck_index *ix, struct ck_extent *extent_out, struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[t->storage];
	const uint64_t esize = ckpt_dtype_bits(t->dtype) / 8;
	struct ck_extent e = {
		.first = first, .count = count, .runs = 1, .source = source, .rank = rank,
		.member = CK_NONE, .view = CK_NONE, .dtype = t->dtype,
		.off = (s->deflated ? 0 : s->off) + t->offset * esize,
	};
	struct folded f;
	int rc = 0;

	if (begin > t->numel || count > t->numel - begin)
		return ck_fail(err, CKPT_E_USAGE, pt->where, CKPT_NO_OFFSET,
			       "elements %" PRIu64 " to %" PRIu64 " are out of range: the "
			       "tensor has %" PRIu64 " elements", begin, begin + count, t->numel);
	e.flags = (uint8_t)((s->swapped && esize > 1 ? CKPT_EXTENT_SWAPPED : 0) |
			    (t->conj ? CKPT_EXTENT_CONJ : 0) | (t->neg ? CKPT_EXTENT_NEG : 0) |
			    (s->deflated ? CKPT_EXTENT_DEFLATED : 0));
	if (!t->numel || !count) {
		*extent_out = e;
		return 0;
	}
	f = view_fold(t);
	if (!f.ndim || (f.ndim == 1 && f.stride[0] == 1)) {
		e.off += begin * esize;
	} else if (f.ndim == 2 && f.stride[0] == 1) {
		rc = runs_fill(pt, t, &f, begin, count, esize, &e, err);
	} else if (begin || count != t->numel) {
		rc = no_extent(pt, begin, count, t->numel, err);
	} else {
		e.flags |= CKPT_EXTENT_GATHER;
		rc = ck_index_add_view(ix, t->shape, t->stride, t->ndim, &e.view, err);
	}
	if (!rc && s->deflated)
		rc = member_get(s, source, ix, &e.member, err);
	if (!rc)
		*extent_out = e;
	return rc;
}
