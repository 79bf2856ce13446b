/* A safetensors reader for tests: 8 bytes of header length, JSON, data. */
#define _GNU_SOURCE
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fs/t_dir.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(struct t_st *st, const char *what, const char *name)
{
	snprintf(st->err, sizeof(st->err), "%s%s%s", what, name ? ": " : "",
		 name ? name : "");
	return -1;
}

size_t t_st_itemsize(const char *dtype)
{
	static const struct {
		const char *name;
		size_t size;
	} table[] = {
		{ "BOOL", 1 }, { "U8", 1 }, { "I8", 1 }, { "F8_E5M2", 1 },
		{ "F8_E4M3", 1 }, { "F8_E8M0", 1 }, { "F8_E4M3FNUZ", 1 },
		{ "F8_E5M2FNUZ", 1 }, { "I16", 2 }, { "U16", 2 }, { "F16", 2 },
		{ "BF16", 2 }, { "I32", 4 }, { "U32", 4 }, { "F32", 4 },
		{ "I64", 8 }, { "U64", 8 }, { "F64", 8 }, { "C64", 8 },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(table[i].name, dtype))
			return table[i].size;
	return 0;
}

int t_st_is_float(const char *dtype)
{
	return dtype[0] == 'F' || dtype[0] == 'B' ? strcmp(dtype, "BOOL") != 0 : 0;
}

static int read_shape(struct t_st *st, struct t_st_tensor *t, const cJSON *shape)
{
	const cJSON *dim;

	if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > T_ST_DIMS)
		return fail(st, "bad shape", t->name);
	t->count = 1;
	cJSON_ArrayForEach(dim, shape) {
		if (!cJSON_IsNumber(dim) || dim->valuedouble < 0)
			return fail(st, "bad dimension", t->name);
		t->shape[t->ndim++] = (int64_t)dim->valuedouble;
		t->count *= (uint64_t)dim->valuedouble;
	}
	return 0;
}

static int read_tensor(struct t_st *st, struct t_st_tensor *t, const cJSON *j,
		       const uint8_t *data, uint64_t room)
{
	const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(j, "dtype");
	const cJSON *offs = cJSON_GetObjectItemCaseSensitive(j, "data_offsets");
	uint64_t from, to;

	if (!cJSON_IsString(dtype) || strlen(dtype->valuestring) > 15)
		return fail(st, "no dtype", t->name);
	snprintf(t->dtype, sizeof(t->dtype), "%s", dtype->valuestring);
	if (read_shape(st, t, cJSON_GetObjectItemCaseSensitive(j, "shape")) < 0)
		return -1;
	if (!cJSON_IsArray(offs) || cJSON_GetArraySize(offs) != 2)
		return fail(st, "no data_offsets", t->name);
	from = (uint64_t)cJSON_GetArrayItem(offs, 0)->valuedouble;
	to = (uint64_t)cJSON_GetArrayItem(offs, 1)->valuedouble;
	if (from > to || to > room)
		return fail(st, "data_offsets leave the file", t->name);
	t->data = data + from;
	t->nbytes = to - from;
	if (t->nbytes != t->count * t_st_itemsize(t->dtype))
		return fail(st, "byte count does not fit dtype and shape", t->name);
	return 0;
}

