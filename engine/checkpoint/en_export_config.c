/* en_export_config.c -- config.json as it is, but for the type of the weights; see en_export.h. */
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/checkpoint/en_export.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

#define MOST ((uint64_t)1 << 20)

static const char *type_name(enum kn_type type)
{
	return type == KN_BF16 ? "bfloat16" : type == KN_F16 ? "float16" : "float32";
}

/* The place of that key's value, if the top-level object has it. */
static bool find(const struct ck_json *doc, const char *key, struct ck_json_tok *out)
{
	const uint64_t at = ck_json_get(doc, 0, key);

	if (at != UINT64_MAX)
		*out = doc->tok[at];
	return at != UINT64_MAX;
}

static int add_value(struct ck_buf *buf, const char *name, struct ckpt_err *err)
{
	return ck_buf_addf(buf, err, "\"%s\"", name);
}

/* A missing key is put before the others. */
static int insert(const struct ck_json *doc, const char *name, struct ck_buf *buf,
		  struct ckpt_err *err)
{
	const uint64_t at = doc->tok[0].off + 1;
	int rc = ck_buf_add(buf, doc->text, at, err);

	if (!rc)
		rc = ck_buf_adds(buf, "\n  \"dtype\": ", err);
	if (!rc)
		rc = add_value(buf, name, err);
	if (!rc)
		rc = ck_buf_adds(buf, doc->tok[0].n ? "," : "\n", err);
	return rc ? rc : ck_buf_add(buf, doc->text + at, doc->len - at, err);
}

static int replace(const struct ck_json *doc, const struct ck_json_tok *tok, size_t n,
		   const char *name, struct ck_buf *buf, struct ckpt_err *err)
{
	uint64_t at = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++) {
		rc = ck_buf_add(buf, doc->text + at, tok[i].off - at, err);
		if (!rc)
			rc = add_value(buf, name, err);
		at = tok[i].off + tok[i].len;
	}
	return rc ? rc : ck_buf_add(buf, doc->text + at, doc->len - at, err);
}

static int edit(const struct ck_json *doc, const char *where, enum kn_type type,
		struct ck_buf *buf, struct ckpt_err *err)
{
	struct ck_json_tok tok[2];
	size_t n;

	if (!doc->n || doc->tok[0].type != CK_JSON_OBJECT)
		return ck_fail(err, CKPT_E_CORRUPT, where, 0, "expected a JSON object");
	n = find(doc, "dtype", &tok[0]);
	n += find(doc, "torch_dtype", &tok[n]);
	if (n == 2 && tok[0].off > tok[1].off) {
		const struct ck_json_tok first = tok[1];

		tok[1] = tok[0];
		tok[0] = first;
	}
	return n ? replace(doc, tok, n, type_name(type), buf, err) :
	       insert(doc, type_name(type), buf, err);
}

int en_export_config(const char *path, enum kn_type type, char **text_out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ck_buf buf = CK_BUF_INIT(2 * MOST);
	char *text = NULL;
	uint64_t len = 0;
	int rc = ck_file_read(path, MOST, &text, &len, err);

	if (!rc)
		rc = en_json_parse(&doc, text, len, MOST, path, err);
	if (!rc)
		rc = edit(&doc, path, type, &buf, err);
	if (!rc)
		*text_out = ck_buf_take(&buf);
	ck_buf_release(&buf);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}
