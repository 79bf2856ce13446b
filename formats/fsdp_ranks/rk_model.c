/*
 * rk_model.c -- the tensors of the model files, by name: blocks of all ranks, and tied names.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/tensor/ck_dtype.h"

#define SAMPLES 16u
#define SAMPLE_BYTES 4096u
#define VARIED 8u	/* neighbours that differ: no tensor of one value */

/* ---- states ---- */

static bool same_shape(const struct rk_state *s, const struct rk_value *v)
{
	return s->dtype == v->dtype && s->ndim == v->ndim &&
	       (!s->ndim || !memcmp(s->shape, v->shape, s->ndim * sizeof(*s->shape)));
}

int ck_rk_state_add(struct rk *r, struct rk_state *s, const char *where, const struct rk_file *file,
		 const struct rk_value *v, struct ckpt_err *err)
{
	int rc;

	if (!s->dtype) {
		s->dtype = v->dtype;
		s->ndim = v->ndim;
		s->shape = v->shape;
		rc = ck_shape_numel(v->shape, v->ndim, &s->numel, err);
		if (rc)
			return rc;
	}
	if (!same_shape(s, v)) {
		ck_findings_add(r->f, CK_FINDING_RANKS_DISAGREE, where,
				"%s has another type or shape of it than the ranks before (files "
				"of two saves in one folder?)", file->name);
		return 0;
	}
	if (!v->t)
		return 0;
	rc = ck_grow(&s->block, &s->block_cap, s->nblocks + 1, sizeof(*s->block), err);
	if (!rc)
		s->block[s->nblocks++] = (struct rk_block){
			.file = file, .t = v->t, .offset = v->offset, .size = v->size,
			.numel = v->numel,
		};
	return rc;
}

/* ---- names ---- */

static int refuse_flat(const struct rk_file *file, const char *name, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
		       "LOCAL_STATE_DICT of FSDP: '%.60s' joins the parameters of a module, and no "
		       "file says their names and shapes; resume the run on as many ranks and save "
		       "with fsdp_state_dict_type SHARDED_STATE_DICT or FULL_STATE_DICT", name);
}

static int add_tensor(struct rk *r, const char *full, uint64_t *at_out, struct ckpt_err *err)
{
	const char *name = ck_rk_name_clean(r, full, strlen(full));
	int rc;

	if (!name)
		return ck_fail_nomem(err, "a name", strlen(full));
	rc = ck_map_add(&r->by_name, name, strlen(name), r->ntensors, at_out, err);
	if (rc)
		return rc < 0 ? rc : 0;
	*at_out = r->ntensors;
	rc = ck_grow(&r->tensor, &r->tensor_cap, r->ntensors + 1, sizeof(*r->tensor), err);
	if (!rc)
		r->tensor[r->ntensors++] = (struct rk_tensor){
			.name = name, .full = full, .weight.name = "weight", .group = -1,
			.entry = UINT64_MAX, .alias_of = CK_NONE, .number = CK_NONE,
		};
	return rc;
}

static void note_opaque(struct rk *r, const struct rk_file *file, const char *name,
			const struct ck_val *v)
{
	if (v && v->kind == CK_VAL_OBJECT && file == r->model[0])
		ck_findings_add(r->f, CK_FINDING_TENSOR_OPAQUE, name,
				"left out: it is neither a tensor nor a DTensor or ShardedTensor");
}

static int take_value(struct rk *r, struct rk_file *file, const char *name, const struct ck_val *v,
		      struct ckpt_err *err)
{
	struct rk_value value;
	struct rk_tensor *t;
	uint64_t at = 0;
	int rc = ck_rk_value_read(r, file, v, &value, err);

	if (!rc && !value.is_tensor)
		note_opaque(r, file, name, v);
	if (rc || !value.is_tensor)
		return rc;
	if (value.sharded && value.parts <= r->world && value.part < value.parts) {
		r->parts = value.parts;
		r->part[file->id.rank] = value.part;
	}
	rc = add_tensor(r, name, &at, err);
	if (rc)
		return rc;
	t = &r->tensor[at];
	if (strcmp(t->full, name) != 0) {
		ck_findings_add(r->f, CK_FINDING_TENSOR_DUPLICATE, name,
				"two tensors are called %s without the names of wrappers",
				t->name);
		return 0;
	}
	t->ranks++;
	t->sharded |= value.sharded;
	r->any_sharded |= value.sharded;
	return ck_rk_state_add(r, &t->weight, name, file, &value, err);
}

static bool is_flat(const char *name)
{
	return !strcmp(name, "_flat_param") || ck_ends_with(name, "._flat_param");
}

static int read_file(struct rk *r, struct rk_file *file, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(file->pt->doc.root, &item, &n))
		return ck_fail(
			err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			"it holds no dictionary of tensors, so it is no model file of a rank");
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && is_flat(name))
			return refuse_flat(file, name, err);
		if (name && *name)
			rc = take_value(r, file, name, item[2 * i + 1], err);
	}
	return rc;
}

/* FSDP writes every name on every rank, with a part that may be empty. */
static void check_names(struct rk *r)
{
	for (uint64_t i = 0; i < r->ntensors && !r->incomplete; i++)
		if (r->tensor[i].ranks < r->world)
			ck_findings_add(r->f, CK_FINDING_RANKS_DISAGREE, r->tensor[i].full,
					"model files of %u of %u ranks have it (files of two saves "
					"in one folder?)", r->tensor[i].ranks, r->world);
}

/* ---- tied names ---- */

/* What the blocks of a tensor are, on every rank; NULL for one without elements. */
static const char *key_of(struct rk *r, const struct rk_state *s, size_t *n_out,
			  struct ckpt_err *err)
{
	struct ck_hash128 h = { 0, 0 }, *key;

