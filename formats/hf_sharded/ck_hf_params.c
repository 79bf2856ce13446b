/*
 * ck_hf_params.c -- the optimizer of a Trainer's folder: its groups, and which tensor each of its
 * numbers is.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf_trainer.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_order.h"
#include "libckpt/step/ck_step_match.h"
#include "libckpt/tensor/ck_dtype.h"

#define MOST_GROUPS 100000u
#define NUMBER_BYTES 16

static int CK_PRINTF(3, 4) damaged(const struct trn *t, struct ckpt_err *err, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ck_fail(err, CKPT_E_CORRUPT, t->path[TRN_IN_OPTIMIZER], CKPT_NO_OFFSET, "%s", text);
}

/* ---- groups ---- */

static int take_names(struct trn *t, const struct ck_val *group, struct trn_group *g,
		      struct ckpt_err *err)
{
	const struct ck_val *list = ck_val_get(group, "param_names");
	struct ck_val *const *name;
	uint64_t n;

	if (!list)
		return 0;
	if (!ck_val_seq(list, &name, &n) || n != g->n)
		return damaged(t, err, "a param group has %" PRIu64 " parameters, and "
			       "'param_names' is not a list of as many", g->n);
	for (uint64_t i = 0; i < n; i++) {
		t->param[g->first + i].name = ck_val_str(name[i]);
		if (!t->param[g->first + i].name)
			return damaged(t, err, "'param_names' has an entry that is no text");
	}
	return 0;
}

static int take_group(struct trn *t, const struct ck_val *group, uint32_t number,
		      struct ckpt_err *err)
{
	struct trn_group *g = &t->group[number];

	for (uint64_t i = 0; i < g->n; i++)
		t->param[g->first + i] = (struct trn_param){ .group = number, .tensor = CK_NONE };
	return take_names(t, group, g, err);
}

/* Numbers count from 0 through the groups: torch numbers them so when it saves. */
static int count_group(struct trn *t, const struct ck_val *group, struct trn_group *g,
		       struct ckpt_err *err)
{
	struct ck_val *const *id, *const *pair;
	uint64_t npairs;

	if (!ck_val_pairs(group, &pair, &npairs) ||
	    !ck_val_seq(ck_val_get(group, "params"), &id, &g->n))
		return damaged(t, err, "a param group has no list 'params'");
	g->hyper = group;
	g->first = t->nparams;
	for (uint64_t i = 0; i < g->n; i++)
		if (id[i]->kind != CK_VAL_INT || id[i]->u.i != (int64_t)(t->nparams + i))
			return damaged(t, err, "'params' of a param group are not numbers that "
				       "count on from %" PRIu64, t->nparams);
	t->nparams += g->n;
	return 0;
}

static int read_groups(struct trn *t, struct ckpt_err *err)
{
	struct ck_val *const *group;
	uint64_t n;
	int rc = 0;

	if (!ck_val_seq(ck_val_get(ck_trn_root(t, TRN_IN_OPTIMIZER), "param_groups"), &group, &n) ||
	    n > MOST_GROUPS)
		return damaged(t, err, "it has no list 'param_groups', so it is not the state of "
			       "an optimizer");
	t->group = ck_arena_zalloc(&t->arena, (n + 1) * sizeof(*t->group));
	if (!t->group)
		return ck_fail_nomem(err, "param groups", n);
	t->ngroups = (uint32_t)n;
	for (uint32_t g = 0; !rc && g < n; g++)
		rc = count_group(t, group[g], &t->group[g], err);
	if (rc)
		return rc;
	t->param = ck_arena_zalloc(&t->arena, (t->nparams + 1) * sizeof(*t->param));
	t->order = ck_arena_zalloc(&t->arena, (t->nparams + 1) * sizeof(*t->order));
	if (!t->param || !t->order)
		return ck_fail_nomem(err, "parameters", t->nparams);
	for (uint64_t i = 0; i < t->nparams; i++)
		t->order[i] = i;
	for (uint32_t g = 0; !rc && g < n; g++)
		rc = take_group(t, group[g], g, err);
	return rc;
}

/* ---- states ---- */

