/* ck_digest_lines.c -- see ck_digest_lines.h. */
#include "libckpt/sums/ck_digest_lines.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"

#define MAX_LINE ((size_t)1 << 30)

static int by_state_and_name(const void *a, const void *b)
{
	const struct ckpt_digest_line *x = a, *y = b;
	const int d = strcmp(x->state, y->state);

	return d ? d : strcmp(x->name, y->name);
}

static bool needs_quotes(const char *name)
{
	const unsigned char *s = (const unsigned char *)name;

	while (*s > 0x20 && *s != '"' && *s != '\\' && *s != 0x7f)
		s++;
	return *s || !name[0];
}

/* A JSON string; controls, also those of two bytes, as escapes. */
static int add_quoted(struct ck_buf *buf, const char *name, struct ckpt_err *err)
{
	static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
	int rc = ck_buf_adds(buf, "\"", err);

	for (const unsigned char *s = (const unsigned char *)name; !rc && *s; s++) {
		const char *at = strchr(plain, *s);

		if (at)
			rc = ck_buf_addf(buf, err, "\\%c", letter[at - plain]);
		else if (*s < 0x20 || *s == 0x7f)
			rc = ck_buf_addf(buf, err, "\\u%04x", *s);
		else if (*s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
			rc = ck_buf_addf(buf, err, "\\u%04x", *++s);
		else
			rc = ck_buf_add(buf, s, 1, err);
	}
	return rc ? rc : ck_buf_adds(buf, "\"", err);
}

static int add_line(struct ck_hasher *h, struct ck_buf *buf, const struct ckpt_digest_line *l,
		    struct ckpt_err *err)
{
	int rc;

	buf->len = 0;
	rc = ck_buf_addf(buf, err, "%s %s ", l->hash, l->state);
	if (!rc)
		rc = needs_quotes(l->name) ? add_quoted(buf, l->name, err) :
					     ck_buf_adds(buf, l->name, err);
	if (!rc)
		rc = ck_buf_adds(buf, "\n", err);
	if (!rc)
		ck_hasher_add(h, buf->p, buf->len);
	return rc;
}

static int make_root(const struct ckpt_digest_line *line, uint64_t n, char root_out[33],
		     struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MAX_LINE);
	struct ck_hasher *h = ck_hasher_new();
	int rc = h ? 0 : ck_fail_nomem(err, "a hash", 0);

	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_line(h, &buf, &line[i], err);
	if (!rc)
		ck_hash128_print(ck_hasher_sum(h), root_out);
	ck_hasher_free(h);
	ck_buf_release(&buf);
	return rc;
}

int ck_digest_lines_make(const struct ck_plan *plan, const struct ck_hash128 *digest,
			 struct ck_arena *arena, struct ckpt_digest_line **lines_out,
			 char root_out[33], struct ckpt_err *err)
{
	struct ckpt_digest_line *line = ck_arena_zalloc(arena, plan->nslots * sizeof(*line));
	uint64_t n = 0;

	if (!line)
		return ck_fail_nomem(err, "digests", plan->nslots);
	for (uint64_t i = 0; i < plan->nslots; i++) {
		if (plan->slot[i].whole)
			continue;
		line[n].name = ck_arena_strdup(arena, plan->slot[i].name);
		line[n].state = ck_arena_strdup(arena, plan->slot[i].state);
		if (!line[n].name || !line[n].state)
			return ck_fail_nomem(err, "digests", plan->nslots);
		ck_hash128_print(digest[i], line[n++].hash);
	}
	if (n)
		qsort(line, n, sizeof(*line), by_state_and_name);
	*lines_out = line;
	return make_root(line, n, root_out, err);
}
