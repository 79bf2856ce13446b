/*
 * ck_hf_trainer_step.c -- a step of another form that is written of a Trainer's folder: the
 * optimizer's groups, the scheduler, counts, and the names of the model.
 *
 * The Trainer keeps the fp32 parameter that DeepSpeed calls the master: writers take it from the
 * weight.  The optimizer has to be complete, and one of Adam's kind: a run that resumes without its
 * states would diverge without a message.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf_trainer.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_made.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define INSTEAD "; zckpt convert writes the weights, and zckpt shard begins a run with them"

/* ---- is the optimizer complete? ---- */

static int check_states(const struct trn *t, const struct ck_index *ix, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < t->nparams; i++) {
		const uint32_t tensor = t->param[i].tensor;
		const char *name = tensor == CK_NONE ? "a parameter" : ix->tensor[tensor].name;

		if (tensor != CK_NONE &&
		    ck_index_state_find(ix, tensor, "exp_avg") != CK_NONE &&
		    ck_index_state_find(ix, tensor, "exp_avg_sq") != CK_NONE)
			continue;
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->path[TRN_IN_OPTIMIZER], CKPT_NO_OFFSET,
			       "%.200s has %s" INSTEAD, name, t->param[i].state ?
			       "no exp_avg and exp_avg_sq of its shape: the optimizer is not "
			       "AdamW" :
			       "no states of the optimizer: it had no gradient yet, or the "
			       "optimizer has none (SGD)");
	}
	return 0;
}

static int check_optimizer(const struct trn *t, const struct ck_index *ix, struct ckpt_err *err)
{
	if (t->damaged)
		return ck_fail(err, CKPT_E_CORRUPT, t->at.where, CKPT_NO_OFFSET,
			       "the optimizer cannot be read, as the findings say, and a step "
			       "needs it" INSTEAD);
	if (t->unproven)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->path[TRN_IN_OPTIMIZER], CKPT_NO_OFFSET,
			       "the states of the optimizer %s, and a step needs them" INSTEAD,
			       t->unproven);
	if (t->odd)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->path[TRN_IN_OPTIMIZER], CKPT_NO_OFFSET,
			       "the optimizer's state %.60s of %.200s is not of its shape: it is "
			       "not AdamW (Adafactor, or an optimizer in 8 bits?)" INSTEAD, t->odd,
			       t->odd_of);
	if (!t->ngroups || !t->nparams)
		return ck_fail(err, CKPT_E_INCOMPLETE, t->path[TRN_IN_OPTIMIZER], CKPT_NO_OFFSET,
			       "the optimizer has no param groups, and a step needs them" INSTEAD);
	return check_states(t, ix, err);
}

/* A group of DeepSpeed has one count. */
static void compare_counts(const struct trn *t, struct ck_step *step)
{
	for (uint32_t g = 0; g < t->ngroups; g++)
		if (t->group[g].has_step && t->group[g].least != t->group[g].step)
			ck_findings_add(step->f, CK_FINDING_NOT_CARRIED, t->path[TRN_IN_OPTIMIZER],
					"the counts of steps of group %" PRIu32 "'s parameters: "
					"they differ (%.17g to %.17g), and all get the greatest", g,
					t->group[g].least, t->group[g].step);
}

/* A run in 16 bits has no fp32 masters. */
static void note_masters(const struct trn *t, const struct ck_index *ix, struct ck_step *step)
{
	const char *first = NULL;
	uint64_t n = 0;

	for (uint64_t i = 0; i < t->nparams; i++) {
		const uint32_t s = ck_index_state_find(ix, t->param[i].tensor, "weight");

		if (s == CK_NONE || ix->state[s].flags & CKPT_STATE_DERIVED ||
		    ckpt_dtype_bits((enum ckpt_dtype)ix->state[s].dtype) != 16)
			continue;
		first = first ? first : ix->tensor[t->param[i].tensor].name;
		n++;
	}
	if (n)
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " parameters have 16 bits and no fp32 masters: where "
				"the result needs masters they are the weights, widened", n);
}

/* ---- groups ---- */

/* FusedAdam and DeepSpeedCPUAdam have a key that torch's AdamW has not. */
static struct ck_val *hyper_of(struct trn *t, uint32_t g)
{
	struct ck_arena *a = &t->arena;
	struct ck_val *hyper = ck_val_new_dict(a), *const *item;
	uint64_t n = 0;

	ck_val_pairs(t->group[g].hyper, &item, &n);
	for (uint64_t i = 0; hyper && i < n; i++)
		if (ck_trn_is_hyper(t, g, ck_val_str(item[2 * i]), item[2 * i + 1]))
			hyper = ck_val_dict_add(a, hyper, item[2 * i], item[2 * i + 1]);
	if (!t->deepspeed && !ck_val_get(hyper, "bias_correction"))
		hyper = ck_val_dict_sets(a, hyper, "bias_correction", ck_val_new_bool(a, true));
	return hyper;
}

static int take_group(struct trn *t, const struct ck_index *ix, struct ck_step *step, uint32_t g,
		      struct ckpt_err *err)
{
	const struct trn_group *from = &t->group[g];
	struct ck_step_group *to = &step->group[g];
	struct ck_arena *a = &t->arena;

