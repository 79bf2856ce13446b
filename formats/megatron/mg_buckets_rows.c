/*
 * mg_buckets_rows.c -- the buckets of an optimizer, from the items that have their states.
 *
 *	[chained_C.]optimizer.distributed.dp_group_idx_G.
 *		gbuf_idx_I.dtype_(P, G).bucket_idx_B.{param,exp_avg,exp_avg_sq}	a tensor
 *		param_state/shard_0_1	one value: {I: {(P, G): {"param": tensor, ...}}}
 *
 * A row of the second form is all buckets of a buffer without the padding between them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg_buckets.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define GROUP ".dp_group_idx_"
#define ONE_OBJECT ".param_state/shard_"

static const char *const state_name[MG_IN_BUCKET] = { "param", "exp_avg", "exp_avg_sq" };

static bool number_after(const char **at, const char *word, uint32_t *out)
{
	const size_t n = strlen(word);
	uint64_t v = 0;
	const char *p = *at;

	if (strncmp(p, word, n) || p[n] < '0' || p[n] > '9')
		return false;
	for (p += n; *p >= '0' && *p <= '9'; p++) {
		v = v * 10 + (uint64_t)(*p - '0');
		if (v > INT32_MAX)
			return false;
	}
	*out = (uint32_t)v;
	*at = p;
	return true;
}

/* A state of a bucket, by the name of its item. */
static bool is_bucket(const char *flat, struct mg_bucket *out, const char **state_out)
{
	const char *at = strstr(flat, GROUP), *dtype;

	if (!at || !number_after(&at, GROUP, &out->position) ||
	    !number_after(&at, ".gbuf_idx_", &out->buffer) || strncmp(at, ".dtype_", 7))
		return false;
	dtype = strstr(at, ").bucket_idx_");
	at = dtype ? dtype + 1 : at;
	if (!dtype || !number_after(&at, ".bucket_idx_", &out->number) || *at != '.')
		return false;
	*state_out = at + 1;
	return true;
}

static bool is_one_object(const struct dcp_item *it, struct mg_bucket *out)
{
	const char *at = strstr(it->flat, GROUP);

	return at && !it->is_tensor && number_after(&at, GROUP, &out->position) &&
	       !strncmp(at, ONE_OBJECT, strlen(ONE_OBJECT));
}

uint64_t ck_mg_buckets_count(const struct mg *mg, uint64_t *bytes_out)
{
	uint64_t n = 0, bytes = 0;

	for (uint64_t i = 0; i < mg->fs.nitems; i++) {
		const struct dcp_item *it = &mg->fs.item[i];
		struct mg_bucket b;
		const char *state;

		if (it->is_tensor && is_bucket(it->flat, &b, &state)) {
			n++;
			if (!strcmp(state, state_name[0]))
				bytes += it->numel * (ckpt_dtype_bits(it->dtype) / 8);
		} else if (is_one_object(it, &b)) {
			n++;
			for (uint64_t k = 0; k < it->nchunks; k++)
				bytes += it->chunk[k].at.bytes / MG_IN_BUCKET;
		}
	}
	*bytes_out = bytes;
	return n;
}

/* The bucket of that name. */
static int bucket_named(struct mg_find *s, const struct mg_bucket *b, const char *flat, size_t n,
			struct mg_bucket **out, struct ckpt_err *err)
{
	const char *name = ck_arena_strndup(&s->arena, flat, n);
	const char *family = ck_arena_strndup(&s->arena, flat,
					      (size_t)(strstr(flat, GROUP) - flat));
	uint64_t id = s->nbuckets;
	int rc;

	if (!name || !family)
		return ck_fail_nomem(err, "a bucket", n);
	rc = ck_map_add(&s->by_name, name, n, id, &id, err);
	if (!rc)
		rc = ck_grow(&s->bucket, &s->bucket_cap, id + 1, sizeof(*s->bucket), err);
	else if (rc > 0)
		goto found;
	if (rc)
		return rc;
	s->bucket[s->nbuckets] = *b;
	s->bucket[s->nbuckets].name = name;
	s->bucket[s->nbuckets++].family = family;
found:
	*out = &s->bucket[id];
	return 0;
}

