/* ck_manifest_write.c -- see ck_manifest.h. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_half.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/ops/ck_manifest.h"

#define MOST ((size_t)4 << 30)

struct writing {
	struct ck_buf buf;
	struct ck_arena arena;
	struct ck_map digest;	/* "STATE NAME" -> line */
	const struct ckpt_digests *digests;
	const struct ck_index *ix;
	struct ckpt_err *err;
	int rc;			/* the first failure; later calls do nothing */
};

static void put(struct writing *w, const char *text)
{
	if (!w->rc)
		w->rc = ck_buf_adds(&w->buf, text, w->err);
}

static void put_string(struct writing *w, const char *key, const char *text)
{
	const size_t n = text ? strlen(text) : 0;
	uint64_t bad;

	put(w, key);
	if (!w->rc && !ck_utf8_valid(text ? text : "", n, &bad))
		w->rc = ck_fail(w->err, CKPT_E_UNSUPPORTED, text, CKPT_NO_OFFSET,
				"byte %" PRIu64 " of this name is not UTF-8, and a manifest cannot "
				"say it", bad);
	if (!w->rc)
		w->rc = ck_buf_add_json(&w->buf, text ? text : "", n, w->err);
}

static void put_number(struct writing *w, const char *key, int64_t n)
{
	if (!w->rc)
		w->rc = ck_buf_addf(&w->buf, w->err, "%s%" PRId64, key, n);
}

static void put_hash(struct writing *w, const char *key, struct ck_hash128 h)
{
	char text[33];

	ck_hash128_print(h, text);
	put_string(w, key, text);
}

static void put_head(struct writing *w)
{
	const struct ck_index *ix = w->ix;

	put(w, "{\n\"format\": \"zckpt-manifest/1\",\n");
	put_string(w, "\"zckpt\": ", CKPT_VERSION_STRING);
	put_string(w, ",\n\"checkpoint\": {\"format\": ", ix->format);
	put_string(w, ", \"tag\": ", ix->tag);
	put_string(w, ", \"writer\": ", ix->writer);
	put_string(w, ", \"optimizer\": ", ix->optimizer);
	put_number(w, ", \"stage\": ", ix->stage);
	put_number(w, ", \"world\": ", ix->world);
	put_number(w, ", \"step\": ", ix->step);
	put(w, "},\n");
}

static void put_files(struct writing *w, const struct ck_scan *scan)
{
	put(w, "\"files\": [");
	for (uint64_t i = 0; i < scan->n; i++) {
		const struct ck_scan_file *f = &scan->file[i];

		put_string(w, i ? ",\n{\"name\": " : "\n{\"name\": ", f->file->name);
		put_number(w, ", \"bytes\": ", (int64_t)f->file->bytes);
		put_hash(w, ", \"xxh3_128\": ", f->hash);
		put_hash(w, ", \"quick\": ", f->quick);
		put(w, "}");
	}
	put(w, "\n],\n");
}

static const char *role_name(unsigned role)
{
	static const char *const name[] = { "?", "trainable", "frozen", "buffer", "alias",
					    "plain", "untrained" };

	return role < CK_ARRAY_LEN(name) ? name[role] : name[0];
}

static void put_state(struct writing *w, const struct ck_tensor *t, const struct ck_state *s,
		      bool first)
{
	const char *key = ck_arena_printf(&w->arena, "%s %s", s->name, t->name);
	uint64_t line;

	put_string(w, first ? "{\"name\": " : ", {\"name\": ", s->name);
	put_string(w, ", \"dtype\": ", ckpt_dtype_name((enum ckpt_dtype)s->dtype));
	if (!key && !w->rc)
		w->rc = ck_fail_nomem(w->err, "a name", 0);
	if (key && ck_map_find(&w->digest, key, strlen(key), &line))
		put_string(w, ", \"digest\": ", w->digests->lines[line].hash);
	put(w, "}");
}

static void put_tensor(struct writing *w, const struct ck_tensor *t)
{
	put_string(w, "\n{\"name\": ", t->name);
	put_string(w, ", \"role\": ", role_name(t->role));
	put(w, ", \"shape\": [");
	for (uint32_t d = 0; d < t->ndim; d++)
		put_number(w, d ? ", " : "", (int64_t)t->shape[d]);
	put(w, "]");
	if (t->role == CKPT_ROLE_ALIAS)
		put_string(w, ", \"alias_of\": ", w->ix->tensor[t->alias_of].name);
	put(w, ", \"states\": [");
	for (uint32_t s = t->first_state; s != CK_NONE; s = w->ix->state[s].next)
		put_state(w, t, &w->ix->state[s], s == t->first_state);
	put(w, "]}");
}

static void put_tensors(struct writing *w)
{
	put(w, "\"tensors\": [");
	for (uint64_t i = 0; i < w->ix->ntensors; i++) {
		put(w, i ? "," : "");
		put_tensor(w, &w->ix->tensor[i]);
	}
	put_string(w, "\n],\n\"digest\": ", w->digests->root);
	put(w, ",\n");
	if (!w->rc)
		put_hash(w, "\"sum\": ", ck_hash128(w->buf.p, w->buf.len));
	put(w, "\n}\n");
}

static void number_digests(struct writing *w)
{
	for (uint64_t i = 0; !w->rc && i < w->digests->nlines; i++) {
		const struct ckpt_digest_line *line = &w->digests->lines[i];
		const char *key = ck_arena_printf(&w->arena, "%s %s", line->state, line->name);

		if (!key)
			w->rc = ck_fail_nomem(w->err, "a name", 0);
		else if (ck_map_add(&w->digest, key, strlen(key), i, NULL, w->err) < 0)
			w->rc = -CKPT_E_NOMEM;
	}
}

/* ------------------------------------------------------------------------ the file */

/* Under another name first: what stands at 'path' is whole, old or new. */
static int put_in_place(const char *path, const struct ck_buf *buf, enum ckpt_sync sync,
			struct ckpt_err *err)
{
	struct ck_half half = { .fd = -1 };
	int rc = ck_half_begin(&half, path, ".tmp", err);

	if (!rc)
		rc = ck_half_write(&half, buf->p, buf->len, err);
	if (!rc)
		rc = ck_half_place(&half, true, sync, err);
	ck_half_drop(&half);
	return rc;
}

int ck_manifest_write(const char *path, const struct ck_scan *scan,
		      const struct ckpt_digests *digests, enum ckpt_sync sync,
		      struct ckpt_err *err)
{
	struct writing w = {
		.buf = CK_BUF_INIT(MOST), .digests = digests, .ix = &scan->ck->ix, .err = err,
	};
	int rc;

	number_digests(&w);
	put_head(&w);
	put_files(&w, scan);
	put_tensors(&w);
	rc = w.rc ? w.rc : put_in_place(path, &w.buf, sync, err);
	ck_map_release(&w.digest);
	ck_arena_release(&w.arena);
	ck_buf_release(&w.buf);
	return rc;
}
