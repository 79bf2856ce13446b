/*
 * ck_pt_write.c -- a step as a training file of torch: the model in the precision of its masters,
 * the state dict of torch.optim.AdamW, the scheduler and the client's own values.
 *
 * An optimizer is given its states by number, so a group keeps the optimizer's own order; its names
 * are in 'param_names', a key of torch 2.6 and later that earlier ones pass over.
 */
#include "formats/torch_pt/ck_pt_write.h"

#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_plan.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "formats/torch_pt/ck_pt_training.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_drop.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

#define MOST_DIMS 64u	/* of torch */

struct writing {
	struct ck_step *step;
	const struct ck_index *ix;
	const struct ck_reshard_want *want;
	struct ck_arena arena;
	struct ck_pt_part *storage;
	uint64_t nstorages, storage_cap;
	struct ck_map by_state;		/* number of a state -> its storage */
};

/* ---- tensors; NULL without memory ---- */

static uint32_t add_storage(struct writing *w, uint8_t dtype, const struct ck_pt_piece *piece)
{
	struct ck_pt_piece *p = ck_arena_alloc(&w->arena, sizeof(*p));

	if (!p || ck_grow(&w->storage, &w->storage_cap, w->nstorages + 1, sizeof(*w->storage),
			  NULL))
		return CK_NONE;
	*p = *piece;
	w->storage[w->nstorages] = (struct ck_pt_part){ dtype, p, piece->count ? 1 : 0 };
	return (uint32_t)w->nstorages++;
}

/* Tied names are two tensors on one storage. */
static uint32_t storage_of(struct writing *w, uint32_t state, uint8_t dtype, uint64_t count)
{
	const struct ck_pt_piece piece = {
		.kind = CK_SEG_STATE, .dtype = dtype, .state = state,
		.count = count, .slot = CK_NONE,
	};
	uint32_t *key = ck_arena_alloc(&w->arena, sizeof(*key));
	uint64_t at = w->nstorages;
	int rc;

	if (!key)
		return CK_NONE;
	*key = state;
	rc = ck_map_add(&w->by_state, (const char *)key, sizeof(*key), at, &at, NULL);
	if (rc)
		return rc < 0 ? CK_NONE : (uint32_t)at;
	return add_storage(w, piece.dtype, &piece);
}

static struct ck_val *tensor_of(struct writing *w, const struct ck_tensor *t, uint32_t state,
				uint8_t dtype)
{
	uint64_t stride[MOST_DIMS], n = 1;
	struct ck_tensor_ref ref = {
		.dtype = dtype, .ndim = t->ndim, .shape = t->shape,
		.stride = stride, .numel = t->numel,
	};

	for (uint32_t k = t->ndim; k > 0; k--) {
		stride[k - 1] = n;
		n *= t->shape[k - 1] ? t->shape[k - 1] : 1;
	}
	ref.storage = storage_of(w, state, dtype, t->numel);
	return ref.storage == CK_NONE ? NULL : ck_val_new_tensor(&w->arena, &ref);
}

/* A count as torch keeps it: a tensor of one F32 without dimensions, for each parameter its own. */
static struct ck_val *count_of(struct writing *w, double v)
{
	const float f = (float)v;
	uint32_t bits;
	uint8_t *bytes = ck_arena_alloc(&w->arena, 4);
	struct ck_tensor_ref ref = { .dtype = CKPT_F32, .numel = 1 };

	if (!bytes)
		return NULL;
	memcpy(&bits, &f, sizeof(bits));
	ck_put_le32(bytes, bits);
	ref.storage = add_storage(w, CKPT_F32, &(struct ck_pt_piece){
		.kind = CK_SEG_LITERAL, .dtype = CKPT_F32, .count = 4, .text = bytes,
		.slot = CK_NONE,
	});
	return ref.storage == CK_NONE ? NULL : ck_val_new_tensor(&w->arena, &ref);
}

/* ---- the model ---- */