static int room(struct mg_find *s, struct mg_row *row, uint64_t n, struct ckpt_err *err)
{
	row->run = ck_arena_alloc(&s->arena, n * sizeof(*row->run));
	row->file = ck_arena_alloc(&s->arena, n * sizeof(*row->file));
	return row->run && row->file ? 0 : ck_fail_nomem(err, "pieces of a bucket", n);
}

static int by_offset(const void *a, const void *b)
{
	const struct dcp_chunk *x = *(const struct dcp_chunk *const *)a;
	const struct dcp_chunk *y = *(const struct dcp_chunk *const *)b;

	return x->offset[0] < y->offset[0] ? -1 : x->offset[0] > y->offset[0];
}

/* Pieces that can be read and leave no hole; else the row has no run. */
static int add_row(struct mg_find *s, const struct dcp_item *it, struct mg_row *row,
		   struct ckpt_err *err)
{
	const struct dcp_files *fs = &s->mg->fs;
	const struct dcp_chunk **c = ck_alloc_array(it->nchunks, sizeof(*c));
	uint64_t at = 0;
	int rc = c ? room(s, row, it->nchunks + 1, err) :
		     ck_fail_nomem(err, "pieces of a bucket", it->nchunks);

	row->dtype = it->dtype;
	row->numel = it->numel;
	for (uint64_t i = 0; !rc && i < it->nchunks; i++)
		c[i] = &it->chunk[i];
	if (!rc)
		qsort(c, it->nchunks, sizeof(*c), by_offset);
	for (uint64_t i = 0; !rc && i < it->nchunks; i++) {
		const struct dcp_file *file;

		if (!c[i]->numel)
			continue;
		if (!c[i]->is_read || c[i]->at.file == CK_NONE || c[i]->offset[0] != at)
			break;
		file = &fs->file[c[i]->at.file];
		row->file[row->n] = file;
		row->run[row->n++] = (struct mgp_run){
			.src = fs->ix->source[file->source].src, .off = c[i]->data,
			.first = at, .count = c[i]->numel,
		};
		at += c[i]->numel;
	}
	if (at != it->numel)
		row->n = 0;
	ck_free(c);
	return rc;
}

static int add_tensor(struct mg_find *s, const struct dcp_item *it, struct ckpt_err *err)
{
	struct mg_bucket b = { .name = NULL }, *to;
	const char *state;
	int rc = 0;

	if (it->ndim != 1 || !is_bucket(it->flat, &b, &state))
		return 0;
	for (uint32_t k = 0; !rc && k < MG_IN_BUCKET; k++) {
		if (strcmp(state, state_name[k]))
			continue;
		rc = bucket_named(s, &b, it->flat, (size_t)(state - 1 - it->flat), &to, err);
		if (!rc)
			rc = add_row(s, it, &to->row[k], err);
	}
	return rc;
}

/* A tensor of the object: one run. */
static int add_run(struct mg_find *s, const struct dcp_item *it, const struct ck_tensor_ref *t,
		   struct mg_row *row, struct ckpt_err *err)
{
	const struct dcp_files *fs = &s->mg->fs;
	const struct dcp_chunk *c = it->chunk;
	const struct ck_pt_storage *st = &it->value->pt->storage[t->storage];
	int rc = room(s, row, 1, err);

	if (rc)
		return rc;
	row->dtype = t->dtype;
	row->numel = t->numel;
	if (t->ndim != 1 || !t->numel || (t->numel > 1 && t->stride[0] != 1) || st->deflated ||
	    st->absent || it->value->pt->swapped || t->conj || t->neg)
		return 0;
	row->file[0] = &fs->file[c->at.file];
	row->run[row->n++] = (struct mgp_run){
		.src = fs->ix->source[row->file[0]->source].src,
		.off = c->at.begin + st->off + t->offset * (ckpt_dtype_bits(t->dtype) / 8),
		.count = t->numel,
	};
	return 0;
}

