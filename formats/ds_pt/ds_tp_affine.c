/*
 * ds_tp_affine.c -- AutoTP describes a cut twice (0.19 and later): by patterns, and by pieces with
 * their places.  Both must say the same.
 */
#include <inttypes.h>

#include "formats/ds_pt/ds_tp_rules_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static bool is_shape(const struct ck_val *v, const uint64_t *shape, uint32_t ndim, uint32_t axis,
		     uint64_t width)
{
	struct ck_val *const *item;
	uint64_t n;
	int64_t d;

	if (!ck_val_seq(v, &item, &n) || n != ndim)
		return false;
	for (uint32_t i = 0; i < ndim; i++)
		if (!ck_val_int(item[i], &d) || d < 0 ||
		    (uint64_t)d != (i == axis ? width : shape[i]))
			return false;
	return true;
}

/* [offset, [strides]] of row 'first' along the axis, in a row-major tensor of this shape. */
static bool is_place(const struct ck_val *v, const uint64_t *shape, uint32_t ndim, uint32_t axis,
		     uint64_t first)
{
	const struct ck_val *strides = ck_val_at(v, 1);
	uint64_t step = 1, along = 1;
	int64_t d;

	for (uint32_t i = ndim; i > 0; i--) {
		if (!ck_val_int(ck_val_at(strides, i - 1), &d) || d < 0 ||
		    ((uint64_t)d != step && shape[i - 1] > 1))
			return false;
		if (i - 1 == axis)
			along = step;
		if (ck_mul_over(step, shape[i - 1], &step))
			return false;
	}
	return ck_val_int(ck_val_at(v, 0), &d) && d >= 0 && (uint64_t)d == first * along;
}

/* Rows [here, here + width) of the rank are rows [there, ...) of the tensor. */
struct piece {
	uint64_t here, there, width;
};

static bool is_piece(const struct ck_val *v, const struct ds_tp_cut *cut, const uint64_t *mine,
		     const struct piece *p)
{
	double scale = 1;

	if (ck_val_get(v, "scale") &&
	    (!ck_val_num(ck_val_get(v, "scale"), &scale) || scale != 1))
		return false;
	return is_shape(ck_val_get(v, "shape"), mine, cut->ndim, cut->axis, p->width) &&
	       is_place(ck_val_get(v, "source"), cut->shape, cut->ndim, cut->axis, p->there) &&
	       is_place(ck_val_get(v, "dest"), mine, cut->ndim, cut->axis, p->here);
}

static bool is_rank(const struct ck_val *v, const struct ds_tp_cut *cut, const uint64_t *mine,
		    uint32_t rank)
{
	const struct ck_val *pieces = ck_val_get(v, "pieces");
	uint64_t there = 0, here = 0, at = 0, n, shares = cut->nparts ? cut->nparts : 1;
	struct ck_val *const *item;

	if (!is_shape(ck_val_get(v, "shard_shape"), mine, cut->ndim, UINT32_MAX, 0) ||
	    !ck_val_seq(pieces, &item, &n))
		return false;
	for (uint64_t j = 0; j < shares; j++) {
		struct piece p = { .here = here, .width = cut->ndim ? mine[cut->axis] : 1 };

		for (uint32_t t = 0; cut->nparts && t < cut->tp; t++) {
			const uint64_t w = cut->width[j * cut->tp + t];

			if (t == rank) {
				p.there = there;
				p.width = w;
			}
			there += w;
		}
		here += p.width;
		if (p.width && (at >= n || !is_piece(item[at++], cut, mine, &p)))
			return false;
	}
	return at == n;
}

int ck_ds_tp_check_affine(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
			  const struct ds_tp_cut *cut, struct ckpt_err *err)
{
	const struct ds_tp_rule *map = ck_ds_tp_find(&rules->affine, local->name, NULL);
	bool same;

	if (!map || !ck_val_get(map->value, "ranks"))
		return 0;
	same = is_shape(ck_val_get(map->value, "logical_shape"), cut->shape, cut->ndim, UINT32_MAX,
			0);
	for (uint32_t t = 0; same && t < local->tp; t++)
		same = is_rank(ck_val_get_int(ck_val_get(map->value, "ranks"), t), cut,
			       local->shape[t], t);
	if (same)
		return 0;
	return ck_fail(err, CKPT_E_LAYOUT, local->name, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: affine_map and the patterns of %s describe its cut "
		       "differently; zckpt joins it only if both say the same", rules->where);
}
