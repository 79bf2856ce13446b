/*
 * rk_value.c -- a value of a rank file: a plain tensor, a DTensor or a ShardedTensor.
 *
 * The last two are calls _rebuild_from_type_v2(_rebuild_wrapper_subclass, CLASS, ARGUMENTS, STATE).
 * The arguments have the type and the shape of the full tensor, the state this rank's part.
 * Classes are known by their last name: torch has moved their modules.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- looking ---- */

static const char *last_name(const struct ck_val *global)
{
	const char *dot;

	if (!global || global->kind != CK_VAL_GLOBAL)
		return "";
	dot = strrchr(global->u.global.name, '.');
	return dot ? dot + 1 : global->u.global.name;
}

bool ck_rk_is_object(const struct ck_val *v, const char *name)
{
	return v && v->kind == CK_VAL_OBJECT && !strcmp(last_name(v->u.obj->fn), name);
}

const struct ck_val *ck_rk_state_of(const struct ck_val *v)
{
	const struct ck_val *state = v && v->kind == CK_VAL_OBJECT ? v->u.obj->state : NULL;

	if (state && state->kind == CK_VAL_TUPLE && state->u.seq.n == 2 &&
	    ck_val_is_none(state->u.seq.item[0]))
		return state->u.seq.item[1];
	return state;
}

bool ck_rk_counts(struct rk *r, const struct ck_val *v, const uint64_t **out, uint64_t *n_out)
{
	struct ck_val *const *item;
	uint64_t *a, n;
	int64_t one;

	if (!ck_val_seq(v, &item, &n) || n > RK_MOST_DIMS)
		return false;
	a = ck_arena_alloc(&r->arena, (n + 1) * sizeof(*a));
	if (!a)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		if (!ck_val_int(item[i], &one) || one < 0)
			return false;
		a[i] = (uint64_t)one;
	}
	*out = a;
	*n_out = n;
	return true;
}

void ck_rk_swapped(struct rk *r, struct rk_file *file, const char *what, uint64_t found)
{
	if (!file->swapped)
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_SWAPPED, file->path,
				"%s says %" PRIu64 ", its name says rank %u (were two files "
				"exchanged?)", what, found, file->id.rank);
	file->swapped = true;
}

static int bad(const struct rk_file *file, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET, "%s", what);
}

/* ---- DTensor ---- */

/* No shorter or longer than the block that the mesh says. */
static int check_local(const struct rk_file *file, struct rk_value *v,
		       const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	v->t = t;
	if (!t)
		return bad(file, "a sharded tensor has no part of this rank", err);
	if (t->dtype != v->dtype)
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "a sharded tensor is %s, this rank's part of it %s",
			       ckpt_dtype_name(v->dtype), ckpt_dtype_name(t->dtype));
	if (!v->numel && !t->numel)
		return 0;
	if (t->ndim != v->ndim || memcmp(t->shape, v->size, t->ndim * sizeof(*t->shape)))
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "this rank's part of a sharded tensor has %" PRIu64 " elements or "
			       "another shape than its place says (%" PRIu64 " elements)",
			       t->numel, v->numel);
	return 0;
}

static int read_dtensor(struct rk *r, struct rk_file *file, const struct ck_val *state,
			struct rk_value *v, struct ckpt_err *err)
{
	const struct ck_val *dict = state && state->kind == CK_VAL_TUPLE && state->u.seq.n == 2 ?
				    state->u.seq.item[1] : state;
	const struct ck_val *spec = ck_val_get(dict, "_spec");
	int rc;

	if (!ck_rk_is_object(spec, "DTensorSpec"))
		return bad(file, "a DTensor has no _spec", err);
	rc = ck_rk_mesh_block(r, file, spec, v, err);
	return rc ? rc : check_local(file, v, ck_val_tensor(ck_val_get(dict, "_local_tensor")),
				     err);
}

/* ---- ShardedTensor ---- */

/* ProcessGroupState: who saved it. */
static void check_group(struct rk *r, struct rk_file *file, const struct ck_val *group,
			struct rk_value *v)
{
	const struct ck_val *state = ck_rk_state_of(group);
	int64_t rank = -1, world = -1;

	v->parts = r->world;
	v->part = file->id.rank;
	if (ck_val_int(ck_val_get(state, "global_rank"), &rank) && rank >= 0 &&
	    (uint64_t)rank != file->id.rank)
		ck_rk_swapped(r, file, "the rank of a ShardedTensor in it", (uint64_t)rank);
	if (ck_val_int(ck_val_get(state, "global_world_size"), &world) && world > 0 &&
	    (uint64_t)world != r->world && !r->incomplete && !file->swapped) {
		file->swapped = true;
		ck_findings_add(r->f, CK_FINDING_RANKS_DISAGREE, file->path,
				"it was saved by one of %" PRId64 " ranks, the folder has files "
				"of %u (files of two saves in one folder?)", world, r->world);
	}
}

