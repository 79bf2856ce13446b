/*
 * rk_dtensor.c -- tensors of a rank's file: whole ones, and DTensors of FSDP2, which cuts the first
 * dimension of a parameter into parts of ceil(rows / ranks) rows.
 *
 * Python's hashes of meshes and specifications are caches that differ between processes, so they
 * are not written: torch computes them again.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"
#include "libckpt/step/ck_step_drop.h"

#define SPEC "torch.distributed.tensor._dtensor_spec"
#define LAYOUT "torch.distributed._mesh_layout"

/* ---- storages ---- */

/* A storage with one piece, or empty; its number, or CK_NONE without memory. */
static uint32_t add_storage(struct rk_out *o, uint8_t dtype, const struct ck_pt_piece *piece)
{
	struct ck_pt_piece *p = ck_arena_alloc(&o->arena, sizeof(*p));

	if (!p || ck_grow(&o->storage, &o->storage_cap, o->nstorages + 1, sizeof(*o->storage),
			  NULL))
		return CK_NONE;
	*p = *piece;
	o->storage[o->nstorages] = (struct ck_pt_part){ dtype, p, piece->count ? 1 : 0 };
	return (uint32_t)o->nstorages++;
}

/* Tied names are two tensors on one storage. */
static uint32_t storage_of(struct rk_out *o, uint32_t state, uint64_t first, uint64_t count)
{
	uint32_t *key = ck_arena_alloc(&o->arena, sizeof(*key));
	struct ck_pt_piece piece = {
		.kind = CK_SEG_STATE, .dtype = o->ix->state[state].dtype, .state = state,
		.first = first, .count = count, .slot = CK_NONE,
	};
	uint64_t at = o->nstorages;
	int rc;

	if (o->want->reset && ck_step_is_moment(o->want, o->ix->state[state].name))
		piece.kind = CK_SEG_ZERO;	/* its count is of bytes */
	if (!key || (piece.kind == CK_SEG_ZERO &&
		     ck_dtype_bytes((enum ckpt_dtype)piece.dtype, count, &piece.count, NULL)))
		return CK_NONE;
	*key = state;
	rc = ck_map_add(&o->by_state, (const char *)key, sizeof(*key), at, &at, NULL);
	if (rc)
		return rc < 0 ? CK_NONE : (uint32_t)at;
	return add_storage(o, piece.dtype, &piece);
}

static struct ck_val *literal(struct rk_out *o, uint8_t dtype, const void *bytes, uint64_t nbytes,
			      const uint64_t *shape, uint32_t ndim)
{
	static const uint64_t one = 1;
	struct ck_tensor_ref ref = {
		.dtype = dtype, .ndim = ndim, .shape = shape, .stride = &one,
		.numel = ndim ? shape[0] : 1,
	};

	ref.storage = add_storage(o, dtype, &(struct ck_pt_piece){
		.kind = CK_SEG_LITERAL, .count = nbytes, .text = bytes,
	});
	return ref.storage == CK_NONE ? NULL : ck_val_new_tensor(&o->arena, &ref);
}

struct ck_val *ck_rk_out_number(struct rk_out *o, double v)
{
	float *number = ck_arena_alloc(&o->arena, sizeof(*number));

	if (!number)
		return NULL;
	*number = (float)v;
	return literal(o, CKPT_F32, number, sizeof(*number), NULL, 0);
}

/* ---- values ---- */

static struct ck_val *object(struct rk_out *o, const char *module, const char *cls,
			     struct ck_val *const *arg, uint64_t nargs, struct ck_val *state)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *v = ck_val_new_object(a, CK_HOW_NEWOBJ, ck_val_new_global(a, module, cls),
					     ck_val_new_tuple(a, arg, nargs));

	if (v)
		v->u.obj->state = state;
	return v;
}

static struct ck_val *call(struct rk_out *o, const char *module, const char *fn,
			   struct ck_val *const *arg, uint64_t nargs)
{
	return ck_val_new_object(&o->arena, CK_HOW_REDUCE,
				 ck_val_new_global(&o->arena, module, fn),
				 ck_val_new_tuple(&o->arena, arg, nargs));
}

static struct ck_val *counts(struct rk_out *o, const uint64_t *n, uint32_t ndim)
{
	struct ck_val *item[RK_MOST_DIMS];

	for (uint32_t k = 0; k < ndim; k++)
		item[k] = ck_val_new_int(&o->arena, (int64_t)n[k]);
	return ck_val_new_tuple(&o->arena, item, ndim);
}

static struct ck_val *one_tuple(struct rk_out *o, struct ck_val *v)
{
	return ck_val_new_tuple(&o->arena, &v, 1);
}

static struct ck_val *one_count(struct rk_out *o, uint64_t n)
{
	return counts(o, &n, 1);
}

/* ---- the mesh ---- */

/* Ranks 0, 1, ... as a tensor of I32. */
static struct ck_val *rank_tensor(struct rk_out *o)
{
	uint64_t *shape = ck_arena_alloc(&o->arena, sizeof(*shape));
	uint8_t *bytes = ck_arena_alloc(&o->arena, (uint64_t)o->world * 4);

