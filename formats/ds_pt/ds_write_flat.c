/*
 * ds_write_flat.c -- the ZeRO dict of one rank at stages 1 and 2 and of BF16_Optimizer.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

/* Slots [begin, begin + count) of a run of the group, from state 'name' of each parameter. */
static int add_slots(struct wr *w, const struct tg_group *g, uint32_t run, const char *name,
		     uint64_t begin, uint64_t count, struct ckpt_err *err)
{
	const struct ck_step_param *param = g->stacked ? g->param :
					    g->param + (uint64_t)run * g->nparams;
	struct ckpt_z12_pieces it;
	struct ckpt_zero_piece piece;
	int rc = 0;

	if (ckpt_z12_pieces_init(&it, g->numel, g->offset, g->nparams, g->total, begin, count))
		return ck_fail(err, CKPT_E_LIMIT, w->step->at.where, CKPT_NO_OFFSET,
			       "a partition exceeds 2^63 elements");
	while (!rc && ckpt_z12_pieces_next(&it, &piece)) {
		const struct ck_step_param *p;

		if (piece.kind != CKPT_ZERO_PARAM) {
			rc = ck_wr_zero(w, piece.numel, err);
			continue;
		}
		p = &param[g->order[piece.param]];
		rc = ck_wr_named(w, p->tensor, name,
				 (g->stacked ? run * p->numel : 0) + piece.elem, piece.numel, err);
	}
	return rc;
}

static enum ckpt_dtype dtype_of(const struct wr *w, const struct tg_group *g, const char *name)
{
	return g->nparams ? ck_wr_dtype(w, g->param[0].tensor, name) : CKPT_F32;
}

/* The partition of 'rank', cut to 'count' slots, as a tensor. */
static struct ck_val *partition(struct wr *w, const struct tg_group *g, const char *name,
				uint32_t rank, uint64_t count, bool requires_grad,
				struct ckpt_err *err)
{
	uint32_t number;

	if (ck_wr_storage(w, dtype_of(w, g, name), &number, err) ||
	    add_slots(w, g, ck_tg_run(w->t, g, rank), name,
		      ck_tg_place(w->t, g, rank) * g->cut.part, count, err))
		return NULL;
	return ck_wr_flat(w, number, requires_grad);
}

static enum ckpt_z12_rule rule_of(const struct wr *w)
{
	const uint32_t *v = w->t->version;

	return w->t->bf16_optimizer ? CKPT_Z12_KEPT : ckpt_z12_rule(v[0], v[1], v[2]);
}

static struct ck_val *masters(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		const uint64_t n = ckpt_z12_saved_numel(rule_of(w), &group->cut,
							ck_tg_place(w->t, group, rank));

		list = ck_val_list_add(&w->arena, list,
				       partition(w, group, "master", rank, n, true, err));
	}
	return list;
}

struct flat_state {
	const struct tg_group *group;
	uint32_t rank;
};

static struct ck_val *make_state(struct wr *w, const char *name, const void *arg,
				 struct ckpt_err *err)
{
	const struct flat_state *s = arg;
	const struct tg_group *g = s->group;
	const uint64_t n = w->step->elastic ?
			   ckpt_z12_saved_numel(rule_of(w), &g->cut,
						ck_tg_place(w->t, g, s->rank)) : g->cut.part;

	return partition(w, g, name, s->rank, n, false, err);
}

static struct ck_val *state_entry(struct wr *w, const struct tg_group *g, const struct ck_val *old,
				  uint32_t rank, struct ckpt_err *err)
{
	const struct flat_state s = { .group = g, .rank = rank };

	return ck_wr_own_tensors(w, ck_wr_edit_entry(w, old,
						     g->nparams ? g->param[0].tensor : CK_NONE,
						     make_state, &s, err), old, err);
}

static struct ck_val *elastic_state(struct wr *w, const struct ck_val *old, uint32_t rank,
				    struct ckpt_err *err)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++)
		list = ck_val_list_add(&w->arena, list,
				       state_entry(w, &w->t->group[g], ck_val_at(old, g), rank,
						   err));
	return list;
}

/* 'state' in the order of 'as': ranks that never stepped a group list it last. */
static struct ck_val *in_order_of(struct wr *w, const struct ck_val *as, struct ck_val *state)
{
	struct ck_val *out = ck_val_new_dict(&w->arena), *const *item, *const *mine;
	uint64_t n, nmine;

