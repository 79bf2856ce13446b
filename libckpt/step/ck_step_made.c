/* ck_step_made.c -- see ck_step_made.h. */
#include "libckpt/step/ck_step_made.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/tensor/ck_val_new.h"

#define VERSION "0.19.8"	/* of DeepSpeed, whose files are written if none is asked for */

const char *ck_step_made_tag(const struct ck_index *ix, struct ck_arena *a)
{
	return ix->step < 0 ? ix->tag :
	       ck_arena_printf(a, "global_step%" PRId64, ix->step);
}

int ck_step_made_states(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
			struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < ix->nstates; i++) {
		const char *name = ix->state[i].name;

		if (strcmp(name, "weight") && strcmp(name, "master"))
			rc = ck_map_add(&seen, name, strlen(name), i, NULL, err);
	}
	if (rc >= 0) {
		const char **list = ck_arena_alloc(a, (seen.n + 1) * sizeof(*list));

		rc = list ? 0 : ck_fail_nomem(err, "states", seen.n);
		for (uint64_t i = 0; list && i < seen.n; i++)
			list[i] = seen.entry[i].key;
		step->state = list;
		step->nstates = (uint32_t)seen.n;
	}
	ck_map_release(&seen);
	return rc;
}

static struct ck_val *frozen_shapes(struct ck_arena *a, const struct ck_index *ix)
{
	struct ck_val *dict = ck_val_new_ordered(a);

	for (uint32_t i = 0; dict && i < ix->ntensors; i++)
		if (ix->tensor[i].role == CKPT_ROLE_FROZEN)
			dict = ck_val_dict_add(a, dict, ck_val_new_str(a, ix->tensor[i].name),
					       ck_val_new_size(a, ix->tensor[i].shape,
							       ix->tensor[i].ndim));
	return dict;
}

int ck_step_made_names(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
		       struct ckpt_err *err)
{
	struct ck_val *module = ck_val_new_ordered(a), *buffers = ck_val_new_list(a);
	const char *first = NULL;
	uint64_t doubtful = 0;

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];
		struct ck_val *name = ck_val_new_str(a, t->name);

		module = ck_val_dict_add(a, module, name, ck_val_new_none(a));
		if (t->role == CKPT_ROLE_BUFFER || t->role == CKPT_ROLE_PLAIN)
			buffers = ck_val_list_add(a, buffers, name);
		doubtful += t->role == CKPT_ROLE_PLAIN;
		first = t->role == CKPT_ROLE_PLAIN && !first ? t->name : first;
	}
	if (first)
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " tensors are not in the optimizer, and the files do "
				"not say what they are: they are written as buffers, whole for "
				"every rank (a frozen parameter of ZeRO stage 3 cannot be loaded "
				"so)",
				doubtful);
	if (!ck_val_dict_sets(a, step->model, "module", module) ||
	    !ck_val_dict_sets(a, step->model, "buffer_names", buffers) ||
	    !ck_val_dict_sets(a, step->model, "frozen_param_shapes", frozen_shapes(a, ix)))
		return ck_fail_nomem(err, "names of the model", ix->ntensors);
	return 0;
}

static int add_counts(const struct ck_index *ix, struct ck_arena *a, struct ck_val *model,
		      struct ckpt_err *err)
{
	const int64_t steps = ix->step < 0 ? 0 : ix->step;

	model = ck_val_dict_sets(a, model, "global_steps", ck_val_new_int(a, steps));
	model = ck_val_dict_sets(a, model, "skipped_steps", ck_val_new_int(a, 0));
	model = ck_val_dict_sets(a, model, "global_samples", ck_val_new_int(a, 0));
	model = ck_val_dict_sets(a, model, "mp_world_size", ck_val_new_int(a, 1));
	model = ck_val_dict_sets(a, model, "ds_version", ck_val_new_str(a, VERSION));
	return model ? 0 : ck_fail_nomem(err, "counts", 0);
}

int ck_step_made_model(const struct ck_index *ix, struct ck_arena *a, struct ck_step *step,
		       struct ckpt_err *err)
{
	int rc;

	step->model = ck_val_new_dict(a);
	rc = step->model ? ck_step_made_names(ix, a, step, err) : ck_fail_nomem(err, "a step", 0);
	return rc ? rc : add_counts(ix, a, step->model, err);
}

int ck_step_made_scaler_of(struct ck_arena *a, struct ck_step *step, enum ckpt_dtype weights,
			   struct ckpt_err *err)
{
	const bool dynamic = step->half_scaler && weights == CKPT_F16;
	const char *kind = dynamic ? "DynamicLossScaler" : "LossScaler";
	struct ck_val *s = dynamic ? step->half_scaler : ck_val_new_dict(a);

	if (!dynamic) {
		s = ck_val_dict_sets(a, s, "cur_scale", ck_val_new_float(a, 1));
		s = ck_val_dict_sets(a, s, "dynamic", ck_val_new_bool(a, false));
	}
	step->scaler = ck_val_new_object(a, CK_HOW_NEWOBJ,
					 ck_val_new_global(a, "deepspeed.runtime.fp16.loss_scaler",
							   kind),
					 ck_val_new_tuple(a, NULL, 0));
	step->dynamic_scale = ck_val_new_bool(a, dynamic);
	step->overflow = ck_val_new_bool(a, false);
	if (!s || !step->scaler || !step->dynamic_scale || !step->overflow)
		return ck_fail_nomem(err, "a loss scaler", 0);
	step->scaler->u.obj->state = s;
	return 0;
}

int ck_step_made_scaler(struct ck_arena *a, struct ck_step *step, struct ckpt_err *err)
{
	return ck_step_made_scaler_of(a, step, CKPT_F32, err);
}