static int check_tensor(const struct writing *w, const struct ck_tensor *t, uint32_t state,
			struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info((enum ckpt_dtype)
							 w->ix->state[state].dtype);

	if (t->ndim > MOST_DIMS)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "a tensor of %u dimensions; torch has %u at most", t->ndim,
			       MOST_DIMS);
	if (!info->torch || info->bits < 8)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "a tensor of type %s, which this file cannot have", info->name);
	return 0;
}

/* Of an entry of the model: as it is, or of parameters as was asked for. */
static uint8_t model_type(const struct writing *w, const struct ck_tensor *t, uint32_t state)
{
	const uint8_t dtype = w->ix->state[state].dtype;

	return w->want->weight_dtype && t->role != CKPT_ROLE_BUFFER &&
	       ck_dtype_is_castable(dtype) ? (uint8_t)w->want->weight_dtype : dtype;
}

/* A parameter of torch's optimizer is what DeepSpeed calls the master. */
static int add_name(struct writing *w, uint32_t tensor, bool *done, struct ck_val *d,
		    struct ckpt_err *err)
{
	const struct ck_tensor *t = &w->ix->tensor[tensor];
	const uint32_t of = t->role == CKPT_ROLE_ALIAS ? (uint32_t)t->alias_of : tensor;
	uint32_t state = ck_index_state_find(w->ix, of, "master");
	int rc;

	if (state == CK_NONE)
		state = ck_index_state_find(w->ix, of, "weight");
	if (done[tensor] || state == CK_NONE)
		return 0;
	done[tensor] = true;
	rc = check_tensor(w, &w->ix->tensor[of], state, err);
	if (!rc && !ck_val_dict_add(&w->arena, d, ck_val_new_str(&w->arena, t->name),
				    tensor_of(w, &w->ix->tensor[of], state,
					      model_type(w, &w->ix->tensor[of], state))))
		rc = ck_fail_nomem(err, "a state dict", tensor);
	return rc;
}

/* In the order of the state dict, where the step has it. */
static int make_model(struct writing *w, struct ck_val **out, struct ckpt_err *err)
{
	bool *done = ck_zalloc(w->ix->ntensors + 1);
	struct ck_val *d = ck_val_new_ordered(&w->arena), *const *item;
	uint64_t n = 0;
	uint32_t tensor;
	int rc = done && d ? 0 : ck_fail_nomem(err, "names", w->ix->ntensors);

	ck_val_pairs(ck_val_get(w->step->model, "module"), &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && ck_index_find(w->ix, name, &tensor))
			rc = add_name(w, tensor, done, d, err);
	}
	for (uint32_t i = 0; !rc && i < w->ix->ntensors; i++)
		rc = add_name(w, i, done, d, err);
	ck_free(done);
	*out = d;
	return rc;
}

/* ---- the optimizer ---- */

/* A number, or a tensor of one in a file of the step. */
static bool number_of(const struct writing *w, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	bool yes = false;

	if (!t)
		return v && ck_val_num(v, out);
	for (uint32_t i = 0; t->numel == 1 && i < w->step->nfiles; i++) {
		const struct ck_step_file *f = &w->step->file[i];
		struct ck_tensor_ref ref = *t;
		uint8_t *p = NULL;

		if (!f->pt || t->storage < f->first || t->storage - f->first >= f->pt->nstorages)
			continue;
		ref.storage -= f->first;
		yes = !ck_pt_tensor_bytes(f->pt, &ref, 16, &p, NULL) && p &&
		      ck_dtype_number((enum ckpt_dtype)t->dtype, p, out);
		ck_free(p);
		break;
	}
	return yes;
}

static struct ck_val *states_of(struct writing *w, const struct ck_step_group *group,
				uint32_t tensor)
{
	const struct ck_tensor *t = &w->ix->tensor[tensor];
	struct ck_val *d = ck_val_new_dict(&w->arena);
	double count;

	if (number_of(w, ck_val_get(group->entry, "step"), &count) ||
	    number_of(w, ck_val_get(group->hyper, "step"), &count))
		d = ck_val_dict_sets(&w->arena, d, "step", count_of(w, count));
	for (uint32_t s = t->first_state; s != CK_NONE; s = w->ix->state[s].next)
		if (ck_step_is_moment(w->want, w->ix->state[s].name))
			d = ck_val_dict_sets(&w->arena, d, w->ix->state[s].name,
					     tensor_of(w, t, s, w->ix->state[s].dtype));
	return d;
}