	if (!shape || !bytes)
		return NULL;
	*shape = o->world;
	for (uint32_t k = 0; k < o->world; k++)
		ck_put_le32(bytes + 4 * (uint64_t)k, k);
	return literal(o, CKPT_I32, bytes, (uint64_t)o->world * 4, shape, 1);
}

static struct ck_val *rank_list(struct rk_out *o, bool is_tuple)
{
	struct ck_val *list = ck_val_new_list(&o->arena), *tuple;

	for (uint32_t k = 0; k < o->world; k++)
		list = ck_val_list_add(&o->arena, list, ck_val_new_int(&o->arena, k));
	if (!list || !is_tuple)
		return list;
	tuple = ck_val_new_tuple(&o->arena, list->u.seq.item, list->u.seq.n);
	return tuple;
}

/* A key is one of a few literals. */
static struct ck_val *key_of(struct rk_out *o, const char *key)
{
	struct rk_shared *s = &o->shared;
	uint32_t i = 0;

	while (i < s->nkeys && s->key[i].text != key)
		i++;
	if (i < s->nkeys)
		return s->key[i].v;
	if (i < RK_MOST_KEYS)
		s->key[s->nkeys++] = (struct rk_key){ key, ck_val_new_str(&o->arena, key) };
	return i < RK_MOST_KEYS ? s->key[i].v : ck_val_new_str(&o->arena, key);
}

static struct ck_val *set(struct rk_out *o, struct ck_val *d, const char *key, struct ck_val *v)
{
	return ck_val_dict_add(&o->arena, d, key_of(o, key), v);
}

static struct ck_val *mesh_old(struct rk_out *o)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a), *group, *list = ck_val_new_list(a);
	struct ck_val *at = ck_val_list_add(a, ck_val_new_list(a), ck_val_new_int(a, o->rank));
	struct ck_val *of[3] = {
		ck_val_new_str(a, "ptd:0"), rank_list(o, false), ck_val_new_str(a, "0"),
	};

	group = o->form == RK_FORM_2_6 ? ck_val_new_tuple(a, of, 3) : of[2];
	d = set(o, d, "device_type", ck_val_new_str(a, o->device));
	d = set(o, d, "mesh", rank_tensor(o));
	d = set(o, d, "mesh_dim_names", one_tuple(o, ck_val_new_str(a, "fsdp")));
	d = set(o, d, "_flatten_mesh_list", rank_list(o, true));
	d = set(o, d, "_thread_id", ck_val_new_none(a));
	d = set(o, d, o->form == RK_FORM_2_6 ? "_dim_group_infos" : "_dim_group_names",
		ck_val_list_add(a, list, group));
	return set(o, d, "_coordinate_on_dim", at);
}

static struct ck_val *layout(struct rk_out *o)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a), *axes;

	d = set(o, d, "shape", one_count(o, o->world));
	d = set(o, d, "stride", one_count(o, 1));
	if (o->form == RK_FORM_2_11)
		return object(o, LAYOUT, "_MeshLayout", NULL, 0, d);
	axes = one_tuple(o, object(o, LAYOUT, "_FlatLayout", NULL, 0, d));
	return object(o, LAYOUT, "_MeshLayout", NULL, 0, set(o, ck_val_new_dict(a), "axes", axes));
}

static struct ck_val *mesh_new(struct rk_out *o)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a);

	d = set(o, d, "_device_type", ck_val_new_str(a, o->device));
	d = set(o, d, "_layout", layout(o));
	d = set(o, d, "_rank_map", rank_tensor(o));
	d = set(o, d, "_mesh_dim_names", one_tuple(o, ck_val_new_str(a, "fsdp")));
	d = set(o, d, "_root_mesh", ck_val_new_none(a));
	if (o->form == RK_FORM_2_15)
		d = set(o, d, "_preserve_rank_order", ck_val_new_bool(a, false));
	d = set(o, d, "_flatten_rank_map", rank_list(o, true));
	d = set(o, d, "_thread_id", ck_val_new_none(a));
	d = set(o, d, "_flatten_mapping", ck_val_new_dict(a));
	d = set(o, d, "_dim_group_names",
		ck_val_list_add(a, ck_val_new_list(a), ck_val_new_str(a, "0")));
	d = set(o, d, "_rank", ck_val_new_int(a, o->rank));
	return set(o, d, "_coordinate_on_dim", one_count(o, o->rank));
}

static struct ck_val *mesh(struct rk_out *o)
{
	return object(o, "torch.distributed.device_mesh", "DeviceMesh", NULL, 0,
		      o->form >= RK_FORM_2_11 ? mesh_new(o) : mesh_old(o));
}

/* Shard(0) on the only axis. */
static struct ck_val *placements(struct rk_out *o)
{
	struct ck_val *dim = set(o, ck_val_new_dict(&o->arena), "dim",
				 ck_val_new_int(&o->arena, 0));

	return one_tuple(o, object(o, "torch.distributed.tensor.placement_types", "Shard", NULL, 0,
				   dim));
}

