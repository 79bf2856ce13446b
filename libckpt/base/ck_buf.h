/*
 * ck_buf.h -- growing bytes with a limit chosen at birth.  The buffer keeps a NUL
 * behind its content, so 'p' is a C string when no NUL was added.
 */
#ifndef CK_BUF_H
#define CK_BUF_H

#include "libckpt/base/ck_base.h"

struct ck_buf {
	char *p;	/* NULL until something was added */
	size_t len;
	size_t cap;
	size_t limit;	/* bytes; adding beyond it is CKPT_E_LIMIT */
};

#define CK_BUF_INIT(limit_bytes) { .limit = (limit_bytes) }

int ck_buf_add(struct ck_buf *buf, const void *p, size_t n, struct ckpt_err *err);
int ck_buf_adds(struct ck_buf *buf, const char *s, struct ckpt_err *err);
int ck_buf_addf(struct ck_buf *buf, struct ckpt_err *err, const char *fmt, ...)
	CK_PRINTF(3, 4);
/* The string, quoted and escaped as a JSON string (UTF-8 passes through). */
int ck_buf_add_json(struct ck_buf *buf, const char *s, size_t n, struct ckpt_err *err);
/* Content without memory; the caller frees it with ck_free(). NULL if empty. */
char *ck_buf_take(struct ck_buf *buf);
void ck_buf_release(struct ck_buf *buf);

#endif