static bool has_moments(const struct writing *w, uint32_t tensor)
{
	uint32_t s = w->ix->tensor[tensor].first_state;

	while (s != CK_NONE && !ck_step_is_moment(w->want, w->ix->state[s].name))
		s = w->ix->state[s].next;
	return s != CK_NONE && !w->want->reset;
}

/* What torch's AdamW has and DeepSpeed's has not. */
static struct ck_val *add_defaults(struct writing *w, struct ck_val *d)
{
	struct ck_arena *a = &w->arena;
	const struct {
		const char *key;
		struct ck_val *v;
	} all[] = {
		{ "amsgrad", ck_val_new_bool(a, false) }, { "maximize", ck_val_new_bool(a, false) },
		{ "foreach", ck_val_new_none(a) }, { "capturable", ck_val_new_bool(a, false) },
		{ "differentiable", ck_val_new_bool(a, false) }, { "fused", ck_val_new_none(a) },
		{ "decoupled_weight_decay", ck_val_new_bool(a, true) },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++)
		if (!ck_val_get(d, all[i].key))
			d = ck_val_dict_sets(a, d, all[i].key, all[i].v);
	return d;
}

static struct ck_val *group_of(struct writing *w, const struct ck_step_group *group,
			       int64_t number)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *d = ck_val_new_dict(a), *ids = ck_val_new_list(a);
	struct ck_val *names = ck_val_new_list(a), *const *item;
	uint64_t n = 0;
	double v;

	ck_val_pairs(group->hyper, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *value = item[2 * i + 1];

		if (!key || !strcmp(key, "step") || !strcmp(key, "bias_correction"))
			continue;
		if (ck_val_tensor(value))
			value = number_of(w, value, &v) ? ck_val_new_float(a, v) : NULL;
		if (value && ck_step_ds_is_hyper(key, value))
			d = ck_val_dict_sets(a, d, key, value);
	}
	d = add_defaults(w, d);
	for (uint32_t i = 0; i < group->nparams; i++) {
		ids = ck_val_list_add(a, ids, ck_val_new_int(a, number + i));
		names = ck_val_list_add(a, names, ck_val_new_str(a, group->param[i].name));
	}
	d = ck_val_dict_sets(a, d, "param_names", names);
	return ck_val_dict_sets(a, d, "params", ids);
}

static struct ck_val *make_optimizer(struct writing *w)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *states = ck_val_new_dict(a), *groups = ck_val_new_list(a), *d;
	int64_t number = 0;

	for (uint32_t g = 0; g < w->step->ngroups; g++) {
		const struct ck_step_group *group = &w->step->group[g];

		groups = ck_val_list_add(a, groups, group_of(w, group, number));
		for (uint32_t i = 0; i < group->nparams; i++, number++) {
			uint32_t tensor = CK_NONE;

			if (ck_index_find(w->ix, group->param[i].name, &tensor) &&
			    has_moments(w, tensor))
				states = ck_val_dict_add(a, states, ck_val_new_int(a, number),
							 states_of(w, group, tensor));
		}
	}
	d = ck_val_dict_sets(a, ck_val_new_dict(a), "state", states);
	return ck_val_dict_sets(a, d, "param_groups", groups);
}

/* ---- the other entries ---- */

static void note(const struct writing *w, const char *where, const char *what)
{
	ck_findings_add(w->step->f, CK_FINDING_NOT_CARRIED, where, "%s", what);
}

/* The loss scale of a step in fp16 takes the place of the one that the client's values have. */
static struct ck_val *add_scaler(struct writing *w, struct ck_val *d, const char **key_out)
{
	struct ck_pt_scaled has;

