/*
 * ds_shard.c -- a step made of weights: the dictionaries that a run of DeepSpeed would have
 * before its first step, as if they had been read.  Or of a run of somebody else's in its midst
 * (want->now): those that DeepSpeed would have there.
 *
 * The hyper-parameters of a group are those of torch's AdamW and of DeepSpeed's FusedAdam and
 * DeepSpeedCPUAdam together: each takes its own and leaves the others.  'step' is a number, which
 * all of them take.  The scheduler's state is one that DeepSpeed's schedulers
 * (last_batch_iteration) and torch's LambdaLR (lr_lambdas) load and that leaves both at their
 * beginning.
 */
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"

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

/* None stands for what is cut: the writer puts zeros there, or the run's. */
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

static struct ck_val *base(struct ck_arena *a, const struct ck_shard_want *want)
{
	struct ck_val *state = ck_val_new_dict(a), *groups = ck_val_new_list(a);

	for (uint64_t g = 0; g < want->ngroups; g++) {
		state = ck_val_dict_add(a, state, ck_val_new_int(a, (int64_t)g),
					entry(a, want, g));
		groups = ck_val_list_add(a, groups, hyper(a, want, g));
	}
	return ck_val_dict_sets(a, ck_val_dict_sets(a, ck_val_new_dict(a), "state", state),
				"param_groups", groups);
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

static struct ck_val *make_zero(struct ck_arena *a, const struct ck_shard_want *want)
{
	struct ck_val *d = ck_val_new_dict(a);

	d = ck_val_dict_sets(a, d, "loss_scaler", scaler(a, want));
	d = ck_val_dict_sets(a, d, "dynamic_loss_scale", ck_val_new_bool(a, want->dynamic));
	d = ck_val_dict_sets(a, d, "overflow",
			     ck_val_new_bool(a, want->now && want->now->overflow));
	d = ck_val_dict_sets(a, d, "clip_grad", ck_val_new_float(a, want->clip));
	return ck_val_dict_sets(a, d, "base_optimizer_state", base(a, want));
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

static int take_group(struct ds_step *ds, const struct ck_index *ix,
		      const struct ck_shard_group *from, struct ds_group *to, struct ckpt_err *err)
{
	to->nparams = (uint32_t)from->n;
	to->param = ck_arena_zalloc(&ds->arena, (from->n + 1) * sizeof(*to->param));
	if (!to->param)
		return ck_fail_nomem(err, "parameters", from->n);
	for (uint64_t i = 0; i < from->n; i++) {
		const struct ck_tensor *t = &ix->tensor[from->tensor[i]];

		to->param[i] = (struct ds_param){
			.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
			.tensor = from->tensor[i],
		};
	}
	return 0;
}

static int make_step(struct ds_step *ds, const struct ck_index *ix,
		     const struct ck_shard_want *want, struct ckpt_err *err)
{
	int rc = 0;

	ds->zero = make_zero(&ds->arena, want);
	ds->model = make_model(&ds->arena, ix, want);
	ds->ngroups = (uint32_t)want->ngroups;
	ds->group = ck_arena_zalloc(&ds->arena, (want->ngroups + 1) * sizeof(*ds->group));
	if (!ds->zero || !ds->model || !ds->group)
		return ck_fail_nomem(err, "a step", want->ngroups);
	for (uint32_t g = 0; !rc && g < ds->ngroups; g++) {
		ds->group[g].group = (int32_t)g;
		ds->group[g].state_key = g;
		rc = take_group(ds, ix, &want->group[g], &ds->group[g], err);
	}
	return rc;
}

int ck_ds_shard(const struct ck_index *ix, const struct ck_shard_want *want,
		struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_input in = { .limits = *want->limits };
	struct ck_findings notes = { 0 };	/* what DeepSpeed will not restore: no news */
	struct ds_step ds = {
		.in = &in, .f = &notes, .origin = DS_FROM_WEIGHTS,
		.at = { .where = ix->path, .given_step = true },
		.world = want->step.world, .stage = 2, .frozen_listed = true,
		.weight_dtype = want->now ? 0 : want->dtype, .with_states = want->now != NULL,
	};
	int rc;

	ds.arena.limit = want->limits->memory_bytes;
	rc = make_step(&ds, ix, want, err);
	if (!rc)
		rc = want->step.target->write_step(&(struct ck_step){
			.tag = want->step.tag, .own = &ds,
		}, ix, &want->step, plan, err);
	rc = ck_arena_why(&ds.arena, rc, ix->path, err);
	ck_arena_release(&ds.arena);
	ck_findings_release(&notes);
	return rc;
}
