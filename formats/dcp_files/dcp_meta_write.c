/*
 * dcp_meta_write.c -- '.metadata', in the form that torch 2.4 and all later ones read: properties
 * of five items, "version", no "storage_meta" (docs/formats/dcp.md, "Written"); or in that of torch
 * before 2.4, which has the class of the properties elsewhere, and neither of the two keys.
 */
#include "formats/dcp_files/ck_dcp_out.h"
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

static struct ck_val *properties(const struct ck_dcp_meta *m, struct ck_arena *a, uint8_t dtype)
{
	const char *module = m->is_old ? OLD_METADATA : METADATA;
	const char *encoding = m->is_old ? "MEM_FORMAT_ENCODING" : "_MEM_FORMAT_ENCODING";
	struct ck_val *item[5] = {
		ck_val_new_global(a, "torch", ck_dtype_info(dtype)->torch),
		call(a, "torch.serialization", "_get_layout", ck_val_new_str(a, "torch.strided")),
		ck_val_new_bool(a, false),
		call(a, module, encoding, ck_val_new_int(a, 0)),
		ck_val_new_bool(a, false),
	};

	return object(a, module, "TensorProperties", ck_val_new_tuple(a, item, 5));
}

static struct ck_val *tensor(const struct ck_dcp_meta *m, struct ck_arena *a,
			     const struct ck_dcp_listed *e)
{
	struct ck_val *chunks = ck_val_new_list(a), *d = ck_val_new_dict(a);

	for (uint64_t i = 0; i < e->nblocks; i++) {
		const struct ck_dcp_block *b = &e->block[i];
		struct ck_val *at = ck_val_new_dict(a);

		at = ck_val_dict_sets(a, at, "offsets", ck_val_new_size(a, b->offset, e->ndim));
		at = ck_val_dict_sets(a, at, "sizes", ck_val_new_size(a, b->size, e->ndim));
		chunks = ck_val_list_add(a, chunks,
					 object(a, METADATA, "ChunkStorageMetadata", at));
	}
	d = ck_val_dict_sets(a, d, "properties", properties(m, a, e->dtype));
	d = ck_val_dict_sets(a, d, "size", ck_val_new_size(a, e->shape, e->ndim));
	d = ck_val_dict_sets(a, d, "chunks", chunks);
	return d ? object(a, METADATA, "TensorStorageMetadata", d) : NULL;
}

/* ---- places ---- */

static struct ck_val *index_of(struct ck_arena *a, const struct ck_dcp_listed *e,
			       uint64_t number)
{
	struct ck_val *d = ck_val_dict_sets(a, ck_val_new_dict(a), "fqn",
					    ck_val_new_str(a, e->name));

	if (e->is_tensor)
		d = ck_val_dict_sets(a, d, "offset",
				     ck_val_new_size(a, e->block[number].offset, e->ndim));
	d = ck_val_dict_sets(a, d, "index", !e->is_tensor ? ck_val_new_none(a) :
			     ck_val_new_int(a, (int64_t)number));
	return d ? object(a, METADATA, "MetadataIndex", d) : NULL;
}

static struct ck_val *place_of(struct ck_arena *a, const struct ck_dcp_block *b)
{
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "relative_path", ck_val_new_str(a, b->file));
	d = ck_val_dict_sets(a, d, "offset", ck_val_new_int(a, (int64_t)b->begin));
	d = ck_val_dict_sets(a, d, "length", ck_val_new_int(a, (int64_t)b->bytes));
	return d ? object(a, FILESYSTEM, "_StorageInfo", d) : NULL;
}

/* ---- */

static struct ck_val *make(const struct ck_dcp_meta *m, struct ck_arena *a)
{
	struct ck_val *items = ck_val_new_dict(a), *places = ck_val_new_dict(a);
	struct ck_val *paths = m->has_paths ? ck_val_new_dict(a) : ck_val_new_none(a);
	struct ck_val *d = ck_val_new_dict(a);

	for (uint64_t i = 0; i < m->n; i++) {
		const struct ck_dcp_listed *e = &m->item[i];
		struct ck_val *name = ck_val_new_str(a, e->name);

		items = ck_val_dict_add(a, items, name, e->is_tensor ? tensor(m, a, e) :
					object(a, METADATA, "BytesStorageMetadata", NULL));
		if (m->has_paths)
			paths = ck_val_dict_add(a, paths, name, e->path);
		for (uint64_t k = 0; k < e->nblocks; k++)
			places = ck_val_dict_add(a, places, index_of(a, e, k),
						 place_of(a, &e->block[k]));
	}
	d = ck_val_dict_sets(a, d, "state_dict_metadata", items);
	d = ck_val_dict_sets(a, d, "planner_data", paths);
	d = ck_val_dict_sets(a, d, "storage_data", places);
	if (!m->is_old) {
		d = ck_val_dict_sets(a, d, "storage_meta", ck_val_new_none(a));
		d = ck_val_dict_sets(a, d, "version", ck_val_new_str(a, "1.0.0"));
	}
	return d ? object(a, METADATA, "Metadata", d) : NULL;
}

int ck_dcp_meta_write(struct ck_plan *plan, const struct ck_dcp_meta *meta, struct ckpt_err *err)
{
	struct ck_arena arena = CK_ARENA_INIT;
	const struct ck_val *root = make(meta, &arena);
	struct ckpt_limits limits;
	char *pickle = NULL;
	uint64_t n = 0;
	int rc;

	ck_limits_fill(NULL, &limits);
	rc = root ? ck_pkl_emit(root, &limits, NULL, NULL, &pickle, &n, err) :
	     ck_fail_nomem(err, "an index", meta->n);
	if (!rc)
		rc = ck_plan_file(plan, meta->name, err);
	if (!rc)
		rc = ck_plan_literal(plan, pickle, n, err);
	ck_free(pickle);
	ck_arena_release(&arena);
	return rc;
}
