/* ck_buf.c -- see ck_buf.h. */
#include "libckpt/base/ck_buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static int reserve(struct ck_buf *buf, size_t n, struct ckpt_err *err)
{
	size_t cap = buf->cap ? buf->cap : 64;
	char *p;

	if (n > buf->limit || buf->len > buf->limit - n || n >= SIZE_MAX / 4 - buf->len)
		return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
			       "a text would exceed the limit of %zu bytes", buf->limit);
	if (buf->p && buf->cap - buf->len > n)
		return 0;
	while (cap - buf->len <= n)
		cap *= 2;
	p = ck_realloc(buf->p, cap);
	if (!p)
		return ck_fail_nomem(err, "a text", cap);
	buf->p = p;
	buf->cap = cap;
	return 0;
}

int ck_buf_add(struct ck_buf *buf, const void *p, size_t n, struct ckpt_err *err)
{
	int rc = reserve(buf, n, err);

	if (rc)
		return rc;
	if (n)
		memcpy(buf->p + buf->len, p, n);
	buf->len += n;
	buf->p[buf->len] = 0;
	return 0;
}

int ck_buf_adds(struct ck_buf *buf, const char *s, struct ckpt_err *err)
{
	return ck_buf_add(buf, s, strlen(s), err);
}

int ck_buf_addf(struct ck_buf *buf, struct ckpt_err *err, const char *fmt, ...)
{
	va_list ap;
	int n, rc;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return ck_fail(err, CKPT_E_IO, NULL, CKPT_NO_OFFSET, "a text could not be "
			       "formatted");
	rc = reserve(buf, (size_t)n, err);
	if (rc)
		return rc;
	va_start(ap, fmt);
	vsnprintf(buf->p + buf->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	buf->len += (size_t)n;
	return 0;
}

static int add_json_char(struct ck_buf *buf, unsigned char c, struct ckpt_err *err)
{
	switch (c) {
	case '"':
		return ck_buf_add(buf, "\\\"", 2, err);
	case '\\':
		return ck_buf_add(buf, "\\\\", 2, err);
	case '\n':
		return ck_buf_add(buf, "\\n", 2, err);
	case '\t':
		return ck_buf_add(buf, "\\t", 2, err);
	case '\r':
		return ck_buf_add(buf, "\\r", 2, err);
	default:
		if (c < 0x20 || c == 0x7f)
			return ck_buf_addf(buf, err, "\\u%04x", c);
		return ck_buf_add(buf, &c, 1, err);
	}
}

int ck_buf_add_json(struct ck_buf *buf, const char *s, size_t n, struct ckpt_err *err)
{
	int rc = ck_buf_add(buf, "\"", 1, err);

	for (size_t i = 0; !rc && i < n; i++)
		rc = add_json_char(buf, (unsigned char)s[i], err);
	if (!rc)
		rc = ck_buf_add(buf, "\"", 1, err);
	return rc;
}

char *ck_buf_take(struct ck_buf *buf)
{
	char *p = buf->p;

	buf->p = NULL;
	buf->len = 0;
	buf->cap = 0;
	return p;
}

void ck_buf_release(struct ck_buf *buf)
{
	ck_free(buf->p);
	buf->p = NULL;
	buf->len = 0;
	buf->cap = 0;
}