	to->hyper = hyper_of(t, g);
	to->entry = ck_val_new_dict(a);
	if (from->has_step)
		to->entry = ck_val_dict_sets(a, to->entry, "step",
					     ck_val_new_int(a, (int64_t)from->step));
	for (uint32_t i = 0; to->entry && i < step->nstates; i++)
		to->entry = ck_val_dict_sets(a, to->entry, step->state[i], ck_val_new_none(a));
	to->nparams = (uint32_t)from->n;
	to->param = ck_arena_zalloc(a, (from->n + 1) * sizeof(*to->param));
	if (!to->hyper || !to->entry || !to->param)
		return ck_fail_nomem(err, "a param group", from->n);
	for (uint64_t i = 0; i < from->n; i++) {
		const uint32_t number = t->param[t->order[from->first + i]].tensor;
		const struct ck_tensor *tensor = &ix->tensor[number];

		to->param[i] = (struct ck_step_param){
			.name = tensor->name, .shape = tensor->shape, .ndim = tensor->ndim,
			.numel = tensor->numel, .tensor = number,
		};
	}
	step->nlisted += from->n;
	return 0;
}

static int take_groups(struct trn *t, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	int rc;

	step->ngroups = t->ngroups;
	step->group = ck_arena_zalloc(&t->arena, (t->ngroups + 1ull) * sizeof(*step->group));
	if (!step->group)
		return ck_fail_nomem(err, "param groups", t->ngroups);
	rc = ck_step_made_states(ix, &t->arena, step, err);
	for (uint32_t g = 0; !rc && g < t->ngroups; g++)
		rc = take_group(t, ix, step, g, err);
	return rc;
}

/* ---- the model's tree ---- */

/* Those of the optimizer first, in its order: safetensors has sorted them by name. */
static int order_module(struct trn *t, const struct ck_index *ix, struct ck_step *step,
			struct ckpt_err *err)
{
	struct ck_arena *a = &t->arena;
	struct ck_val *module = ck_val_new_ordered(a);

	for (uint32_t g = 0; g < step->ngroups; g++)
		for (uint32_t i = 0; module && i < step->group[g].nparams; i++)
			module = ck_val_dict_add(a, module,
						 ck_val_new_str(a, step->group[g].param[i].name),
						 ck_val_new_none(a));
	for (uint32_t i = 0; module && i < ix->ntensors; i++)
		if (ix->tensor[i].role != CKPT_ROLE_TRAINABLE)
			module = ck_val_dict_add(a, module, ck_val_new_str(a, ix->tensor[i].name),
						 ck_val_new_none(a));
	return ck_val_dict_sets(a, step->model, "module", module) ? 0 :
	       ck_fail_nomem(err, "names of the model", ix->ntensors);
}

static int make_model(struct trn *t, const struct ck_index *ix, struct ck_step *step,
		      struct ckpt_err *err)
{
	struct ck_val *sched = ck_trn_scheduler(t);
	int rc = ck_step_made_model(ix, &t->arena, step, err);

	if (!rc)
		rc = order_module(t, ix, step, err);
	if (!rc)
		rc = ck_trn_clients(t, step->model, &step->for_others, err);
	if (!rc && sched && !ck_step_ds_is_plain(sched)) {
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED,
				t->path[TRN_IN_SCHEDULER],
				"the state of the scheduler has tensors or objects in it");
		sched = NULL;
	}
	if (!rc && !ck_val_dict_sets(&t->arena, step->model, "lr_scheduler",
				     sched ? sched : ck_val_new_none(&t->arena)))
		rc = ck_fail_nomem(err, "a scheduler", 0);
	return rc;
}

/* The Trainer's weights are fp32 in fp16 as well: the caller knows (want->weight_dtype). */
static int take_scaler(struct trn *t, struct ck_step *step, struct ckpt_err *err)
{
	const struct ck_val *grad = ck_trn_scaler(t);

	if (grad || !t->deepspeed) {
		step->half_scaler = ck_pt_scaler_state(grad, t->global_step, &t->arena);
		if (!step->half_scaler)
			return ck_fail_nomem(err, "a loss scaler", 0);
	}
	if (grad && ck_pt_scaler_is_uneven(grad))
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, t->path[TRN_IN_SCALER],
				"its backoff_factor is not 1 / growth_factor; DeepSpeed's loss "
				"scale falls by the factor that it grows by");
	return ck_step_made_scaler(&t->arena, step, err);
}

int ck_trn_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err)
{
	struct trn *t = in->kept->of;
	int rc;

	t->in = in;
	t->f = f;
	*out = (struct ck_step){
		.in = in, .f = f, .arena = &t->arena, .format = &ck_format_trainer, .at = t->at,
		.tag = ck_step_made_tag(ix, &t->arena), .world = ix->world ? ix->world : 1,
		.stage = 2, .version = { 0, 19, 8 }, .bare_module = true, .frozen_listed = true,
		.reordered = true, .from = t,
	};
	if (!out->tag)
		return ck_fail_nomem(err, "a name", 0);
	rc = check_optimizer(t, ix, err);
	if (!rc)
		rc = take_groups(t, ix, out, err);
	if (!rc)
		compare_counts(t, out);
	if (!rc)
		note_masters(t, ix, out);
	if (!rc)
		rc = take_scaler(t, out, err);
	if (!rc)
		rc = make_model(t, ix, out, err);
	return rc ? rc : ck_step_ds_fill(t->deepspeed, &t->arena, out, err);
}
