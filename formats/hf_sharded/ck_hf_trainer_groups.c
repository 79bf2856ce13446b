/*
 * ck_hf_trainer_groups.c -- the optimizer and the scheduler of a Trainer's folder that is written.
 *
 * The Trainer makes two groups, and torch gives them values and states by their number.  So the
 * parameters of the source are dealt to these two, each in the order of the model.
 */
#include "formats/hf_sharded/ck_hf_trainer_out.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_order.h"
#include "libckpt/step/ck_step_drop.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define NUMBER_BYTES 8
#define INSTEAD "; zckpt convert writes the weights, and reshard --to dcp or native the whole step"

static int CK_PRINTF(3, 4) refuse(const struct trn_out *o, struct ckpt_err *err,
				  const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ck_fail(err, CKPT_E_UNSUPPORTED, o->step->at.where, CKPT_NO_OFFSET, "%s" INSTEAD,
		       text);
}

/* ---- is it AdamW ---- */

static bool says(const struct ck_val *hyper, const char *key, bool value)
{
	const struct ck_val *v = ck_val_get(hyper, key);
	int64_t n;

	return v && ck_val_int(v, &n) && !n == !value;
}

static int check_group(const struct trn_out *o, uint32_t g, struct ckpt_err *err)
{
	const struct ck_step_group *group = &o->step->group[g];
	double decay = 0, lr;

	if (group->ep || group->stacked)
		return refuse(o, err, "param group %" PRIu32 " is of experts on several ranks, "
			      "and the Trainer's optimizer has whole parameters", g);
	if (!group->hyper || !ck_val_num(ck_val_get(group->hyper, "lr"), &lr))
		return refuse(o, err, "param group %" PRIu32 " has no learning rate, and the "
			      "Trainer's optimizer takes it from there", g);
	ck_val_num(ck_val_get(group->hyper, "weight_decay"), &decay);
	if (says(group->hyper, "decoupled_weight_decay", false) && decay != 0)
		return refuse(o, err, "param group %" PRIu32 " has a weight decay of %g as an L2 "
			      "term (Adam), and the Trainer's optimizer is AdamW", g, decay);
	if (says(group->hyper, "bias_correction", false))
		return refuse(o, err, "param group %" PRIu32 " is trained without bias correction, "
			      "and torch's AdamW has it", g);
	return 0;
}

static int check_states(const struct trn_out *o, const struct ck_step_param *p,
			struct ckpt_err *err)
{
	static const char *const need[] = { "exp_avg", "exp_avg_sq" };
	uint32_t tensor;

	if (!ck_index_find(o->ix, p->name, &tensor))
		return ck_fail(err, CKPT_E_MISMATCH, p->name, CKPT_NO_OFFSET,
			       "the parameter is not in the index");
	for (size_t i = 0; i < CK_ARRAY_LEN(need); i++)
		if (ck_index_state_find(o->ix, tensor, need[i]) == CK_NONE ||
		    ck_step_is_dropped(o->want, need[i]))
			return refuse(o, err, "%.150s has no state %s: the Trainer's optimizer is "
				      "AdamW", p->name, need[i]);
	return 0;
}

/* A number, or a tensor of one in a file of the step. */
static bool number_of(const struct trn_out *o, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	struct ck_tensor_ref ref;
	uint8_t *p = NULL;
	bool yes = false;

	if (!t)
		return ck_val_num(v, out);
	for (uint32_t i = 0; t->numel == 1 && i < o->step->nfiles; i++) {
		const struct ck_step_file *f = &o->step->file[i];

		if (!f->pt || t->storage < f->first || t->storage - f->first >= f->pt->nstorages)
			continue;
		ref = *t;
		ref.storage -= f->first;
		yes = !ck_pt_tensor_bytes(f->pt, &ref, NUMBER_BYTES, &p, NULL) && p &&
		      ck_dtype_number((enum ckpt_dtype)t->dtype, p, out);
		ck_free(p);
		break;
	}
	return yes;
}

