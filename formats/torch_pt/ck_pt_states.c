/*
 * ck_pt_states.c -- see ck_pt_states.h.
 *
 * What is a buffer no file says.  Those of batch norms are known by name, and integers are none's
 * parameters.  Whose a state is follows from names in the groups, or from the shapes where they fit
 * in one way (ck_step_match.h); else nothing is guessed.
 */
#include "formats/torch_pt/ck_pt_states.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_given.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/step/ck_step_match.h"
#include "libckpt/tensor/ck_val_new.h"

#define NAMED "; zckpt reshard takes the frozen ones with --frozen, buffers with --buffer, or " \
	      "the names in the optimizer's order with --order"

/* ---- what a parameter is ---- */

static bool is_buffer(const struct ck_index *ix, const struct ck_tensor *t)
{
	const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;
	const uint8_t type = t->first_state == CK_NONE ? CKPT_I64 : ix->state[t->first_state].dtype;

	return !strcmp(last, "running_mean") || !strcmp(last, "running_var") ||
	       type == CKPT_I64 || type == CKPT_I32 || type == CKPT_I16 || type == CKPT_I8 ||
	       type == CKPT_U8 || type == CKPT_BOOL;
}

static bool has_shape(const struct ck_tensor *t, const struct ck_tensor_ref *r)
{
	return t->ndim == r->ndim &&
	       (!t->ndim || !memcmp(t->shape, r->shape, t->ndim * sizeof(*t->shape)));
}

/* A tensor of a parameter's state, and no count. */
static const struct ck_tensor_ref *state_at(struct ck_val *const *item, uint64_t i,
					    const char **name_out)
{
	const char *name = ck_val_str(item[2 * i]);

	*name_out = name;
	return name && strcmp(name, "step") && strcmp(name, "weight") ?
	       ck_val_tensor(item[2 * i + 1]) : NULL;
}

/* ---- by names ---- */

static const char *const wrappers[] = { "module.", "_orig_mod." };

size_t ck_pt_owners_wrapped(const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(wrappers);) {
		const size_t len = strlen(wrappers[i]);

		if (!strncmp(name + n, wrappers[i], len) && name[n + len]) {
			n += len;
			i = 0;
		} else {
			i++;
		}
	}
	return n;
}

/* The parameters of all groups are named (torch 2.6: optimizers made of named_parameters()). */
static bool by_names(const struct ck_index *ix, struct ck_pt_owners *o)
{
	uint64_t at = 0;

	for (uint64_t g = 0; g < o->ngroups; g++) {
		struct ck_val *const *name;
		uint64_t n;

		if (!ck_val_seq(ck_val_get(o->group[g], "param_names"), &name, &n) ||
		    n != o->first[g + 1] - o->first[g])
			return false;
		for (uint64_t i = 0; i < n; i++, at++) {
			const char *text = ck_val_str(name[i]);

			if (!text || (!ck_index_find(ix, text, &o->param[at]) &&
				      !ck_index_find(ix, text + ck_pt_owners_wrapped(text),
						     &o->param[at])))
				return false;
			if (ix->tensor[o->param[at]].role == CKPT_ROLE_ALIAS)
				o->param[at] = (uint32_t)ix->tensor[o->param[at]].alias_of;
		}
	}
	return true;
}

/* ---- by shapes ---- */

struct matching {
	struct ck_arena *a;
	uint32_t *item, *kind, *entry, *of;
	uint64_t nitems;
	struct ck_map kinds;
};

static int kind_of(struct matching *m, const uint64_t *shape, uint32_t ndim, uint32_t *out,
		   struct ckpt_err *err)
{
	const size_t bytes = (ndim + 1) * sizeof(*shape);
	uint64_t *key = ck_arena_alloc(m->a, bytes), at = m->kinds.n;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = ndim;
	if (ndim)
		memcpy(key + 1, shape, ndim * sizeof(*shape));
	rc = ck_map_add(&m->kinds, (const char *)key, bytes, at, &at, err);
	*out = (uint32_t)at;
	return rc < 0 ? rc : 0;
}

