/*
 * ck_pt_legacy.c -- the stream that torch wrote before 1.6 and still writes on request:
 * five pickles (magic number, version, system, object, list of keys), then for each key
 * in the list's order a count of elements (i64) and the elements, little endian whatever
 * the system record says.  The tar of torch 0.1 is recognised and refused.
 *
 * How long the pickles are is known only by running them.  A window of the file's head
 * is read; a pickle that the window cuts is run again with a larger one.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"

#define FIRST_WINDOW ((uint64_t)1 << 20)
#define PROTOCOL 1001

/* 0x1950A86A20F9469CFC6C, as a pickle holds it. */
static const uint8_t magic[10] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19 };

struct window {
	struct ck_pt *pt;
	uint8_t *p;
	uint64_t n;	/* bytes of the file's head in p */
	uint64_t off;	/* where the next pickle begins */
	unsigned flags;
};

static bool is_magic(const struct ck_val *v)
{
	return v->kind == CK_VAL_BIGINT && v->u.str.len == sizeof(magic) &&
	       !memcmp(v->u.str.p, magic, sizeof(magic));
}

bool ck_pt_is_legacy(const uint8_t *p, size_t n)
{
	struct ckpt_limits limits = { .pickle_bytes = 4096, .pickle_nodes = 64,
				      .pickle_depth = 4, .memory_bytes = 65536 };
	struct ck_pkl doc = CK_PKL_INIT;
	bool yes;

	/* PROTO, or the decimal text of protocol 0 and 1. */
	if (!n || (p[0] != 0x80 && p[0] != 'L'))
		return false;
	if (ck_pkl_load(&doc, p, ck_min_u64(n, 64), &limits, 0, "", NULL))
		return false;
	yes = is_magic(doc.root);
	ck_pkl_release(&doc);
	return yes;
}

static int window_read(struct window *w, uint64_t n, struct ckpt_err *err)
{
	uint8_t *p;
	int rc;

	n = ck_min_u64(n, ck_src_size(w->pt->src));
	p = ck_realloc(w->p, (size_t)n);
	if (!p)
		return ck_fail_nomem(err, "a pickle", n);
	w->p = p;
	rc = ck_src_read(w->pt->src, w->n, p + w->n, (size_t)(n - w->n), err);
	if (!rc)
		w->n = n;
	return rc;
}

static int next_pickle(struct window *w, struct ck_pkl *doc, struct ckpt_err *err)
{
	const uint64_t all = ck_src_size(w->pt->src);

	for (;;) {
		const uint64_t n = ck_min_u64(w->n - w->off, w->pt->limits.pickle_bytes);
		struct ckpt_err e = { 0 };
		int rc = ck_pkl_load(doc, w->p + w->off, n, &w->pt->limits, w->flags,
				     w->pt->where, &e);

		if (!rc) {
			w->off += doc->used;
			return 0;
		}
		if (e.code != CKPT_E_TRUNCATED || w->n == all ||
		    w->n - w->off > w->pt->limits.pickle_bytes) {
			if (e.offset != CKPT_NO_OFFSET)
				e.offset += w->off;
			if (err && !err->code)
				*err = e;
			return rc;
		}
		rc = window_read(w, 4 * w->n, err);
		if (rc)
			return rc;
	}
}

/* ---- the pickles around the object ---- */

static int not_torch(const struct ck_pt *pt, const struct window *w, struct ckpt_err *err)
{
	if (w->n > 262 && !memcmp(w->p + 257, "ustar", 5))
		return ck_fail(err, CKPT_E_UNSUPPORTED, pt->where, 0,
			       "this is a tar file, perhaps of torch 0.1.9 or older: load it "
			       "with that version of torch and save it again");
	if (w->n >= 8 && !memcmp(w->p, "PYTORCH1", 8))
		return ck_fail(err, CKPT_E_UNSUPPORTED, pt->where, 0,
			       "a preview format of torch 1.0, which torch refuses too");
	if (w->n >= 23 && !memcmp(w->p, "version https://git-lfs", 23))
		return ck_fail(err, CKPT_E_FORMAT, pt->where, 0,
			       "a git-lfs pointer, not the file itself");
	return ck_fail(err, CKPT_E_FORMAT, pt->where, 0,
		       "not a file of torch.save: neither a zip archive nor a legacy stream");
}

static int magic_read(struct window *w, struct ckpt_err *err)
{
	struct ckpt_err e = { 0 };
	struct ck_pkl doc;
	bool ok;

	if (next_pickle(w, &doc, &e)) {
		if (e.code == CKPT_E_UNSAFE || ck_pt_is_legacy(w->p, w->n)) {
			if (err && !err->code)
				*err = e;
			return -(int)e.code;
		}
		return not_torch(w->pt, w, err);
	}
	ok = is_magic(doc.root);
	ck_pkl_release(&doc);
	return ok ? 0 : not_torch(w->pt, w, err);
}