static int count(struct trn_out *o, uint32_t g, struct ckpt_err *err)
{
	const struct ck_step_group *group = &o->step->group[g];

	if (!number_of(o, ck_val_get(group->entry, "step"), &o->count[g]) &&
	    !number_of(o, ck_val_get(group->hyper, "step"), &o->count[g]))
		return refuse(o, err, "param group %" PRIu32 " has no count of steps, which the "
			      "Trainer's optimizer needs", g);
	if (o->want->reset)
		o->count[g] = 0;
	return 0;
}

/* ---- the Trainer's groups ---- */

static int deal(struct trn_out *o, uint32_t g, struct ckpt_err *err)
{
	const struct ck_step_group *from = &o->step->group[g];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < from->nparams; i++) {
		const struct ck_step_param *p = &from->param[i];
		const uint32_t k = ck_order_is_undecayed(p->name);
		struct trn_out_group *to = &o->group[k];

		if (to->n && to->from != g)
			return refuse(o, err, "parameters %s weight decay (biases and norms have "
				      "none) are in the param groups %" PRIu32 " and %" PRIu32
				      ", and the Trainer has one group of them", k ? "without" :
				      "with", to->from, g);
		to->from = g;
		to->param[to->n++] = p;
		o->same_groups &= k == g;
		rc = check_states(o, p, err);
	}
	return rc;
}

int ck_trn_out_groups(struct trn_out *o, struct ckpt_err *err)
{
	const uint32_t ngroups = o->step->ngroups;
	uint64_t n = 1;
	int rc = 0;

	for (uint32_t g = 0; g < ngroups; g++)
		n += o->step->group[g].nparams;
	if (!ngroups || n == 1)
		return refuse(o, err, "the step has no param groups, and the Trainer's optimizer "
			      "needs them");
	o->count = ck_arena_zalloc(o->arena, ngroups * sizeof(*o->count));
	for (uint32_t k = 0; k < TRN_GROUPS; k++)
		o->group[k].param = ck_arena_alloc(o->arena, n * sizeof(*o->group[k].param));
	if (!o->count || !o->group[0].param || !o->group[1].param)
		return ck_fail_nomem(err, "param groups", n);
	o->same_groups = ngroups == TRN_GROUPS;
	for (uint32_t g = 0; !rc && g < ngroups; g++) {
		rc = check_group(o, g, err);
		if (!rc)
			rc = count(o, g, err);
		if (!rc)
			rc = deal(o, g, err);
	}
	if (!o->group[1].n && ngroups > 1)
		o->group[1].from = 1;
	return rc ? rc : ck_trn_out_sort(o, err);
}

struct ck_val *ck_trn_out_listed(struct trn_out *o)
{
	struct ck_val *all = ck_val_new_list(o->arena);

	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		struct ck_val *list = ck_val_new_list(o->arena);

		for (uint32_t i = 0; i < o->step->group[g].nparams; i++)
			list = ck_val_list_add(o->arena, list,
					       ck_val_new_str(o->arena,
							      o->step->group[g].param[i].name));
		all = ck_val_list_add(o->arena, all, list);
	}
	return all;
}

/* ---- optimizer.pt ---- */

static struct ck_val *tensor(struct trn_out *o, const struct ck_pt_piece *piece,
			     const uint64_t *shape, uint32_t ndim)
{
	struct ck_pt_piece *own = ck_arena_alloc(o->arena, sizeof(*own));
	uint64_t *stride = ck_arena_alloc(o->arena, (ndim + 1ull) * sizeof(*stride));
	uint64_t n = 1, all = 1;
	struct ck_tensor_ref ref = {
		.dtype = piece->dtype, .ndim = ndim, .shape = shape, .stride = stride,
		.storage = (uint32_t)o->nstorages,
	};

	if (!own || !stride ||
	    ck_grow(&o->storage, &o->storage_cap, o->nstorages + 1, sizeof(*o->storage), NULL))
		return NULL;
	for (uint32_t k = ndim; k > 0; k--) {
		stride[k - 1] = n;
		n *= shape[k - 1] ? shape[k - 1] : 1;
		all *= shape[k - 1];
	}
	ref.numel = all;
	*own = *piece;
	o->storage[o->nstorages++] = (struct ck_pt_part){ piece->dtype, own, all ? 1 : 0 };
	return ck_val_new_tensor(o->arena, &ref);
}

