/*
 * en_source_st.c -- rows in a safetensors file: input_ids and labels of [rows, tokens];
 * docs/ztrain/data.md, "safetensors".
 */
#include <string.h>

#include <ckpt.h>

#include "engine/data/en_source_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct column {
	bool there;
	uint64_t tensor;
	enum ckpt_dtype dtype;
	const char *name;
};

struct st {
	struct ckpt *ck;
	struct column ids, labels, mask, positions;
	uint64_t width;		/* values of a row in the file */
	uint8_t *raw;		/* of a row of one column */
	struct en_raw row;
};

static void st_close(struct en_source *src)
{
	struct st *s = src->own;

	if (!s)
		return;
	ckpt_close(s->ck);
	en_raw_release(&s->row);
	ck_free(s->raw);
	ck_free(s);
}

static bool is_integer(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_U8: case CKPT_I8: case CKPT_U16: case CKPT_I16: case CKPT_U32: case CKPT_I32:
	case CKPT_I64: case CKPT_BOOL:
		return true;
	default:
		return false;
	}
}

/* A column that need not be there; the first one sets rows and width. */
static int find_column(struct en_source *src, struct column *c, const char *name,
		       struct ckpt_err *err)
{
	struct st *s = src->own;
	struct ckpt_tensor_info t;
	struct ckpt_state_info state;
	int rc;

	c->name = name;
	if (ckpt_tensor_find(s->ck, name, &c->tensor, NULL))
		return 0;
	rc = ckpt_tensor_get(s->ck, c->tensor, &t, err);
	if (!rc)
		rc = ckpt_state_get(s->ck, c->tensor, 0, &state, err);
	if (rc)
		return rc;
	if (t.ndim != 2 || !is_integer(state.dtype))
		return ck_fail(err, CKPT_E_CORRUPT, src->path, CKPT_NO_OFFSET,
			       "%.100s is %s with %u dimensions; expected integers of shape [rows, "
			       "tokens]",
			       name, ckpt_dtype_name(state.dtype), t.ndim);
	if (s->ids.there && (t.shape[0] != src->info.rows || t.shape[1] != s->width))
		return ck_fail(err, CKPT_E_CORRUPT, src->path, CKPT_NO_OFFSET,
			       "%.100s is [%llu, %llu], %.100s is [%llu, %llu]", s->ids.name,
			       (unsigned long long)src->info.rows, (unsigned long long)s->width,
			       name, (unsigned long long)t.shape[0],
			       (unsigned long long)t.shape[1]);
	src->info.rows = t.shape[0];
	s->width = t.shape[1];
	c->dtype = state.dtype;
	c->there = true;
	return 0;
}

static int check_shape(struct en_source *src, struct ckpt_err *err)
{
	const struct st *s = src->own;
	const uint32_t want = src->opts.tokens;

	if (!src->info.rows || !s->width)
		return ck_fail(err, CKPT_E_TRUNCATED, src->path, CKPT_NO_OFFSET,
			       "%.100s is [%llu, %llu]: no tokens", s->ids.name,
			       (unsigned long long)src->info.rows, (unsigned long long)s->width);
	if (s->width > EN_MAX_ROW)
		return ck_fail(err, CKPT_E_LIMIT, src->path, CKPT_NO_OFFSET,
			       "rows of %llu tokens; the limit is %u", (unsigned long long)s->width,
			       EN_MAX_ROW);
	if (want && s->width > want && !src->opts.cut)
		return ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
			       "rows have %llu tokens, --seq is %u; use --cut, or a larger --seq",
			       (unsigned long long)s->width, want);
	return 0;
}

static int find_columns(struct en_source *src, struct ckpt_err *err)
{
	const struct en_source_opts *o = &src->opts;
	struct st *s = src->own;
	int rc = find_column(src, &s->ids, o->ids_name ? o->ids_name : "input_ids", err);

	if (!rc && !s->ids.there)
		rc = ck_fail(err, CKPT_E_CORRUPT, src->path, CKPT_NO_OFFSET,
			     "missing tensor: %.100s", s->ids.name);
	if (!rc)
		rc = find_column(src, &s->labels, o->labels_name ? o->labels_name : "labels", err);
	if (!rc && o->labels_name && !s->labels.there)
		rc = ck_fail(err, CKPT_E_CORRUPT, src->path, CKPT_NO_OFFSET,
			     "missing tensor: %.100s", s->labels.name);
	if (!rc)
		rc = find_column(src, &s->mask, "attention_mask", err);
	if (!rc)
		rc = find_column(src, &s->positions, "position_ids", err);
	return rc ? rc : check_shape(src, err);
}

