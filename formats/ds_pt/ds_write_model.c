/*
 * ds_write_model.c -- model files of the target: the source's, with what depends on the
 * number of ranks made anew.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

/* Shapes of parameters order[0..n), or of param[first..last) when order is NULL. */
static struct ck_val *shapes(struct wr *w, const struct tg_group *g, uint32_t first,
			     uint32_t last, const uint32_t *order)
{
	struct ck_val *dict = ck_val_new_ordered(&w->arena);

	for (uint32_t i = first; dict && i < last; i++) {
		const struct ck_step_param *p = &g->param[order ? order[i] : i];

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

/* The type of a parameter in the files: as it is stored, or as the run is to have it. */
static enum ckpt_dtype weight_dtype(const struct wr *w, uint32_t state)
{
	return w->step->weight_dtype ? w->step->weight_dtype :
	       (enum ckpt_dtype)w->ix->state[state].dtype;
}

static struct ck_val *placeholder(struct wr *w, enum ckpt_dtype dtype, struct ckpt_err *err)
{
	const uint64_t none = 0;
	uint32_t number;

	if (ck_wr_storage(w, dtype, &number, err))
		return NULL;
	return ck_wr_tensor(w, number, &none, 1, false);
}

/* The weight as a tensor of its own, stored or derived from the master. */
static struct ck_val *whole(struct wr *w, const struct ck_tensor *t, uint32_t state,
			    enum ckpt_dtype dtype, struct ckpt_err *err)
{
	uint32_t number;

	if (ck_wr_storage(w, dtype, &number, err) ||
	    ck_wr_state(w, state, 0, t->numel, err))
		return NULL;
	return ck_wr_tensor(w, number, t->shape, t->ndim, false);
}

/* A rank's part of a frozen parameter, with its padding. */
static struct ck_val *fragment(struct wr *w, const struct ck_tensor *t, uint32_t state,
			       uint32_t rank, struct ckpt_err *err)
{
	const uint64_t part = ckpt_z3_part_numel(t->numel, w->t->world);
	const uint64_t n = ckpt_z3_valid_numel(t->numel, w->t->world, rank);
	uint32_t number;

	if (ck_wr_storage(w, weight_dtype(w, state), &number, err) ||
	    ck_wr_state(w, state, rank * part, n, err) || ck_wr_zero(w, part - n, err))
		return NULL;
	return ck_wr_flat(w, number, false);
}

static uint32_t weight_of(const struct wr *w, uint32_t number, struct ckpt_err *err)
{
	const uint32_t s = ck_index_state_find(w->ix, number, "weight");

	if (s == CK_NONE)
		ck_fail(err, CKPT_E_INCOMPLETE, w->ix->tensor[number].name, CKPT_NO_OFFSET,
			"the step lacks its weight");
	return s;
}

/* ---- 'module' for the other kind of stage ---- */

struct moduling {
	struct wr *w;
	struct ck_val **made;	/* by tensor of the index: tied names share a node */
};

static struct ck_val *parameter(struct moduling *m, uint32_t number, struct ckpt_err *err)
{
	const struct ck_tensor *t = &m->w->ix->tensor[number];
	const uint32_t kept = t->role == CKPT_ROLE_ALIAS ? (uint32_t)t->alias_of : number;
	const uint32_t state = weight_of(m->w, kept, err);

	if (state == CK_NONE)
		return NULL;
	if (!m->made[kept])
		m->made[kept] = m->w->t->stage == 3 ?
			placeholder(m->w, weight_dtype(m->w, state), err) :
			whole(m->w, &m->w->ix->tensor[kept], state, weight_dtype(m->w, state),
			      err);
	return m->made[kept];
}

static struct ck_val *whole_entry(struct moduling *m, uint32_t number, struct ckpt_err *err)
{
	const uint32_t state = weight_of(m->w, number, err);

	return state == CK_NONE ? NULL : whole(m->w, &m->w->ix->tensor[number], state,
					       (enum ckpt_dtype)m->w->ix->state[state].dtype, err);
}

/* The index has its elements, 'module' a name or a placeholder. */
static bool is_named_only(const struct wr *w, const struct ck_val *old)
{
	const struct ck_tensor_ref *t = ck_val_tensor(old);

	return w->step->bare_module && (ck_val_is_none(old) || (t && !t->numel));
}

static struct ck_val *module_entry(struct moduling *m, const char *name, struct ck_val *old,
				   struct ckpt_err *err)
{
	uint32_t number;

	if (!name || !ck_index_find(m->w->ix, name, &number)) {
		if (!name || m->w->step->stage != 3 || m->w->t->stage == 3 || !ck_val_tensor(old))
			return old;
		ck_fail(err, CKPT_E_INCOMPLETE, name, CKPT_NO_OFFSET,
			"the step has only a placeholder of it, but a step of stage %d needs "
			"the parameter itself", m->w->t->stage);
		return NULL;
	}
	switch ((enum ckpt_role)m->w->ix->tensor[number].role) {
	case CKPT_ROLE_TRAINABLE:
	case CKPT_ROLE_FROZEN:
	case CKPT_ROLE_ALIAS:
		return parameter(m, number, err);
	case CKPT_ROLE_UNTRAINED:
		if (m->w->t->stage != 3)
			return m->w->step->bare_module ?
			       whole_entry(m, number, err) : old;
		ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			"a parameter that is in no optimizer group has no place in a stage-3 step");
		return NULL;
	default:
		return is_named_only(m->w, old) ? whole_entry(m, number, err) : old;
	}
}

/* Buffers stay; parameters become placeholders, or whole. */
static struct ck_val *module(struct wr *w, const struct ck_val *old, struct ckpt_err *err)
{
	struct moduling m = { .w = w };
	struct ck_val *dict = ck_val_new_ordered(&w->arena);
	struct ck_val *const *item;
	uint64_t n;

	m.made = ck_arena_zalloc(&w->arena, (w->ix->ntensors + 1) * sizeof(struct ck_val *));
	if (!m.made || !ck_val_pairs(old, &item, &n))
		return NULL;
	for (uint64_t i = 0; dict && i < n; i++)
		dict = ck_val_dict_add(&w->arena, dict, item[2 * i],
				       module_entry(&m, ck_val_str(item[2 * i]), item[2 * i + 1],
						    err));
	if (dict && old->kind == CK_VAL_OBJECT)
		dict->u.obj->state = old->u.obj->state;	/* _metadata */
	return dict;
}

/* ---- tables beside 'module' ---- */

static struct ck_val *frozen_value(struct wr *w, uint32_t number, const struct ck_val *mod,
				   uint32_t rank, struct ckpt_err *err)
{
	const struct ck_tensor *t = &w->ix->tensor[number];
	const uint32_t state = weight_of(w, number, err);

	if (state == CK_NONE)
		return NULL;
	if (w->t->stage == 3)
		return fragment(w, t, state, rank, err);
	return ck_val_get(mod, t->name);
}

/* Both tables, in the order of 'module': stages 2 and 3 have them. */
static struct ck_val *set_frozen(struct wr *w, struct ck_val *root, const struct ck_val *mod,
				 uint32_t rank, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *frozen = ck_val_new_ordered(a), *sizes = ck_val_new_ordered(a);

	for (uint32_t i = 0; frozen && sizes && i < w->ix->ntensors; i++) {
		const struct ck_tensor *t = &w->ix->tensor[i];

		if (t->role != CKPT_ROLE_FROZEN)
			continue;
		sizes = ck_val_dict_add(a, sizes, ck_val_new_str(a, t->name),
					ck_val_new_size(a, t->shape, t->ndim));
		frozen = ck_val_dict_add(a, frozen, ck_val_new_str(a, t->name),
					 frozen_value(w, i, mod, rank, err));
	}
	root = ck_val_dict_sets(a, root, "frozen_param_shapes", sizes);
	return ck_val_dict_sets(a, root, "frozen_param_fragments", frozen);
}

static struct ck_val *no_frozen(struct wr *w, struct ck_val *root)
{
	struct ck_arena *a = &w->arena;

	root = ck_val_dict_sets(a, root, "frozen_param_shapes", ck_val_new_none(a));
	return ck_val_dict_sets(a, root, "frozen_param_fragments", ck_val_new_none(a));
}

/* Older versions keep no frozen parameters at stage 3. */
static struct ck_val *check_none(struct wr *w, struct ck_val *root, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < w->ix->ntensors; i++) {
		if (w->ix->tensor[i].role != CKPT_ROLE_FROZEN)
			continue;
		ck_fail(err, CKPT_E_UNSUPPORTED, w->ix->tensor[i].name, CKPT_NO_OFFSET,
			"it is frozen, but the DeepSpeed that wrote this step (before 0.9.1) "
			"saves no frozen parameters at stage 3");
		return NULL;
	}
	return root;
}

