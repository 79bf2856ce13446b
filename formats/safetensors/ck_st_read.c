/*
 * ck_st_read.c -- the header of a safetensors file; see docs/formats/safetensors.md.
 *
 * The rules are the reference reader's, and stricter where it lets something pass that
 * two readers may understand differently: any name given twice, NUL and control
 * characters in names, entries and types in other shapes than the format's.
 *
 * Coverage: sorted by (begin, end), each tensor must begin where the one before ended,
 * the first at 0 and the last one's end at the end of the file.  Then there is no
 * hole, no overlap and nothing behind.
 */
#include "formats/safetensors/ck_st.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_dtype.h"

/* One header while it is read. */
struct header {
	struct ck_st *st;
	struct ck_json json;
	const struct ckpt_limits *limits;
	const char *file;
	uint64_t buffer;	/* bytes behind the header */
	struct ckpt_err *err;
};

bool ck_st_probe(const uint8_t *head, size_t n, uint64_t size)
{
	uint64_t len;

	if (n < 9 || size < 10)
		return false;
	len = ck_le64(head);
	if (len < 2 || len > CK_ST_MAX_HEADER || len > size - 8)
		return false;
	return head[8] == '{' || head[8] == ' ' || head[8] == '\t' || head[8] == '\r' ||
	       head[8] == '\n';
}

/* --------------------------------------------------------------- the length */

#define TEXT_FILE "this is a text file, not safetensors (a failed download?)"

static bool is_text(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((p[i] < 0x20 || p[i] > 0x7e) && (p[i] < '\t' || p[i] > '\r'))
			return false;
	return true;
}

/* A length that cannot be: say what the file is instead, where its first bytes tell. */
static int not_this_format(const char *file, const uint8_t head[8], uint64_t len,
			   struct ckpt_err *err)
{
	static const struct {
		const char *magic, *what;
	} others[] = {
		{ "version ", "a git-lfs pointer, not the file itself (run: git lfs pull)" },
		{ "PK\003\004", "this is a zip archive, not safetensors (a torch file with "
				"the wrong extension?)" },
		{ "<!DOCTYP", "this is a web page, not a model (a failed download?)" },
		{ "<html", "this is a web page, not a model (a failed download?)" },
		{ "GGUF", "this is GGUF, not safetensors" },
		{ "\xef\xbb\xbf", "this is text, not safetensors" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(others); i++)
		if (!memcmp(head, others[i].magic, strlen(others[i].magic)))
			return ck_fail(err, CKPT_E_FORMAT, file, 0, "%s", others[i].what);
	if (is_text(head, 8))
		return ck_fail(err, CKPT_E_FORMAT, file, 0, TEXT_FILE);
	return ck_fail(err, CKPT_E_FORMAT, file, 0,
		       "not safetensors: the header's length reads as %" PRIu64
		       ", at most %u is allowed", len, CK_ST_MAX_HEADER);
}

static int read_length(struct ck_src *src, const struct ckpt_limits *limits, uint64_t *len_out,
		       struct ckpt_err *err)
{
	const char *file = ck_src_name(src);
	const uint64_t size = ck_src_size(src);
	uint8_t head[8];
	uint64_t len;
	int rc;

