/*
 * rk_write_optim.c -- the optimizer's file of a rank, as optimizer.state_dict() of torch has it:
 * the parameters are numbered through the groups.
 *
 * torch gives states to parameters by these numbers, so a group keeps the optimizer's own order.
 * Where shapes alone would not prove whose each state is (ck_step_match.h), the groups also have
 * 'param_names', a key of torch 2.6 and later.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"
#include "libckpt/step/ck_step_drop.h"

#define NUMBER_BYTES 8

/* ---- counts ---- */

/* A number, or a tensor of one in a file of the step. */
static bool number_of(const struct rk_out *o, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	struct ck_tensor_ref ref;
	uint8_t *p = NULL;
	bool is_out = false;

	if (ck_val_num(v, out))
		return true;
	for (uint32_t i = 0; t && t->numel == 1 && i < o->step->nfiles; i++) {
		const struct ck_step_file *f = &o->step->file[i];

		if (!f->pt || t->storage < f->first || t->storage - f->first >= f->pt->nstorages)
			continue;
		ref = *t;
		ref.storage -= f->first;
		is_out = !ck_pt_tensor_bytes(f->pt, &ref, NUMBER_BYTES, &p, NULL) && p &&
			 ck_dtype_number((enum ckpt_dtype)t->dtype, p, out);
		ck_free(p);
		break;
	}
	return is_out;
}

static int take_counts(struct rk_out *o, struct ckpt_err *err)
{
	const uint64_t n = (uint64_t)o->step->ngroups + 1;

	o->count = ck_arena_zalloc(o->step->arena, n * sizeof(*o->count));
	o->counted = ck_arena_zalloc(o->step->arena, n * sizeof(*o->counted));
	if (!o->count || !o->counted)
		return ck_fail_nomem(err, "counts", n);
	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		const struct ck_step_group *group = &o->step->group[g];

		o->counted[g] = number_of(o, ck_val_get(group->entry, "step"), &o->count[g]) ||
				number_of(o, ck_val_get(group->hyper, "step"), &o->count[g]);
	}
	return 0;
}

/* ---- is it proven by shapes? ---- */

struct proof {
	uint32_t *item, *kind;	/* [nnamed] tensor, class of its shape */
	uint64_t nitems;
	uint32_t *entry, *of;	/* [nlisted] class of the shape, item found */
	uint32_t *tensor;	/* [nlisted] */
	uint64_t *first;	/* [ngroups + 1] */
	struct ck_map kinds;
};

static int kind_of(struct proof *p, struct ck_arena *a, const struct ck_tensor *t, uint32_t *out,
		   struct ckpt_err *err)
{
	const size_t bytes = (t->ndim + 1) * sizeof(uint64_t);
	uint64_t *key = ck_arena_alloc(a, bytes), at = p->kinds.n;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = t->ndim;
	if (t->ndim)
		memcpy(key + 1, t->shape, t->ndim * sizeof(*key));
	rc = ck_map_add(&p->kinds, (const char *)key, bytes, at, &at, err);
	*out = (uint32_t)at;
	return rc < 0 ? rc : 0;
}

static bool has_moments(const struct rk_out *o, uint32_t tensor)
{
	uint32_t s = o->ix->tensor[tensor].first_state;

	while (s != CK_NONE && !ck_step_is_moment(o->want, o->ix->state[s].name))
		s = o->ix->state[s].next;
	return s != CK_NONE;
}

static int find_tensors(struct rk_out *o, struct proof *p, struct ckpt_err *err)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		const struct ck_step_group *group = &o->step->group[g];

		for (uint32_t i = 0; i < group->nparams; i++, n++) {
			const char *name = group->param[i].name;

			if (!ck_index_find(o->ix, name, &p->tensor[n]))
				return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
					       "the parameter is not in the index");
			if (!o->ix->tensor[p->tensor[n]].ndim && !o->nscalars++)
				o->scalar = name;
		}
		p->first[g + 1] = n;
	}
	return 0;
}

static int make_proof(struct rk_out *o, struct proof *p, struct ckpt_err *err)
{
	struct ck_arena *a = o->step->arena;
	uint64_t n;
	int rc = find_tensors(o, p, err);

	for (uint64_t i = 0; !rc && i < o->nnamed; i++) {
		const struct rk_named *name = &o->named[i];
		const struct ck_tensor *t = &o->ix->tensor[name->tensor];

		if (!name->sharded || strcmp(name->name, t->name) != 0 ||
		    ck_dtype_info((enum ckpt_dtype)o->ix->state[name->state].dtype)->cls !=
		    CK_CLASS_FLOAT)
			continue;
		p->item[p->nitems] = name->tensor;
		rc = kind_of(p, a, t, &p->kind[p->nitems++], err);
	}
	n = p->first[o->step->ngroups];
	for (uint64_t i = 0; !rc && i < n; i++) {
		p->entry[i] = CK_MATCH_ANY;
		if (has_moments(o, p->tensor[i]))
			rc = kind_of(p, a, &o->ix->tensor[p->tensor[i]], &p->entry[i], err);
	}
	return rc;
}

/* The reader's own search gives each number the parameter that it has. */
static int prove(struct rk_out *o, struct proof *p, bool *proven, struct ckpt_err *err)
{
	const struct ck_step_match m = {
		.item = p->kind, .nitems = p->nitems, .entry = p->entry,
		.nentries = p->first[o->step->ngroups], .first = p->first,
		.ngroups = o->step->ngroups,
	};
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	int rc = ck_step_match_run(&m, p->of, &verdict, err);

	*proven = !rc && verdict == CK_MATCH_UNIQUE;
	for (uint64_t i = 0; *proven && i < m.nentries; i++)
		*proven = p->of[i] != CK_NONE && p->item[p->of[i]] == p->tensor[i];
	return rc;
}

