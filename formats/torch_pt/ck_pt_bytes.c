/* ck_pt_bytes.c -- the bytes of a small storage, plain or deflated, and of a small tensor. */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip.h"

static int inflate(const struct ck_pt *pt, const struct ck_pt_storage *s, uint8_t *out,
		   struct ckpt_err *err)
{
	uint8_t *packed = ck_alloc(s->packed);
	int rc;

	if (!packed)
		return ck_fail_nomem(err, "a packed storage", s->packed);
	rc = ck_src_read(pt->src, s->off, packed, s->packed, err);
	if (!rc)
		rc = ck_zip_inflate(packed, s->packed, out, s->bytes, pt->where, err);
	ck_free(packed);
	return rc;
}

int ck_pt_storage_bytes(const struct ck_pt *pt, uint32_t storage, uint64_t max, uint8_t **out,
			struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[storage];
	uint8_t *p;
	int rc;

	if (s->bytes > max || s->packed > max)
		return ck_fail(err, CKPT_E_LIMIT, pt->where, CKPT_NO_OFFSET,
			       "storage '%s' has %" PRIu64 " bytes, but at most %" PRIu64 " can "
			       "be read here", s->key, s->bytes, max);
	p = ck_alloc(s->bytes);
	if (!p)
		return ck_fail_nomem(err, "a storage", s->bytes);
	if (s->deflated)
		rc = inflate(pt, s, p, err);
	else
		rc = ck_src_read(pt->src, s->off, p, s->bytes, err);
	if (rc)
		ck_free(p);
	else
		*out = p;
	return rc;
}

/* Bytes from the first element to the last, of a tensor that ck_pt_bind() has looked at. */
static bool span_of(const struct ck_tensor_ref *t, uint64_t es, uint64_t *out)
{
	uint64_t last = 0, part;

	for (uint32_t d = 0; d < t->ndim; d++)
		if (t->shape[d] && (ck_mul_over(t->shape[d] - 1, t->stride[d], &part) ||
				    ck_add_over(last, part, &last)))
			return false;
	return !ck_add_over(last, 1, &last) && !ck_mul_over(last, es, out);
}

/* 'size' is the bytes of a number: half an element of a complex type. */
static void copy_turned(uint8_t *dst, const uint8_t *src, size_t es, size_t size, bool swapped)
{
	for (size_t i = 0; i < es; i++)
		dst[i] = src[swapped ? i / size * size + size - 1 - i % size : i];
}

static void pick(const struct ck_tensor_ref *t, size_t es, bool swapped, const uint8_t *src,
		 uint8_t *dst)
{
	const struct ck_dtype_info *info = ck_dtype_info((enum ckpt_dtype)t->dtype);
	const size_t size = info->cls == CK_CLASS_COMPLEX ? es / 2 : es;

	for (uint64_t i = 0; i < t->numel; i++) {
		uint64_t at = 0, rest = i;

		for (uint32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
			at += rest % t->shape[d] * t->stride[d];
		copy_turned(dst + i * es, src + at * es, es, size, swapped);
	}
}

/* What the tensor spans, or its whole storage where it is deflated; 'at' is its first byte. */
static int read_span(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t es,
		     uint64_t span, uint64_t max, uint8_t **out, uint64_t *at,
		     struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[t->storage];
	int rc;

	*at = 0;
	if (s->deflated) {
		*at = t->offset * es;
		return ck_pt_storage_bytes(pt, t->storage, max, out, err);
	}
	*out = ck_alloc(span);
	if (!*out)
		return ck_fail_nomem(err, "a tensor", span);
	rc = ck_src_read(pt->src, s->off + t->offset * es, *out, span, err);
	if (rc) {
		ck_free(*out);
		*out = NULL;
	}
	return rc;
}

int ck_pt_tensor_bytes(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t max,
		       uint8_t **out, struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[t->storage];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)t->dtype) / 8;
	uint64_t span, bytes, at;
	uint8_t *raw = NULL, *made;
	int rc;

	if (!es || t->conj || t->neg)
		return ck_fail(err, CKPT_E_UNSUPPORTED, pt->where, CKPT_NO_OFFSET,
			       "zckpt cannot read the elements of a tensor of type %s%s",
			       ckpt_dtype_name((enum ckpt_dtype)t->dtype),
			       es ? ", lazily conjugated or negated," : "");
	*out = NULL;
	if (s->absent || !span_of(t, es, &span) || span > max ||
	    ck_mul_over(t->numel, es, &bytes) || bytes > max ||
	    (s->deflated && (s->bytes > max || s->packed > max)))
		return 0;
	made = ck_alloc(bytes);
	if (!made)
		return ck_fail_nomem(err, "a tensor", bytes);
	rc = t->numel ? read_span(pt, t, es, span, max, &raw, &at, err) : 0;
	if (!rc && t->numel)
		pick(t, es, s->swapped, raw + at, made);
	ck_free(raw);
	if (rc)
		ck_free(made);
	else
		*out = made;
	return rc;
}