static bool number_of(const struct trn *t, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *ref = ck_val_tensor(v);
	uint8_t *p = NULL;
	bool yes;

	if (!ref)
		return ck_val_num(v, out);
	if (ref->numel != 1 ||
	    ck_pt_tensor_bytes(t->pt[TRN_IN_OPTIMIZER], ref, NUMBER_BYTES, &p, NULL) || !p)
		return false;
	yes = ck_dtype_number((enum ckpt_dtype)ref->dtype, p, out);
	ck_free(p);
	return yes;
}

static int take_state(struct trn *t, const struct ck_val *key, const struct ck_val *state,
		      struct ckpt_err *err)
{
	struct ck_val *const *item;
	struct trn_param *p;
	uint64_t n;

	if (key->kind != CK_VAL_INT || key->u.i < 0 || (uint64_t)key->u.i >= t->nparams)
		return damaged(t, err, "it has the state of a parameter that no param group lists "
			       "(they list 0 to %" PRIu64 ")", t->nparams ? t->nparams - 1 : 0);
	p = &t->param[key->u.i];
	if (!ck_val_pairs(state, &item, &n))
		return damaged(t, err, "the state of parameter %" PRId64 " is no dictionary",
			       key->u.i);
	if (p->state)
		return damaged(t, err, "it has two states of parameter %" PRId64, key->u.i);
	p->state = n ? state : NULL;
	p->has_step = number_of(t, ck_val_get(state, "step"), &p->step);
	if (p->has_step && !(p->step >= 0 && p->step < 1e15))
		return damaged(t, err, "parameter %" PRId64 " was updated %.17g times", key->u.i,
			       p->step);
	return 0;
}

int ck_trn_params_read(struct trn *t, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = read_groups(t, err);

	if (!rc && !ck_val_pairs(ck_val_get(ck_trn_root(t, TRN_IN_OPTIMIZER), "state"), &item, &n))
		rc = damaged(t, err, "it has no dictionary 'state', so it is not the state of an "
			     "optimizer");
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_state(t, item[2 * i], item[2 * i + 1], err);
	return rc;
}

/* ---- whose are they: by names ---- */

/* Of the first 200 bytes of a name. */
static const char *clause(struct trn *t, const char *before, const char *name, const char *after)
{
	const char *text = ck_arena_printf(&t->arena, "%s %.200s%s", before, name, after);

	return text ? text : "are of parameters that are not known";
}

static bool has_names(const struct trn *t)
{
	for (uint64_t i = 0; i < t->nparams; i++)
		if (!t->param[i].name)
			return false;
	return t->nparams > 0;
}

static int find_names(struct trn *t, const struct ck_index *ix, struct ckpt_err *err)
{
	bool *met = ck_zalloc(ix->ntensors + 1ull);

	if (!met)
		return ck_fail_nomem(err, "names", ix->ntensors);
	for (uint64_t i = 0; !t->unproven && i < t->nparams; i++) {
		struct trn_param *p = &t->param[i];

		if (!ck_index_find(ix, p->name, &p->tensor) ||
		    ix->tensor[p->tensor].role == CKPT_ROLE_ALIAS)
			t->unproven = clause(t, "are of a parameter", p->name,
					     ", which the weights do not have");
		else if (met[p->tensor])
			t->unproven = clause(t, "are two of the parameter", p->name, "");
		else
			met[p->tensor] = true;
	}
	ck_free(met);
	return 0;
}

/* ---- by the order of the modules ---- */

static bool has_shape(const struct ck_tensor *tensor, const struct ck_tensor_ref *r)
{
	return tensor->ndim == r->ndim &&
	       (!r->ndim || !memcmp(tensor->shape, r->shape, r->ndim * sizeof(*r->shape)));
}

/* A state that has its parameter's shape in every optimizer of torch; NULL = none is there. */
static const struct ck_tensor_ref *shaped(const struct trn_param *p)
{
	static const char *const full[] = { "exp_avg", "exp_avg_sq", "momentum_buffer" };
	const struct ck_tensor_ref *r = NULL;

	for (size_t i = 0; !r && i < CK_ARRAY_LEN(full); i++)
		r = ck_val_tensor(ck_val_get(p->state, full[i]));
	return r;
}