	if (!state || state->kind != CK_VAL_DICT || !ck_val_pairs(as, &item, &n) ||
	    !ck_val_pairs(state, &mine, &nmine))
		return state;
	for (uint64_t i = 0; out && i < n; i++)
		for (uint64_t k = 0; out && k < nmine; k++)
			if (ck_val_equal(item[2 * i], mine[2 * k], 1))
				out = ck_val_dict_set(&w->arena, out, mine[2 * k], mine[2 * k + 1]);
	for (uint64_t k = 0; out && k < nmine; k++)
		out = ck_val_dict_set(&w->arena, out, mine[2 * k], mine[2 * k + 1]);
	return out;
}

/* Of a step that was flat before: the keys of a group stay. */
static struct ck_val *same_state(struct wr *w, const struct ck_val *source, uint32_t rank,
				 struct ckpt_err *err)
{
	struct ck_val *state = ck_val_clone(&w->arena, source);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(source, &item, &n))
		n = 0;
	for (uint64_t i = 0; state && i < n; i++) {
		uint32_t g;

		for (g = 0; g < w->step->ngroups; g++)
			if (item[2 * i]->kind == CK_VAL_INT &&
			    item[2 * i]->u.i == w->step->group[g].key)
				break;
		if (g < w->step->ngroups)
			state = ck_val_dict_set(&w->arena, state, item[2 * i],
						state_entry(w, &w->t->group[g], item[2 * i + 1],
							    rank, err));
	}
	return w->first ? in_order_of(w, ck_val_get(ck_val_get(w->first, "base_optimizer_state"),
						    "state"), state) : state;
}

/* Of a step of sub-groups: one entry a group, numbered as the groups. */
static struct ck_val *new_state(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	struct ck_val *state = ck_val_new_dict(&w->arena);

	for (uint32_t g = 0; state && g < w->t->ngroups; g++) {
		const struct ck_val *old = w->step->group[g].entry;

		if (old)
			state = ck_val_dict_add(&w->arena, state, ck_val_new_int(&w->arena, g),
						state_entry(w, &w->t->group[g], old, rank, err));
	}
	return state;
}

/* Each group has one flat tensor, of its own number. */
static struct ck_val *new_groups(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *list = ck_val_new_list(a);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++) {
		struct ck_val *one = ck_val_list_add(a, ck_val_new_list(a), ck_val_new_int(a, g));
		struct ck_val *hyper = ck_wr_param_group(w, w->step->group[g].hyper, g, err);

		list = ck_val_list_add(a, list, ck_val_dict_sets(a, hyper, "params", one));
	}
	return list;
}

/* The groups of a step that was flat before. */
static struct ck_val *same_groups(struct wr *w, const struct ck_val *old, struct ckpt_err *err)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && ck_val_at(old, g); g++)
		list = ck_val_list_add(&w->arena, list,
				       ck_wr_param_group(w, ck_val_at(old, g), g, err));
	return list;
}

/* {state: {key: entry}, param_groups} */
static struct ck_val *rigid_state(struct wr *w, uint32_t rank, struct ckpt_err *err)
{
	const struct ck_val *old = ck_val_get(w->step->own, "base_optimizer_state");
	struct ck_arena *a = &w->arena;
	struct ck_val *base, *groups;

	if (old && w->step->shards && !w->t->regrouped) {
		base = ck_val_dict_sets(a, ck_val_clone(a, old), "state",
					same_state(w, ck_val_get(old, "state"), rank, err));
		groups = ck_val_get(old, "param_groups");
		return groups ? ck_val_dict_sets(a, base, "param_groups",
						 same_groups(w, groups, err)) : base;
	}
	base = ck_val_dict_sets(a, ck_val_new_dict(a), "state", new_state(w, rank, err));
	return ck_val_dict_sets(a, base, "param_groups", new_groups(w, err));
}

static struct ck_val *counts_list(struct wr *w, const uint64_t *count, uint64_t n)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint64_t i = 0; list && i < n; i++)
		list = ck_val_list_add(&w->arena, list,
				       ck_val_new_int(&w->arena, (int64_t)count[i]));
	return list;
}

static struct ck_val *group_paddings(struct wr *w, uint32_t rank)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		const uint64_t n = ckpt_z12_group_padding(rule_of(w), &group->cut,
							  ck_tg_place(w->t, group, rank));

		list = ck_val_list_add(&w->arena, list, ck_val_new_int(&w->arena, (int64_t)n));
	}
	return list;
}