static int list_items(struct matching *m, const struct ck_index *ix, const uint8_t *role,
		      struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS || is_buffer(ix, t) || (role && role[i]))
			continue;
		m->item[m->nitems] = i;
		rc = kind_of(m, t->shape, t->ndim, &m->kind[m->nitems++], err);
	}
	return rc;
}

static int list_entries(struct matching *m, const struct ck_pt_owners *o, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < o->n; i++) {
		struct ck_val *const *item;
		const char *name;
		uint64_t n = 0;

		m->entry[i] = CK_MATCH_ANY;
		ck_val_pairs(o->state[i], &item, &n);
		for (uint64_t k = 0; !rc && k < n && m->entry[i] == CK_MATCH_ANY; k++) {
			const struct ck_tensor_ref *r = state_at(item, k, &name);

			if (r)
				rc = kind_of(m, r->shape, r->ndim, &m->entry[i], err);
		}
	}
	return rc;
}

/* In the model's order, of one group that has all of it: the first that does not fit; or "". */
static const char *first_misfit(struct matching *m, const struct ck_index *ix,
				const struct ck_pt_owners *o)
{
	uint64_t i = 0;

	if (o->ngroups != 1 || o->n != m->nitems)
		return "";
	while (i < o->n && (m->entry[i] == CK_MATCH_ANY || m->entry[i] == m->kind[i]))
		i++;
	return i == o->n ? "" :
	       ck_arena_printf(m->a, " (the first is number %" PRIu64 ", %.100s)", i,
			       ix->tensor[m->item[i]].name);
}

/* Every entry has its item, or a clause says why not. */
static int take_verdict(struct matching *m, const struct ck_index *ix, struct ck_pt_owners *o,
			enum ck_step_verdict verdict, struct ckpt_err *err)
{
	const char *misfit;
	bool all = verdict == CK_MATCH_UNIQUE;

	for (uint64_t i = 0; all && i < o->n; i++)
		all = m->of[i] != CK_NONE;
	for (uint64_t i = 0; all && i < o->n; i++)
		o->param[i] = m->item[m->of[i]];
	if (all)
		return 0;
	misfit = first_misfit(m, ix, o);
	o->why = !misfit ? NULL :
		 ck_arena_printf(m->a, "it has %" PRIu64 " parameter%s in %" PRIu64 " group%s, by "
				 "number and without names, the model has %" PRIu64 " tensor%s "
				 "that may be parameters%s%s%s%s%s", o->n,
				 o->n == 1 ? "" : "s",
				 o->ngroups, o->ngroups == 1 ? "" : "s", m->nitems,
				 m->nitems == 1 ? "" : "s",
				 o->n < m->nitems ? " (frozen ones, or buffers?)" :
				 o->role && m->nitems < o->n ?
				 " (--frozen or --buffer excludes too many?)" : "",
				 m->nitems < o->n ? "" : ", and the states' shapes ",
				 m->nitems < o->n ? "" :
				 ck_step_match_why(verdict == CK_MATCH_UNIQUE ? CK_MATCH_SEVERAL :
						   verdict), misfit,
				 m->nitems < o->n && !o->role ? "" : NAMED);
	return o->why ? 0 : ck_fail_nomem(err, "a sentence", 0);
}

static int by_shapes(const struct ck_index *ix, struct ck_arena *a, struct ck_pt_owners *o,
		     struct ckpt_err *err)
{
	struct matching m = {
		.a = a, .item = ck_arena_zalloc(a, (ix->ntensors + 1) * sizeof(*m.item)),
		.kind = ck_arena_zalloc(a, (ix->ntensors + 1) * sizeof(*m.kind)),
		.entry = ck_arena_zalloc(a, (o->n + 1) * sizeof(*m.entry)),
		.of = ck_arena_zalloc(a, (o->n + 1) * sizeof(*m.of)),
	};
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	int rc;

