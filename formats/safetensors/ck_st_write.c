/*
 * ck_st_write.c -- the header of a safetensors file to be written.
 *
 * Tensors and metadata are kept until finish() makes the text: compact JSON,
 * __metadata__ first with its keys sorted, tensors in the order of their bytes.
 */
#include "formats/safetensors/ck_st.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_dtype.h"

#define MAX_ALIGN 4096

struct out_tensor {
	const char *name;
	const uint64_t *shape;
	uint64_t begin, end;
	uint32_t ndim;
	enum ckpt_dtype dtype;
};

struct out_meta {
	struct ck_fact fact;
	uint64_t at;		/* of the value's text in the header; 0 if it has escapes */
};

struct ck_st_writer {
	struct ck_arena arena;
	struct out_tensor *tensor;
	uint64_t ntensors, tensor_cap;
	struct out_meta *meta;
	uint64_t nmeta, meta_cap;
	struct ck_map names, keys;
	uint64_t at;		/* where the next tensor begins in the buffer */
};

int ck_st_writer_new(struct ck_st_writer **w_out, struct ckpt_err *err)
{
	struct ck_st_writer *w = ck_zalloc(sizeof(*w));

	if (!w)
		return ck_fail_nomem(err, "a header", sizeof(*w));
	*w_out = w;
	return 0;
}

void ck_st_writer_free(struct ck_st_writer *w)
{
	if (!w)
		return;
	ck_map_release(&w->names);
	ck_map_release(&w->keys);
	ck_free(w->tensor);
	ck_free(w->meta);
	ck_arena_release(&w->arena);
	ck_free(w);
}

int ck_st_writer_meta(struct ck_st_writer *w, const char *key, const char *value,
		      struct ckpt_err *err)
{
	struct ck_fact f;
	int rc;

	if (!ck_utf8_valid(key, strlen(key), NULL) || !ck_utf8_valid(value, strlen(value), NULL))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "metadata must be UTF-8");
	f.key = ck_arena_strdup(&w->arena, key);
	f.value = ck_arena_strdup(&w->arena, value);
	if (!f.key || !f.value)
		return ck_fail_nomem(err, "metadata", strlen(value));
	rc = ck_grow(&w->meta, &w->meta_cap, w->nmeta + 1, sizeof(*w->meta), err);
	if (rc)
		return rc;
	rc = ck_map_add(&w->keys, f.key, strlen(f.key), 0, NULL, err);
	if (rc > 0)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the metadata key \"%.120s\" is given twice", key);
	if (!rc)
		w->meta[w->nmeta++] = (struct out_meta){ .fact = f };
	return rc;
}

/* Only what this library's reader takes back. */
static int check_name(const char *name, struct ckpt_err *err)
{
	const size_t n = strlen(name);

	if (ck_st_name_fault(name, n))
		return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			       "safetensors: the tensor name holds a control character");
	if (!ck_utf8_valid(name, n, NULL))
		return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			       "safetensors: the tensor name is not UTF-8");
	if (!strcmp(name, "__metadata__"))
		return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			       "safetensors: a tensor cannot have this name");
	return 0;
}

/* dtype and shape as safetensors has them; 't->shape' in the arena. */
static int fill_type(struct ck_st_writer *w, struct out_tensor *t, enum ckpt_dtype dtype,
		     const uint64_t *shape, struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);
	uint64_t *dim;

	if (dtype != CKPT_F4X2 && (!info || !info->in_safetensors))
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "safetensors has no type for %s", ckpt_dtype_name(dtype));
	if (dtype == CKPT_F4X2 && (!t->ndim || shape[t->ndim - 1] > UINT64_MAX / 2))
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "safetensors: packed F4 needs a last dimension that can be doubled");
	dim = ck_arena_alloc(&w->arena, (uint64_t)t->ndim * sizeof(*dim));
	if (!dim)
		return ck_fail_nomem(err, "a shape", t->ndim);
	if (t->ndim)
		memcpy(dim, shape, t->ndim * sizeof(*dim));
	if (dtype == CKPT_F4X2)
		dim[t->ndim - 1] *= 2;
	t->dtype = dtype == CKPT_F4X2 ? CKPT_F4 : dtype;
	t->shape = dim;
	return 0;
}