static struct ck_val *shard_order(struct rk_out *o)
{
	struct ck_val *order[2] = { ck_val_new_int(&o->arena, 0), one_count(o, 0) };

	return one_tuple(o, object(o, SPEC, "ShardOrderEntry", order, 2, NULL));
}

static void share(struct rk_out *o)
{
	struct rk_shared *s = &o->shared;
	struct ck_val *strided = ck_val_new_str(&o->arena, "torch.strided");
	struct ck_val *cpu = ck_val_new_str(&o->arena, "cpu");

	s->mesh = mesh(o);
	s->placements = placements(o);
	s->order = shard_order(o);
	s->layout = call(o, "torch.serialization", "_get_layout", &strided, 1);
	s->device = call(o, "torch", "device", &cpu, 1);
}

/* ---- tensors ---- */

struct ck_val *ck_rk_out_whole(struct rk_out *o, uint32_t tensor, uint32_t state)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	uint64_t stride[RK_MOST_DIMS], n = 1;
	struct ck_tensor_ref ref = {
		.dtype = o->ix->state[state].dtype, .ndim = t->ndim, .shape = t->shape,
		.stride = stride, .numel = t->numel,
	};

	for (uint32_t k = t->ndim; k > 0; k--) {
		stride[k - 1] = n;
		n *= t->shape[k - 1] ? t->shape[k - 1] : 1;
	}
	ref.storage = storage_of(o, state, 0, t->numel);
	return ref.storage == CK_NONE ? NULL : ck_val_new_tensor(&o->arena, &ref);
}

/* This rank's rows. */
static struct ck_val *local(struct rk_out *o, const struct ck_tensor *t, uint32_t state,
			    const uint64_t *stride)
{
	const uint64_t rows = t->shape[0], each = (rows + o->world - 1) / o->world;
	const uint64_t begin = ck_min_u64(o->rank * each, rows);
	const uint64_t n = ck_min_u64(each, rows - begin);
	const uint64_t row = rows ? t->numel / rows : 0;
	uint64_t shape[RK_MOST_DIMS];
	struct ck_tensor_ref ref = {
		.dtype = o->ix->state[state].dtype, .ndim = t->ndim, .shape = shape,
		.stride = stride, .numel = n * row,
	};

	memcpy(shape, t->shape, t->ndim * sizeof(*shape));
	shape[0] = n;
	ref.storage = storage_of(o, state, begin * row, ref.numel);
	return ref.storage == CK_NONE ? NULL : ck_val_new_tensor(&o->arena, &ref);
}

static struct ck_val *spec(struct rk_out *o, const struct ck_tensor *t, const uint64_t *stride,
			   struct ck_val *dtype)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a);
	struct ck_val *meta[3] = {
		ck_val_new_size(a, t->shape, t->ndim), counts(o, stride, t->ndim), dtype,
	};

	d = set(o, d, "mesh", o->shared.mesh);
	d = set(o, d, "placements", o->shared.placements);
	d = set(o, d, "tensor_meta", object(o, SPEC, "TensorMeta", meta, 3, NULL));
	if (o->form >= RK_FORM_2_11) {
		d = set(o, d, "shard_order", o->shared.order);
		d = set(o, d, "use_strided_shard_as_shard_order", ck_val_new_bool(a, false));
	}
	d = set(o, d, "_hash", ck_val_new_none(a));
	return object(o, SPEC, "DTensorSpec", NULL, 0, d);
}

struct ck_val *ck_rk_out_sharded(struct rk_out *o, uint32_t tensor, uint32_t state)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	struct ck_arena *a = &o->arena;
	const char *torch = ck_dtype_info((enum ckpt_dtype)o->ix->state[state].dtype)->torch;
	struct ck_val *class = ck_val_new_global(a, "torch.distributed.tensor", "DTensor");
	struct ck_val *dtype = torch ? ck_val_new_global(a, "torch", torch) : NULL;
	struct ck_val *args[8], *state_of[2], *all[4], *d = ck_val_new_dict(a);
	uint64_t stride[RK_MOST_DIMS], n = 1;

	if (!o->shared.mesh)
		share(o);
	for (uint32_t k = t->ndim; k > 0; k--) {
		stride[k - 1] = n;
		n *= t->shape[k - 1] ? t->shape[k - 1] : 1;
	}
	args[0] = class;
	args[1] = dtype;
	args[2] = counts(o, t->shape, t->ndim);
	args[3] = counts(o, stride, t->ndim);
	args[4] = ck_val_new_int(a, 0);
	args[5] = o->shared.layout;
	args[6] = o->shared.device;
	args[7] = ck_val_new_bool(a, false);
	d = set(o, d, "_local_tensor", local(o, t, state, stride));
	d = set(o, d, "_spec", spec(o, t, stride, dtype));
	state_of[0] = ck_val_new_none(a);
	state_of[1] = d;
	all[0] = ck_val_new_global(a, "torch._utils", "_rebuild_wrapper_subclass");
	all[1] = class;
	all[2] = ck_val_new_tuple(a, args, 8);
	all[3] = ck_val_new_tuple(a, state_of, 2);
	return call(o, "torch._tensor", "_rebuild_from_type_v2", all, 4);
}
