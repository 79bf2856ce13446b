/* zt_prompt.c -- see zt_prompt.h. */
#include "engine/main/zt_prompt.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)64 << 20)
#define BETWEEN ", \t\r\n"

__attribute__((format(printf, 4, 5)))
static int fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *fmt, ...)
{
	va_list ap;

	err->code = code;
	snprintf(err->where, sizeof(err->where), "%.300s", where);
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return -(int)code;
}

static int parse(const char *text, size_t len, const char *where, struct zt_ids *out,
		 struct ckpt_err *err)
{
	struct zt_ids ids = { malloc((len / 2 + 1) * sizeof(int32_t)), 0 };
	const char *at = text + strspn(text, BETWEEN);

	if (!ids.id)
		return fail(err, CKPT_E_NOMEM, where, "no memory for %zu bytes", len);
	while (*at) {
		char *end;
		const long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;

		if (v < 0 || v > INT32_MAX || (*end && !strchr(BETWEEN, *end))) {
			free(ids.id);
			return fail(err, CKPT_E_USAGE, where,
				    "at byte %td: expected a token id, found \"%.20s\"", at - text,
				    at);
		}
		ids.id[ids.n++] = (int32_t)v;
		at = end + strspn(end, BETWEEN);
	}
	if (!ids.n || (size_t)(at - text) != len) {
		free(ids.id);
		return fail(err, CKPT_E_USAGE, where,
			    ids.n ? "it contains a NUL character" : "it has no tokens");
	}
	*out = ids;
	return 0;
}

int zt_ids_parse(const char *text, const char *where, struct zt_ids *out, struct ckpt_err *err)
{
	return parse(text, strlen(text), where, out, err);
}

static int take_bytes(const char *text, size_t len, const char *where, struct zt_ids *out,
		      struct ckpt_err *err)
{
	struct zt_ids ids = { malloc((len + 1) * sizeof(int32_t)), len };

	if (!ids.id)
		return fail(err, CKPT_E_NOMEM, where, "no memory for %zu bytes", len);
	if (!len) {
		free(ids.id);
		return fail(err, CKPT_E_USAGE, where, "it is empty");
	}
	for (size_t i = 0; i < len; i++)
		ids.id[i] = (unsigned char)text[i];
	*out = ids;
	return 0;
}

int zt_ids_bytes(const char *text, struct zt_ids *out, struct ckpt_err *err)
{
	return take_bytes(text, strlen(text), "--prompt", out, err);
}

int zt_ids_read(const char *path, bool bytes, struct zt_ids *out, struct ckpt_err *err)
{
	const bool standard = !strcmp(path, "-");
	const char *where = standard ? "standard input" : path;
	char *text = malloc(MOST + 2);
	FILE *f = standard ? stdin : fopen(path, "rb");
	size_t n = 0;
	int rc = 0;

	if (!text)
		rc = fail(err, CKPT_E_NOMEM, where, "no memory to read it");
	else if (!f)
		rc = fail(err, errno == ENOENT ? CKPT_E_NOTFOUND : CKPT_E_IO, where,
			  "it cannot be opened: %s", strerror(errno));
	if (!rc) {
		n = fread(text, 1, MOST + 1, f);
		text[n] = 0;
	}
	if (!rc && ferror(f))
		rc = fail(err, CKPT_E_IO, where, "it cannot be read: %s", strerror(errno));
	if (!rc && n > MOST)
		rc = fail(err, CKPT_E_LIMIT, where, "it has more than %zu bytes", MOST);
	if (!rc)
		rc = bytes ? take_bytes(text, n, where, out, err) :
		     parse(text, n, where, out, err);
	if (f && !standard)
		fclose(f);
	free(text);
	return rc;
}

void zt_ids_release(struct zt_ids *ids)
{
	free(ids->id);
	ids->id = NULL;
	ids->n = 0;
}