static struct ck_val *frozen(struct wr *w, struct ck_val *root, const struct ck_val *old,
			     uint32_t rank, struct ckpt_err *err)
{
	const bool excluded = w->step->stage >= 2 && !w->step->frozen_listed;
	const bool kept = !w->new_keys || (w->step->reordered && !w->want->version);

	if (kept && !ck_val_get(old, "frozen_param_shapes"))	/* before 0.9.1 */
		return w->t->stage == 3 && w->step->stage != 3 ? check_none(w, root, err) : root;
	if (w->t->stage < 2)
		return w->step->stage == 1 && !w->new_keys ? root : no_frozen(w, root);
	if (!w->new_keys && (excluded || (w->t->stage == 2 && w->step->stage == 2)))
		return root;
	if (excluded && ck_val_get(old, "frozen_param_shapes"))
		return no_frozen(w, root);
	return set_frozen(w, root, ck_val_get(root, "module"), rank, err);
}

/* Of a name that is not stored, the one that is; rank 0 has it. */
static struct ck_val *shared(struct wr *w, struct ck_val *root, uint32_t rank)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *dict = ck_val_new_dict(a);

	for (uint32_t i = 0; dict && !rank && i < w->ix->ntensors; i++) {
		const struct ck_tensor *t = &w->ix->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS)
			dict = ck_val_dict_add(a, dict, ck_val_new_str(a, t->name),
					       ck_val_new_str(a,
							      w->ix->tensor[t->alias_of].name));
	}
	return ck_val_dict_sets(a, root, "shared_params", dict);
}