static int64_t value_at(const uint8_t *p, enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_I8:
		return (int8_t)p[0];
	case CKPT_U16:
		return ck_le16(p);
	case CKPT_I16:
		return (int16_t)ck_le16(p);
	case CKPT_U32:
		return ck_le32(p);
	case CKPT_I32:
		return (int32_t)ck_le32(p);
	case CKPT_I64:
		return (int64_t)ck_le64(p);
	default:
		return p[0];
	}
}

static int read_column(struct en_source *src, const struct column *c, uint64_t row, int32_t *out,
		       struct ckpt_err *err)
{
	struct st *s = src->own;
	const uint32_t bytes = ckpt_dtype_bits(c->dtype) / 8;
	int rc = ckpt_read(s->ck, c->tensor, 0, row * s->width, s->width, (enum ckpt_dtype)0,
			   s->raw, s->width * bytes, err);

	for (uint64_t i = 0; !rc && i < s->width; i++) {
		const int64_t v = value_at(s->raw + i * bytes, c->dtype);

		if (v < INT32_MIN || v > INT32_MAX)
			rc = ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
				     "row %llu, position %llu: %.100s has %lld, outside the "
				     "model's vocabulary of %u",
				     (unsigned long long)row, (unsigned long long)i, c->name,
				     (long long)v, src->opts.vocab);
		else
			out[i] = (int32_t)v;
	}
	return rc;
}

/* Mask, positions and documents of row 'row', whose ids and labels are there. */
static int read_seams(struct en_source *src, uint64_t row, uint64_t *documents_out,
		      struct ckpt_err *err)
{
	struct st *s = src->own;
	struct en_raw *r = &s->row;
	int rc = 0;

	r->has_mask = s->mask.there;
	r->has_positions = s->positions.there;
	if (s->mask.there)
		rc = read_column(src, &s->mask, row, r->mask, err);
	if (!rc && s->positions.there)
		rc = read_column(src, &s->positions, row, r->positions, err);
	return rc ? rc : en_raw_seams(src, r, "row", row, documents_out, err);
}

static int st_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		  int32_t *starts, struct ckpt_err *err)
{
	struct st *s = src->own;
	struct en_raw *r = &s->row;
	uint64_t documents;
	int rc = read_column(src, &s->ids, row, r->ids, err);

	r->n = s->width;
	r->has_labels = s->labels.there;
	if (!rc && s->labels.there)
		rc = read_column(src, &s->labels, row, r->labels, err);
	else if (!rc)
		memcpy(r->labels, r->ids, r->n * sizeof(*r->ids));
	if (!rc)
		rc = read_seams(src, row, &documents, err);
	if (!rc && documents > 1 && !src->info.packed)
		rc = ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
			     "row %llu: attention_mask numbers %llu documents, in row 0 it has 0 "
			     "and 1 only; number the documents of all rows, or add position_ids",
			     (unsigned long long)row, (unsigned long long)documents);
	if (!rc)
		rc = en_raw_check(src, r->ids, r->labels, r->n, "row", row, err);
	if (!rc)
		en_raw_fit(src, r, ids, labels, starts);
	return rc;
}

/* Whether rows hold several documents: positions are there, or the mask of row 0 counts them. */
static int find_packed(struct en_source *src, struct ckpt_err *err)
{
	struct st *s = src->own;
	uint64_t documents = 1;
	int rc = 0;

	s->row.n = s->width;
	if (s->mask.there && !s->positions.there)
		rc = read_seams(src, 0, &documents, err);
	src->info.packed = s->positions.there || documents > 1;
	return rc;
}

static int st_open(struct en_source *src, struct ckpt_err *err)
{
	struct st *s = ck_zalloc(sizeof(*s));
	const char *path = src->path;
	int rc;

	src->own = s;
	if (!s)
		return ck_fail_nomem(err, "a file of rows", sizeof(*s));
	rc = ckpt_open(&path, 1, NULL, &s->ck, err);
	if (!rc)
		rc = find_columns(src, err);
	if (!rc)
		rc = en_raw_room(&s->row, s->width, err);
	if (rc)
		return rc;
	s->raw = ck_alloc_array(s->width, 8);
	if (!s->raw)
		return ck_fail_nomem(err, "a row of data", 8 * s->width);
	if (!src->info.tokens)
		src->info.tokens = (uint32_t)ck_max_u64(2, s->width);
	src->info.padded = s->width < src->info.tokens ? src->info.rows : 0;
	src->info.cut = s->width > src->info.tokens ? src->info.rows : 0;
	src->info.has_labels = s->labels.there;
	return find_packed(src, err);
}

const struct en_source_ops en_source_st = { st_open, st_close, st_row };
