/*
 * ck_pt_step.c -- a training file as a step: the optimizer's groups, the scheduler and the other
 * entries of its root.
 *
 * torch's optimizers keep no masters: a writer takes them from the weights.  What the file does not
 * have gets the value that a new engine of DeepSpeed has.
 */
#include "formats/torch_pt/ck_pt_step.h"

#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_driver.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_made.h"
#include "libckpt/tensor/ck_val_new.h"

#define INSTEAD "; zckpt convert writes the weights, and zckpt shard begins a run with them"

void ck_pt_read_free(void *read)
{
	struct ck_pt_read *r = read;

	if (!r)
		return;
	ck_pt_close(r->pt);
	ck_arena_release(&r->arena);
	ck_free(r);
}

/* ---- names ---- */

int ck_pt_read_names(struct ck_pt_read *r, const char **prefix_out, struct ckpt_err *err)
{
	struct ck_val *const *item, *names;
	const char *first = NULL;
	uint64_t n = 0;
	size_t len = 0;

	*prefix_out = NULL;
	ck_val_pairs(r->t.model, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name)
			return 0;
		len = first ? len : ck_pt_owners_wrapped(name);
		first = first ? first : name;
		if (!len || strncmp(name, first, len) || !name[len])
			return 0;
	}
	if (!len)
		return 0;
	names = ck_val_new_dict(&r->arena);
	for (uint64_t i = 0; names && i < n; i++)
		names = ck_val_dict_add(&r->arena, names,
					ck_val_new_str(&r->arena, ck_val_str(item[2 * i]) + len),
					item[2 * i + 1]);
	*prefix_out = ck_arena_strndup(&r->arena, first, len);
	if (!names || !*prefix_out)
		return ck_fail_nomem(err, "names", n);
	r->t.model = names;
	return 0;
}

/* ---- is it a step? ---- */

static int check_optimizer(const struct ck_pt_read *r, const char *where, struct ckpt_err *err)
{
	if (!r->t.key)
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
			       "the file has weights alone, and a step needs an optimizer beside "
			       "the model ({\"model\": ..., \"optimizer\": ...})" INSTEAD);
	if (!r->owners.n)
		return ck_fail(err, CKPT_E_INCOMPLETE, where, CKPT_NO_OFFSET,
			       "the file has no states of an optimizer (saved before the first "
			       "step?), and a step needs them" INSTEAD);
	if (r->owners.why)
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
			       "the optimizer's states cannot be given to parameters: %s" INSTEAD,
			       r->owners.why);
	return 0;
}

/* A group of DeepSpeed has one count. */
static void compare_counts(const struct ck_pt_read *r, struct ck_step *step)
{
	double most, least;

	for (uint64_t g = 0; g < r->owners.ngroups; g++)
		if (ck_pt_owners_group_step(r->pt, &r->owners, g, &most, &least) && most != least)
			ck_findings_add(step->f, CK_FINDING_NOT_CARRIED, step->at.where,
					"the counts of steps of group %" PRIu64 "'s parameters: "
					"they differ (%.17g to %.17g), and all get the greatest", g,
					least, most);
}

static void note_masters(const struct ck_pt_read *r, const struct ck_index *ix,
			 struct ck_step *step)
{
	const char *first = NULL;
	uint64_t n = 0;

	for (uint64_t i = 0; i < r->owners.n; i++) {
		const struct ck_tensor *t = &ix->tensor[r->owners.param[i]];
		const uint32_t s = t->first_state;

		if (s == CK_NONE || ckpt_dtype_bits((enum ckpt_dtype)ix->state[s].dtype) != 16)
			continue;
		first = first ? first : t->name;
		n++;
	}
	if (n)
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " parameters have 16 bits and no fp32 masters: where "
				"the result needs masters they are the weights, widened", n);
}

/* Those that the caller has not named. */
static void note_frozen(const struct ck_pt_read *r, const struct ck_index *ix,
			struct ck_step *step)
{
	const char *first = NULL;
	uint64_t n = 0;

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		if (ix->tensor[i].role != CKPT_ROLE_FROZEN || (r->owners.role && r->owners.role[i]))
			continue;
		first = first ? first : ix->tensor[i].name;
		n++;
	}
	if (n)
		ck_findings_add(&step->for_others, CK_FINDING_FORMAT_NOTE, first,
				"%" PRIu64 " of the model's tensors %s in no param group and %s "
				"the name of a weight: written as frozen", n,
				n == 1 ? "is" : "are", n == 1 ? "has" : "have");
}

/* ---- groups ---- */