static int fill_place(struct ck_st_writer *w, struct out_tensor *t, struct ckpt_err *err)
{
	uint64_t numel, bytes;
	int rc = ck_shape_numel(t->shape, t->ndim, &numel, err);

	if (!rc)
		rc = ck_dtype_bytes(t->dtype, numel, &bytes, err);
	if (rc)
		return rc;
	t->begin = w->at;
	if (ck_add_over(t->begin, bytes, &t->end) || t->end > INT64_MAX)
		return ck_fail(err, CKPT_E_LIMIT, t->name, CKPT_NO_OFFSET,
			       "the file would exceed 2^63 bytes");
	return 0;
}

int ck_st_writer_tensor(struct ck_st_writer *w, const char *name, enum ckpt_dtype dtype,
			const uint64_t *shape, uint32_t ndim, uint64_t *off_out,
			struct ckpt_err *err)
{
	struct out_tensor t = { .ndim = ndim };
	int rc = check_name(name, err);

	if (rc)
		return rc;
	t.name = ck_arena_strdup(&w->arena, name);
	if (!t.name)
		return ck_fail_nomem(err, "a tensor name", strlen(name));
	rc = fill_type(w, &t, dtype, shape, err);
	if (!rc)
		rc = fill_place(w, &t, err);
	if (!rc)
		rc = ck_grow(&w->tensor, &w->tensor_cap, w->ntensors + 1, sizeof(t), err);
	if (rc)
		return rc;
	rc = ck_map_add(&w->names, t.name, strlen(t.name), 0, NULL, err);
	if (rc > 0)
		return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
			       "the tensor is added to this file twice");
	if (rc)
		return rc;
	w->tensor[w->ntensors++] = t;
	w->at = t.end;
	if (off_out)
		*off_out = t.begin;
	return 0;
}

/* --------------------------------------------------------------------- text */

static int by_key(const void *a, const void *b)
{
	const struct out_meta *x = a, *y = b;

	return strcmp(x->fact.key, y->fact.key);
}

static int add_string(struct ck_buf *buf, const char *s, struct ckpt_err *err)
{
	return ck_buf_add_json(buf, s, strlen(s), err);
}

/* '*fill_out' stays as it is unless the key is met and its value needs no escape. */
static int add_meta(struct ck_buf *buf, struct out_meta *m, const char *fill_key,
		    uint64_t *fill_out, struct ckpt_err *err)
{
	const struct ck_fact *f = &m->fact;
	uint64_t before;
	int rc = add_string(buf, f->key, err);

	if (!rc)
		rc = ck_buf_adds(buf, ":", err);
	if (rc)
		return rc;
	before = buf->len;
	rc = add_string(buf, f->value, err);
	if (!rc && buf->len - before == strlen(f->value) + 2)
		m->at = before + 1;
	if (rc || !fill_key || strcmp(fill_key, f->key))
		return rc;
	if (buf->len - before != strlen(f->value) + 2)
		return ck_fail(err, CKPT_E_USAGE, fill_key, CKPT_NO_OFFSET,
			       "a value that is filled in later must not need escapes");
	*fill_out = before + 1;
	return 0;
}

static int add_metadata(struct ck_st_writer *w, struct ck_buf *buf, const char *fill_key,
			uint64_t *fill_out, struct ckpt_err *err)
{
	int rc;

	if (!w->nmeta)
		return 0;
	qsort(w->meta, w->nmeta, sizeof(*w->meta), by_key);
	rc = ck_buf_adds(buf, "\"__metadata__\":{", err);
	for (uint64_t i = 0; !rc && i < w->nmeta; i++) {
		if (i)
			rc = ck_buf_adds(buf, ",", err);
		if (!rc)
			rc = add_meta(buf, &w->meta[i], fill_key, fill_out, err);
	}
	if (!rc)
		rc = ck_buf_adds(buf, w->ntensors ? "}," : "}", err);
	return rc;
}

