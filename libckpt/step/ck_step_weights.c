/*
 * ck_step_weights.c -- a step made of weights: what a run of DeepSpeed would have before its first
 * step.  Or of a run of somebody else's in its midst (want->now): what DeepSpeed would have there.
 *
 * The hyper-parameters of a group are those of torch's AdamW and of DeepSpeed's FusedAdam and
 * DeepSpeedCPUAdam together: each takes its own and leaves the others.  'step' is a number, which
 * all of them take.  The scheduler's state is one that DeepSpeed's schedulers
 * (last_batch_iteration) and torch's LambdaLR (lr_lambdas) load and that leaves both at their
 * beginning.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/tensor/ck_val_new.h"

static struct ck_val *floats(struct ck_arena *a, double x, double y)
{
	struct ck_val *item[2] = { ck_val_new_float(a, x), ck_val_new_float(a, y) };

	return ck_val_new_tuple(a, item, 2);
}

/* Of a group: the run's, or what it begins with. */
static struct ck_shard_hyper hyper_of(const struct ck_shard_want *want, uint64_t g)
{
	if (want->now)
		return want->now->hyper[g];
	return (struct ck_shard_hyper){
		.lr = want->first_lr, .initial_lr = want->lr, .beta1 = want->beta1,
		.beta2 = want->beta2, .eps = want->eps,
		.weight_decay = want->group[g].weight_decay,
	};
}

static struct ck_val *hyper(struct ck_arena *a, const struct ck_shard_want *want, uint64_t g)
{
	const struct ck_shard_hyper h = hyper_of(want, g);
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "lr", ck_val_new_float(a, h.lr));
	d = ck_val_dict_sets(a, d, "betas", floats(a, h.beta1, h.beta2));
	d = ck_val_dict_sets(a, d, "eps", ck_val_new_float(a, h.eps));
	d = ck_val_dict_sets(a, d, "weight_decay", ck_val_new_float(a, h.weight_decay));
	d = ck_val_dict_sets(a, d, "bias_correction", ck_val_new_bool(a, true));
	d = ck_val_dict_sets(a, d, "amsgrad", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "maximize", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "foreach", ck_val_new_none(a));
	d = ck_val_dict_sets(a, d, "capturable", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "differentiable", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "fused", ck_val_new_none(a));
	d = ck_val_dict_sets(a, d, "decoupled_weight_decay", ck_val_new_bool(a, !want->l2));
	return ck_val_dict_sets(a, d, "initial_lr", ck_val_new_float(a, h.initial_lr));
}

/* Of what is cut only the names: the writer puts zeros there, or the run's. */
static struct ck_val *entry(struct ck_arena *a, const struct ck_shard_want *want, uint64_t g)
{
	static const char *const adam[] = { "exp_avg", "exp_avg_sq" };
	const char *const *name = want->now ? want->now->state : adam;
	const uint64_t n = want->now ? want->now->nstates : CK_ARRAY_LEN(adam);
	struct ck_val *d = ck_val_dict_sets(a, ck_val_new_dict(a), "step",
					    ck_val_new_int(a, hyper_of(want, g).step));

	for (uint64_t i = 0; i < n; i++)
		d = ck_val_dict_sets(a, d, name[i], ck_val_new_none(a));
	return d;
}

/* The writer completes it with what a new DynamicLossScaler has. */
static struct ck_val *scaler(struct ck_arena *a, const struct ck_shard_want *want)
{
	const char *kind = want->dynamic ? "DynamicLossScaler" : "LossScaler";
	const struct ck_shard_now *now = want->now;
	struct ck_val *s = ck_val_new_dict(a), *v;

	s = ck_val_dict_sets(a, s, "cur_scale", ck_val_new_float(a, want->scale));
	s = ck_val_dict_sets(a, s, "dynamic", ck_val_new_bool(a, want->dynamic));
	if (want->dynamic) {
		s = ck_val_dict_sets(a, s, "cur_iter",
				     ck_val_new_int(a, now ? now->scaler_iter : 0));
		if (now)
			s = ck_val_dict_sets(a, s, "last_overflow_iter",
					     ck_val_new_int(a, now->scaler_last_overflow));
		s = ck_val_dict_sets(a, s, "scale_window", ck_val_new_int(a, want->window));
		s = ck_val_dict_sets(a, s, "min_scale", ck_val_new_float(a, want->min_scale));
		s = ck_val_dict_sets(a, s, "delayed_shift", ck_val_new_int(a, want->hysteresis));
		s = ck_val_dict_sets(a, s, "cur_hysteresis",
				     ck_val_new_int(a, now ? now->scaler_hysteresis :
						    want->hysteresis));
	}
	v = ck_val_new_object(a, CK_HOW_NEWOBJ,
			      ck_val_new_global(a, "deepspeed.runtime.fp16.loss_scaler", kind),
			      ck_val_new_tuple(a, NULL, 0));
	if (v)
		v->u.obj->state = s;
	return s ? v : NULL;
}

/* ---- the model file ---- */

static struct ck_val *add_name(struct ck_arena *a, struct ck_val *dict, const char *name)
{
	return ck_val_dict_add(a, dict, ck_val_new_str(a, name), ck_val_new_none(a));
}

/*
 * Names only: the writer puts tensors there.  Those of the optimizer first, in its order; of a run
 * in the caller's order.
 */
static struct ck_val *module(struct ck_arena *a, const struct ck_index *ix,
			     const struct ck_shard_want *want)
{
	struct ck_val *dict = ck_val_new_ordered(a);

	for (uint64_t g = 0; !want->now && g < want->ngroups; g++)
		for (uint64_t i = 0; dict && i < want->group[g].n; i++)
			dict = add_name(a, dict, ix->tensor[want->group[g].tensor[i]].name);
	for (uint32_t i = 0; dict && i < ix->ntensors; i++)
		if (want->now || ix->tensor[i].role != CKPT_ROLE_TRAINABLE)
			dict = add_name(a, dict, ix->tensor[i].name);
	return dict;
}

