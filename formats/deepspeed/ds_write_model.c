/*
 * ds_write_model.c -- model files of the target: the source's, with what depends on the
 * number of ranks made anew.
 */
#include <string.h>

#include "formats/deepspeed/ds_write.h"
#include "libckpt/base/ck_err.h"

/* Shapes of parameters order[0..n), or of param[first..last) when order is NULL. */
static struct ck_val *shapes(struct wr *w, const struct tg_group *g, uint32_t first,
			     uint32_t last, const uint32_t *order)
{
	struct ck_val *dict = ck_val_new_ordered(&w->arena);

	for (uint32_t i = first; dict && i < last; i++) {
		const struct tg_param *p = &g->param[order ? order[i] : i];

		dict = ck_val_dict_add(&w->arena, dict, ck_val_new_str(&w->arena, p->name),
				       ck_val_new_size(&w->arena, p->shape, p->ndim));
	}
	return dict;
}

struct ck_val *ck_wr_shapes(struct wr *w)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];

		if (w->t->stage != 3) {
			list = ck_val_list_add(&w->arena, list,
					       shapes(w, group, 0, group->nparams, group->order));
			continue;
		}
		for (uint32_t i = 0; i < group->nsubs; i++)
			list = ck_val_list_add(&w->arena, list,
					       shapes(w, group, group->first[i],
						      group->first[i + 1], NULL));
	}
	return list;
}

/* A rank's part of a frozen parameter, with its padding. */
static struct ck_val *fragment(struct wr *w, const char *name, uint32_t rank,
			       struct ckpt_err *err)
{
	uint32_t tensor, state, number;
	uint64_t part, n;

	if (!ck_index_find(w->ix, name, &tensor))
		return NULL;
	state = ck_index_state_find(w->ix, tensor, "weight");
	if (state == CK_NONE) {
		ck_fail(err, CKPT_E_INCOMPLETE, name, CKPT_NO_OFFSET,
			"the frozen parameter's weight is not in the files");
		return NULL;
	}
	part = ckpt_z3_part_numel(w->ix->tensor[tensor].numel, w->t->world);
	n = ckpt_z3_valid_numel(w->ix->tensor[tensor].numel, w->t->world, rank);
	if (ck_wr_storage(w, (enum ckpt_dtype)w->ix->state[state].dtype, &number, err) ||
	    ck_wr_state(w, state, rank * part, n, err) || ck_wr_zero(w, part - n, err))
		return NULL;
	return ck_wr_flat(w, number, false);
}

static struct ck_val *fragments(struct wr *w, const struct ck_val *old, uint32_t rank,
				struct ckpt_err *err)
{
	struct ck_val *dict = ck_val_clone(&w->arena, old);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(old, &item, &n))
		return dict;
	for (uint64_t i = 0; dict && i < n; i++)
		if (ck_val_str(item[2 * i]))
			dict = ck_val_dict_set(&w->arena, dict, item[2 * i],
					       fragment(w, ck_val_str(item[2 * i]), rank, err));
	return dict;
}

struct ck_val *ck_wr_model(struct wr *w, const struct ck_val *old, uint32_t rank,
			   struct ckpt_err *err)
{
	const struct ck_val *frags = ck_val_get(old, "frozen_param_fragments");
	struct ck_arena *a = &w->arena;
	struct ck_val *root = ck_val_clone(a, old);

	root = ck_val_dict_sets(a, root, "dp_world_size", ck_val_new_int(a, w->t->world));
	if (ck_val_get(old, "param_shapes") && !ck_val_is_none(ck_val_get(old, "param_shapes")))
		root = ck_val_dict_sets(a, root, "param_shapes", ck_wr_shapes(w));
	if (w->t->stage == 3) {
		if (frags)
			root = ck_val_dict_sets(a, root, "frozen_param_fragments",
						fragments(w, frags, rank, err));
		if (rank && ck_val_get(old, "shared_params"))
			root = ck_val_dict_sets(a, root, "shared_params", ck_val_new_dict(a));
	}
	if (!root)
		ck_fail_nomem(err, "a model file", 0);
	return root;
}