static int add_tensor(struct ck_buf *buf, const struct out_tensor *t, struct ckpt_err *err)
{
	int rc = add_string(buf, t->name, err);

	if (!rc)
		rc = ck_buf_addf(buf, err, ":{\"dtype\":\"%s\",\"shape\":[",
				 ckpt_dtype_name(t->dtype));
	for (uint32_t i = 0; !rc && i < t->ndim; i++)
		rc = ck_buf_addf(buf, err, "%s%" PRIu64, i ? "," : "", t->shape[i]);
	if (!rc)
		rc = ck_buf_addf(buf, err, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
				 t->begin, t->end);
	return rc;
}

static int add_text(struct ck_st_writer *w, struct ck_buf *buf, const char *fill_key,
		    uint64_t *fill_out, struct ckpt_err *err)
{
	int rc = ck_buf_add(buf, "\0\0\0\0\0\0\0\0{", 9, err);

	if (!rc)
		rc = add_metadata(w, buf, fill_key, fill_out, err);
	for (uint64_t i = 0; !rc && i < w->ntensors; i++) {
		if (i)
			rc = ck_buf_adds(buf, ",", err);
		if (!rc)
			rc = add_tensor(buf, &w->tensor[i], err);
	}
	if (!rc)
		rc = ck_buf_adds(buf, "}", err);
	return rc;
}

static int pad(struct ck_buf *buf, uint32_t align, struct ckpt_err *err)
{
	const uint64_t over = buf->len % align;
	int rc = 0;

	for (uint64_t n = over ? align - over : 0; !rc && n; n--)
		rc = ck_buf_add(buf, " ", 1, err);
	return rc;
}

int ck_st_writer_finish(struct ck_st_writer *w, uint32_t align, char **header_out,
			uint64_t *len_out, const char *fill_key, uint64_t *fill_off_out,
			struct ckpt_err *err)
{
	/* The bound is the format's, with room for the length and the padding. */
	struct ck_buf buf = CK_BUF_INIT((size_t)CK_ST_MAX_HEADER + 8);
	uint64_t fill = 0;
	int rc;

	if (align > MAX_ALIGN || (align & (align - 1)))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "an alignment of %" PRIu32 " is not a power of two up to "
			       "%d", align,
			       MAX_ALIGN);
	rc = add_text(w, &buf, fill_key, &fill, err);
	if (!rc)
		rc = pad(&buf, align > 8 ? align : 8, err);
	if (!rc && fill_key && !fill)
		rc = ck_fail(err, CKPT_E_USAGE, fill_key, CKPT_NO_OFFSET,
			     "no metadata value was added under this key");
	if (rc) {
		ck_buf_release(&buf);
		return rc;
	}
	ck_put_le64((uint8_t *)buf.p, buf.len - 8);
	*len_out = buf.len;
	if (fill_key)
		*fill_off_out = fill;
	*header_out = ck_buf_take(&buf);
	return 0;
}

bool ck_st_writer_value_at(const struct ck_st_writer *w, const char *key, uint64_t *off_out)
{
	const struct out_meta wanted = { .fact.key = key };
	const struct out_meta *m = NULL;

	if (w->nmeta)
		m = bsearch(&wanted, w->meta, w->nmeta, sizeof(wanted), by_key);
	if (!m || !m->at)
		return false;
	*off_out = m->at;
	return true;
}

int ck_st_order(enum ckpt_dtype a, const char *a_name, enum ckpt_dtype b, const char *b_name)
{
	const enum ckpt_dtype x = a == CKPT_F4X2 ? CKPT_F4 : a;
	const enum ckpt_dtype y = b == CKPT_F4X2 ? CKPT_F4 : b;

	if (x != y)
		return x > y ? -1 : 1;
	return strcmp(a_name, b_name);
}
