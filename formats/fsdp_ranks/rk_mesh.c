/*
 * rk_mesh.c -- which block of a DTensor a rank has.
 *
 * The device mesh gives the rank a coordinate on each of its axes; the placements say what an axis
 * does: Replicate nothing, Shard(d) cuts dimension d.  Of an extent of n rows cut in p parts, part
 * c has ceil(n / p) rows from c * ceil(n / p) on, as far as there are any.  Axes that cut one
 * dimension do so one after the other: in the order that shard_order (torch 2.11 and later) gives,
 * else as the mesh has them, but for a _StridedShard, which cuts after all plain ones.
 *
 *	before torch 2.11	'mesh' is a tensor of ranks in the mesh's shape
 *	since			'_rank_map' lists the ranks, '_layout' has a shape and a stride for
 *				each axis: the coordinate of entry i is (i / stride) mod shape
 *
 * A mesh that is an axis of a larger one keeps the rank map of all: ranks off the axis have copies.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define MAP_BYTES ((uint64_t)64 << 20)

static int bad(const struct rk_file *file, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET, "%s", what);
}

/* ---- where the rank is ---- */

/* The place of this rank in a tensor of ranks; numel = it is not in there. */
static int find_rank(const struct rk_file *file, const struct ck_tensor_ref *t, uint64_t *at_out,
		     struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)t->dtype) / 8;
	uint8_t *p;
	double v;
	int rc = ck_pt_tensor_bytes(file->pt, t, MAP_BYTES, &p, err);

	if (rc)
		return rc;
	if (!p)
		return bad(file, "a device mesh has no ranks or too many", err);
	*at_out = t->numel;
	for (uint64_t i = 0; i < t->numel && *at_out == t->numel; i++)
		if (ck_dtype_number((enum ckpt_dtype)t->dtype, p + i * es, &v) &&
		    v == (double)file->id.rank)
			*at_out = i;
	ck_free(p);
	return 0;
}

static int not_in_mesh(struct rk *r, struct rk_file *file, uint64_t n)
{
	if (!file->swapped)
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_SWAPPED, file->path,
				"the device mesh in it has %" PRIu64 " ranks, but not rank %u (was "
				"a file renamed?)", n, file->id.rank);
	file->swapped = true;
	return 0;
}

static int from_tensor(struct rk *r, struct rk_file *file, const struct ck_tensor_ref *t,
		       struct rk_mesh *m, struct ckpt_err *err)
{
	uint64_t at;
	int rc = find_rank(file, t, &at, err);

	if (rc)
		return rc;
	if (!t->ndim || t->ndim > RK_MOST_AXES || !t->numel)
		return bad(file, "a device mesh has no axis, too many, or no ranks", err);
	m->naxes = t->ndim;
	if (at == t->numel)
		not_in_mesh(r, file, t->numel);
	for (uint32_t k = t->ndim; k > 0; k--) {
		m->size[k - 1] = t->shape[k - 1];
		m->at[k - 1] = at % t->shape[k - 1];
		at /= t->shape[k - 1];
	}
	return 0;
}

/* An axis of a layout: numbers, or a tuple of them that count together. */
static bool axis_at(struct rk *r, const struct ck_val *shape, const struct ck_val *stride,
		    uint64_t place, struct rk_mesh *m)
{
	const uint64_t *size, *step;
	uint64_t n = 1, k = 1, total = 1, at = 0, one[2];
	int64_t a, b;

	if (m->naxes == RK_MOST_AXES)
		return false;
	if (ck_val_int(shape, &a) && ck_val_int(stride, &b) && a > 0 && b > 0) {
		one[0] = (uint64_t)a;
		one[1] = (uint64_t)b;
		size = &one[0];
		step = &one[1];
	} else if (!ck_rk_counts(r, shape, &size, &n) || !ck_rk_counts(r, stride, &step, &k) ||
		   n != k) {
		return false;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (!size[i] || !step[i] || size[i] > UINT32_MAX || total > UINT32_MAX)
			return false;
		at = at * size[i] + place / step[i] % size[i];
		total *= size[i];
	}
	m->size[m->naxes] = total;
	m->at[m->naxes++] = at;
	return true;
}

/* 'axes': layouts of one axis each (2.15); else tuples, or numbers, of shape and stride. */
static bool axes_of(struct rk *r, const struct ck_val *layout, uint64_t place, struct rk_mesh *m)
{
	const struct ck_val *state = ck_rk_state_of(layout), *shape, *stride;
	struct ck_val *const *axis, *const *step;
	uint64_t n, k;

	if (ck_val_seq(ck_val_get(state, "axes"), &axis, &n)) {
		for (uint64_t i = 0; i < n; i++) {
			const struct ck_val *one = ck_rk_state_of(axis[i]);

			if (!axis_at(r, ck_val_get(one, "shape"), ck_val_get(one, "stride"), place,
				     m))
				return false;
		}
		return n > 0;
	}
	shape = ck_val_get(state, "shape");
	stride = ck_val_get(state, "stride");
	if (!ck_val_seq(shape, &axis, &n) || !ck_val_seq(stride, &step, &k))
		return axis_at(r, shape, stride, place, m);
	for (uint64_t i = 0; i < n; i++)
		if (n != k || !axis_at(r, axis[i], step[i], place, m))
			return false;
	return n > 0;
}

