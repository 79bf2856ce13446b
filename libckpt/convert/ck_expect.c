/* ck_expect.c -- see ck_expect.h. */
#include "libckpt/convert/ck_expect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"

#define TOLD 5u
#define MAX_TEXT 420	/* of a message's 512 bytes */

struct expecting {
	const struct ckpt *ck;
	const struct ck_item *item;
	uint64_t nitems;
	const struct ck_selection *sel;
	struct ck_map mine;	/* name -> item */
	struct ck_map theirs;	/* name -> tensor, or 0 */
	struct ck_buf text;
	uint64_t ndiffer;
};

static void differ(struct expecting *x, const char *fmt, ...) CK_PRINTF(2, 3);

static void differ(struct expecting *x, const char *fmt, ...)
{
	char one[MAX_TEXT];
	va_list ap;

	if (x->ndiffer++ >= TOLD)
		return;
	va_start(ap, fmt);
	vsnprintf(one, sizeof(one), fmt, ap);
	va_end(ap);
	/* text that does not fit is left out: the count is right in any case */
	ck_buf_addf(&x->text, NULL, "%s%s", x->ndiffer > 1 ? "; " : "", one);
}

/* ---------------------------------------------------------------------- names */

static const char *kept_for(const struct ck_selection *sel, const char *name)
{
	for (uint64_t i = 0; i < sel->naliases; i++)
		if (!strcmp(sel->alias[i].name, name))
			return sel->alias[i].kept;
	return NULL;
}

static void compare_names(struct expecting *x)
{
	for (uint64_t i = 0; i < x->theirs.n; i++) {
		const struct ck_map_entry *e = &x->theirs.entry[i];
		const char *kept;

		if (ck_map_find(&x->mine, e->key, e->len, NULL))
			continue;
		kept = kept_for(x->sel, e->key);
		if (kept)
			differ(x, "%.120s would be missing from the result (it is tied to "
			       "%.80s; tied=dup writes it)", e->key, kept);
		else
			differ(x, "%.120s would be missing from the result", e->key);
	}
	for (uint64_t i = 0; i < x->nitems; i++) {
		const char *name = x->item[i].name;

		if (!ck_map_find(&x->theirs, name, strlen(name), NULL))
			differ(x, "%.120s would be in the result, but is not expected", name);
	}
}

/* ---------------------------------------------------------- shapes and types */

static void print_shape(const struct ck_tensor *t, char *out, size_t size)
{
	struct ck_buf buf = CK_BUF_INIT(size);

	ck_buf_adds(&buf, "[", NULL);
	for (uint32_t i = 0; i < t->ndim; i++)
		ck_buf_addf(&buf, NULL, "%s%" PRIu64, i ? "," : "", t->shape[i]);
	ck_buf_adds(&buf, "]", NULL);
	strncpy(out, buf.p ? buf.p : "[", size - 1);
	out[size - 1] = 0;
	ck_buf_release(&buf);
}

static bool same_shape(const struct ck_tensor *a, const struct ck_tensor *b)
{
	return a->ndim == b->ndim &&
	       (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)));
}

static void compare_one(struct expecting *x, const struct ck_item *item,
			const struct ck_index *ix, uint32_t tensor)
{
	const struct ck_tensor *a = &x->ck->ix.tensor[item->tensor];
	const struct ck_tensor *b = &ix->tensor[ck_select_stored(ix, tensor)];
	const uint32_t s = ck_index_state_find(ix, ck_select_stored(ix, tensor), "weight");
	char mine[80], theirs[80];

	if (!same_shape(a, b)) {
		print_shape(a, mine, sizeof(mine));
		print_shape(b, theirs, sizeof(theirs));
		differ(x, "%.120s would have shape %s, expected %s", item->name, mine, theirs);
	} else if (s != CK_NONE && ix->state[s].dtype != item->dtype) {
		differ(x, "%.120s would have type %s, expected %s", item->name,
		       ckpt_dtype_name(item->dtype), ckpt_dtype_name(ix->state[s].dtype));
	}
}

