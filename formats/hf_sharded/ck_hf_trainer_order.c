/*
 * ck_hf_trainer_order.c -- the order of parameters in the groups of a Trainer's folder that is
 * written: that of the modules, by whose numbers torch gives each its states.
 *
 * The optimizer of the source may have another one.  What the model's order is, config.json of a
 * known architecture says.  Without it the order of the state dict must be the optimizer's as well;
 * a source that does not keep that order has a finding.
 */
#include "formats/hf_sharded/ck_hf_trainer_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/step/ck_order.h"

struct placed {
	const struct ck_step_param *param;
	uint64_t at;
};

static int by_place(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* ---- what the order is ---- */

static int by_module(const struct trn_out *o, struct ck_map *out, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(ck_val_get(o->step->model, "module"), &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name)
			rc = ck_map_add(out, name, strlen(name), i, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

/* What is no parameter is set aside; with an adapter, what is not of it. */
static bool *others(const struct trn_out *o)
{
	bool *aside = ck_zalloc(o->ix->ntensors + 1ull);

	for (uint32_t i = 0; aside && i < o->ix->ntensors; i++)
		aside[i] = o->nadapter ? !ck_trn_out_is_adapter(o->ix, i) :
			   o->ix->tensor[i].role == CKPT_ROLE_BUFFER;
	return aside;
}

/* In the step's folder, or beside it; of an adapter that of the model that it is for. */
static int read_config(const struct trn_out *o, struct ck_order_config *out, char **text_out)
{
	const struct ck_step *step = o->step;
	const struct ck_tree_entry *e = ck_tree_find(&step->at.tree, "config.json");
	int rc = 0;

	if (e)
		out->path = e->path;
	else if (o->nadapter)
		rc = ck_trn_base_config(step->in, &step->at.tree, o->arena, &out->path, NULL);
	if (!rc && !out->path && !step->at.given_step && step->at.nroots)
		out->path = ck_arena_printf(o->arena, "%s/config.json", step->at.root[0]);
	if (rc || !out->path)
		return rc ? rc : -CKPT_E_NOTFOUND;
	return ck_look_read(step->in->pool, out->path, step->in->limits.header_bytes, text_out,
			    &out->len, NULL);
}

/* A config.json that does not help leaves the map empty. */
static int by_config(const struct trn_out *o, struct ck_map *out, struct ckpt_err *err)
{
	struct ck_order_config from = { .adapter = o->nadapter > 0 };
	struct ck_order order = { .n = 0 };
	bool *aside = others(o);
	char *text = NULL;
	int rc = 0;

	if (!aside)
		return ck_fail_nomem(err, "names", o->ix->ntensors);
	if (!read_config(o, &from, &text)) {
		from.text = text;
		if (ck_order_by_text(o->ix, &from, &o->step->in->limits, aside, &order, NULL))
			order.n = 0;
	}
	for (uint64_t i = 0; rc >= 0 && i < order.n; i++) {
		const char *name = o->ix->tensor[order.tensor[i]].name;

		rc = ck_map_add(out, name, strlen(name), i, NULL, err);
	}
	ck_order_release(&order);
	ck_free(text);
	ck_free(aside);
	return rc < 0 ? rc : 0;
}

/* ---- the groups ---- */

/* Where each parameter is in the order; false if one is missing there. */
static bool place(const struct trn_out_group *g, const struct ck_map *order, struct placed *out)
{
	for (uint64_t i = 0; i < g->n; i++) {
		const char *name = g->param[i]->name;

		out[i].param = g->param[i];
		if (!ck_map_find(order, name, strlen(name), &out[i].at))
			return false;
	}
	return true;
}

static void sort_group(struct trn_out *o, struct trn_out_group *g, struct placed *all)
{
	if (g->n)
		qsort(all, g->n, sizeof(*all), by_place);
	for (uint64_t i = 0; i < g->n; i++) {
		o->same_groups &= g->param[i] == all[i].param;
		g->param[i] = all[i].param;
	}
}

static const struct placed *first_behind(const struct trn_out_group *g, const struct placed *all)
{
	for (uint64_t i = 1; i < g->n; i++)
		if (all[i].at < all[i - 1].at)
			return &all[i];
	return NULL;
}

static int refuse(const struct trn_out *o, const char *name, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, o->step->at.where, CKPT_NO_OFFSET,
		       "the optimizer has %.200s in another place than the model's state dict, "
		       "and the Trainer gives states to parameters by their order, which is not "
		       "known: config.json is missing, or of another type of model; zckpt "
		       "reshard --to dcp or native keeps the whole step", name);
}

static void note_unknown(const struct trn_out *o)
{
	ck_findings_add(o->step->f, CK_FINDING_FORMAT_NOTE, o->step->at.where,
			"the order of the model's parameters is not known (config.json is missing, "
			"or of another type of model), and the Trainer gives states to parameters "
			"by their order: the optimizer's is kept");
}

/* With 'sure' a group is sorted, else it is compared. */
static int apply(struct trn_out *o, const struct ck_map *order, bool sure, bool *known_out,
		 struct ckpt_err *err)
{
	int rc = 0;

	*known_out = true;
	for (uint32_t k = 0; !rc && *known_out && k < TRN_GROUPS; k++) {
		struct trn_out_group *g = &o->group[k];
		struct placed *all = ck_alloc_array(g->n + 1, sizeof(*all));
		const struct placed *behind;

		if (!all)
			return ck_fail_nomem(err, "a param group", g->n);
		*known_out = place(g, order, all);
		behind = *known_out && !sure ? first_behind(g, all) : NULL;
		if (behind)
			rc = refuse(o, behind->param->name, err);
		else if (*known_out && sure)
			sort_group(o, g, all);
		ck_free(all);
	}
	return rc;
}

int ck_trn_out_sort(struct trn_out *o, struct ckpt_err *err)
{
	struct ck_map order = CK_MAP_INIT;
	bool known = false;
	int rc;

	if (!o->step->format)	/* the caller of a save gives them in order */
		return 0;
	rc = by_config(o, &order, err);
	if (!rc)
		rc = apply(o, &order, true, &known, err);
	if (!rc && !known && !o->step->reordered) {
		ck_map_release(&order);
		rc = by_module(o, &order, err);
		if (!rc)
			rc = apply(o, &order, false, &known, err);
	}
	if (!rc && !known)
		note_unknown(o);
	ck_map_release(&order);
	return rc;
}