	for (uint64_t i = 0; i < s->nblocks; i++) {
		struct ck_hash128 both[3];
		const char *part;
		size_t n;

		if (!s->block[i].numel)
			continue;
		part = ck_pt_view_key(&r->arena, s->block[i].t, 0, &n);
		if (!part) {
			ck_fail_nomem(err, "a key", 0);
			return NULL;
		}
		both[0] = h;
		both[1] = ck_hash128(part, n);
		both[2] = (struct ck_hash128){ s->block[i].file->id.rank, 1 };
		h = ck_hash128(both, sizeof(both));
	}
	*n_out = sizeof(h);
	if (!h.lo && !h.hi)
		return NULL;
	key = ck_arena_alloc(&r->arena, sizeof(h));
	if (!key) {
		ck_fail_nomem(err, "a key", sizeof(h));
		return NULL;
	}
	*key = h;
	return (const char *)key;
}

/* The same elements of the same storages, on every rank. */
static int find_tied(struct rk *r, struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	struct ckpt_err inner = { 0 };
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < r->ntensors; i++) {
		struct rk_tensor *t = &r->tensor[i];
		uint64_t first;
		size_t n;
		const char *key = key_of(r, &t->weight, &n, &inner);

		if (inner.code)
			rc = ck_fail_nomem(err, "a key", 0);
		if (rc || !key)
			continue;
		rc = ck_map_add(&seen, key, n, i, &first, err);
		if (rc == 1 && r->tensor[first].weight.ndim == t->weight.ndim &&
		    (!t->weight.ndim || !memcmp(r->tensor[first].weight.shape, t->weight.shape,
						t->weight.ndim * sizeof(*t->weight.shape))))
			t->alias_of = (uint32_t)first;
		rc = rc < 0 ? rc : 0;
	}
	ck_map_release(&seen);
	return rc;
}

/* ---- names that look tied ---- */

/* Samples of the first block that has elements; false if they do not vary, or are no run. */
static int sample(struct rk *r, const struct rk_state *s, struct ck_hash128 *out, bool *yes,
		  struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)s->dtype) / 8;
	struct ck_hash128 part[SAMPLES + 2] = { { s->numel, s->dtype } };
	const struct rk_block *b = s->block;
	uint8_t bytes[SAMPLE_BYTES];
	struct ck_extent e;
	uint64_t i = 0, n, changes = 0;
	int rc;

	*yes = false;
	while (i < s->nblocks && !b[i].numel)
		i++;
	if (i == s->nblocks || !es)
		return 0;
	b = &b[i];
	rc = ck_pt_extent(b->file->pt, b->t, 0, b->numel, 0, b->file->source, 0, r->ix, &e, err);
	if (rc || e.runs != 1 || (e.flags & (CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER)))
		return rc;
	n = ck_min_u64(b->numel * es, SAMPLE_BYTES);
	part[1] = ck_hash128(s->shape, s->ndim * sizeof(*s->shape));
	for (uint64_t k = 0; !rc && k < SAMPLES; k++) {
		rc = ck_src_read(r->ix->source[e.source].src,
				 e.off + (b->numel * es - n) / SAMPLES * k, bytes, n, err);
		if (rc)
			break;
		part[k + 2] = ck_hash128(bytes, n);
		for (uint64_t j = es; j + es <= n; j += es)
			changes += memcmp(bytes + j, bytes + j - es, es) != 0;
	}
	if (rc == -CKPT_E_CANCELED || rc == -CKPT_E_NOMEM)
		return rc;
	if (rc) {	/* who wants its elements gets the error itself */
		ck_findings_add(r->f, CK_FINDING_FILE_DAMAGED, b->file->path, "%s", err->msg);
		ck_err_clear(err);
		return 0;
	}
	*out = ck_hash128(part, sizeof(part));
	*yes = changes >= VARIED;
	return 0;
}

int ck_rk_model_twins(struct rk *r, uint32_t *of_out, struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < r->ntensors; i++) {
		const struct rk_tensor *t = &r->tensor[i];
		struct ck_hash128 *key = ck_arena_alloc(&r->arena, sizeof(*key));
		uint64_t first;
		bool yes = false;

		of_out[i] = t->alias_of;
		if (!key)
			rc = ck_fail_nomem(err, "a key", sizeof(*key));
		else if (t->alias_of == CK_NONE && t->weight.ndim > 1)
			rc = sample(r, &t->weight, key, &yes, err);
		if (!rc && yes)
			rc = ck_map_add(&seen, (const char *)key, sizeof(*key), i, &first, err);
		if (rc == 1)
			of_out[i] = (uint32_t)first;
		rc = rc < 0 ? rc : 0;
	}
	ck_map_release(&seen);
	return rc;
}

/* ---- */

int ck_rk_model_read(struct rk *r, struct ckpt_err *err)
{
	int rc = 0;

	r->part = ck_arena_zalloc(&r->arena, r->world * sizeof(*r->part));
	if (!r->part)
		return ck_fail_nomem(err, "a list of ranks", r->world);
	r->parts = r->world;
	for (uint32_t i = 0; i < r->world; i++)
		r->part[i] = i;
	for (uint32_t i = 0; !rc && i < r->world; i++) {
		struct rk_file *file = r->model[i];

		if (!file || !file->ok || !file->pt)
			continue;
		rc = read_file(r, file, err);
		if (rc == -CKPT_E_CORRUPT) {
			ck_findings_add(r->f, CK_FINDING_FILE_DAMAGED, file->path, "%s", err->msg);
			ck_err_clear(err);
			r->incomplete = true;
			rc = 0;
		}
	}
	if (rc)
		return rc;
	check_names(r);
	return find_tied(r, err);
}