	if (!size)
		return ck_fail(err, CKPT_E_TRUNCATED, file, CKPT_NO_OFFSET,
			       "this is an empty file: " CK_WHY_EMPTY);
	if (size < 8) {
		rc = ck_src_read(src, 0, head, (size_t)size, err);
		if (!rc && is_text(head, (size_t)size))
			rc = ck_fail(err, CKPT_E_FORMAT, file, 0, TEXT_FILE);
		return rc ? rc : ck_fail(err, CKPT_E_TRUNCATED, file, size,
			       "the file has %" PRIu64 " bytes, a safetensors file begins "
			       "with an 8-byte length", size);
	}
	rc = ck_src_read(src, 0, head, 8, err);
	if (rc)
		return rc;
	len = ck_le64(head);
	if (!len)
		return ck_fail(err, CKPT_E_CORRUPT, file, 0, "the file begins with zeros; was the "
			       "download or copy interrupted?");
	if (len > CK_ST_MAX_HEADER)
		return not_this_format(file, head, len, err);
	if (len > limits->header_bytes)
		return ck_fail_limit(err, file, 0, "header_bytes", limits->header_bytes,
				     "the header has %" PRIu64 " bytes", len);
	if (len > size - 8)
		return ck_fail(err, CKPT_E_TRUNCATED, file, size,
			       "the header has %" PRIu64 " bytes, the file has %" PRIu64
			       " after its length (was it cut short?)",
			       len, size - 8);
	*len_out = len;
	return 0;
}

/* ------------------------------------------------------------------- fields */

static const struct ck_json_tok *tok(const struct header *h, uint64_t number)
{
	return &h->json.tok[number];
}

/* A rule is broken at a token. */
static int broken(const struct header *h, uint64_t number, const char *name, const char *what)
{
	return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + tok(h, number)->off,
		       "tensor \"%.120s\": %s", name, what);
}

static int read_dtype(const struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	const struct ck_json_tok *v = tok(h, number);

	if (v->type != CK_JSON_STRING)
		return broken(h, number, t->name, "the dtype is not a string");
	t->dtype = ck_dtype_by_name(v->str, v->str_len);
	if (!t->dtype)
		return ck_fail(h->err, CKPT_E_UNSUPPORTED, h->file, 8 + v->off,
			       "tensor \"%.120s\": unknown dtype \"%.32s\"", t->name, v->str);
	return 0;
}

static int read_shape(struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	const struct ck_json_tok *v = tok(h, number);
	uint64_t *dim;

	if (v->type != CK_JSON_ARRAY)
		return broken(h, number, t->name, "the shape is not an array");
	if (v->n > h->limits->tensor_dims)
		return ck_fail_limit(h->err, h->file, 8 + v->off, "tensor_dims",
				     h->limits->tensor_dims,
				     "tensor \"%.120s\" has %" PRIu32 " dimensions", t->name, v->n);
	dim = ck_arena_alloc(&h->st->arena, (uint64_t)v->n * sizeof(*dim));
	if (!dim)
		return ck_fail_nomem(h->err, "a shape", v->n);
	for (uint32_t i = 0; i < v->n; i++)	/* items other than numbers fail at once */
		if (!ck_json_u64(&h->json, number + 1 + i, &dim[i]))
			return broken(h, number + 1 + i, t->name,
				      "a dimension is not a 64-bit integer");
	t->shape = dim;
	t->ndim = v->n;
	return 0;
}

static int read_offsets(struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	const struct ck_json_tok *v = tok(h, number);
	uint64_t begin, end;

	if (v->type != CK_JSON_ARRAY || v->n != 2 ||
	    !ck_json_u64(&h->json, number + 1, &begin) ||
	    !ck_json_u64(&h->json, number + 2, &end))
		return broken(h, number, t->name,
			      "data_offsets is not an array of two integers");
	if (end < begin)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + v->off,
			       "tensor \"%.120s\" ends at %" PRIu64 ", before its begin at %"
			       PRIu64, t->name, end, begin);
	t->off = begin;		/* in the buffer, until check_cover() */
	t->bytes = end - begin;
	return 0;
}

static bool is_field(const struct ck_json_tok *name, const char *field)
{
	return name->str_len == strlen(field) && !memcmp(name->str, field, name->str_len);
}

