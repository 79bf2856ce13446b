/*
 * ds_write_sub.c -- the ZeRO dict of one rank at stage 3: a flat tensor per sub-group, each
 * parameter's piece with its padding.  Padding is written as zeros.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

/* Param group and number within it of sub-group 'sub' of the target. */
static const struct tg_group *group_of(const struct wr *w, uint32_t sub, uint32_t *within)
{
	uint32_t g = 0;

	while (g + 1 < w->t->ngroups && w->t->group[g + 1].sub0 <= sub)
		g++;
	*within = sub - w->t->group[g].sub0;
	return &w->t->group[g];
}

/* State 'name' of the parameters of a sub-group: what 'rank' holds. */
static struct ck_val *piece(struct wr *w, uint32_t sub, const char *name, uint32_t rank,
			    bool requires_grad, struct ckpt_err *err)
{
	uint32_t within, number;
	const struct tg_group *g = group_of(w, sub, &within);
	int rc = ck_wr_storage(w, ck_wr_dtype(w, g->param[g->first[within]].tensor, name), &number,
			       err);

	for (uint32_t i = g->first[within]; !rc && i < g->first[within + 1]; i++) {
		const struct ck_step_param *p = &g->param[i];
		const uint64_t n = ckpt_z3_valid_numel(p->numel, w->t->world, rank);

		rc = ck_wr_named(w, p->tensor, name, rank * g->part[i], n, err);
		if (!rc)
			rc = ck_wr_zero(w, g->part[i] - n, err);
	}
	return rc ? NULL : ck_wr_flat(w, number, requires_grad);
}

static struct ck_val *masters(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t i = 0; list && i < w->t->nsubs; i++)
		list = ck_val_list_add(&w->arena, list, piece(w, i, "master", rank, true, err));
	return list;
}

struct sub_state {
	uint32_t sub, rank;
};

static struct ck_val *make_state(struct wr *w, const char *name, const void *arg,
				 struct ckpt_err *err)
{
	const struct sub_state *s = arg;

	return piece(w, s->sub, name, s->rank, false, err);
}

static struct ck_val *state_entry(struct wr *w, uint32_t sub, uint32_t rank,
				  const struct ck_val *old, struct ckpt_err *err)
{
	const struct sub_state s = { .sub = sub, .rank = rank };
	uint32_t within;
	const struct tg_group *g = group_of(w, sub, &within);

	return ck_wr_own_tensors(w, ck_wr_edit_entry(w, old, g->param[g->first[within]].tensor,
						     make_state, &s, err), old, err);
}

static struct ck_val *states(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_val *state = ck_val_new_dict(&w->arena);

	for (uint32_t i = 0; state && i < w->t->nsubs; i++) {
		uint32_t within;
		const struct tg_group *g = group_of(w, i, &within);
		const struct ck_val *old = w->step->group[g - w->t->group].entry;

		if (old)
			state = ck_val_dict_add(&w->arena, state, ck_val_new_int(&w->arena, i),
						state_entry(w, i, rank, old, err));
	}
	return state;
}

/* Each param group lists its sub-groups, numbered through. */
static struct ck_val *param_groups(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *list = ck_val_new_list(a);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		struct ck_val *hyper = ck_wr_param_group(w, w->step->group[g].hyper, g, err);
		struct ck_val *subs = ck_val_new_list(a);

		for (uint32_t i = 0; subs && i < group->nsubs; i++)
			subs = ck_val_list_add(a, subs, ck_val_new_int(a, group->sub0 + i));
		list = ck_val_list_add(a, list, ck_val_dict_sets(a, hyper, "params", subs));
	}
	return list;
}

static struct ck_val *optimizer(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *opt = w->step->stage == 3 && !w->new_keys ?
		ck_val_clone(a, ck_val_get(w->step->own, "optimizer_state_dict")) :
		ck_val_new_dict(a);

	opt = ck_val_dict_sets(a, opt, "state", states(w, rank, err));
	return ck_val_dict_sets(a, opt, "param_groups", param_groups(w, err));
}

struct ck_val *ck_wr_sub_value(struct wr *w, const char *key, uint32_t rank,
			       struct ckpt_err *err)
{
	if (!strcmp(key, "optimizer_state_dict"))
		return optimizer(w, rank, err);
	if (!strcmp(key, "fp32_flat_groups"))
		return masters(w, rank, err);
	if (!strcmp(key, "partition_count"))
		return ck_val_new_int(&w->arena, w->t->world);
	return NULL;
}