/* Two groups: those with decay, then those without. */
static bool by_decay(struct trn *t, const struct ck_index *ix, const struct ck_order *order)
{
	uint64_t at = 0;

	if (t->ngroups != 2 || order->n != t->nparams)
		return false;
	for (uint32_t g = 0; g < 2; g++) {
		for (uint64_t i = 0; i < order->n; i++) {
			const struct ck_tensor *tensor = &ix->tensor[order->tensor[i]];
			const struct ck_tensor_ref *r;

			if (ck_order_is_undecayed(tensor->name) != (g == 1))
				continue;
			if (t->param[at].group != g)
				return false;
			r = shaped(&t->param[at]);
			if (r && !has_shape(tensor, r))
				return false;
			t->param[at++].tensor = order->tensor[i];
		}
		if (at != t->group[g].first + t->group[g].n)
			return false;
	}
	return true;
}

struct matching {
	uint32_t *item, *entry, *of;
	uint64_t *first;
	struct ck_map kinds;
};

static int kind_of(struct trn *t, struct matching *m, const uint64_t *shape, uint32_t ndim,
		   uint32_t *out, struct ckpt_err *err)
{
	const size_t bytes = ((size_t)ndim + 1) * sizeof(uint64_t);
	uint64_t *key = ck_arena_alloc(&t->arena, bytes), at = m->kinds.n;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = ndim;
	if (ndim)
		memcpy(key + 1, shape, ndim * sizeof(*key));
	rc = ck_map_add(&m->kinds, (const char *)key, bytes, at, &at, err);
	*out = (uint32_t)at;
	return rc < 0 ? rc : 0;
}

static int match(struct trn *t, const struct ck_index *ix, const struct ck_order *order,
		 struct matching *m, struct ckpt_err *err)
{
	const struct ck_step_match what = {
		.item = m->item, .nitems = order->n, .entry = m->entry, .nentries = t->nparams,
		.first = m->first, .ngroups = t->ngroups,
	};
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < order->n; i++) {
		const struct ck_tensor *tensor = &ix->tensor[order->tensor[i]];

		rc = kind_of(t, m, tensor->shape, tensor->ndim, &m->item[i], err);
	}
	for (uint64_t i = 0; !rc && i < t->nparams; i++) {
		const struct ck_tensor_ref *r = shaped(&t->param[i]);

		m->entry[i] = CK_MATCH_ANY;
		if (r)
			rc = kind_of(t, m, r->shape, r->ndim, &m->entry[i], err);
	}
	for (uint32_t g = 0; g < t->ngroups; g++)
		m->first[g + 1] = t->group[g].first + t->group[g].n;
	if (!rc)
		rc = ck_step_match_run(&what, m->of, &verdict, err);
	for (uint64_t i = 0; !rc && i < t->nparams; i++)
		t->param[i].tensor = verdict != CK_MATCH_UNIQUE || m->of[i] == CK_NONE ? CK_NONE :
				     order->tensor[m->of[i]];
	if (!rc && verdict != CK_MATCH_UNIQUE)
		t->unproven = ck_step_match_why(verdict);
	return rc;
}

static int by_shapes(struct trn *t, const struct ck_index *ix, const struct ck_order *order,
		     struct ckpt_err *err)
{
	struct matching m = {
		.item = ck_arena_zalloc(&t->arena, (order->n + 1) * sizeof(*m.item)),
		.entry = ck_arena_zalloc(&t->arena, (t->nparams + 1) * sizeof(*m.entry)),
		.of = ck_arena_zalloc(&t->arena, (t->nparams + 1) * sizeof(*m.of)),
		.first = ck_arena_zalloc(&t->arena, (t->ngroups + 1ull) * sizeof(*m.first)),
	};
	int rc = m.item && m.entry && m.of && m.first ? match(t, ix, order, &m, err) :
		 ck_fail_nomem(err, "a search", t->nparams);

	ck_map_release(&m.kinds);
	return rc;
}

/* What is no parameter for sure: integers. */
static void set_aside(const struct ck_index *ix, bool *out)
{
	for (uint32_t i = 0; i < ix->ntensors; i++) {
		const uint32_t s = ix->tensor[i].first_state;

		out[i] = s != CK_NONE && ck_dtype_info((enum ckpt_dtype)ix->state[s].dtype)->cls !=
					 CK_CLASS_FLOAT;
	}
}

