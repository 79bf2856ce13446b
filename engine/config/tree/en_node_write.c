/* en_node_write.c -- a tree as JSON; see en_node.h. */
#include "engine/base/en_json.h"
#include "engine/config/tree/en_node.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

static int add_text(struct ck_buf *buf, const char *text, struct ckpt_err *err)
{
	char hex[8];
	int rc = ck_buf_adds(buf, "\"", err);

	for (const char *p = text; !rc && *p; p++) {
		if (*p == '"' || *p == '\\') {
			rc = ck_buf_adds(buf, "\\", err);
		} else if ((unsigned char)*p < 0x20) {
			snprintf(hex, sizeof(hex), "\\u%04x", (unsigned)*p);
			rc = ck_buf_adds(buf, hex, err);
			continue;
		}
		if (!rc)
			rc = ck_buf_add(buf, p, 1, err);
	}
	return rc ? rc : ck_buf_adds(buf, "\"", err);
}

/* What JSON lacks is written in quotes, as in the log. */
static int add_float(struct ck_buf *buf, double f, struct ckpt_err *err)
{
	char text[EN_DOUBLE_TEXT];

	en_double_text(f, text);
	return isfinite(f) ? ck_buf_adds(buf, text, err) : add_text(buf, text, err);
}

static int add_children(const struct en_node *v, struct ck_buf *buf, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, v->type == EN_DICT ? "{" : "[", err);

	for (const struct en_node *c = v->child; !rc && c; c = c->next) {
		if (c != v->child)
			rc = ck_buf_adds(buf, ", ", err);
		if (!rc && v->type == EN_DICT)
			rc = add_text(buf, c->key, err);
		if (!rc && v->type == EN_DICT)
			rc = ck_buf_adds(buf, ": ", err);
		if (!rc)
			rc = en_node_write(c, buf, err);
	}
	return rc ? rc : ck_buf_adds(buf, v->type == EN_DICT ? "}" : "]", err);
}

int en_node_write(const struct en_node *v, struct ck_buf *buf, struct ckpt_err *err)
{
	char text[32];

	switch (v->type) {
	case EN_NULL:
		return ck_buf_adds(buf, "null", err);
	case EN_BOOL:
		return ck_buf_adds(buf, v->i ? "true" : "false", err);
	case EN_INT:
		snprintf(text, sizeof(text), "%" PRId64, v->i);
		return ck_buf_adds(buf, text, err);
	case EN_FLOAT:
		return add_float(buf, v->f, err);
	case EN_STR:
		return add_text(buf, v->str, err);
	default:
		return add_children(v, buf, err);
	}
}