static int from_layout(struct rk *r, struct rk_file *file, const struct ck_val *state,
		       struct rk_mesh *m, struct ckpt_err *err)
{
	const struct ck_tensor_ref *map = ck_val_tensor(ck_val_get(state, "_rank_map"));
	uint64_t at;
	int rc;

	if (!map)
		return bad(file, "a device mesh has neither 'mesh' nor '_rank_map'", err);
	rc = find_rank(file, map, &at, err);
	if (rc)
		return rc;
	if (!axes_of(r, ck_val_get(state, "_layout"), at == map->numel ? 0 : at, m))
		return bad(file, "a device mesh has no layout", err);
	if (at == map->numel)
		not_in_mesh(r, file, map->numel);
	return 0;
}

/* What the writer knew of its own place. */
static void check_own(struct rk *r, struct rk_file *file, const struct ck_val *state,
		      const struct rk_mesh *m)
{
	struct ck_val *const *item;
	int64_t v;
	uint64_t n;

	if (ck_val_int(ck_val_get(state, "_rank"), &v) && v >= 0 && (uint64_t)v != file->id.rank)
		ck_rk_swapped(r, file, "the device mesh in it", (uint64_t)v);
	if (!ck_val_seq(ck_val_get(state, "_coordinate_on_dim"), &item, &n) || n != m->naxes)
		return;
	for (uint64_t i = 0; i < n; i++)
		if (ck_val_int(item[i], &v) && v >= 0 && (uint64_t)v != m->at[i])
			ck_rk_swapped(r, file, "the coordinate on its device mesh", (uint64_t)v);
}

/* NULL for a kind that no result is written for. */
static const char *device_of(const struct ck_val *state)
{
	const struct ck_val *v = ck_val_get(state, "_device_type");

	v = v ? v : ck_val_get(state, "device_type");
	return ck_val_is_str(v, "cuda") ? "cuda" : ck_val_is_str(v, "cpu") ? "cpu" : NULL;
}

static int mesh_of(struct rk *r, struct rk_file *file, const struct ck_val *v,
		   const struct rk_mesh **out, struct ckpt_err *err)
{
	const struct ck_val *state = ck_rk_state_of(v);
	const struct ck_tensor_ref *t = ck_val_tensor(ck_val_get(state, "mesh"));
	struct rk_mesh *m = file->mesh;
	int rc;

	while (m && m->of != v)
		m = m->next;
	*out = m;
	if (m)
		return 0;
	m = ck_arena_zalloc(&r->arena, sizeof(*m));
	if (!m)
		return ck_fail_nomem(err, "a device mesh", sizeof(*m));
	m->of = v;
	rc = t ? from_tensor(r, file, t, m, err) : from_layout(r, file, state, m, err);
	if (rc)
		return rc;
	check_own(r, file, state, m);
	if (!r->device)
		r->device = device_of(state);
	m->next = file->mesh;
	file->mesh = m;
	*out = m;
	return 0;
}

/* ---- what the axes do ---- */

struct cut {
	uint32_t axis;
	uint32_t dim;
	bool strided;
	uint64_t factor;
};

static int read_placement(const struct rk_file *file, const struct ck_val *v, uint32_t ndim,
			  uint32_t axis, struct cut *cut, uint32_t *n, struct ckpt_err *err)
{
	const struct ck_val *state = ck_rk_state_of(v);
	const bool strided = ck_rk_is_object(v, "_StridedShard");
	int64_t dim, factor = 0;

	if (ck_rk_is_object(v, "Replicate"))
		return 0;
	if (!strided && !ck_rk_is_object(v, "Shard"))
		return ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
			       "a DTensor is placed by something else than Shard, Replicate and "
			       "_StridedShard, which zckpt does not read");
	if (!ck_val_int(ck_val_get(state, "dim"), &dim))
		return bad(file, "a Shard of a DTensor does not say its dimension", err);
	if (dim < 0 || dim >= (int64_t)ndim)
		return bad(file, "a Shard of a DTensor cuts a dimension that it does not have",
			   err);
	if (strided)
		ck_val_int(ck_val_get(state, "split_factor"), &factor);
	cut[(*n)++] = (struct cut){ axis, (uint32_t)dim, strided, (uint64_t)factor };
	return 0;
}

