/* ck_step_fact.c -- see ck_step_fact.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_fact.h"

#define TEXT_BYTES 400

/* The shortest decimal that reads back as the same double. */
static int add_double(struct ck_buf *buf, double v, struct ckpt_err *err)
{
	char text[40];

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	return ck_buf_adds(buf, text, err);
}

static bool add_text(struct ck_buf *buf, const struct ck_val *v, int depth, struct ckpt_err *err);

static bool add_items(struct ck_buf *buf, const struct ck_val *v, int depth,
		      struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_seq(v, &item, &n) || n > 16 || ck_buf_adds(buf, "[", err))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if ((i && ck_buf_adds(buf, ", ", err)) || !add_text(buf, item[i], depth - 1, err))
			return false;
	return !ck_buf_adds(buf, "]", err);
}

/* Numbers, booleans, None, strings, short lists of them; false for anything else, or a failure. */
static bool add_text(struct ck_buf *buf, const struct ck_val *v, int depth, struct ckpt_err *err)
{
	if (!v || !depth)
		return false;
	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_NONE:
		return !ck_buf_adds(buf, "null", err);
	case CK_VAL_BOOL:
		return !ck_buf_adds(buf, v->u.b ? "true" : "false", err);
	case CK_VAL_INT:
		return !ck_buf_addf(buf, err, "%" PRId64, v->u.i);
	case CK_VAL_FLOAT:
		return !add_double(buf, v->u.f, err);
	case CK_VAL_STR:
		return ck_val_str(v) && !ck_buf_adds(buf, ck_val_str(v), err);
	default:
		return add_items(buf, v, depth, err);
	}
}

int ck_step_add_fact(struct ck_index *ix, const char *key, const struct ck_val *v,
		     struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(TEXT_BYTES);
	struct ckpt_err inner = { 0 };
	int rc = 0;

	if (!add_text(&buf, v, 3, &inner) || !buf.p)
		rc = inner.code == CKPT_E_NOMEM ? ck_fail_nomem(err, "a fact", TEXT_BYTES) : 0;
	else
		rc = ck_index_add_fact(ix, err, key, "%s", buf.p);
	ck_buf_release(&buf);
	return rc;
}

int ck_step_add_number(struct ck_index *ix, const char *key, double v, struct ckpt_err *err)
{
	struct ck_buf text = CK_BUF_INIT(TEXT_BYTES);
	int rc;

	if (add_double(&text, v, NULL))
		rc = ck_fail_nomem(err, "a fact", TEXT_BYTES);
	else
		rc = ck_index_add_fact(ix, err, key, "%s", text.p);
	ck_buf_release(&text);
	return rc;
}
