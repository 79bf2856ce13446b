/*
 * dcp_meta_write.c -- '.metadata', in the form that torch 2.4 and all later ones read: properties
 * of five items, "version", no "storage_meta" (docs/formats/dcp.md, "Written"); or in that of torch
 * before 2.4, which has the class of the properties elsewhere, and neither of the two keys.
 */
#include "formats/dcp/dcp_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/pickle/ck_pkl_emit.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define METADATA "torch.distributed.checkpoint.metadata"
#define OLD_METADATA "torch.distributed._shard.sharded_tensor.metadata"
#define FILESYSTEM "torch.distributed.checkpoint.filesystem"

static struct ck_val *object(struct ck_arena *a, const char *module, const char *cls,
			     struct ck_val *state)
{
	struct ck_val *v = ck_val_new_object(a, CK_HOW_NEWOBJ, ck_val_new_global(a, module, cls),
					     ck_val_new_tuple(a, NULL, 0));

	if (v)
		v->u.obj->state = state;
	return v;
}

/* fn(arg) */
static struct ck_val *call(struct ck_arena *a, const char *module, const char *fn,
			   struct ck_val *arg)
{
	return ck_val_new_object(a, CK_HOW_REDUCE, ck_val_new_global(a, module, fn),
				 ck_val_new_tuple(a, &arg, arg ? 1 : 0));
}

/* ---- tensors ---- */

/* Where a block begins, or how large it is: rows of the tensor. */
static struct ck_val *rows_of(struct dcp_out *o, const struct dcp_entry *e,
			      const struct dcp_spot *s, bool is_size)
{
	const uint64_t rows = is_size ? s->rows : s->row;
	uint64_t *dim = ck_arena_zalloc(o->arena, ((uint64_t)e->ndim + 1) * sizeof(*dim));

	if (s->from)
		return ck_val_new_size(o->arena, is_size ? s->from->size : s->from->offset,
				       e->ndim);
	if (!dim)
		return NULL;
	for (uint32_t k = 0; k < e->ndim; k++)
		dim[k] = k ? is_size ? e->shape[k] : 0 : rows;
	return ck_val_new_size(o->arena, dim, e->ndim);
}

static struct ck_val *properties(struct dcp_out *o, const struct dcp_entry *e)
{
	struct ck_arena *a = o->arena;
	const char *module = o->is_old ? OLD_METADATA : METADATA;
	const char *encoding = o->is_old ? "MEM_FORMAT_ENCODING" : "_MEM_FORMAT_ENCODING";
	struct ck_val *item[5] = {
		ck_val_new_global(a, "torch", ck_dtype_info(e->dtype)->torch),
		call(a, "torch.serialization", "_get_layout", ck_val_new_str(a, "torch.strided")),
		ck_val_new_bool(a, false),
		call(a, module, encoding, ck_val_new_int(a, 0)),
		ck_val_new_bool(a, false),
	};

	return object(a, module, "TensorProperties", ck_val_new_tuple(a, item, 5));
}

static struct ck_val *tensor(struct dcp_out *o, const struct dcp_entry *e)
{
	struct ck_arena *a = o->arena;
	struct ck_val *chunks = ck_val_new_list(a), *d = ck_val_new_dict(a);

	for (uint64_t i = 0; i < e->nspots; i++) {
		const struct dcp_spot *s = &e->spot[i];
		struct ck_val *at = ck_val_new_dict(a);

		at = ck_val_dict_sets(a, at, "offsets", rows_of(o, e, s, false));
		at = ck_val_dict_sets(a, at, "sizes", rows_of(o, e, s, true));
		chunks = ck_val_list_add(a, chunks,
					 object(a, METADATA, "ChunkStorageMetadata", at));
	}
	d = ck_val_dict_sets(a, d, "properties", properties(o, e));
	d = ck_val_dict_sets(a, d, "size", ck_val_new_size(a, e->shape, e->ndim));
	d = ck_val_dict_sets(a, d, "chunks", chunks);
	return d ? object(a, METADATA, "TensorStorageMetadata", d) : NULL;
}