/* shape and dtype say how many bytes; the offsets must say the same. */
static int check_size(struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	struct ckpt_err why = { 0 };
	uint64_t bytes;
	int rc = ck_shape_numel(t->shape, t->ndim, &t->numel, &why);

	if (!rc)
		rc = ck_dtype_bytes(t->dtype, t->numel, &bytes, &why);
	if (rc)
		return ck_fail(h->err, (enum ckpt_code)-rc, h->file, 8 + tok(h, number)->off,
			       "tensor \"%.120s\": %s", t->name, why.msg);
	if (bytes != t->bytes)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + tok(h, number)->off,
			       "tensor \"%.120s\": dtype and shape need %" PRIu64
			       " bytes, data_offsets spans %" PRIu64, t->name, bytes, t->bytes);
	return 0;
}

/* The entry at token 'number', an object. */
static int read_entry(struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	uint64_t at = number + 1, dtype = 0, shape = 0, offsets = 0;
	int rc = 0;

	if (tok(h, number)->type != CK_JSON_OBJECT)
		return broken(h, number, t->name, "the entry is not an object");
	for (uint32_t i = 0; !rc && i < tok(h, number)->n; i++) {
		const struct ck_json_tok *name = tok(h, at);

		if (is_field(name, "dtype"))
			rc = read_dtype(h, dtype = at + 1, t);
		else if (is_field(name, "shape"))
			rc = read_shape(h, shape = at + 1, t);
		else if (is_field(name, "data_offsets"))
			rc = read_offsets(h, offsets = at + 1, t);
		else if (!(h->st->notes & CK_ST_UNKNOWN_FIELD)) {
			h->st->notes |= CK_ST_UNKNOWN_FIELD;
			h->st->unknown_in = t->name;
		}
		at = tok(h, at + 1)->next;
	}
	if (rc)
		return rc;
	if (!dtype || !shape || !offsets)
		return broken(h, number, t->name, !dtype ? "the field dtype is missing" :
			      !shape ? "the field shape is missing" :
				       "the field data_offsets is missing");
	return check_size(h, number, t);
}

unsigned ck_st_name_fault(const char *name, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)name[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return c ? c : 0x100;
	}
	return 0;
}

static int read_name(struct header *h, uint64_t number, struct ck_st_tensor *t)
{
	const struct ck_json_tok *name = tok(h, number);
	const unsigned fault = ck_st_name_fault(name->str, name->str_len);

	if (fault)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + name->off,
			       "a tensor name holds the control character 0x%02x",
			       fault & 0xff);
	t->name = ck_arena_strndup(&h->st->arena, name->str, name->str_len);
	t->name_len = name->str_len;
	return t->name ? 0 : ck_fail_nomem(h->err, "a tensor name", name->str_len);
}

/* ----------------------------------------------------------------- metadata */

static int keep_text(struct header *h, uint64_t number, const char **out)
{
	const struct ck_json_tok *v = tok(h, number);

	if (memchr(v->str, 0, v->str_len))
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + v->off,
			       "__metadata__: a string holds a NUL byte");
	*out = ck_arena_strndup(&h->st->arena, v->str, v->str_len);
	return *out ? 0 : ck_fail_nomem(h->err, "metadata", v->str_len);
}

/*
 * The hash of the header, in which its own digits count as zeros.  A value that is written with
 * escapes is none of ours.
 */
static int holds_hash(const struct header *h, const char *text, uint64_t len, uint64_t number,
		      bool *holds_out)
{
	const struct ck_json_tok *v = tok(h, number);
	const uint64_t at = v->off + 1;
	struct ck_hasher *hash;
	uint8_t size[8];
	char is[33];

	*holds_out = false;
	if (v->str_len != 32 || at + 32 >= len || memcmp(text + at, v->str, 32))
		return 0;
	hash = ck_hasher_new();
	if (!hash)
		return ck_fail_nomem(h->err, "a hash", 0);
	ck_put_le64(size, len);
	ck_hasher_add(hash, size, sizeof(size));
	ck_hasher_add(hash, text, at);
	ck_hasher_add(hash, "00000000000000000000000000000000", 32);
	ck_hasher_add(hash, text + at + 32, len - at - 32);
	ck_hash128_print(ck_hasher_sum(hash), is);
	ck_hasher_free(hash);
	*holds_out = !memcmp(is, v->str, 32);
	return 0;
}