static int read_meta(struct t_st *st, const cJSON *j)
{
	const cJSON *m;

	if (!cJSON_IsObject(j))
		return fail(st, "__metadata__ is no object", NULL);
	st->meta = t_alloc((size_t)cJSON_GetArraySize(j) * sizeof(*st->meta));
	cJSON_ArrayForEach(m, j) {
		if (!cJSON_IsString(m))
			return fail(st, "metadata value is no string", m->string);
		st->meta[st->n_meta].key = t_fmt("%s", m->string);
		st->meta[st->n_meta++].value = t_fmt("%s", m->valuestring);
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct t_st_tensor *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int by_data(const void *a, const void *b)
{
	const struct t_st_tensor *const *x = a, *const *y = b;

	if ((*x)->data != (*y)->data)
		return (*x)->data < (*y)->data ? -1 : 1;
	return (*x)->nbytes < (*y)->nbytes ? -1 : (*x)->nbytes > (*y)->nbytes;
}

/* Every byte of the data belongs to exactly one tensor; names are unique. */
static int check_cover(struct t_st *st, const uint8_t *data)
{
	const struct t_st_tensor **order = t_alloc(st->n_tensors * sizeof(*order));
	const uint8_t *at = data;
	int bad = 0;

	for (size_t i = 0; i < st->n_tensors; i++)
		order[i] = &st->tensors[i];
	if (st->n_tensors)
		qsort(order, st->n_tensors, sizeof(*order), by_data);
	for (size_t i = 0; i < st->n_tensors && !bad; i++) {
		if (order[i]->data != at)
			bad = fail(st, "hole or overlap before", order[i]->name);
		at = order[i]->data + order[i]->nbytes;
	}
	if (!bad && at != st->bytes + st->size)
		bad = fail(st, "bytes after the last tensor", NULL);
	for (size_t i = 1; i < st->n_tensors && !bad; i++)
		if (!strcmp(st->tensors[i - 1].name, st->tensors[i].name))
			bad = fail(st, "duplicate name", st->tensors[i].name);
	free(order);
	return bad;
}

static int read_header(struct t_st *st, const cJSON *root, const uint8_t *data,
		       uint64_t room)
{
	const cJSON *j;

	if (!cJSON_IsObject(root))
		return fail(st, "the header is no JSON object", NULL);
	st->tensors = t_alloc((size_t)cJSON_GetArraySize(root)
			      * sizeof(*st->tensors));
	cJSON_ArrayForEach(j, root) {
		struct t_st_tensor *t = &st->tensors[st->n_tensors];

		if (!strcmp(j->string, "__metadata__")) {
			if (read_meta(st, j) < 0)
				return -1;
			continue;
		}
		t->name = t_fmt("%s", j->string);
		st->n_tensors++;
		if (read_tensor(st, t, j, data, room) < 0)
			return -1;
	}
	if (st->n_tensors)
		qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), by_name);
	return check_cover(st, data);
}

int t_st_open(struct t_st *st, const char *path)
{
	uint64_t n = 0;
	cJSON *root;
	char *text;
	int rc;

	memset(st, 0, sizeof(*st));
	st->bytes = t_file_read(path, &st->size);
	if (!st->bytes)
		return fail(st, "cannot read", path);
	if (st->size < 8)
		return fail(st, "shorter than 8 bytes", path);
	for (int i = 7; i >= 0; i--)
		n = n << 8 | st->bytes[i];
	if (n > st->size - 8)
		return fail(st, "the header is longer than the file", path);
	text = t_alloc(n + 1);
	memcpy(text, st->bytes + 8, n);
	root = cJSON_Parse(text);
	free(text);
	rc = read_header(st, root, st->bytes + 8 + n, st->size - 8 - n);
	cJSON_Delete(root);
	return rc;
}

void t_st_close(struct t_st *st)
{
	for (size_t i = 0; i < st->n_tensors; i++)
		free(st->tensors[i].name);
	for (size_t i = 0; i < st->n_meta; i++) {
		free(st->meta[i].key);
		free(st->meta[i].value);
	}
	free(st->tensors);
	free(st->meta);
	free(st->bytes);
	memset(st, 0, sizeof(*st));
}

const struct t_st_tensor *t_st_find(const struct t_st *st, const char *name)
{
	size_t lo = 0, hi = st->n_tensors;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, st->tensors[mid].name);

		if (!c)
			return &st->tensors[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

const char *t_st_meta(const struct t_st *st, const char *key)
{
	for (size_t i = 0; i < st->n_meta; i++)
		if (!strcmp(st->meta[i].key, key))
			return st->meta[i].value;
	return NULL;
}

const char *t_st_say(const struct t_st_tensor *t)
{
	static char ring[4][128];
	static int turn;
	char *s = ring[turn++ & 3];
	size_t n = (size_t)snprintf(s, 128, "%s [", t->dtype);

	for (int i = 0; i < t->ndim && n < 100; i++)
		n += (size_t)snprintf(s + n, 128 - n, "%s%lld", i ? "," : "",
				      (long long)t->shape[i]);
	snprintf(s + n, 128 - n, "]");
	return s;
}