/* ---- places ---- */

static struct ck_val *index_of(struct dcp_out *o, const struct dcp_entry *e,
			       const struct dcp_spot *s, uint64_t number)
{
	struct ck_arena *a = o->arena;
	struct ck_val *d = ck_val_dict_sets(a, ck_val_new_dict(a), "fqn",
					    ck_val_new_str(a, e->name));

	if (e->is_tensor)
		d = ck_val_dict_sets(a, d, "offset", rows_of(o, e, s, false));
	d = ck_val_dict_sets(a, d, "index", !e->is_tensor ? ck_val_new_none(a) :
			     ck_val_new_int(a, (int64_t)number));
	return d ? object(a, METADATA, "MetadataIndex", d) : NULL;
}

static struct ck_val *place_of(struct dcp_out *o, const struct dcp_spot *s)
{
	struct ck_arena *a = o->arena;
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "relative_path",
			     ck_val_new_str(a, ck_arena_printf(a, "__%u_0.distcp", s->rank)));
	d = ck_val_dict_sets(a, d, "offset", ck_val_new_int(a, (int64_t)s->begin));
	d = ck_val_dict_sets(a, d, "length", ck_val_new_int(a, (int64_t)s->bytes));
	return d ? object(a, FILESYSTEM, "_StorageInfo", d) : NULL;
}

/* ---- */

static struct ck_val *make(struct dcp_out *o, uint8_t part)
{
	struct ck_arena *a = o->arena;
	struct ck_val *items = ck_val_new_dict(a), *paths = ck_val_new_dict(a);
	struct ck_val *places = ck_val_new_dict(a), *d = ck_val_new_dict(a);

	for (uint64_t i = 0; i < o->n; i++) {
		const struct dcp_entry *e = &o->entry[i];
		struct ck_val *name = ck_val_new_str(a, e->name);

		if (e->part != part)
			continue;
		items = ck_val_dict_add(a, items, name, e->is_tensor ? tensor(o, e) :
					object(a, METADATA, "BytesStorageMetadata", NULL));
		paths = ck_val_dict_add(a, paths, name, e->path);
		for (uint64_t k = 0; k < e->nspots; k++)
			places = ck_val_dict_add(a, places, index_of(o, e, &e->spot[k], k),
						 place_of(o, &e->spot[k]));
	}
	d = ck_val_dict_sets(a, d, "state_dict_metadata", items);
	d = ck_val_dict_sets(a, d, "planner_data", paths);
	d = ck_val_dict_sets(a, d, "storage_data", places);
	if (!o->is_old) {
		d = ck_val_dict_sets(a, d, "storage_meta", ck_val_new_none(a));
		d = ck_val_dict_sets(a, d, "version", ck_val_new_str(a, "1.0.0"));
	}
	return d ? object(a, METADATA, "Metadata", d) : NULL;
}

int ck_dcp_meta_write(struct dcp_out *o, uint8_t part, struct ckpt_err *err)
{
	const struct ck_val *root = make(o, part);
	const char *name = ck_arena_printf(o->arena, "%s/%s.metadata", o->tag,
					   ck_dcp_layout_folder(o, part));
	struct ckpt_limits limits;
	char *pickle = NULL;
	uint64_t n = 0;
	int rc;

	if (!root || !name)
		return ck_fail_nomem(err, "an index", o->n);
	ck_limits_fill(NULL, &limits);
	rc = ck_pkl_emit(root, &limits, NULL, NULL, &pickle, &n, err);
	if (!rc)
		rc = ck_plan_file(o->plan, name, err);
	if (!rc)
		rc = ck_plan_literal(o->plan, pickle, n, err);
	ck_free(pickle);
	return rc;
}
