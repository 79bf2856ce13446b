/*
 * op_convert_config.c -- config.json beside converted weights: as it is, but for their type.
 *
 * transformers reads the weights as the type that "dtype" (before 5.0 "torch_dtype") names, so a
 * copied "bfloat16" would round fp32 weights again.  A model of several parts has a
 * configuration of its own for each ("text_config"), with a type of its own.  Only those
 * values change, and "vocab_size" where --vocab has cut the vocabulary to another number of rows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/naming/ck_language.h"

#define MOST ((uint64_t)1 << 20)
#define PARTS_DEEP 4	/* of a part in a part */

/* What transformers calls it; NULL = no name of a model's type. */
static const char *type_name(unsigned dtype)
{
	return dtype == CKPT_F32 ? "float32" : dtype == CKPT_BF16 ? "bfloat16" :
	       dtype == CKPT_F16 ? "float16" : dtype == CKPT_F64 ? "float64" : NULL;
}

/* The type that most elements are written in. */
static const char *written_type(const struct ck_cv *cv)
{
	static const unsigned types[] = { CKPT_F32, CKPT_BF16, CKPT_F16, CKPT_F64 };
	const char *name = NULL;
	uint64_t most = 0;

	for (size_t k = 0; cv->nsets && k < CK_ARRAY_LEN(types); k++) {
		uint64_t n = 0;

		for (uint64_t i = 0; i < cv->set[0].nitems; i++)
			if (cv->set[0].item[i].dtype == types[k])
				n += cv->ck->ix.tensor[cv->set[0].item[i].tensor].numel;
		if (n > most)
			name = type_name(types[k]);
		most = ck_max_u64(most, n);
	}
	return name;
}

/* "bfloat16", and "torch.bfloat16" as very old ones have it. */
static bool is_type(const struct ck_json_tok *tok)
{
	static const char *const names[] = { "float32", "bfloat16", "float16", "float64" };
	const char *s = tok->type == CK_JSON_STRING ? tok->str : "";

	if (!strncmp(s, "torch.", 6))
		s += 6;
	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (!strcmp(s, names[i]))
			return true;
	return false;
}

/* What follows the text at '*at' up to the value, then another in its place. */
static int put_text(const struct ck_json *doc, uint64_t value, const char *text, uint64_t *at,
		    struct ck_buf *buf, struct ckpt_err *err)
{
	const struct ck_json_tok *tok = &doc->tok[value];
	int rc = ck_buf_add(buf, doc->text + *at, tok->off - *at, err);

	if (!rc)
		rc = ck_buf_adds(buf, text, err);
	*at = tok->off + tok->len;
	return rc;
}

/* "text_config", "vision_config" and the like: the configuration of a part of the model. */
static bool is_part(const struct ck_json_tok *key, const struct ck_json_tok *value)
{
	static const char end[] = "_config";
	const size_t n = strlen(key->str), m = sizeof(end) - 1;

	return value->type == CK_JSON_OBJECT && n > m && !strcmp(key->str + n - m, end) &&
	       strcmp(key->str, "quantization_config") != 0;
}

/* What is written in place of values of the copied text. */
struct edits {
	const struct ck_json *doc;
	char type[16], vocab[24];	/* as JSON; vocab "" = as it is */
	uint64_t at;			/* of the text, up to where it is copied */
	struct ck_buf *buf;
};

/* The types that object token 'obj' names, and the parts in it; in the order of the text. */
static int edit(struct edits *e, uint64_t obj, unsigned depth, struct ckpt_err *err)
{
	const struct ck_json *doc = e->doc;
	int rc = 0;

	for (uint64_t t = obj + 1; !rc && t < doc->tok[obj].next; t = doc->tok[t + 1].next) {
		const struct ck_json_tok *key = &doc->tok[t], *value = key + 1;

		if ((!strcmp(key->str, "dtype") || !strcmp(key->str, "torch_dtype")) &&
		    is_type(value))
			rc = put_text(doc, t + 1, e->type, &e->at, e->buf, err);
		else if (!obj && *e->vocab && !strcmp(key->str, "vocab_size"))
			rc = put_text(doc, t + 1, e->vocab, &e->at, e->buf, err);
		else if (depth && is_part(key, value))
			rc = edit(e, t + 1, depth - 1, err);
	}
	return rc;
}

/* Through the pool: it may be in an archive. */
static int read_text(const struct ck_cv *cv, const struct ck_cv_aux *aux, char **text_out)
{
	struct ck_src *src = NULL;
	char *text = aux->bytes <= MOST ? ck_zalloc(aux->bytes + 1) : NULL;
	int rc = text ? ck_src_open(cv->ck->pool, aux->path, &src, NULL) : -CKPT_E_LIMIT;

	if (!rc)
		rc = ck_src_read(src, 0, text, aux->bytes, NULL);
	ck_src_close(src);
	if (rc)
		ck_free(text);
	else
		*text_out = text;
	return rc;
}

int ck_cv_plan_config(struct ck_cv *cv, const struct ck_cv_aux *aux, struct ckpt_err *err)
{
	const char *name = cv->opts->states ? NULL : written_type(cv);
	struct ck_json doc = CK_JSON_INIT;
	struct ck_buf buf = CK_BUF_INIT(2 * MOST);
	struct edits e = { .doc = &doc, .buf = &buf };
	char *text = NULL;
	int rc = 0;

	/* one that cannot be read as JSON is copied as it is */
	if (!name || read_text(cv, aux, &text) ||
	    ck_json_parse(&doc, text, aux->bytes, &cv->ck->limits, 0, aux->path, NULL) || !doc.n ||
	    doc.tok[0].type != CK_JSON_OBJECT) {
		rc = ck_plan_copy(&cv->plan, aux->path, 0, aux->bytes, err);
	} else if (cv->opts->flags & CKPT_CONVERT_LANGUAGE) {
		rc = ck_language_config(&doc, aux->path, name, &buf, err);
		if (!rc)
			rc = ck_plan_literal(&cv->plan, buf.p, buf.len, err);
	} else {
		snprintf(e.type, sizeof(e.type), "\"%s\"", name);
		if (cv->ck->ix.vocab_size)
			snprintf(e.vocab, sizeof(e.vocab), "%" PRIu64, cv->ck->ix.vocab_size);
		rc = edit(&e, 0, PARTS_DEEP, err);
		if (!rc)
			rc = ck_buf_add(&buf, doc.text + e.at, doc.len - e.at, err);
		if (!rc)
			rc = ck_plan_literal(&cv->plan, buf.p, buf.len, err);
	}
	ck_buf_release(&buf);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}