/* Sums hold if the header does: another program may have kept them for other tensors. */
static int check_sums(struct header *h, const char *text, uint64_t len)
{
	const uint64_t meta = ck_json_get(&h->json, 0, "__metadata__");
	uint64_t hash = UINT64_MAX, sums = UINT64_MAX;
	bool holds = false;
	int rc = 0;

	if (meta != UINT64_MAX && tok(h, meta)->type == CK_JSON_OBJECT) {
		hash = ck_json_get(&h->json, meta, CK_ST_HEADER_KEY);
		sums = ck_json_get(&h->json, meta, CK_ST_SUMS_KEY);
	}
	if (hash == UINT64_MAX && sums == UINT64_MAX)
		return 0;
	if (hash != UINT64_MAX && sums != UINT64_MAX &&
	    tok(h, sums)->str_len == h->st->ntensors * 32)
		rc = holds_hash(h, text, len, hash, &holds);
	if (!rc && !holds)
		h->st->notes |= CK_ST_HEADER_CHANGED;
	if (!holds)
		return rc;
	for (uint64_t i = 0; i < h->st->nmeta; i++)
		if (!strcmp(h->st->meta[i].key, CK_ST_SUMS_KEY))
			h->st->sums = h->st->meta[i].value;
	return 0;
}

static int read_metadata(struct header *h, uint64_t number)
{
	struct ck_st *st = h->st;
	const struct ck_json_tok *v = tok(h, number);
	uint64_t at = number + 1;
	bool has_format = false;
	int rc = 0;

	if (v->type == CK_JSON_NULL) {
		st->notes |= CK_ST_META_NULL;
		return 0;
	}
	if (v->type != CK_JSON_OBJECT)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + v->off,
			       "__metadata__ is not an object");
	st->meta = ck_arena_zalloc(&st->arena, v->n * sizeof(*st->meta));
	if (!st->meta)
		return ck_fail_nomem(h->err, "metadata", v->n);
	for (uint32_t i = 0; !rc && i < v->n; i++) {
		if (tok(h, at + 1)->type != CK_JSON_STRING)
			return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8 + tok(h, at + 1)->off,
				       "__metadata__: the value of \"%.120s\" is not a string",
				       tok(h, at)->str);
		has_format |= is_field(tok(h, at), "format");
		rc = keep_text(h, at, &st->meta[i].key);
		if (!rc)
			rc = keep_text(h, at + 1, &st->meta[i].value);
		at = tok(h, at + 1)->next;
	}
	st->nmeta = v->n;
	if (!has_format)
		st->notes |= CK_ST_NO_FORMAT;
	return rc;
}

/* ----------------------------------------------------------------- coverage */

static int by_place(const void *a, const void *b)
{
	const struct ck_st_tensor *x = a, *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool is_sorted(const struct ck_st *st)
{
	for (uint64_t i = 1; i < st->ntensors; i++)
		if (by_place(&st->tensor[i - 1], &st->tensor[i]) > 0)
			return false;
	return true;
}

static int check_cover(struct header *h)
{
	struct ck_st *st = h->st;
	uint64_t at = 0;

	if (!is_sorted(st))
		qsort(st->tensor, st->ntensors, sizeof(*st->tensor), by_place);
	for (uint64_t i = 0; i < st->ntensors; i++) {
		struct ck_st_tensor *t = &st->tensor[i];

		if (t->off != at)
			return ck_fail(h->err, CKPT_E_CORRUPT, h->file, CKPT_NO_OFFSET,
				       "tensor \"%.120s\" begins at byte %" PRIu64
				       " of the buffer, the one before it ended at %" PRIu64
				       " (%s)", t->name, t->off, at,
				       t->off > at ? "a hole" : "they overlap");
		if (t->bytes > h->buffer - at)
			return ck_fail(h->err, CKPT_E_TRUNCATED, h->file, st->data + h->buffer,
				       "tensor \"%.120s\" needs %" PRIu64 " bytes here, the file "
				       "has %" PRIu64 " (was it cut short?)", t->name, t->bytes,
				       h->buffer - at);
		at += t->bytes;
		t->off += st->data;
	}
	if (at != h->buffer)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, st->data + at,
			       "%" PRIu64 " bytes follow the last tensor", h->buffer - at);
	return 0;
}

