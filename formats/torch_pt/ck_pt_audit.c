/*
 * ck_pt_audit.c -- which names the pickles of a file use.
 *
 * An archive has members *.pkl (torch.load reads data.pkl, torch.jit others); a data file of
 * torch.distributed.checkpoint is several archives, one after the other; a legacy stream
 * begins with four pickles and ends its head with a fifth; any other file may be pickles one
 * after the other.  What follows a STOP is looked at too: a reader that goes on would run it.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_audit.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/pickle/ck_pkl_torch.h"
#include "libckpt/zip/ck_zip.h"
#include "libckpt/zip/ck_zip_row.h"

#define FIRST_WINDOW ((uint64_t)1 << 20)
#define LEGACY_PICKLES 5

/* ---- the list ---- */

struct auditing {
	struct ck_src *src;
	const struct ckpt_limits *limits;
	struct ck_audit *out;
	const char *path;	/* in out->arena */
	const char *member;
	bool in_row;		/* one archive of several in the file, at 'begin' */
	uint64_t begin;
};

static int add(struct auditing *a, const struct ckpt_audit_pickle *pickle, struct ckpt_err *err)
{
	int rc = ck_grow(&a->out->pickle, &a->out->cap, a->out->n + 1, sizeof(*pickle), err);

	if (!rc)
		a->out->pickle[a->out->n++] = *pickle;
	return rc;
}

/* A file or member in which nothing could be looked for; memory is a failure, of course. */
static int add_failure(struct auditing *a, struct ckpt_err *why, struct ckpt_err *err)
{
	struct ckpt_audit_pickle pickle = {
		.path = a->path, .member = a->member, .torch_op = -1, .code = why->code,
		.error = ck_arena_strdup(&a->out->arena, why->msg),
	};

	if (why->code == CKPT_E_NOMEM || !pickle.error) {
		if (err && !err->code)
			*err = *why;
		return -CKPT_E_NOMEM;
	}
	return add(a, &pickle, err);
}

static int copy_names(struct auditing *a, const struct ck_pkl *doc,
		      struct ckpt_audit_pickle *pickle, struct ckpt_err *err)
{
	struct ck_arena *arena = &a->out->arena;
	struct ckpt_audit_name *list = ck_arena_zalloc(arena, (doc->nnames + 1) * sizeof(*list));

	for (uint64_t i = 0; list && i < doc->nnames; i++) {
		const struct ck_pkl_name *from = &doc->name[i];
		struct ckpt_audit_name *to = &list[i];

		to->module = ck_arena_strdup(arena, from->module);
		to->name = ck_arena_strdup(arena, from->name);
		if (!to->module || !to->name)
			return ck_fail_nomem(err, "names", doc->nnames);
		to->set = from->cls == CK_PKL_DATA ? CKPT_NAME_DATA :
			  from->cls == CK_PKL_OPAQUE ? CKPT_NAME_OPAQUE : CKPT_NAME_REFUSED;
		/* torch does not look at what getattr fetches. */
		to->torch = from->attribute ? CKPT_TORCH_ALLOWS :
			    (enum ckpt_torch_says)ck_pkl_torch_of(from->module, from->name);
		to->called = from->called;
		to->offset = from->offset;
	}
	pickle->name = list;
	pickle->nnames = doc->nnames;
	return list ? 0 : ck_fail_nomem(err, "names", doc->nnames);
}

/*
 * The pickle at p[0..n), which begins at byte 'offset'.  '*used_out' is 0 if it has no end.
 * With 'first', or if it has a name or an end, it is listed.
 */