/* The states of one buffer: {(types): {"param": ...}}. */
static int add_buffer(struct mg_find *s, const struct dcp_item *it, struct mg_bucket b,
		      const struct ck_val *types, struct ckpt_err *err)
{
	struct ck_val *const *pair;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(types, &pair, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct mg_bucket *to = NULL;
		const char *name = ck_arena_printf(&s->arena, "%.*s.gbuf_idx_%" PRIu32 ".%" PRIu64,
						   (int)(strstr(it->flat, ONE_OBJECT) - it->flat),
						   it->flat, b.buffer, i);

		if (!name)
			return ck_fail_nomem(err, "a buffer", 0);
		for (uint32_t k = 0; !rc && k < MG_IN_BUCKET; k++) {
			const struct ck_tensor_ref *t = ck_val_tensor(
				ck_val_get(pair[2 * i + 1], state_name[k]));

			if (!t)
				continue;
			rc = bucket_named(s, &b, name, strlen(name), &to, err);
			if (!rc)
				rc = add_run(s, it, t, &to->row[k], err);
		}
	}
	return rc;
}

static int add_object(struct mg_find *s, const struct dcp_item *it, struct ckpt_err *err)
{
	const struct ck_val *root = ck_dcp_value_of(it);
	struct mg_bucket b = { .name = NULL };
	struct ck_val *const *pair;
	uint64_t n;
	int64_t number;
	int rc = 0;

	if (!is_one_object(it, &b) || !root || it->nchunks != 1)
		return 0;
	if (!ck_val_pairs(root, &pair, &n)) {
		root = ck_val_at(root, 0);
		if (!ck_val_pairs(root, &pair, &n))
			return 0;
	}
	for (uint64_t i = 0; !rc && i < n; i++) {
		if (pair[2 * i]->kind != CK_VAL_INT || !ck_val_int(pair[2 * i], &number) ||
		    number < 0 || number > INT32_MAX)
			continue;
		b.buffer = (uint32_t)number;
		rc = add_buffer(s, it, b, pair[2 * i + 1], err);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct mg_bucket *x = a, *y = b;
	const int family = strcmp(x->family, y->family);

	if (family)
		return family;
	if (x->position != y->position)
		return x->position < y->position ? -1 : 1;
	if (x->buffer != y->buffer)
		return x->buffer < y->buffer ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

/* The same for the search, without names. */
static int hand_over(struct mg_find *s, struct ckpt_err *err)
{
	struct mgp *p = &s->places;

	p->bucket = ck_arena_zalloc(&s->arena, (s->nbuckets + 1) * sizeof(*p->bucket));
	p->buffer = ck_arena_zalloc(&s->arena, (s->nbuckets + 1) * sizeof(*p->buffer));
	if (!p->bucket || !p->buffer || s->nbuckets >= UINT32_MAX)
		return ck_fail_nomem(err, "buckets", s->nbuckets);
	for (uint32_t i = 0; i < s->nbuckets; i++) {
		const struct mg_bucket *b = &s->bucket[i], *o = i ? b - 1 : NULL;
		const struct mg_row *row = &b->row[0];
		struct mgp_buffer *f;

		p->bucket[i] = (struct mgp_bucket){
			.run = row->run, .nruns = row->n, .numel = row->numel, .dtype = row->dtype,
			.has_borders = s->mg->layout != MG_ZERO_GATHER,
			.why = row->n ? NULL : "its masters are missing or damaged",
		};
		if (!o || strcmp(o->family, b->family) || o->position != b->position ||
		    o->buffer != b->buffer) {
			f = &p->buffer[p->nbuffers++];
			*f = (struct mgp_buffer){ .position = b->position, .bucket = i };
			if (p->nbuffers > 1)
				f->family = f[-1].family + !!strcmp(o->family, b->family);
		}
		p->buffer[p->nbuffers - 1].nbuckets++;
	}
	p->nbuckets = (uint32_t)s->nbuckets;
	return 0;
}

int ck_mg_buckets_read(struct mg_find *s, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->mg->fs.nitems; i++) {
		const struct dcp_item *it = &s->mg->fs.item[i];

		rc = it->is_tensor ? add_tensor(s, it, err) : add_object(s, it, err);
	}
	if (rc)
		return rc;
	qsort(s->bucket, s->nbuckets, sizeof(*s->bucket), by_place);
	return hand_over(s, err);
}
