/* ck_manifest_write.c -- see ck_manifest.h. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_small_file.h"
#include "libckpt/json/ck_json_out.h"
#include "libckpt/verify/ck_manifest.h"

#define MOST ((size_t)4 << 30)

struct writing {
	struct ck_json_out out;
	struct ck_arena arena;
	struct ck_map digest;	/* "STATE NAME" -> line */
	const struct ckpt_digests *digests;
	const struct ck_index *ix;
};

static void put_head(struct writing *w)
{
	const struct ck_index *ix = w->ix;

	ck_json_out_raw(&w->out, "{\n\"format\": \"zckpt-manifest/1\",\n");
	ck_json_out_str(&w->out, "\"zckpt\": ", CKPT_VERSION_STRING);
	ck_json_out_str(&w->out, ",\n\"checkpoint\": {\"format\": ", ix->format);
	ck_json_out_str(&w->out, ", \"tag\": ", ix->tag);
	ck_json_out_str(&w->out, ", \"writer\": ", ix->writer);
	ck_json_out_str(&w->out, ", \"optimizer\": ", ix->optimizer);
	ck_json_out_int(&w->out, ", \"stage\": ", ix->stage);
	ck_json_out_int(&w->out, ", \"world\": ", ix->world);
	ck_json_out_int(&w->out, ", \"step\": ", ix->step);
	ck_json_out_raw(&w->out, "},\n");
}

static void put_files(struct writing *w, const struct ck_scan *scan)
{
	ck_json_out_raw(&w->out, "\"files\": [");
	for (uint64_t i = 0; i < scan->n; i++) {
		const struct ck_scan_file *f = &scan->file[i];

		ck_json_out_str(&w->out, i ? ",\n{\"name\": " : "\n{\"name\": ", f->file->name);
		ck_json_out_int(&w->out, ", \"bytes\": ", (int64_t)f->file->bytes);
		ck_json_out_hash(&w->out, ", \"xxh3_128\": ", f->hash);
		ck_json_out_hash(&w->out, ", \"quick\": ", f->quick);
		ck_json_out_raw(&w->out, "}");
	}
	ck_json_out_raw(&w->out, "\n],\n");
}

static void put_state(struct writing *w, const struct ck_tensor *t, const struct ck_state *s,
		      bool first)
{
	const char *key = ck_arena_printf(&w->arena, "%s %s", s->name, t->name);
	uint64_t line;

	ck_json_out_str(&w->out, first ? "{\"name\": " : ", {\"name\": ", s->name);
	ck_json_out_str(&w->out, ", \"dtype\": ", ckpt_dtype_name((enum ckpt_dtype)s->dtype));
	if (!key && !w->out.rc)
		w->out.rc = ck_fail_nomem(w->out.err, "a name", 0);
	if (key && ck_map_find(&w->digest, key, strlen(key), &line))
		ck_json_out_str(&w->out, ", \"digest\": ", w->digests->lines[line].hash);
	ck_json_out_raw(&w->out, "}");
}

static void put_tensor(struct writing *w, const struct ck_tensor *t)
{
	ck_json_out_str(&w->out, "\n{\"name\": ", t->name);
	ck_json_out_str(&w->out, ", \"role\": ", ck_role_name(t->role));
	ck_json_out_shape(&w->out, ", \"shape\": ", t->shape, t->ndim);
	if (t->role == CKPT_ROLE_ALIAS)
		ck_json_out_str(&w->out, ", \"alias_of\": ", w->ix->tensor[t->alias_of].name);
	ck_json_out_raw(&w->out, ", \"states\": [");
	for (uint32_t s = t->first_state; s != CK_NONE; s = w->ix->state[s].next)
		put_state(w, t, &w->ix->state[s], s == t->first_state);
	ck_json_out_raw(&w->out, "]}");
}

static void put_tensors(struct writing *w)
{
	ck_json_out_raw(&w->out, "\"tensors\": [");
	for (uint64_t i = 0; i < w->ix->ntensors; i++) {
		ck_json_out_raw(&w->out, i ? "," : "");
		put_tensor(w, &w->ix->tensor[i]);
	}
	ck_json_out_str(&w->out, "\n],\n\"digest\": ", w->digests->root);
	ck_json_out_raw(&w->out, ",\n");
	if (!w->out.rc)
		ck_json_out_hash(&w->out, "\"sum\": ", ck_hash128(w->out.buf.p, w->out.buf.len));
	ck_json_out_raw(&w->out, "\n}\n");
}

static void number_digests(struct writing *w)
{
	for (uint64_t i = 0; !w->out.rc && i < w->digests->nlines; i++) {
		const struct ckpt_digest_line *line = &w->digests->lines[i];
		const char *key = ck_arena_printf(&w->arena, "%s %s", line->state, line->name);

		if (!key)
			w->out.rc = ck_fail_nomem(w->out.err, "a name", 0);
		else if (ck_map_add(&w->digest, key, strlen(key), i, NULL, w->out.err) < 0)
			w->out.rc = -CKPT_E_NOMEM;
	}
}

/* ------------------------------------------------------------------------ the file */

/* Under another name first: what stands at 'path' is whole, old or new. */
static int put_in_place(const char *path, const struct ck_buf *buf, enum ckpt_sync sync,
			struct ckpt_err *err)
{
	struct ck_small_file half = { .fd = -1 };
	int rc = ck_small_file_begin(&half, path, ".tmp", err);

	if (!rc)
		rc = ck_small_file_write(&half, buf->p, buf->len, err);
	if (!rc)
		rc = ck_small_file_place(&half, true, sync, err);
	ck_small_file_drop(&half);
	return rc;
}

int ck_manifest_write(const char *path, const struct ck_scan *scan,
		      const struct ckpt_digests *digests, enum ckpt_sync sync,
		      struct ckpt_err *err)
{
	struct writing w = {
		.out = { .buf = CK_BUF_INIT(MOST), .err = err }, .digests = digests,
		.ix = &scan->ck->ix,
	};
	int rc;

	number_digests(&w);
	put_head(&w);
	put_files(&w, scan);
	put_tensors(&w);
	rc = w.out.rc ? w.out.rc : put_in_place(path, &w.out.buf, sync, err);
	ck_map_release(&w.digest);
	ck_arena_release(&w.arena);
	ck_buf_release(&w.out.buf);
	return rc;
}