static int order_by_config(struct trn *t, const struct ck_index *ix, const bool *aside,
			   struct ck_order *order, struct ckpt_err *err)
{
	struct ck_order_config from = { .adapter = t->adapter };
	char *text = NULL;
	int rc = ck_trn_config(t, &from, &text, err);

	from.text = text;
	if (!rc)
		rc = ck_order_by_text(ix, &from, &t->in->limits, aside, order, err);
	ck_free(text);
	return rc;
}

static bool has_more_than_adapter(const struct trn *t)
{
	return !t->adapter && ck_tree_find(&t->at.tree, "adapter_config.json");
}

static const char *why_no_config(const struct trn *t)
{
	if (t->adapter)
		return "have numbers and no names, and the config.json of the model that is "
		       "adapted, which says what order they have, is missing (--model-config FILE "
		       "gives it)";
	if (has_more_than_adapter(t))
		return "have numbers and no names, and some are of modules that are trained whole "
		       "beside the adapter (modules_to_save), whose order zckpt does not know";
	return "have numbers and no names, and config.json, which says what order they have, is "
	       "missing (--model-config FILE gives it)";
}

/* config.json may be missing, or of a model that is not known: then it is said why. */
static int order_of(struct trn *t, const struct ck_index *ix, struct ck_order *order,
		    struct ckpt_err *err)
{
	bool *aside = ck_zalloc(ix->ntensors + 1ull);
	struct ckpt_err why = { 0 };
	int rc = 0;

	if (!aside)
		return ck_fail_nomem(err, "names", ix->ntensors);
	set_aside(ix, aside);
	rc = order_by_config(t, ix, aside, order, &why);
	ck_free(aside);
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO ||
	    (rc == -CKPT_E_NOTFOUND && t->in->model_config))
		return ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	if (rc == -CKPT_E_NOTFOUND || (rc == -CKPT_E_MISMATCH && has_more_than_adapter(t)))
		t->unproven = why_no_config(t);
	else if (rc == -CKPT_E_UNSUPPORTED)
		t->unproven = "have numbers and no names, and zckpt does not know the order of the "
			      "parameters of this type of model (model_type of config.json)";
	else if (rc)
		t->unproven = clause(t, "have numbers and no names, and the weights are not those "
				     "that config.json describes (see", why.where, ")");
	return 0;
}

/* Where names say whose the states are, the order only tells of a tied head. */
static int find_order(struct trn *t, const struct ck_index *ix, bool named, struct ckpt_err *err)
{
	struct ck_order order = { .n = 0 };
	int rc = order_of(t, ix, &order, err);

	if (!rc && !t->unproven && order.alias && order.n) {
		t->alias = ck_arena_strdup(&t->arena, order.alias);
		t->alias_of = order.tensor[0];
		rc = t->alias ? 0 : ck_fail_nomem(err, "a name", 0);
	}
	if (!rc && !named && !t->unproven && !by_decay(t, ix, &order))
		rc = by_shapes(t, ix, &order, err);
	if (named)
		t->unproven = NULL;
	ck_order_release(&order);
	return rc;
}

/* ---- the groups of the source, where it had others ---- */

static bool take_listed(struct trn *t, const struct ck_val *list, const struct ck_map *by_name,
			uint32_t g, uint64_t *at)
{
	struct trn_group *to = &t->group[g];
	struct ck_val *const *name;
	uint64_t n, number;

	if (!ck_val_seq(list, &name, &n))
		return false;
	to->first = *at;
	to->n = n;
	for (uint64_t i = 0; i < n; i++) {
		const char *text = ck_val_str(name[i]);

		if (!text || *at >= t->nparams ||
		    !ck_map_find(by_name, text, strlen(text), &number))
			return false;
		t->order[(*at)++] = number;
	}
	return true;
}

/* Each name once: as many as there are, and all of them found. */
static int restore_groups(struct trn *t, const struct ck_val *lists, struct ck_map *by_name,
			  struct ckpt_err *err)
{
	struct trn_group *file = t->group;
	struct ck_val *const *list;
	uint64_t n, at = 0;
	bool ok = true;
	bool *met;