/* --------------------------------------------------------------------- open */

static int read_entries(struct header *h)
{
	struct ck_st *st = h->st;
	const uint32_t n = tok(h, 0)->n;
	uint64_t at = 1;
	int rc = 0;

	st->tensor = ck_alloc_array(n, sizeof(*st->tensor));
	if (!st->tensor)
		return ck_fail_nomem(h->err, "tensors", n);
	for (uint32_t i = 0; !rc && i < n; i++) {
		if (is_field(tok(h, at), "__metadata__")) {
			rc = read_metadata(h, at + 1);
		} else {
			struct ck_st_tensor *t = &st->tensor[st->ntensors];

			memset(t, 0, sizeof(*t));
			rc = read_name(h, at, t);
			if (!rc)
				rc = read_entry(h, at + 1, t);
			st->ntensors += !rc;
		}
		at = tok(h, at + 1)->next;
	}
	return rc;
}

static int read_header(struct header *h, const char *text, uint64_t len)
{
	struct ckpt_err why = { 0 };
	int rc;

	rc = ck_json_parse(&h->json, text, len, h->limits, 0, h->file, &why);
	if (rc)
		return ck_fail(h->err, why.code, h->file,
			       why.offset == CKPT_NO_OFFSET ? why.offset : 8 + why.offset,
			       "header: %s", why.msg);
	if (tok(h, 0)->type != CK_JSON_OBJECT)
		return ck_fail(h->err, CKPT_E_CORRUPT, h->file, 8,
			       "the header is not a JSON object");
	if (text[0] != '{')
		h->st->notes |= CK_ST_SPACE_BEFORE;
	rc = read_entries(h);
	if (!rc)
		rc = check_cover(h);
	if (!rc)
		rc = check_sums(h, text, len);
	return rc ? rc : ck_st_read_places(h->st, h->limits, h->err);
}

int ck_st_open(struct ck_src *src, const struct ckpt_limits *limits, struct ck_st **st_out,
	       struct ckpt_err *err)
{
	struct ck_st *st = NULL;
	struct header h = { .limits = limits, .file = ck_src_name(src), .err = err };
	char *text = NULL;
	uint64_t len = 0;
	int rc = read_length(src, limits, &len, err);

	if (rc)
		return rc;
	st = h.st = ck_zalloc(sizeof(*st));
	text = ck_alloc(len + 1);
	if (!st || !text) {
		rc = ck_fail_nomem(err, "a header", len);
		goto out;
	}
	st->name = ck_arena_strdup(&st->arena, h.file);
	if (!st->name) {
		rc = ck_fail_nomem(err, "a header", len);
		goto out;
	}
	st->arena.limit = limits->memory_bytes;
	st->data = 8 + len;
	h.buffer = ck_src_size(src) - st->data;
	rc = ck_src_read(src, 8, text, len, err);
	if (rc)
		goto out;
	st->fingerprint = ck_hash128(text, len);
	rc = ck_arena_why(&st->arena, read_header(&h, text, len), h.file, err);
	if (rc)
		goto out;
	if (st->sums)
		ck_src_known(src, CK_KNOWN_PRINT);
	*st_out = st;
	st = NULL;
out:
	ck_json_release(&h.json);
	ck_free(text);
	ck_st_close(st);
	return rc;
}

void ck_st_close(struct ck_st *st)
{
	if (!st)
		return;
	ck_arena_release(&st->arena);
	ck_free(st->tensor);
	ck_free(st);
}
