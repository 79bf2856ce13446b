/*
 * ck_cur.h -- a bounded cursor over bytes in memory.  All parsing of file bytes
 * goes through it: it knows what is left and answers a greedy request with an
 * error that has a place.
 */
#ifndef CK_CUR_H
#define CK_CUR_H

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

struct ck_cur {
	const uint8_t *p;
	uint64_t left;
	uint64_t off;		/* of 'p' in 'where' */
	const char *where;	/* lent: file or member, for messages */
};

static inline void ck_cur_init(struct ck_cur *c, const void *p, uint64_t n, const char *where)
{
	c->p = p;
	c->left = n;
	c->off = 0;
	c->where = where;
}

/* Lend 'n' bytes.  'n' came from the file: it is checked before it is used. */
static inline int ck_cur_take(struct ck_cur *c, uint64_t n, const uint8_t **p_out,
			      struct ckpt_err *err)
{
	if (n > c->left)
		return ck_fail(err, CKPT_E_TRUNCATED, c->where, c->off,
			       "expected %" PRIu64 " more bytes, but only %" PRIu64 " are left "
			       "(was the file cut short?)", n, c->left);
	*p_out = c->p;
	c->p += n;
	c->left -= n;
	c->off += n;
	return 0;
}

static inline int ck_cur_u8(struct ck_cur *c, uint8_t *out, struct ckpt_err *err)
{
	const uint8_t *p;
	int rc = ck_cur_take(c, 1, &p, err);

	if (!rc)
		*out = p[0];
	return rc;
}

static inline int ck_cur_u16(struct ck_cur *c, uint16_t *out, struct ckpt_err *err)
{
	const uint8_t *p;
	int rc = ck_cur_take(c, 2, &p, err);

	if (!rc)
		*out = ck_le16(p);
	return rc;
}

static inline int ck_cur_u32(struct ck_cur *c, uint32_t *out, struct ckpt_err *err)
{
	const uint8_t *p;
	int rc = ck_cur_take(c, 4, &p, err);

	if (!rc)
		*out = ck_le32(p);
	return rc;
}

static inline int ck_cur_u64(struct ck_cur *c, uint64_t *out, struct ckpt_err *err)
{
	const uint8_t *p;
	int rc = ck_cur_take(c, 8, &p, err);

	if (!rc)
		*out = ck_le64(p);
	return rc;
}

#endif