	if (!ck_val_seq(lists, &list, &n) || n > MOST_GROUPS)
		return 0;
	t->group = ck_arena_zalloc(&t->arena, (n + 1) * sizeof(*t->group));
	met = ck_arena_zalloc(&t->arena, t->nparams + 1);
	if (!t->group || !met)
		return ck_fail_nomem(err, "param groups", n);
	for (uint32_t g = 0; ok && g < n; g++)
		ok = take_listed(t, list[g], by_name, g, &at);
	for (uint64_t i = 0; ok && i < at; i++) {
		ok = !met[t->order[i]];
		met[t->order[i]] = true;
	}
	if (!ok || at != t->nparams)
		return ck_fail(err, CKPT_E_CORRUPT, t->path[TRN_IN_OWN], CKPT_NO_OFFSET,
			       "'groups' does not list the parameters of " TRN_OPTIMIZER
			       ", each once");
	t->ngroups = (uint32_t)n;
	for (uint32_t g = 0; g < n; g++) {
		struct trn_group *to = &t->group[g];

		to->hyper = to->n ? file[t->param[t->order[to->first]].group].hyper :
			    file[0].hyper;
		for (uint64_t i = 0; i < to->n; i++)
			t->param[t->order[to->first + i]].group = g;
	}
	return 0;
}

static int find_groups(struct trn *t, struct ckpt_err *err)
{
	const struct ck_val *lists = ck_val_get(ck_trn_root(t, TRN_IN_OWN), "groups");
	struct ck_map by_name = CK_MAP_INIT;
	int rc = 0;

	if (!lists || !has_names(t))
		return 0;
	for (uint64_t i = 0; rc >= 0 && i < t->nparams; i++)
		rc = ck_map_add(&by_name, t->param[i].name, strlen(t->param[i].name), i, NULL, err);
	if (rc >= 0)
		rc = restore_groups(t, lists, &by_name, err);
	ck_map_release(&by_name);
	return rc < 0 ? rc : 0;
}

/* ---- the whole ---- */

static void count_steps(struct trn *t)
{
	for (uint32_t k = 0; k < t->ngroups; k++) {
		struct trn_group *g = &t->group[k];

		for (uint64_t i = 0; i < g->n; i++) {
			const struct trn_param *p = &t->param[t->order[g->first + i]];

			if (!p->has_step)
				continue;
			g->step = !g->has_step || p->step > g->step ? p->step : g->step;
			g->least = !g->has_step || p->step < g->least ? p->step : g->least;
			g->has_step = true;
		}
	}
}

/* Adafactor's rows, an 8-bit optimizer's blocks. */
static void find_odd(struct trn *t, const struct ck_index *ix)
{
	for (uint64_t i = 0; !t->odd && i < t->nparams; i++) {
		const struct trn_param *p = &t->param[i];
		struct ck_val *const *item;
		uint64_t n = 0;

		if (p->tensor != CK_NONE)
			ck_val_pairs(p->state, &item, &n);
		for (uint64_t k = 0; k < n && !t->odd; k++) {
			const struct ck_tensor_ref *r = ck_val_tensor(item[2 * k + 1]);
			const char *name = ck_val_str(item[2 * k]);

			if (!r || !name || !strcmp(name, "step") ||
			    has_shape(&ix->tensor[p->tensor], r))
				continue;
			t->odd = name;
			t->odd_of = ix->tensor[p->tensor].name;
		}
	}
}

int ck_trn_params_find(struct trn *t, const struct ck_index *ix, struct ckpt_err *err)
{
	const bool named = has_names(t);
	int rc = find_order(t, ix, named, err);

	if (!rc && named)
		rc = find_names(t, ix, err);
	if (!rc)
		rc = find_groups(t, err);
	for (uint64_t i = 0; t->unproven && i < t->nparams; i++)
		t->param[i].tensor = CK_NONE;
	if (!rc)
		rc = ck_trn_drop_empty(t, err);
	if (!rc) {
		count_steps(t);
		find_odd(t, ix);
	}
	return rc;
}