static int read_shard(struct rk *r, struct rk_file *file, const struct ck_val *shard,
		      struct rk_value *v, struct ckpt_err *err)
{
	const struct ck_val *state = ck_rk_state_of(shard);
	const struct ck_val *meta = ck_rk_state_of(ck_val_get(state, "metadata"));
	uint64_t n, m;

	if (!ck_rk_counts(r, ck_val_get(meta, "shard_offsets"), &v->offset, &n) || n != v->ndim ||
	    !ck_rk_counts(r, ck_val_get(meta, "shard_sizes"), &v->size, &m) || m != n)
		return bad(file, "a shard of a ShardedTensor has no place", err);
	for (uint32_t k = 0; k < v->ndim; k++)
		if (v->offset[k] > v->shape[k] || v->size[k] > v->shape[k] - v->offset[k])
			return bad(file, "a shard of a ShardedTensor is not within its shape", err);
	if (ck_shape_numel(v->size, v->ndim, &v->numel, NULL))
		return bad(file, "a shard of a ShardedTensor has too many elements", err);
	return check_local(file, v, ck_val_tensor(ck_val_get(state, "tensor")), err);
}

static int read_sharded(struct rk *r, struct rk_file *file, const struct ck_val *state,
			struct rk_value *v, struct ckpt_err *err)
{
	struct ck_val *const *part, *const *shard;
	uint64_t n, nshards;

	if (!ck_val_seq(state, &part, &n) || n < 3 || !ck_val_seq(part[0], &shard, &nshards))
		return bad(file, "a ShardedTensor has no list of shards", err);
	if (nshards > 1)
		return ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
			       "a ShardedTensor has %" PRIu64 " shards on one rank, FSDP writes "
			       "one at most", nshards);
	check_group(r, file, part[2], v);
	if (nshards)
		return read_shard(r, file, shard[0], v, err);
	v->numel = 0;
	return 0;
}

/* ---- a value ---- */

static int read_type(struct rk *r, struct rk_file *file, const struct ck_val *const *arg,
		     struct rk_value *v, struct ckpt_err *err)
{
	const char *class = last_name(arg[1]);
	const struct ck_val *dtype = ck_val_at(arg[2], 1);
	uint64_t n;

	if (strcmp(class, "DTensor") != 0 && strcmp(class, "ShardedTensor") != 0)
		return 0;
	v->is_tensor = v->sharded = true;
	if (!dtype || dtype->kind != CK_VAL_GLOBAL ||
	    !ck_rk_counts(r, ck_val_at(arg[2], 2), &v->shape, &n) ||
	    ck_shape_numel(v->shape, (uint32_t)n, &v->numel, NULL))
		return bad(file, "a sharded tensor has no type or no shape", err);
	v->ndim = (uint32_t)n;
	v->dtype = (uint8_t)ck_dtype_by_torch_name(dtype->u.global.name);
	if (!v->dtype)
		return bad(file, "a sharded tensor has an unknown type", err);
	return !strcmp(class, "DTensor") ? read_dtensor(r, file, arg[3], v, err) :
					   read_sharded(r, file, arg[3], v, err);
}

static int read_plain(struct rk *r, const struct ck_tensor_ref *t, struct rk_value *v,
		      struct ckpt_err *err)
{
	uint64_t *zero = ck_arena_zalloc(&r->arena, (t->ndim + 1) * sizeof(*zero));

	if (!zero)
		return ck_fail_nomem(err, "a shape", t->ndim);
	*v = (struct rk_value){
		.is_tensor = true, .dtype = t->dtype, .ndim = t->ndim, .shape = t->shape,
		.offset = zero, .size = t->shape, .numel = t->numel, .t = t,
	};
	return 0;
}

int ck_rk_value_read(struct rk *r, struct rk_file *file, const struct ck_val *v,
		     struct rk_value *out, struct ckpt_err *err)
{
	struct ck_val *const *arg;
	uint64_t n;

	*out = (struct rk_value){ .parts = r->world, .part = file->id.rank };
	if (ck_val_tensor(v))
		return read_plain(r, ck_val_tensor(v), out, err);
	if (!v || v->kind != CK_VAL_OBJECT)
		return 0;
	if (ck_rk_is_object(v, "_rebuild_parameter") &&
	    ck_val_seq(v->u.obj->args, &arg, &n) && n)
		v = arg[0];
	if (!ck_rk_is_object(v, "_rebuild_from_type_v2") || !ck_val_seq(v->u.obj->args, &arg, &n) ||
	    n != 4 || strcmp(last_name(arg[0]), "_rebuild_wrapper_subclass") != 0)
		return 0;
	return read_type(r, file, (const struct ck_val *const *)arg, out, err);
}