static int with_index(struct expecting *x, const struct ck_index *ix, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < ix->ntensors; i++)
		rc = ck_map_add(&x->theirs, ix->tensor[i].name, strlen(ix->tensor[i].name), i,
				NULL, err);
	if (rc < 0)
		return rc;
	compare_names(x);
	for (uint64_t i = 0; i < x->nitems; i++) {
		uint64_t t;

		if (ck_map_find(&x->theirs, x->item[i].name, strlen(x->item[i].name), &t))
			compare_one(x, &x->item[i], ix, (uint32_t)t);
	}
	return 0;
}

static int with_checkpoint(struct expecting *x, const char *path, struct ckpt_err *err)
{
	struct ck_findings findings = { .n = 0 };
	struct ck_index ix;
	struct ck_input in = {
		.path = &path, .npaths = 1, .threads = 1, .limits = x->ck->limits,
		.find_model = true,
		.pool = ck_fdpool_new(0), .formats = x->ck->formats,
	};
	int rc;

	if (!in.pool)
		return ck_fail_nomem(err, "a pool of files", 0);
	rc = ck_index_init(&ix, in.limits.memory_bytes, err);
	if (!rc) {
		rc = ck_format_open(&in, &ix, &findings, err);
		if (!rc)
			rc = with_index(x, &ix, err);
		ck_index_release(&ix);
	}
	ck_findings_release(&findings);
	ck_fdpool_free(in.pool);
	return rc;
}

static int with_json(struct expecting *x, const char *path, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char *text = NULL;
	uint64_t len, map, at;
	int rc = ck_file_read(path, x->ck->limits.header_bytes, &text, &len, err);

	if (rc)
		return rc;
	rc = ck_json_parse(&doc, text, len, &x->ck->limits, 0, path, err);
	if (rc)
		goto out;
	map = doc.tok[0].type == CK_JSON_OBJECT ? ck_json_get(&doc, 0, "weight_map") :
						  UINT64_MAX;
	if (map == UINT64_MAX || doc.tok[map].type != CK_JSON_OBJECT) {
		rc = ck_fail(err, CKPT_E_FORMAT, path, CKPT_NO_OFFSET,
			     "this JSON has no weight_map, so it is not the index of a model");
		goto out;
	}
	at = map + 1;
	for (uint32_t i = 0; rc >= 0 && i < doc.tok[map].n; i++) {
		rc = ck_map_add(&x->theirs, doc.tok[at].str, doc.tok[at].str_len, 0, NULL, err);
		at = doc.tok[at + 1].next;
	}
	rc = rc < 0 ? rc : 0;
	if (!rc)
		compare_names(x);
	ck_map_release(&x->theirs);	/* its keys are the document's */
out:
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

int ck_expect(const struct ckpt *ck, const char *path, const struct ck_item *item, uint64_t n,
	      const struct ck_selection *sel, struct ckpt_err *err)
{
	struct expecting x = {
		.ck = ck, .item = item, .nitems = n, .sel = sel, .mine = CK_MAP_INIT,
		.theirs = CK_MAP_INIT, .text = CK_BUF_INIT(MAX_TEXT),
	};
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		rc = ck_map_add(&x.mine, item[i].name, strlen(item[i].name), i, NULL, err);
	if (rc >= 0)
		rc = ck_ends_with(path, ".json") ? with_json(&x, path, err) :
						with_checkpoint(&x, path, err);
	if (!rc && x.ndiffer)
		rc = ck_fail(err, CKPT_E_EXPECT, path, CKPT_NO_OFFSET,
			     "%" PRIu64 " difference%s: %s%s", x.ndiffer,
			     x.ndiffer == 1 ? "" : "s", x.text.p ? x.text.p : "",
			     x.ndiffer > TOLD ? "; ..." : "");
	ck_buf_release(&x.text);
	ck_map_release(&x.mine);
	ck_map_release(&x.theirs);
	return rc;
}