static int version_read(struct window *w, struct ckpt_err *err)
{
	struct ck_pkl doc;
	int64_t v = -1;
	int rc = next_pickle(w, &doc, err);

	if (rc)
		return rc;
	if (doc.root->kind == CK_VAL_INT)
		v = doc.root->u.i;
	ck_pkl_release(&doc);
	if (v != PROTOCOL)
		return ck_fail(err, CKPT_E_UNSUPPORTED, w->pt->where, w->off,
			       "unsupported version %" PRId64 " of the legacy stream; torch "
			       "writes version %d", v, PROTOCOL);
	return 0;
}

/* Nothing in it matters: data is little endian on all systems. */
static int system_read(struct window *w, struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_pkl doc;
	int rc = next_pickle(w, &doc, err);

	if (rc)
		return rc;
	if (doc.root->kind != CK_VAL_DICT)
		ck_pt_note(w->pt, findings, "the system record is not a dict");
	ck_pkl_release(&doc);
	return 0;
}

/* ---- data ---- */

/* A storage of the list: its count and its bytes at '*off'. */
static int storage_place(struct ck_pt *pt, const struct ck_val *key, uint64_t *off,
			 struct ckpt_err *err)
{
	struct ck_pt_storage *s;
	uint64_t found, bytes;
	uint8_t b[8];
	int rc;

	if (!ck_val_str(key))
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, *off,
			       "a storage key is not a string");
	if (!ck_map_find(&pt->by_key, key->u.str.p, key->u.str.len, &found))
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, *off,
			       "storage '%.80s' is in the list, but no tensor uses it",
			       key->u.str.p);
	s = &pt->storage[found];
	if (s->seen || s->root != CK_NONE)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, *off,
			       "storage '%.80s' is in the list twice", s->key);
	rc = ck_src_read(pt->src, *off, b, sizeof(b), err);
	if (!rc)
		rc = ck_pt_bytes(pt, s->dtype, s->numel, &bytes, err);
	if (rc)
		return rc;
	if (ck_le64(b) != s->numel)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, *off,
			       "storage '%s' holds %" PRId64 " elements, the pickle says %" PRIu64,
			       s->key, (int64_t)ck_le64(b), s->numel);
	*off += sizeof(b);
	if (bytes > ck_src_size(pt->src) - *off)
		return ck_fail(err, CKPT_E_TRUNCATED, pt->where, *off,
			       "storage '%s' takes %" PRIu64 " bytes, %" PRIu64
			       " are left: the file was cut short",
			       s->key, bytes, ck_src_size(pt->src) - *off);
	s->seen = true;
	s->off = *off;
	s->bytes = s->packed = bytes;
	*off += bytes;
	return 0;
}

/* Views lie in their roots. */
static int views_place(struct ck_pt *pt, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < pt->nstorages; i++) {
		struct ck_pt_storage *s = &pt->storage[i];
		const uint64_t esize = ckpt_dtype_bits(s->dtype) / 8;

		if (s->root == CK_NONE && !s->seen && !s->absent)
			return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
				       "storage '%s' is used, but not in the list of storages",
				       s->key);
		if (s->root == CK_NONE)
			continue;
		s->off = pt->storage[s->root].off + s->root_elem * esize;
		s->bytes = s->packed = s->numel * esize;
	}
	return 0;
}

static int data_place(struct window *w, struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_val *const *key;
	struct ck_pkl doc;
	uint64_t n, off;
	int rc = next_pickle(w, &doc, err);

	if (rc)
		return rc;
	if (!ck_val_seq(doc.root, &key, &n))
		rc = ck_fail(err, CKPT_E_CORRUPT, w->pt->where, w->off,
			     "the list of storages is not a list");
	off = w->off;
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = storage_place(w->pt, key[i], &off, err);
	ck_pkl_release(&doc);
	if (!rc)
		rc = views_place(w->pt, err);
	if (!rc && off != ck_src_size(w->pt->src))
		ck_pt_note(w->pt, findings, "bytes follow the last storage");
	return rc;
}

static int stream_parse(struct window *w, struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_pt *pt = w->pt;
	int rc = magic_read(w, err);

	if (!rc)
		rc = version_read(w, err);
	if (!rc)
		rc = system_read(w, findings, err);
	if (!rc)
		rc = next_pickle(w, &pt->doc, err);
	if (rc)
		return rc;
	ck_pt_notes_pickle(pt, findings, pt->doc.notes);
	rc = ck_pt_bind(pt, findings, err);
	if (!rc)
		rc = data_place(w, findings, err);
	if (!rc)
		pt->fingerprint = ck_hash128(w->p, (size_t)w->off);
	return rc;
}

int ck_pt_legacy_open(struct ck_pt *pt, unsigned pkl_flags, struct ck_findings *findings,
		      struct ckpt_err *err)
{
	struct window w = { .pt = pt, .flags = pkl_flags };
	int rc;

	pt->legacy = true;
	pt->prefix = ck_strdup("");
	pt->where = ck_strdup(ck_src_name(pt->src));
	if (!pt->prefix || !pt->where)
		return ck_fail_nomem(err, "a name", 0);
	if (!ck_src_size(pt->src))
		return ck_fail(err, CKPT_E_TRUNCATED, pt->where, 0, "the file is empty");
	rc = window_read(&w, FIRST_WINDOW, err);
	if (!rc)
		rc = stream_parse(&w, findings, err);
	ck_free(w.p);
	return rc;
}