static int one_pickle(struct auditing *a, const uint8_t *p, uint64_t n, uint64_t offset,
		      bool first, uint64_t *used_out, struct ckpt_err *err)
{
	struct ckpt_audit_pickle pickle = { .path = a->path, .member = a->member,
					    .offset = offset, .torch_op = -1, .error = "" };
	struct ck_pkl doc;
	struct ckpt_err e = { 0 };
	int rc = ck_pkl_load(&doc, p, n, a->limits, CK_PKL_AUDIT | CK_PKL_KEEP, a->path, &e);

	if (rc == -CKPT_E_NOMEM) {
		ck_pkl_release(&doc);
		return add_failure(a, &e, err);
	}
	*used_out = rc ? 0 : doc.used;
	pickle.bytes = rc ? n : doc.used;
	pickle.code = rc ? e.code : CKPT_OK;
	if (doc.alien)
		pickle.torch_op = doc.alien_op;
	if (rc)
		pickle.error = ck_arena_printf(&a->out->arena, "byte %" PRIu64 ": %s",
					       e.offset == CKPT_NO_OFFSET ? 0 : e.offset, e.msg);
	rc = pickle.error ? 0 : ck_fail_nomem(err, "a message", 0);
	if (!rc && (first || doc.nnames || *used_out))
		rc = copy_names(a, &doc, &pickle, err);
	if (!rc && (first || doc.nnames || *used_out))
		rc = add(a, &pickle, err);
	ck_pkl_release(&doc);
	return rc;
}

/* What follows could be a pickle, too, and is not looked at: that is no answer of "safe". */
static int too_many(struct auditing *a, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };

	ck_fail_limit(&why, a->path, CKPT_NO_OFFSET, "pickles", a->limits->pickles,
		      "the file holds too many pickles, one after the other");
	return add_failure(a, &why, err);
}

static int too_long(struct auditing *a, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };

	ck_fail_limit(&why, a->path, CKPT_NO_OFFSET, "pickle_bytes", a->limits->pickle_bytes,
		      "the pickles of the file are too large");
	return add_failure(a, &why, err);
}

/* ---- archives ---- */

static int audit_member(struct auditing *a, const struct ck_zip *zip,
			const struct ck_zip_entry *e, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	uint8_t *data = NULL;
	uint64_t off = 0, used = 1;
	int rc = 0;

	a->member = a->in_row ? ck_arena_printf(&a->out->arena, "%" PRIu64 ":%s", a->begin,
						e->name) :
				ck_arena_strdup(&a->out->arena, e->name);
	if (!a->member)
		return ck_fail_nomem(err, "a name", e->name_len);
	if (ck_zip_read_within(zip, e, a->limits->pickle_bytes, "pickle_bytes", &data, &why))
		return add_failure(a, &why, err);
	for (uint32_t k = 0; !rc && used && (off < e->bytes || !k); k++) {
		if (k == a->limits->pickles) {
			rc = too_many(a, err);
			break;
		}
		rc = one_pickle(a, data + off, e->bytes - off, off, !k, &used, err);
		off += used;
	}
	ck_free(data);
	return rc;
}

static int audit_zip(struct auditing *a, struct ck_src *src, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	struct ck_zip *zip = NULL;
	int rc = 0;

	if (ck_zip_open(src, a->limits, &zip, &why))
		return add_failure(a, &why, err);
	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);

		if (ck_ends_with(e->name, ".pkl"))
			rc = audit_member(a, zip, e, err);
	}
	ck_zip_close(zip);
	return rc;
}

/* Each archive of a data file of torch.distributed.checkpoint by itself, as torch loads them. */
static int audit_row(struct auditing *a, const uint64_t *begin, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	a->in_row = true;
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct ck_zip_part part = {
			a->src, begin[i], i + 1 < n ? begin[i + 1] : ck_src_size(a->src),
		};
		struct ck_src *src = NULL;

		a->begin = begin[i];
		a->member = NULL;
		rc = ck_zip_part(&part, &src, err);
		if (!rc)
			rc = audit_zip(a, src, err);
		ck_src_close(src);
	}
	return rc;
}

static int audit_zips(struct auditing *a, struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	uint64_t *begin = NULL, n = 0;
	int rc;

	if (ck_pt_is_row(a->src, a->limits, &begin, &n, &why))
		return add_failure(a, &why, err);
	rc = n ? audit_row(a, begin, n, err) : audit_zip(a, a->src, err);
	ck_free(begin);
	return rc;
}

/* ---- streams ---- */

struct head {
	uint8_t *p;
	uint64_t n;
};

static int head_grow(const struct auditing *a, struct head *head, uint64_t n,
		     struct ckpt_err *err)
{
	uint8_t *p;
	int rc;