int ck_rk_out_prepare(struct rk_out *o, struct ckpt_err *err)
{
	struct ck_arena *a = o->step->arena;
	struct proof p = { .nitems = 0 };
	uint64_t n = 1;
	bool proven = false;
	int rc = take_counts(o, err);

	for (uint32_t g = 0; g < o->step->ngroups; g++)
		n += o->step->group[g].nparams;
	p.item = ck_arena_zalloc(a, (o->nnamed + 1) * sizeof(*p.item));
	p.kind = ck_arena_zalloc(a, (o->nnamed + 1) * sizeof(*p.kind));
	p.entry = ck_arena_zalloc(a, n * sizeof(*p.entry));
	p.of = ck_arena_zalloc(a, n * sizeof(*p.of));
	p.tensor = ck_arena_zalloc(a, n * sizeof(*p.tensor));
	p.first = ck_arena_zalloc(a, ((uint64_t)o->step->ngroups + 1) * sizeof(*p.first));
	if (!rc && (!p.item || !p.kind || !p.entry || !p.of || !p.tensor || !p.first))
		rc = ck_fail_nomem(err, "a search", n);
	if (!rc)
		rc = make_proof(o, &p, err);
	if (!rc)
		rc = prove(o, &p, &proven, err);
	o->named_optimizer = !proven;
	if (o->nscalars)
		ck_findings_add(o->step->f, CK_FINDING_FORMAT_NOTE, o->scalar,
				"%" PRIu64 " parameters have no dimensions, which FSDP2 does not "
				"shard: each rank has them whole, as those of ignored_params",
				o->nscalars);
	ck_map_release(&p.kinds);
	return rc;
}

/* ---- the file ---- */

static struct ck_val *states_of(struct rk_out *o, uint32_t g, uint32_t tensor)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	struct ck_val *d = ck_val_new_dict(&o->arena);

	if (o->counted[g])
		d = ck_val_dict_sets(&o->arena, d, "step",
				     ck_rk_out_number(o, o->want->reset ? 0 : o->count[g]));
	for (uint32_t s = t->first_state; s != CK_NONE; s = o->ix->state[s].next)
		if (ck_step_is_moment(o->want, o->ix->state[s].name))
			d = ck_val_dict_sets(&o->arena, d, o->ix->state[s].name,
					     t->ndim ? ck_rk_out_sharded(o, tensor, s) :
						       ck_rk_out_whole(o, tensor, s));
	return d;
}

/* What torch's AdamW has and DeepSpeed's has not. */
static struct ck_val *add_defaults(struct rk_out *o, struct ck_val *d)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *lr = ck_val_get(d, "lr");
	const struct {
		const char *key;
		struct ck_val *v;
	} all[] = {
		{ "amsgrad", ck_val_new_bool(a, false) }, { "maximize", ck_val_new_bool(a, false) },
		{ "foreach", ck_val_new_none(a) }, { "capturable", ck_val_new_bool(a, false) },
		{ "differentiable", ck_val_new_bool(a, false) }, { "fused", ck_val_new_none(a) },
		{ "decoupled_weight_decay", ck_val_new_bool(a, true) }, { "initial_lr", lr },
	};

	for (size_t i = 0; lr && i < CK_ARRAY_LEN(all); i++)
		if (!ck_val_get(d, all[i].key))
			d = ck_val_dict_sets(a, d, all[i].key, all[i].v);
	return d;
}

static struct ck_val *group_of(struct rk_out *o, uint32_t g, int64_t number)
{
	const struct ck_step_group *group = &o->step->group[g];
	struct ck_arena *a = &o->arena;
	struct ck_val *d = ck_val_new_dict(a), *ids = ck_val_new_list(a), *names;
	struct ck_val *const *item;
	uint64_t n = 0;

	names = ck_val_new_list(a);
	ck_val_pairs(o->source ? o->source->group[g].hyper : group->hyper, &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		if (ck_step_ds_is_hyper(ck_val_str(item[2 * i]), item[2 * i + 1]))
			d = ck_val_dict_add(a, d, item[2 * i], item[2 * i + 1]);
	}
	if (!o->source)
		d = add_defaults(o, d);
	for (uint32_t i = 0; i < group->nparams; i++) {
		ids = ck_val_list_add(a, ids, ck_val_new_int(a, number + i));
		names = ck_val_list_add(a, names, ck_val_new_str(a, group->param[i].name));
	}
	if (o->named_optimizer)
		d = ck_val_dict_sets(a, d, "param_names", names);
	return ck_val_dict_sets(a, d, "params", ids);
}

struct ck_val *ck_rk_out_optimizer(struct rk_out *o)
{
	struct ck_arena *a = &o->arena;
	struct ck_val *states = ck_val_new_dict(a), *groups = ck_val_new_list(a);
	struct ck_val *d = ck_val_new_dict(a);
	int64_t number = 0;

	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		const struct ck_step_group *group = &o->step->group[g];

		groups = ck_val_list_add(a, groups, group_of(o, g, number));
		for (uint32_t i = 0; i < group->nparams; i++, number++) {
			uint32_t tensor = CK_NONE;

			if (ck_index_find(o->ix, group->param[i].name, &tensor) &&
			    has_moments(o, tensor))
				states = ck_val_dict_add(a, states, ck_val_new_int(a, number),
							 states_of(o, g, tensor));
		}
	}
	d = ck_val_dict_sets(a, d, "state", states);
	return ck_val_dict_sets(a, d, "param_groups", groups);
}