	if (!m.item || !m.kind || !m.entry || !m.of)
		return ck_fail_nomem(err, "a search", o->n);
	rc = list_items(&m, ix, o->role, err);
	if (!rc)
		rc = list_entries(&m, o, err);
	if (!rc && m.nitems >= o->n)
		rc = ck_step_match_run(&(struct ck_step_match){
			.item = m.kind, .nitems = m.nitems, .entry = m.entry, .nentries = o->n,
			.first = o->first, .ngroups = (uint32_t)o->ngroups,
		}, m.of, &verdict, err);
	if (!rc)
		rc = take_verdict(&m, ix, o, verdict, err);
	ck_map_release(&m.kinds);
	return rc;
}

/* ---- the search ---- */

const struct ck_tensor_ref *ck_pt_owners_misfit(const struct ck_val *state,
						const struct ck_tensor *t,
						const char **name_out)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(state, &item, &n);
	for (uint64_t k = 0; k < n; k++) {
		const struct ck_tensor_ref *r = state_at(item, k, name_out);

		if (r && !has_shape(t, r) && (r->ndim || !t->ndim))
			return r;
	}
	return NULL;
}

/* Every state is as its parameter; steps are numbers. */
static int check_shapes(const struct ck_index *ix, struct ck_arena *a, struct ck_pt_owners *o,
			struct ckpt_err *err)
{
	for (uint64_t i = 0; i < o->n; i++) {
		const struct ck_tensor *t = &ix->tensor[o->param[i]];
		const char *name;
		const struct ck_tensor_ref *r = ck_pt_owners_misfit(o->state[i], t, &name);

		if (!r)
			continue;
		o->why = ck_arena_printf(a, "%.60s of parameter %" PRIu64 " has %" PRIu64
					 " elements in %u dimensions, and %.100s has %"
					 PRIu64 " in %u", name, i, r->numel, r->ndim,
					 t->name, t->numel, t->ndim);
		return o->why ? 0 : ck_fail_nomem(err, "a sentence", 0);
	}
	return 0;
}

/* Two numbers of one tensor: the save of two models' parameters. */
static int check_twice(const struct ck_index *ix, struct ck_arena *a, struct ck_pt_owners *o,
		       struct ckpt_err *err)
{
	bool *seen = ck_zalloc(ix->ntensors + 1);

	if (!seen)
		return ck_fail_nomem(err, "names", ix->ntensors);
	for (uint64_t i = 0; !o->why && i < o->n; i++) {
		if (seen[o->param[i]])
			o->why = ck_arena_printf(a, "two of its numbers are %.100s",
						 ix->tensor[o->param[i]].name);
		seen[o->param[i]] = true;
	}
	ck_free(seen);
	return 0;
}

/* Numbers that the groups name: 0, 1, ... in order, as torch counts them. */
static bool count_params(struct ck_pt_owners *o)
{
	for (uint64_t g = 0; g < o->ngroups; g++) {
		struct ck_val *const *id;
		uint64_t n;

		if (!ck_val_seq(ck_val_get(o->group[g], "params"), &id, &n))
			return false;
		o->first[g] = o->n;
		for (uint64_t i = 0; i < n; i++) {
			int64_t number;

			if (!ck_val_int(id[i], &number) || number < 0 ||
			    (uint64_t)number != o->n + i)
				return false;
		}
		o->n += n;
	}
	o->first[o->ngroups] = o->n;
	return o->n > 0;
}

static void take_states(struct ck_pt_owners *o, const struct ck_val *state)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(state, &item, &n);
	for (uint64_t i = 0; i < n; i++)
		if (item[2 * i]->kind == CK_VAL_INT && item[2 * i]->u.i >= 0 &&
		    (uint64_t)item[2 * i]->u.i < o->n)
			o->state[item[2 * i]->u.i] = item[2 * i + 1];
}

static int find(const struct ck_pt_training *t, const struct ck_index *ix,
		const struct ck_input *in, struct ck_arena *a, struct ck_pt_owners *o,
		struct ckpt_err *err)
{
	bool named;
	int rc = 0;