static struct ck_val *number(struct trn_out *o, double v)
{
	float *p = ck_arena_alloc(o->arena, sizeof(*p));
	const struct ck_pt_piece piece = {
		.kind = CK_SEG_LITERAL, .dtype = CKPT_F32, .state = CK_NONE, .slot = CK_NONE,
		.count = sizeof(*p), .text = p,
	};

	if (!p)
		return NULL;
	*p = (float)v;
	return tensor(o, &piece, NULL, 0);
}

static struct ck_val *moment(struct trn_out *o, const struct ck_tensor *t, uint32_t state)
{
	struct ck_pt_piece piece = {
		.kind = CK_SEG_STATE, .dtype = o->ix->state[state].dtype, .state = state,
		.slot = CK_NONE, .count = t->numel,
	};

	if (o->want->reset) {
		piece.kind = CK_SEG_ZERO;	/* its count is of bytes */
		piece.state = CK_NONE;
		if (ck_dtype_bytes((enum ckpt_dtype)piece.dtype, t->numel, &piece.count, NULL))
			return NULL;
	}
	return tensor(o, &piece, t->shape, t->ndim);
}

static struct ck_val *states_of(struct trn_out *o, uint32_t from, const struct ck_step_param *p)
{
	struct ck_val *d = ck_val_new_dict(o->arena);
	const struct ck_tensor *t;
	uint32_t i;

	if (!ck_index_find(o->ix, p->name, &i))
		return NULL;
	t = &o->ix->tensor[i];
	d = ck_val_dict_sets(o->arena, d, "step", number(o, o->count[from]));
	for (uint32_t s = t->first_state; s != CK_NONE; s = o->ix->state[s].next)
		if (ck_step_is_moment(o->want, o->ix->state[s].name))
			d = ck_val_dict_sets(o->arena, d, o->ix->state[s].name, moment(o, t, s));
	return d;
}

/*
 * What torch's AdamW has and the source may lack.  The Trainer's is fused by default, and one that
 * begins so divides by the loss scale itself: it fails at once if the group then says otherwise.
 */
static struct ck_val *add_defaults(struct trn_out *o, struct ck_val *d)
{
	struct ck_arena *a = o->arena;
	struct ck_val *fused = o->grad_scaler ? ck_val_new_bool(a, true) : ck_val_new_none(a);
	const struct {
		const char *key;
		struct ck_val *v;
	} all[] = {
		{ "amsgrad", ck_val_new_bool(a, false) }, { "maximize", ck_val_new_bool(a, false) },
		{ "foreach", ck_val_new_none(a) }, { "capturable", ck_val_new_bool(a, false) },
		{ "differentiable", ck_val_new_bool(a, false) }, { "fused", fused },
		{ "decoupled_weight_decay", ck_val_new_bool(a, true) },
		{ "initial_lr", ck_val_get(d, "lr") },
	};

	for (size_t i = 0; d && i < CK_ARRAY_LEN(all); i++)
		if (!ck_val_get(d, all[i].key))
			d = ck_val_dict_sets(a, d, all[i].key, all[i].v);
	return ck_val_is_none(ck_val_get(d, "fused")) ? ck_val_dict_sets(a, d, "fused", fused) : d;
}

static struct ck_val *group_of(struct trn_out *o, uint32_t k, int64_t first)
{
	const struct trn_out_group *g = &o->group[k];
	struct ck_arena *a = o->arena;
	struct ck_val *d = ck_val_new_dict(a), *ids = ck_val_new_list(a), *names = ids;
	struct ck_val *const *item;
	uint64_t n = 0;

	names = ck_val_new_list(a);
	ck_val_pairs(o->step->group[g->from].hyper, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (ck_step_ds_is_hyper(key, item[2 * i + 1]) && strcmp(key, "step") &&
		    strcmp(key, "bias_correction"))
			d = ck_val_dict_add(a, d, item[2 * i], item[2 * i + 1]);
	}
	d = add_defaults(o, d);
	if (k && !g->n && o->step->ngroups == 1)
		d = ck_val_dict_sets(a, d, "weight_decay", ck_val_new_float(a, 0));
	for (uint64_t i = 0; i < g->n; i++) {
		ids = ck_val_list_add(a, ids, ck_val_new_int(a, first + (int64_t)i));
		names = ck_val_list_add(a, names, ck_val_new_str(a, g->param[i]->name));
	}
	d = ck_val_dict_sets(a, d, "param_names", names);
	return ck_val_dict_sets(a, d, "params", ids);
}