/* shard_order: for each dimension, the axes that cut it, the first first. */
static bool order_given(const struct ck_val *order, struct cut *cut, uint32_t n)
{
	struct cut out[RK_MOST_AXES];
	bool taken[RK_MOST_AXES] = { false };
	struct ck_val *const *entry, *const *axis;
	uint64_t nentries, naxes;
	uint32_t k = 0;
	int64_t a;

	if (!ck_val_seq(order, &entry, &nentries))
		return false;
	for (uint64_t i = 0; i < nentries; i++) {
		const struct ck_val *args = entry[i]->kind == CK_VAL_OBJECT ?
					    entry[i]->u.obj->args : NULL;

		if (!ck_val_seq(ck_val_at(args, 1), &axis, &naxes))
			return false;
		for (uint64_t j = 0; j < naxes; j++)
			for (uint32_t c = 0; c < n; c++)
				if (ck_val_int(axis[j], &a) && a == (int64_t)cut[c].axis &&
				    !taken[c]) {
					taken[c] = true;
					out[k++] = cut[c];
				}
	}
	if (k != n)
		return false;
	memcpy(cut, out, n * sizeof(*cut));
	return true;
}

/* Plain ones first; a strided one is cut as often before as its factor says. */
static int order_strided(const struct rk_file *file, const struct rk_mesh *m, struct cut *cut,
			 uint32_t n, struct ckpt_err *err)
{
	struct cut out[RK_MOST_AXES];
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		if (!cut[i].strided)
			out[k++] = cut[i];
	for (uint32_t i = 0; i < n; i++) {
		uint64_t before = 1;

		if (!cut[i].strided)
			continue;
		for (uint32_t c = 0; c < k; c++)
			if (out[c].dim == cut[i].dim)
				before *= m->size[out[c].axis];
		if (before != cut[i].factor)
			return ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
				       "a _StridedShard has the factor %" PRIu64 ", but other axes "
				       "of the mesh cut its dimension into %" PRIu64 " parts",
				       cut[i].factor, before);
		out[k++] = cut[i];
	}
	if (n)
		memcpy(cut, out, n * sizeof(*cut));
	return 0;
}

static int cuts_of(const struct rk_file *file, const struct ck_val *spec, const struct rk_mesh *m,
		   uint32_t ndim, struct cut *cut, uint32_t *n, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t naxes;
	bool strided = false;
	int rc = 0;

	*n = 0;
	if (!ck_val_seq(ck_val_get(spec, "placements"), &item, &naxes) || naxes != m->naxes)
		return bad(file, "a DTensor has not one placement for each axis of its mesh", err);
	for (uint32_t i = 0; !rc && i < m->naxes; i++) {
		rc = read_placement(file, item[i], ndim, i, cut, n, err);
		strided |= *n && cut[*n - 1].strided;
	}
	if (rc || (!strided && order_given(ck_val_get(spec, "shard_order"), cut, *n)))
		return rc;
	return order_strided(file, m, cut, *n, err);
}

void ck_rk_mesh_cut(uint64_t *offset, uint64_t *size, uint64_t parts, uint64_t at)
{
	const uint64_t rows = *size, each = rows / parts + (rows % parts != 0);
	const uint64_t from = ck_min_u64(rows, each ? ck_min_u64(at, rows / each + 1) * each : 0);

	*offset += from;
	*size = ck_min_u64(each, rows - from);
}

int ck_rk_mesh_block(struct rk *r, struct rk_file *file, const struct ck_val *spec,
		  struct rk_value *v, struct ckpt_err *err)
{
	const struct ck_val *state = ck_rk_state_of(spec);
	uint64_t *offset = ck_arena_zalloc(&r->arena, (v->ndim + 1) * sizeof(*offset));
	uint64_t *size = ck_arena_alloc(&r->arena, (v->ndim + 1) * sizeof(*size));
	const struct rk_mesh *m;
	struct cut cut[RK_MOST_AXES];
	uint32_t n = 0;
	int rc = mesh_of(r, file, ck_val_get(state, "mesh"), &m, err);

	if (!offset || !size)
		return ck_fail_nomem(err, "a block", v->ndim);
	if (!rc)
		rc = cuts_of(file, state, m, v->ndim, cut, &n, err);
	if (rc)
		return rc;
	if (v->ndim)
		memcpy(size, v->shape, v->ndim * sizeof(*size));
	v->parts = 1;
	v->part = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t p = m->size[cut[i].axis], c = m->at[cut[i].axis];

		ck_rk_mesh_cut(&offset[cut[i].dim], &size[cut[i].dim], p, c);
		v->part = v->part * (uint32_t)p + (uint32_t)c;
		v->parts *= (uint32_t)p;
	}
	v->offset = offset;
	v->size = size;
	return ck_shape_numel(size, v->ndim, &v->numel, err);
}