static struct ck_val *gap_lists(struct wr *w)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++)
		list = ck_val_list_add(&w->arena, list,
				       counts_list(w, w->t->group[g].gap, w->t->group[g].nparams));
	return list;
}

static struct ck_val *partition_counts(struct wr *w)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++)
		list = ck_val_list_add(&w->arena, list,
				       ck_val_new_int(&w->arena, w->t->group[g].world));
	return list;
}

/* An example of the class, which moved between versions. */
static const struct ck_val *fragment_example(const struct wr *w)
{
	const struct ck_val *maps = ck_val_get(w->step->own, "param_slice_mappings");
	struct ck_val *const *group, *const *item;
	uint64_t ngroups, n;

	if (!ck_val_seq(maps, &group, &ngroups))
		return NULL;
	for (uint64_t g = 0; g < ngroups; g++)
		if (ck_val_pairs(group[g], &item, &n) && n && item[1]->kind == CK_VAL_OBJECT)
			return item[1];
	return NULL;
}

static struct ck_val *fragment(struct wr *w, const struct ck_val *example, uint64_t start,
			       uint64_t numel)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state = ck_val_new_dict(a), *v;

	state = ck_val_dict_sets(a, state, "numel", ck_val_new_int(a, (int64_t)numel));
	state = ck_val_dict_sets(a, state, "start", ck_val_new_int(a, (int64_t)start));
	if (example)
		v = ck_val_new_object(a, example->u.obj->how, example->u.obj->fn,
				      example->u.obj->args);
	else
		v = ck_val_new_object(a, CK_HOW_NEWOBJ,
				      ck_val_new_global(a, "deepspeed.utils.tensor_fragment",
							"fragment_address"),
				      ck_val_new_tuple(a, NULL, 0));
	if (v && state)
		v->u.obj->state = state;
	return state ? v : NULL;
}

/*
 * In the optimizer's own order.  DeepSpeed walks the flat run in that order too, even when
 * round robin laid it out otherwise; with alignment on it does not make that mistake.
 */
static struct ck_val *slice_mapping(struct wr *w, const struct tg_group *g, uint32_t rank)
{
	const struct ck_val *example = fragment_example(w);
	struct ck_val *map = ck_val_new_ordered(&w->arena);
	const uint32_t place = ck_tg_place(w->t, g, rank);
	uint64_t start, numel, at = 0;

	for (uint32_t i = 0; map && i < g->nparams; i++) {
		const struct ck_step_param *p = &g->param[i];
		uint64_t offset = at;

		if (w->t->round_robin && w->t->aligned)
			offset = g->offset[ckpt_z12_rr_stored(g->nparams, g->world, i)];
		else if (!w->t->round_robin)
			offset = g->offset[i];
		at += p->numel;
		if (ckpt_z12_slice(offset, p->numel, g->cut.part, place, &start, &numel))
			map = ck_val_dict_add(&w->arena, map, ck_val_new_str(&w->arena, p->name),
					      fragment(w, example, start, numel));
	}
	return map;
}

static struct ck_val *slice_mappings(struct wr *w, uint32_t rank)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++)
		list = ck_val_list_add(&w->arena, list,
				       slice_mapping(w, &w->t->group[g], rank));
	return list;
}

struct ck_val *ck_wr_flat_value(struct wr *w, const char *key, uint32_t rank,
				struct ckpt_err *err)
{
	const struct ck_val *old = ck_val_get(w->step->own, key);

	if (!strcmp(key, "base_optimizer_state"))
		return w->step->elastic ? elastic_state(w, old, rank, err) :
		       rigid_state(w, rank, err);
	if (!strcmp(key, "single_partition_of_fp32_groups"))
		return masters(w, rank, err);
	if (!strcmp(key, "group_paddings") || !strcmp(key, "groups_padding"))
		return group_paddings(w, rank);
	if (!strcmp(key, "param_alignment_paddings"))
		return gap_lists(w);
	if (!strcmp(key, "partition_count"))
		return old && old->kind == CK_VAL_INT && !w->new_keys &&
		       w->step->stage != 3 ?
		       ck_val_new_int(&w->arena, w->t->world) : partition_counts(w);
	if (!strcmp(key, "param_slice_mappings"))
		return slice_mappings(w, rank);
	return NULL;
}
