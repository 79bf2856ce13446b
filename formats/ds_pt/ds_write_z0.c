/*
 * ds_write_z0.c -- the model file of stage 0: the optimizer in it, whole and without names.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

/* A new storage for this state: of all parameters of a flat group, or of one in its shape. */
struct owner {
	const struct tg_group *group;
	const struct ck_step_param *param;	/* NULL = all of the group */
};

static struct ck_val *make(struct wr *w, const char *name, const struct owner *o,
			   bool requires_grad, struct ckpt_err *err)
{
	const struct ck_step_param *first = o->param ? o->param : &o->group->param[0];
	const uint32_t n = o->param ? 1 : o->group->nparams;
	uint32_t number;
	int rc = ck_wr_storage(w, ck_wr_dtype(w, first->tensor, name), &number, err);

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = ck_wr_named(w, first[i].tensor, name, 0, first[i].numel, err);
	if (rc)
		return NULL;
	if (!o->param)
		return ck_wr_flat(w, number, requires_grad);
	return ck_wr_tensor(w, number, first->shape, first->ndim, requires_grad);
}

static struct ck_val *make_state(struct wr *w, const char *name, const void *arg,
				 struct ckpt_err *err)
{
	return make(w, name, arg, false, err);
}

static struct ck_val *add_entry(struct wr *w, struct ck_val *state, int64_t key,
				const struct owner *o, const struct ck_val *old,
				struct ckpt_err *err)
{
	const uint32_t tensor = o->param ? o->param->tensor : o->group->param[0].tensor;
	struct ck_val *entry = ck_wr_edit_entry(w, old, tensor, make_state, o, err);

	return ck_val_dict_add(&w->arena, state, ck_val_new_int(&w->arena, key),
			       ck_wr_own_tensors(w, entry, old, err));
}

/* {state, param_groups}: numbered through the groups. */
static struct ck_val *torch_dict(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state = ck_val_new_dict(a), *list = ck_val_new_list(a), *dict;
	int64_t key = 0;

	for (uint32_t g = 0; state && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		const struct ck_val *hyper = w->step->group[g].hyper;
		const struct ck_val *old = w->step->group[g].entry;
		const uint32_t n = w->t->z0 == TG_Z0_FLAT ? 1 : group->nparams;
		struct ck_val *params = ck_val_new_list(a), *one;

		for (uint32_t i = 0; state && i < n; i++, key++) {
			const struct owner o = {
				group, w->t->z0 == TG_Z0_FLAT ? NULL : &group->param[i],
			};

			params = ck_val_list_add(a, params, ck_val_new_int(a, key));
			if (old)
				state = add_entry(w, state, key, &o, old, err);
		}
		one = ck_wr_own_tensors(w, ck_wr_param_group(w, hyper, g, err), hyper, err);
		list = ck_val_list_add(a, list, ck_val_dict_sets(a, one, "params", params));
	}
	dict = ck_val_dict_sets(a, ck_val_new_dict(a), "state", state);
	return ck_val_dict_sets(a, dict, "param_groups", list);
}

static struct ck_val *masters(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *list = ck_val_new_list(a);

	for (uint32_t g = 0; list && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		struct owner o = { group, NULL };
		struct ck_val *inner = ck_val_new_list(a);

		if (w->t->z0 == TG_Z0_FLAT) {
			list = ck_val_list_add(a, list, make(w, "master", &o, true, err));
			continue;
		}
		for (uint32_t i = 0; inner && i < group->nparams; i++) {
			o.param = &group->param[i];
			inner = ck_val_list_add(a, inner, make(w, "master", &o, true, err));
		}
		list = ck_val_list_add(a, list, inner);
	}
	return list;
}

/* ---- the wrapper ---- */

static struct ck_val *scaler_value(struct wr *w, const char *key)
{
	struct ck_val *scaler = ck_wr_scaler(w, w->step->scaler);

	return scaler && scaler->kind == CK_VAL_OBJECT ?
	       ck_val_get(scaler->u.obj->state, key) : NULL;
}

/* A scaler that does not move has no count: it is that of the steps. */
static struct ck_val *iteration(struct wr *w, bool dynamic)
{
	struct ck_val *v = dynamic ? scaler_value(w, "cur_iter") : NULL;
	int64_t steps = 0;

	if (v)
		return v;
	ck_val_int(ck_val_get(w->step->model, "global_steps"), &steps);
	return ck_val_new_int(&w->arena, steps);
}

static struct ck_val *add_scale(struct wr *w, struct ck_val *dict)
{
	static const char *const more[] = {
		"last_overflow_iter", "scale_factor", "scale_window",
	};
	struct ck_arena *a = &w->arena;
	struct ck_val *scale = scaler_value(w, "cur_scale");
	const bool dynamic = scaler_value(w, "last_overflow_iter") != NULL;

	dict = ck_val_dict_sets(a, dict, "dynamic_loss_scale", ck_val_new_bool(a, dynamic));
	dict = ck_val_dict_sets(a, dict, "cur_scale", scale ? scale : ck_val_new_float(a, 1.0));
	dict = ck_val_dict_sets(a, dict, "cur_iter", iteration(w, dynamic));
	for (size_t i = 0; dynamic && i < CK_ARRAY_LEN(more); i++)
		dict = ck_val_dict_sets(a, dict, more[i], scaler_value(w, more[i]));
	return dict;
}

static struct ck_val *clip_grad(struct wr *w)
{
	struct ck_val *clip = w->step->clip;
	double config = 0;

	if (clip)
		return clip;
	ck_val_num(ck_val_get(ck_val_get(w->step->model, "ds_config"), "gradient_clipping"),
		   &config);
	return ck_val_new_float(&w->arena, config);
}

static bool is_bf16(const struct wr *w)
{
	const uint32_t tensor = w->t->group[0].param[0].tensor;

	return ck_wr_dtype(w, tensor, "weight") == CKPT_BF16;
}

static struct ck_val *optimizer(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *dict = ck_val_new_dict(a);

	if (w->t->z0 == TG_Z0_TORCH)
		return torch_dict(w, err);
	if (w->t->z0 == TG_Z0_FLAT && is_bf16(w)) {	/* which has no scale */
		dict = ck_val_dict_sets(a, dict, "optimizer_state_dict", torch_dict(w, err));
	} else {
		dict = add_scale(w, dict);
		dict = ck_val_dict_sets(a, dict, "optimizer_state_dict", torch_dict(w, err));
	}
	if (w->t->z0 == TG_Z0_WHOLE)
		return ck_val_dict_sets(a, dict, "fp32_groups", masters(w, err));
	dict = ck_val_dict_sets(a, dict, "fp32_groups_flat", masters(w, err));
	return ck_val_dict_sets(a, dict, "clip_grad", clip_grad(w));
}

struct ck_val *ck_wr_stage0(struct wr *w, struct ck_val *root, struct ckpt_err *err)
{
	static const char *const none[] = {
		"param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments",
	};
	struct ck_arena *a = &w->arena;

	if (w->t->z0 == TG_Z0_KEPT)
		return root;
	root = ck_val_dict_sets(a, root, "optimizer", optimizer(w, err));
	for (size_t i = 0; root && i < CK_ARRAY_LEN(none); i++)
		if (ck_val_get(root, none[i]))
			root = ck_val_dict_sets(a, root, none[i], ck_val_new_none(a));
	return root;
}