static struct ck_val *buffers(struct ck_arena *a, const struct ck_index *ix)
{
	struct ck_val *list = ck_val_new_list(a);

	for (uint32_t i = 0; list && i < ix->ntensors; i++)
		if (ix->tensor[i].role == CKPT_ROLE_BUFFER)
			list = ck_val_list_add(a, list, ck_val_new_str(a, ix->tensor[i].name));
	return list;
}

static struct ck_val *scheduler(struct ck_arena *a)
{
	struct ck_val *d = ck_val_dict_sets(a, ck_val_new_dict(a), "last_batch_iteration",
					    ck_val_new_int(a, -1));

	return ck_val_dict_sets(a, d, "lr_lambdas", ck_val_new_list(a));
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

/* What is the run's own, and what a form without a layout of its own keeps for others. */
static struct ck_val *add_now(struct ck_arena *a, const struct ck_index *ix,
			      const struct ck_shard_want *want, struct ck_val *d)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	d = ck_val_dict_sets(a, d, "lr_scheduler", want->now->scheduler ?
			     ck_val_clone(a, want->now->scheduler) : ck_val_new_none(a));
	d = ck_val_dict_sets(a, d, "frozen_param_shapes", frozen_shapes(a, ix));
	d = ck_val_dict_sets(a, d, "ds_version", ck_val_new_str(a, want->step.version));
	if (want->now->client && !ck_val_pairs(want->now->client, &item, &n))
		n = 0;
	for (uint64_t i = 0; d && i < n; i++)
		d = ck_val_dict_set(a, d, item[2 * i], item[2 * i + 1]);
	return d;
}

static struct ck_val *make_model(struct ck_arena *a, const struct ck_index *ix,
				 const struct ck_shard_want *want)
{
	static const char *const counted[] = {
		"skipped_steps", "global_steps", "global_samples",
	};
	const struct ck_shard_now *now = want->now;
	const int64_t count[] = {
		now ? now->skipped : 0, now ? now->steps : 0, now ? now->samples : 0,
	};
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "module", module(a, ix, want));
	d = ck_val_dict_sets(a, d, "buffer_names", buffers(a, ix));
	d = ck_val_dict_sets(a, d, "lr_scheduler", scheduler(a));
	for (size_t i = 0; i < CK_ARRAY_LEN(counted); i++)
		d = ck_val_dict_sets(a, d, counted[i], ck_val_new_int(a, count[i]));
	d = ck_val_dict_sets(a, d, "mp_world_size", ck_val_new_int(a, 1));
	if (want->config && d)
		d = ck_val_dict_sets(a, d, "ds_config", ck_val_clone(a, want->config));
	return now ? add_now(a, ix, want, d) : d;
}

/* ---- the step ---- */

static int take_group(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_shard_want *want, uint32_t g, struct ckpt_err *err)
{
	const struct ck_shard_group *from = &want->group[g];
	struct ck_step_group *to = &step->group[g];

	to->hyper = hyper(step->arena, want, g);
	to->entry = entry(step->arena, want, g);
	to->nparams = (uint32_t)from->n;
	to->param = ck_arena_zalloc(step->arena, (from->n + 1) * sizeof(*to->param));
	if (!to->hyper || !to->entry || !to->param)
		return ck_fail_nomem(err, "a param group", from->n);
	for (uint64_t i = 0; i < from->n; i++) {
		const struct ck_tensor *t = &ix->tensor[from->tensor[i]];

		to->param[i] = (struct ck_step_param){
			.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
			.tensor = from->tensor[i],
		};
	}
	step->nlisted += from->n;
	return 0;
}

static int make_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_shard_want *want, struct ckpt_err *err)
{
	struct ck_arena *a = step->arena;
	int rc = 0;

	step->scaler = scaler(a, want);
	step->dynamic_scale = ck_val_new_bool(a, want->dynamic);
	step->overflow = ck_val_new_bool(a, want->now && want->now->overflow);
	step->clip = ck_val_new_float(a, want->clip);
	step->model = make_model(a, ix, want);
	step->ngroups = (uint32_t)want->ngroups;
	step->group = ck_arena_zalloc(a, (want->ngroups + 1) * sizeof(*step->group));
	if (!step->scaler || !step->dynamic_scale || !step->overflow || !step->clip ||
	    !step->model || !step->group)
		return ck_fail_nomem(err, "a step", want->ngroups);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = take_group(step, ix, want, g, err);
	return rc;
}

int ck_step_shard(const struct ck_index *ix, const struct ck_shard_want *want,
		  struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_input in = { .limits = *want->limits };
	struct ck_findings notes = { 0 };	/* what DeepSpeed will not restore: no news */
	struct ck_arena arena = { .limit = want->limits->memory_bytes };
	struct ck_step step = {
		.in = &in, .f = &notes, .arena = &arena, .tag = want->step.tag,
		.at = { .where = ix->path, .given_step = true }, .world = want->step.world,
		.stage = 2, .weight_dtype = want->now ? 0 : want->dtype, .is_new = !want->now,
		.bare_module = true, .frozen_listed = true,
	};
	int rc = make_step(&step, ix, want, err);

	if (!rc)
		rc = want->step.target->write_step(&step, ix, &want->step, plan, err);
	rc = ck_arena_why(&arena, rc, ix->path, err);
	ck_arena_release(&arena);
	ck_findings_release(&notes);
	return rc;
}