/*
 * A native step lacks keys that are made anew here; where they go, its version says.  Before 0.9.2
 * some stood elsewhere, and stay as they came.
 */
static bool in_order(const struct wr *w)
{
	return w->want->version || (w->step->reordered && ck_wr_since(w, 9, 2));
}

static struct ck_val *stage0(struct wr *w, struct ck_val *root, struct ckpt_err *err)
{
	root = root ? ck_wr_stage0(w, root, err) : NULL;
	if (in_order(w))
		root = root ? ck_wr_model_keys(w, root) : NULL;
	if (!root)
		ck_fail_nomem(err, "a model file", 0);
	return root;
}

/* Before 0.6.0 a placeholder has one element, where later versions see a parameter. */
static bool has_old_placeholders(const struct wr *w)
{
	const uint32_t *v = w->step->version;

	return w->step->stage == 3 && w->new_keys && !v[0] && v[1] < 6;
}

struct ck_val *ck_wr_model(struct wr *w, const struct ck_val *old, uint32_t rank, const void *arg,
			   struct ckpt_err *err)
{
	const struct ck_val *old_shapes = ck_val_get(old, "param_shapes");
	struct ck_arena *a = &w->arena;
	struct ck_val *root = ck_val_clone(a, old);
	struct ck_val *const *item;
	uint64_t n;

	(void)arg;
	if ((w->step->stage == 3) != (w->t->stage == 3) || w->step->bare_module ||
	    has_old_placeholders(w))
		root = ck_val_dict_sets(a, root, "module",
					module(w, ck_val_get(old, "module"), err));
	root = ck_val_dict_sets(a, root, "dp_world_size", ck_val_new_int(a, w->t->world));
	if (root && w->step->reordered) {	/* of a native step */
		ck_val_dict_drop(root, "zckpt_id");
		ck_val_dict_drop(root, "zckpt_rank");
	}
	if (!w->t->stage)
		return stage0(w, root, err);
	if (ck_val_get(old, "ds_config") || w->t->round_robin)
		root = ck_val_dict_sets(a, root, "ds_config",
					ck_wr_config(w, ck_val_get(old, "ds_config")));
	if (w->step->reordered || !w->step->stage)
		root = ck_val_dict_sets(a, root, "optimizer", ck_val_new_none(a));
	if (w->new_keys || (old_shapes && !ck_val_is_none(old_shapes)))
		root = ck_val_dict_sets(a, root, "param_shapes", ck_wr_shapes(w));
	if (w->t->experts)
		root = ck_wr_autoep(w, root, err);
	if (root)
		root = frozen(w, root, old, rank, err);
	if (w->new_keys && !ck_val_pairs(ck_val_get(old, "shared_params"), &item, &n))
		root = shared(w, root, rank);
	else if (w->t->stage == 3 && rank && ck_val_get(old, "shared_params"))
		root = ck_val_dict_sets(a, root, "shared_params", ck_val_new_dict(a));
	if (in_order(w))
		root = root ? ck_wr_model_keys(w, root) : NULL;
	if (!root)
		ck_fail_nomem(err, "a model file", 0);
	return root;
}