	ck_pt_scaler_of_step(w->step, &w->arena, &has);
	if (has.is_lost || (has.grad && !has.key))
		note(w, "loss_scaler", CK_PT_SCALER_LOST);
	if (!has.grad || !has.key || has.is_clients)
		return d;
	*key_out = has.key;
	return ck_val_dict_sets(&w->arena, d, has.key, has.grad);
}

static struct ck_val *add_client(struct writing *w, struct ck_val *d, const char *scaler)
{
	static const struct ck_pt_training none = { .key = NULL };
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(w->step->model, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (!key || ck_step_ds_is_own(key) || !strcmp(key, "lr_scheduler") ||
		    ck_val_is_none(v) || (scaler && !strcmp(key, scaler)))
			continue;
		if (ck_pt_training_is_client(&none, key, v) && ck_step_ds_is_plain(v))
			d = ck_val_dict_add(&w->arena, d, item[2 * i], v);
		else
			note(w, key, "a value of the client with tensors or objects in it, or of "
			     "the name of another entry");
	}
	return d;
}

static struct ck_val *make_root(struct writing *w, struct ck_val *model)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *d = ck_val_new_dict(a), *scheduler, *steps;
	const char *key = NULL;
	int64_t count;

	d = ck_val_dict_sets(a, d, "model", model);
	d = ck_val_dict_sets(a, d, "optimizer", make_optimizer(w));
	scheduler = ck_val_get(w->step->model, "lr_scheduler");
	if (scheduler && !ck_val_is_none(scheduler) && ck_step_ds_is_plain(scheduler))
		d = ck_val_dict_sets(a, d, "lr_scheduler", scheduler);
	else if (scheduler && !ck_val_is_none(scheduler))
		note(w, "lr_scheduler", "a scheduler with tensors or objects in it");
	d = add_scaler(w, d, &key);
	d = add_client(w, d, key);
	steps = ck_val_get(w->step->model, "global_steps");
	if (ck_val_int(steps, &count) && !ck_val_get(w->step->model, "step"))
		d = ck_val_dict_sets(a, d, "step", ck_val_new_int(a, count));
	return d;
}

/* ---- the driver ---- */

static int check(const struct writing *w, struct ckpt_err *err)
{
	const struct ck_step *step = w->step;

	if (step->elastic)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, and torch's optimizer "
			       "needs them");
	if (!step->ngroups)
		return ck_fail(err, CKPT_E_INCOMPLETE, step->at.where, CKPT_NO_OFFSET,
			       "the step has no optimizer; zckpt convert STEP FILE.pth writes the "
			       "weights");
	return ck_step_check_joined(step, w->want, false, err);
}

static int write_file(struct writing *w, struct ck_plan *plan, struct ckpt_err *err)
{
	struct ck_val *model = NULL;
	struct ck_pt_want file = { .ix = w->ix, .name = w->want->file };
	int rc = make_model(w, &model, err);

	if (rc)
		return rc;
	file.root = make_root(w, model);
	if (!file.root)
		return ck_fail_nomem(err, "a training file", w->ix->ntensors);
	file.storage = w->storage;
	file.nstorages = w->nstorages;
	rc = ck_pt_plan_file(&file, plan, err);
	if (!rc)
		plan->file[plan->nfiles - 1].ntensors = w->ix->ntensors;
	return rc;
}

int ck_pt_write_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_reshard_want *want, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	struct writing w = { .step = step, .ix = ix, .want = want };
	int rc = step->complete ? step->complete(step, err) : 0;

	w.arena.limit = step->in->limits.memory_bytes;
	if (!rc)
		rc = ck_step_check_drops(step, ix, want, err);
	if (!rc)
		rc = check(&w, err);
	if (!rc)
		rc = write_file(&w, plan, err);
	rc = ck_arena_why(&w.arena, rc, step->at.where, err);
	ck_map_release(&w.by_state);
	ck_arena_release(&w.arena);
	ck_free(w.storage);
	return rc;
}