	n = ck_min_u64(ck_min_u64(n, ck_src_size(a->src)), a->limits->pickle_bytes);
	p = ck_realloc(head->p, (size_t)n + 1);
	if (!p)
		return ck_fail_nomem(err, "a pickle", n);
	head->p = p;
	rc = ck_src_read(a->src, head->n, p + head->n, (size_t)(n - head->n), err);
	if (!rc)
		head->n = n;
	return rc;
}

/* Is the pickle at 'off' cut by the head's end, and not by the file's? */
static bool is_cut(const struct auditing *a, const struct head *head, uint64_t off)
{
	struct ckpt_err e = { 0 };
	struct ck_pkl doc;

	if (head->n >= ck_src_size(a->src))
		return false;
	if (!ck_pkl_load(&doc, head->p + off, head->n - off, a->limits, CK_PKL_AUDIT, "", &e))
		ck_pkl_release(&doc);
	return e.code == CKPT_E_TRUNCATED;
}

static int audit_stream(struct auditing *a, struct ckpt_err *err)
{
	struct head head = { 0 };
	uint64_t off = 0, used = 1;
	bool legacy;
	int rc = head_grow(a, &head, FIRST_WINDOW, err);

	legacy = !rc && ck_pt_is_legacy(head.p, (size_t)head.n);
	for (uint32_t k = 0; !rc && used && (off < head.n || !k); k++) {
		if (legacy && k == LEGACY_PICKLES)
			break;		/* what follows are storages */
		if (k == a->limits->pickles) {
			rc = too_many(a, err);
			break;
		}
		while (!rc && head.n < a->limits->pickle_bytes && is_cut(a, &head, off))
			rc = head_grow(a, &head, 4 * head.n, err);
		if (!rc && head.n == a->limits->pickle_bytes && is_cut(a, &head, off)) {
			rc = too_long(a, err);
			break;
		}
		if (!rc)
			rc = one_pickle(a, head.p + off, head.n - off, off, !k, &used, err);
		off += used;
	}
	ck_free(head.p);
	return rc;
}

/* ---- which files ---- */

/* Names under which pickles are kept. */
static bool is_pickle_name(const char *name)
{
	static const char *const ends[] = {
		".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".p", ".th", ".tar", ".data",
		".model", ".joblib", ".dill", "/.metadata",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(ends); i++)
		if (ck_ends_with(name, ends[i]))
			return true;
	return false;
}

/* Files whose first bytes could be taken for a pickle's. */
static bool is_other_name(const char *name)
{
	static const char *const ends[] = { ".safetensors", ".gguf", ".npy", ".json" };

	for (size_t i = 0; i < CK_ARRAY_LEN(ends); i++)
		if (ck_ends_with(name, ends[i]))
			return true;
	return false;
}

/* tokenizer.model: a protobuf, which begins with its first field; no pickle begins like that. */
static bool is_sentencepiece(const char *name, const uint8_t head[4])
{
	return ck_ends_with(name, ".model") && head[0] == '\n';
}

int ck_pt_audit(struct ck_src *src, const struct ckpt_limits *limits, bool always,
		struct ck_audit *out, struct ckpt_err *err)
{
	struct auditing a = { .src = src, .limits = limits, .out = out };
	uint8_t head[4] = { 0 };
	int rc = ck_src_read(src, 0, head, (size_t)ck_min_u64(4, ck_src_size(src)), err);

	if (rc)
		return rc;
	if (is_sentencepiece(ck_src_name(src), head))
		return 0;
	/* torch 2.1 writes one for a rank that keeps nothing. */
	if (!ck_src_size(src) && ck_ends_with(ck_src_name(src), ".distcp")) {
		out->nfiles++;
		return 0;
	}
	if (!always && !is_pickle_name(ck_src_name(src)) &&
	    (is_other_name(ck_src_name(src)) ||
	     !(ck_le32(head) == 0x04034b50u || (head[0] == 0x80 && head[1] && head[1] <= 5))))
		return 0;
	a.path = ck_arena_strdup(&out->arena, ck_src_name(src));
	if (!a.path)
		return ck_fail_nomem(err, "a path", 0);
	out->nfiles++;
	return ck_le32(head) == 0x04034b50u ? audit_zips(&a, err) : audit_stream(&a, err);
}
