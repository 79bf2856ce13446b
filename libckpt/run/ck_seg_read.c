/* ck_seg_read.c -- see ck_seg_read.h. */
#include "libckpt/run/ck_seg_read.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/io/ck_src.h"

uint64_t ck_seg_grain(const struct ck_seg *s)
{
	const uint32_t bits = ckpt_dtype_bits(s->dtype);

	if (s->kind != CK_SEG_STATE && s->kind != CK_SEG_OWN)
		return 1;
	return bits < 8 ? 1 : bits / 8;
}

static int read_file(const struct ck_seg_from *from, const char *path, uint64_t off, void *dst,
		     uint64_t n, struct ckpt_err *err)
{
	struct ck_fdpool *pool = ck_mount_holds(ck_fdpool_mount(from->source_pool), path) ?
				 from->source_pool : from->pool;
	struct ck_src *src;
	int rc = ck_src_open(pool, path, &src, err);

	if (rc)
		return rc;
	rc = ck_src_read(src, off, dst, n, err);
	ck_src_close(src);
	if (!rc && from->saw_file)
		rc = from->saw_file(from->arg, path, off, dst, n, err);
	return rc;
}

int ck_seg_read(const struct ck_seg_from *from, const struct ck_seg *s, uint64_t skip, uint64_t n,
		void *dst, void *scratch, uint64_t *overflows, struct ckpt_err *err)
{
	const uint64_t es = ck_seg_grain(s);

	switch ((enum ck_seg_kind)s->kind) {
	case CK_SEG_LITERAL:
		memcpy(dst, (const uint8_t *)s->text + skip, n);
		return 0;
	case CK_SEG_ZERO:
		memset(dst, 0, n);
		return 0;
	case CK_SEG_STATE:
		if (ck_changes(from->change, s->state))
			return from->change->read(from->change->arg, from->reader, s->state,
						  s->first + skip / es, n / es, s->dtype, dst,
						  scratch, overflows, err);
		return ck_reader_read(from->reader, &from->ix->state[s->state],
				      s->first + skip / es, n / es, s->dtype, dst, scratch,
				      overflows, err);
	case CK_SEG_OWN:
		return ck_reader_read(from->own, &from->plan->own->state[s->state],
				      s->first + skip / es, n / es, s->dtype, dst, scratch, NULL,
				      err);
	case CK_SEG_FILE:
		return read_file(from, s->text, s->first + skip, dst, n, err);
	}
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "unknown kind of segment: %u",
		       s->kind);
}