	o->state = ck_arena_zalloc(a, (o->n + 1) * sizeof(*o->state));
	o->param = ck_arena_zalloc(a, (o->n + 1) * sizeof(*o->param));
	if (!o->state || !o->param)
		return ck_fail_nomem(err, "parameters", o->n);
	take_states(o, ck_val_get(t->optimizer, "state"));
	named = by_names(ix, o);
	if (in && in->order_path)
		rc = ck_pt_given_order(in, ix, a, o, named, err);
	else if (!named)
		rc = by_shapes(ix, a, o, err);
	if (!rc && !o->why)
		rc = ck_pt_given_check(ix, o, err);
	if (!rc && !o->why)
		rc = check_twice(ix, a, o, err);
	return rc || o->why ? rc : check_shapes(ix, a, o, err);
}

/* What is said of an optimizer that the file has not would be lost. */
static int refuse_given(const struct ck_pt *pt, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, ck_src_name(pt->src), CKPT_NO_OFFSET,
		       "--order, --frozen and --buffer say whose states are whose, and the file "
		       "has no states of an optimizer beside a model; zckpt shard has these "
		       "options for weights alone");
}

int ck_pt_owners_find(const struct ck_pt *pt, const struct ck_pt_training *t,
		      const struct ck_index *ix, const struct ck_input *in, struct ck_arena *a,
		      struct ck_pt_owners *out, struct ckpt_err *err)
{
	struct ck_pt_owners o = { .n = 0 };
	uint8_t *role = NULL;
	bool has = false;
	int rc = t->optimizer ? ck_pt_training_has_states(pt, t->optimizer, &has, err) : 0;

	*out = o;
	if (!rc && in && ck_pt_given_any(in))
		rc = has ? ck_pt_given_roles(in, ix, a, &role, err) : refuse_given(pt, err);
	if (rc || !has)
		return rc;
	o.role = role;
	if (!ck_pt_training_is_optimizer(t->optimizer)) {
		out->n = 1;
		out->why = "they are not the state dict of one optimizer";
		return 0;
	}
	ck_val_seq(ck_val_get(t->optimizer, "param_groups"), &o.group, &o.ngroups);
	o.first = ck_arena_zalloc(a, (o.ngroups + 1) * sizeof(*o.first));
	if (!o.first)
		return ck_fail_nomem(err, "param groups", o.ngroups);
	if (!count_params(&o)) {
		out->n = 1;
		out->why = "its groups do not number their parameters 0, 1, 2, ...";
		return 0;
	}
	rc = find(t, ix, in, a, &o, err);
	if (!rc)
		*out = o;
	return rc;
}

/* ---- numbers ---- */

static bool number_of(const struct ck_pt *pt, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	uint8_t *p = NULL;
	bool yes;

	if (!t)
		return v && ck_val_num(v, out);
	if (t->numel != 1 || ck_pt_tensor_bytes(pt, t, 16, &p, NULL) || !p)
		return false;
	yes = ck_dtype_number((enum ckpt_dtype)t->dtype, p, out);
	ck_free(p);
	return yes;
}

bool ck_pt_owners_step(const struct ck_pt *pt, const struct ck_pt_owners *o, uint64_t i,
		       double *out)
{
	return number_of(pt, ck_val_get(o->state[i], "step"), out) && *out >= 0 && *out < 1e15;
}

bool ck_pt_owners_group_step(const struct ck_pt *pt, const struct ck_pt_owners *o, uint64_t group,
			     double *most, double *least)
{
	bool any = false;
	double v;

	for (uint64_t i = o->first[group]; i < o->first[group + 1]; i++) {
		if (!ck_pt_owners_step(pt, o, i, &v))
			continue;
		*most = !any || v > *most ? v : *most;
		*least = !any || v < *least ? v : *least;
		any = true;
	}
	return any;
}