static int take_group(struct ck_pt_read *r, const struct ck_index *ix, struct ck_step *step,
		      uint32_t g, struct ckpt_err *err)
{
	const struct ck_pt_owners *o = &r->owners;
	const uint64_t n = o->first[g + 1] - o->first[g];
	struct ck_step_group *to = &step->group[g];
	struct ck_val *entry = ck_val_new_dict(&r->arena);
	double most, least;

	to->hyper = ck_pt_owners_hyper(r->pt, o, g, &r->arena);
	if (to->hyper && !ck_val_get(to->hyper, "bias_correction"))
		to->hyper = ck_val_dict_sets(&r->arena, to->hyper, "bias_correction",
					     ck_val_new_bool(&r->arena, true));
	if (ck_pt_owners_group_step(r->pt, o, g, &most, &least))
		entry = ck_val_dict_sets(&r->arena, entry, "step",
					 ck_val_new_int(&r->arena, (int64_t)most));
	for (uint32_t i = 0; i < step->nstates; i++)
		entry = ck_val_dict_sets(&r->arena, entry, step->state[i],
					 ck_val_new_none(&r->arena));
	to->entry = entry;
	to->param = ck_arena_zalloc(&r->arena, (n + 1) * sizeof(*to->param));
	if (!to->hyper || !entry || !to->param)
		return ck_fail_nomem(err, "a param group", n);
	for (uint64_t i = 0; i < n; i++) {
		const uint32_t tensor = o->param[o->first[g] + i];
		const struct ck_tensor *t = &ix->tensor[tensor];

		to->param[i] = (struct ck_step_param){
			.name = t->name, .shape = t->shape, .ndim = t->ndim, .numel = t->numel,
			.tensor = tensor,
		};
	}
	to->nparams = (uint32_t)n;
	step->nlisted += n;
	return 0;
}

static int take_groups(struct ck_pt_read *r, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	int rc = ck_step_made_states(ix, &r->arena, step, err);

	step->ngroups = (uint32_t)r->owners.ngroups;
	step->group = ck_arena_zalloc(&r->arena, (step->ngroups + 1) * sizeof(*step->group));
	if (!rc && !step->group)
		rc = ck_fail_nomem(err, "param groups", step->ngroups);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = take_group(r, ix, step, g, err);
	return rc;
}

/* ---- the other entries ---- */

/*
 * The scheduler and what the caller has put beside it go into 'd'.  'f' (or NULL) gets what cannot
 * be carried.
 */
static struct ck_val *add_entries(const struct ck_pt_read *r, struct ck_arena *a, struct ck_val *d,
				  const char *where, struct ck_findings *f)
{
	const struct ck_val *root = r->pt->doc.root;
	const struct ck_val *scheduler = ck_pt_training_scheduler(root);
	const bool plain = scheduler && ck_step_ds_is_plain(scheduler);
	struct ck_val *const *item;
	uint64_t n = 0;

	d = ck_val_dict_sets(a, d, "lr_scheduler", plain ? ck_val_clone(a, scheduler) :
							   ck_val_new_none(a));
	if (f && scheduler && !plain && !ck_val_is_none(scheduler))
		ck_findings_add(f, CK_FINDING_NOT_CARRIED, where,
				"the scheduler: a value with tensors or objects in it");
	ck_val_pairs(root, &item, &n);
	for (uint64_t i = 0; d && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (!ck_pt_training_is_client(&r->t, key, v) || ck_val_is_none(v))
			continue;
		if (!ck_step_ds_is_own(key) && ck_step_ds_is_plain(v))
			d = ck_val_dict_sets(a, d, key, v);
		else if (f)
			ck_findings_add(f, CK_FINDING_NOT_CARRIED, where,
					"'%.60s': a value with tensors or objects in it, or of a "
					"name that DeepSpeed uses itself", key);
	}
	return d;
}

/* A model in fp16 is of a run in fp16; of another one the caller knows (want->weight_dtype). */
static int take_scaler(struct ck_pt_read *r, const struct ck_index *ix, struct ck_step *step,
		       struct ckpt_err *err)
{
	const char *key;
	const struct ck_val *grad = ck_pt_scaler_find(r->pt->doc.root, &key);
	const uint32_t s = ix->tensor[r->owners.param[0]].first_state;

	step->half_scaler = ck_pt_scaler_state(grad, ix->step < 0 ? 0 : ix->step, &r->arena);
	if (!step->half_scaler)
		return ck_fail_nomem(err, "a loss scaler", 0);
	if (grad && ck_pt_scaler_is_uneven(grad))
		ck_findings_add(&step->for_others, CK_FINDING_NOT_CARRIED, step->at.where,
				"'%.60s': its backoff_factor is not 1 / growth_factor; DeepSpeed's "
				"loss scale falls by the factor that it grows by", key);
	return ck_step_made_scaler_of(&r->arena, step, s == CK_NONE ? CKPT_F32 :
				      (enum ckpt_dtype)ix->state[s].dtype, err);
}