struct ck_val *ck_trn_out_optimizer(struct trn_out *o)
{
	struct ck_arena *a = o->arena;
	struct ck_val *states = ck_val_new_dict(a), *groups = ck_val_new_list(a), *d;
	int64_t first = 0;

	for (uint32_t k = 0; k < TRN_GROUPS; k++) {
		const struct trn_out_group *g = &o->group[k];

		groups = ck_val_list_add(a, groups, group_of(o, k, first));
		for (uint64_t i = 0; states && i < g->n; i++)
			states = ck_val_dict_add(a, states, ck_val_new_int(a, first++),
						 states_of(o, g->from, g->param[i]));
	}
	d = ck_val_dict_sets(a, ck_val_new_dict(a), "state", states);
	return ck_val_dict_sets(a, d, "param_groups", groups);
}

/* ---- scheduler.pt ---- */

/* Of the source's group; 'key' may be "initial_lr", which not every optimizer has. */
static struct ck_val *rate_of(const struct trn_out *o, uint32_t k, const char *key)
{
	const struct ck_val *hyper = o->step->group[o->group[k].from].hyper;
	struct ck_val *v = ck_val_get(hyper, key);

	return v ? v : ck_val_get(hyper, "lr");
}

static struct ck_val *rates(struct trn_out *o, const char *key)
{
	struct ck_val *list = ck_val_new_list(o->arena);

	for (uint32_t k = 0; k < TRN_GROUPS; k++)
		list = ck_val_list_add(o->arena, list, rate_of(o, k, key));
	return list;
}

/* How many updates the schedule has seen: its own count, or the optimizer's. */
static int64_t seen(const struct trn_out *o, const struct ck_val *sched)
{
	int64_t n;

	if (ck_val_int(ck_val_get(sched, "last_epoch"), &n) && n >= 0)
		return n;
	if (ck_val_int(ck_val_get(sched, "last_batch_iteration"), &n) && n >= -1)
		return n + 1;
	return (int64_t)o->count[0];
}

/* One rate for each group, which torch pairs with the groups that there are. */
static struct ck_val *make_lambda(struct trn_out *o, const struct ck_val *sched)
{
	struct ck_arena *a = o->arena;
	struct ck_val *d = ck_val_new_dict(a), *fn = ck_val_new_list(a), *list;
	struct ck_val *const *item;
	const int64_t n = seen(o, sched);
	uint64_t nfn = 0;

	list = ck_val_get(sched, "lr_lambdas");
	ck_val_seq(list, &item, &nfn);
	for (uint32_t k = 0; k < TRN_GROUPS; k++)
		fn = ck_val_list_add(a, fn, nfn && ck_step_ds_is_plain(item[0]) ? item[0] :
				     ck_val_new_none(a));
	d = ck_val_dict_sets(a, d, "base_lrs", rates(o, "initial_lr"));
	d = ck_val_dict_sets(a, d, "last_epoch", ck_val_new_int(a, n));
	d = ck_val_dict_sets(a, d, "_step_count", ck_val_new_int(a, n + 1));
	d = ck_val_dict_sets(a, d, "_is_initial", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "_get_lr_called_within_step", ck_val_new_bool(a, false));
	d = ck_val_dict_sets(a, d, "_last_lr", rates(o, "lr"));
	return ck_val_dict_sets(a, d, "lr_lambdas", fn);
}

struct ck_val *ck_trn_out_scheduler(struct trn_out *o, bool *own_out)
{
	struct ck_val *sched = ck_val_get(o->step->model, "lr_scheduler");

	*own_out = o->same_groups && ck_step_ds_is_plain(sched) &&
		   ck_val_get(sched, "last_epoch") && ck_val_get(sched, "base_lrs");
	return *own_out ? sched : make_lambda(o, sched);
}