struct ck_val *ck_pt_owners_hyper(const struct ck_pt *pt, const struct ck_pt_owners *o,
				  uint64_t group, struct ck_arena *a)
{
	struct ck_val *hyper = ck_val_new_dict(a), *const *item;
	uint64_t n = 0;
	double number;

	ck_val_pairs(o->group[group], &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);
		struct ck_val *v = item[2 * i + 1];

		if (!key || !strcmp(key, "params") || !strcmp(key, "param_names"))
			continue;
		if (ck_val_tensor(v))
			v = number_of(pt, v, &number) ? ck_val_new_float(a, number) : NULL;
		if (v && ck_step_ds_is_hyper(key, v))
			hyper = ck_val_dict_sets(a, hyper, key, v);
	}
	return hyper;
}

/* ---- into the index ---- */

static int add_states(const struct ck_pt *pt, const struct ck_pt_owners *o, uint32_t source,
		      struct ck_index *ix, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < o->n; i++) {
		struct ck_val *const *item;
		const char *name;
		uint64_t n = 0;

		ix->tensor[o->param[i]].role = CKPT_ROLE_TRAINABLE;
		ck_val_pairs(o->state[i], &item, &n);
		for (uint64_t k = 0; !rc && k < n; k++) {
			const struct ck_tensor_ref *r = state_at(item, k, &name);

			if (r && has_shape(&ix->tensor[o->param[i]], r))
				rc = ck_pt_add_state(pt, r, o->param[i], name, source, ix, err);
		}
	}
	return rc;
}

/*
 * Tensors that no group has: buffers; with the name of a weight frozen; others may be either.
 */
static void mark_others(struct ck_index *ix, const uint8_t *role)
{
	for (uint32_t i = 0; i < ix->ntensors; i++) {
		struct ck_tensor *t = &ix->tensor[i];
		const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;

		if (t->role != CKPT_ROLE_PLAIN)
			continue;
		if (role && role[i])
			t->role = role[i];
		else if (is_buffer(ix, t))
			t->role = CKPT_ROLE_BUFFER;
		else if (!strcmp(last, "weight") || !strcmp(last, "bias"))
			t->role = CKPT_ROLE_FROZEN;
	}
}

static int add_facts(const struct ck_pt *pt, const struct ck_pt_owners *o, struct ck_index *ix,
		     struct ckpt_err *err)
{
	int rc = 0;

	ix->ngroups = o->ngroups;
	for (uint64_t g = 0; !rc && g < o->ngroups; g++) {
		struct ck_val *hyper = ck_pt_owners_hyper(pt, o, g, &ix->arena), *const *item;
		double most, least;
		char key[128];
		uint64_t n = 0;

		if (!hyper)
			return ck_fail_nomem(err, "a param group", 0);
		for (uint64_t i = o->first[g]; i < o->first[g + 1]; i++)
			ix->tensor[o->param[i]].group = (int32_t)g;
		ck_val_pairs(hyper, &item, &n);
		for (uint64_t i = 0; !rc && i < n; i++) {
			snprintf(key, sizeof(key), "group.%" PRIu64 ".%.80s", g,
				 ck_val_str(item[2 * i]));
			rc = ck_step_add_fact(ix, key, item[2 * i + 1], err);
		}
		if (rc || !ck_pt_owners_group_step(pt, o, g, &most, &least))
			continue;
		snprintf(key, sizeof(key), "group.%" PRIu64 ".step", g);
		rc = ck_step_add_number(ix, key, most, err);
		if ((int64_t)most > ix->step)
			ix->step = (int64_t)most;
	}
	return rc;
}

int ck_pt_owners_add(const struct ck_pt *pt, const struct ck_pt_owners *o, uint32_t source,
		     struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	int rc;

	if (!o->n)
		return 0;
	if (o->why) {
		if (f)
			ck_findings_add(f, CK_FINDING_SUBTREE_CHOICE, ck_src_name(pt->src),
					"the optimizer's states are left out: %s", o->why);
		return ck_index_add_fact(ix, err, "states_left_out", "%s", o->why);
	}
	rc = add_states(pt, o, source, ix, err);
	mark_others(ix, o->role);
	return rc ? rc : add_facts(pt, o, ix, err);
}