int ck_pt_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		    struct ck_step *out, struct ckpt_err *err)
{
	struct ck_pt_read *r = in->kept->of;
	int rc;

	*out = (struct ck_step){
		.in = in, .f = f, .arena = &r->arena, .format = &ck_format_torch,
		.at = { .where = ix->path, .given_step = true },
		.tag = ix->step < 0 ? "global_step0" : ck_step_made_tag(ix, &r->arena),
		.world = 1, .stage = 2,
		.version = { 0, 19, 8 }, .bare_module = true, .frozen_listed = true,
		.reordered = true, .from = r,
	};
	rc = check_optimizer(r, ix->path, err);
	if (!rc && !out->tag)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = take_groups(r, ix, out, err);
	if (!rc) {
		compare_counts(r, out);
		note_masters(r, ix, out);
		note_frozen(r, ix, out);
		rc = take_scaler(r, ix, out, err);
	}
	if (!rc)
		rc = ck_step_made_model(ix, &r->arena, out, err);
	if (!rc && !add_entries(r, &r->arena, out->model, ix->path, &out->for_others))
		rc = ck_fail_nomem(err, "entries of the file", 0);
	return rc;
}

/* ---- values ---- */

static void close_values(struct ck_values *v)
{
	ck_pt_read_free(v->own);
	v->own = NULL;
}

static int bytes_of(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		    uint64_t max, uint8_t **out, struct ckpt_err *err)
{
	const struct ck_pt_read *r = v->own;

	(void)in_model;
	return ck_pt_tensor_bytes(r->pt, t, max, out, err);
}

/* {NAME: {"step": N}}, and the groups with names for numbers. */
static int make_optimizer(struct ck_pt_read *r, const struct ck_index *ix, struct ck_values *out,
			  struct ckpt_err *err)
{
	const struct ck_pt_owners *o = &r->owners;
	struct ck_arena *a = &r->arena;
	struct ck_val *groups = ck_val_new_list(a), *state = ck_val_new_dict(a), *all;
	double step;

	for (uint64_t g = 0; groups && g < o->ngroups; g++) {
		struct ck_val *hyper = ck_pt_owners_hyper(r->pt, o, g, a);
		struct ck_val *names = ck_val_new_list(a);

		for (uint64_t i = o->first[g]; names && i < o->first[g + 1]; i++) {
			struct ck_val *name = ck_val_new_str(a, ix->tensor[o->param[i]].name);

			names = ck_val_list_add(a, names, name);
			if (ck_pt_owners_step(r->pt, o, i, &step))
				state = ck_val_dict_add(a, state, name,
							ck_val_dict_sets(a, ck_val_new_dict(a),
							"step", ck_val_new_float(a, step)));
		}
		groups = ck_val_list_add(a, groups, ck_val_dict_sets(a, hyper, "params", names));
	}
	all = ck_val_dict_sets(a, ck_val_new_dict(a), "state", state);
	all = ck_val_dict_sets(a, all, "param_groups", groups);
	if (!all)
		return ck_fail_nomem(err, "param groups", o->ngroups);
	out->optimizer = all;
	out->groups = groups;
	return 0;
}

static int make_values(struct ck_pt_read *r, const struct ck_index *ix,
		       const struct ckpt_limits *limits, struct ck_values *out,
		       struct ckpt_err *err)
{
	const struct ck_input in = {
		.limits = *limits, .order_path = ix->order_path, .frozen = ix->frozen,
		.buffers = ix->buffers,
	};
	struct ck_val *d = ck_val_new_dict(&r->arena);
	const struct ck_val *grad;
	const char *key;
	int rc = ck_pt_training_choose(r->pt, NULL, NULL, &r->t, err);

	if (!rc)
		rc = ck_pt_owners_find(r->pt, &r->t, ix, &in, &r->arena, &r->owners, err);
	if (!rc && r->owners.n && !r->owners.why)
		rc = make_optimizer(r, ix, out, err);
	if (rc)
		return rc;
	if (ix->step >= 0)
		d = ck_val_dict_sets(&r->arena, d, "global_steps",
				     ck_val_new_int(&r->arena, ix->step));
	out->model = add_entries(r, &r->arena, d, ix->path, NULL);
	grad = ck_pt_scaler_find(r->pt->doc.root, &key);
	if (grad && !(out->scaler = ck_pt_scaler_state(grad, ix->step < 0 ? 0 : ix->step,
						       &r->arena)))
		return ck_fail_nomem(err, "a loss scaler", 0);
	return out->model ? 0 : ck_fail_nomem(err, "values", 0);
}

int ck_pt_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		 struct ck_values *out, struct ckpt_err *err)
{
	struct ck_pt_read *r = ck_zalloc(sizeof(*r));
	int rc;

	(void)rank;
	if (!r)
		return ck_fail_nomem(err, "values", sizeof(*r));
	r->arena.limit = limits->memory_bytes;
	out->own = r;
	rc = ck_pt_open(ix->source[0].src, limits, 0, NULL, &r->pt, err);
	if (!rc)
		rc = make_values(r, ix, limits, out, err);
	rc = ck_arena_why(&r->arena, rc, ix->path, err);
	if (rc) {
		close_values(out);
		return rc;
	}
	out->bytes = bytes_of;
	out->close = close_values;
	return 0;
}
