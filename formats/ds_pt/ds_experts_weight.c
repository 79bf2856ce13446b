/*
 * ds_experts_weight.c -- weights of experts into the index.  'module' of the model file has no
 * names of them.
 */
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"

/* The elements of 'w' as the weight of a tensor. */
static int add_weight(struct ds_step *ds, const struct ds_whole *w, uint32_t tensor,
		      struct ckpt_err *err)
{
	struct ds_expert *const *expert = ds->experts->sorted + w->expert;
	const struct ds_expert_tensor *t = &expert[0]->tensor[w->tensor];
	int rc = ck_index_state_begin(ds->ix, tensor, "weight", (enum ckpt_dtype)t->slice.dtype, 0,
				      err);

	if (rc)
		return rc;
	for (uint32_t i = 0; !rc && i < w->nexperts; i++)
		rc = ck_ds_extent(ds, expert[i]->file, &expert[i]->tensor[w->tensor].slice, 0,
				  t->numel, i * t->numel, err);
	if (rc) {
		ck_index_state_cancel(ds->ix);
		return rc;
	}
	return ck_index_state_end(ds->ix, NULL, err);
}

/* Lists of the model file count experts from 0 on each expert rank: what the first one is. */
static enum ckpt_role role_of(const struct ds_step *ds, const char *like)
{
	const size_t n = strlen(like);

	return ck_map_find(&ds->buffer_no, like, n, NULL) ? CKPT_ROLE_BUFFER :
	       ck_map_find(&ds->frozen_no, like, n, NULL) ? CKPT_ROLE_FROZEN :
	       ck_ds_role_of_rest(ds);
}

/* In the optimizer: the shape must be the one that the group has; '*fits_out'. */
static int add_trained(struct ds_step *ds, struct ds_group *g, struct ds_param *p,
		       const struct ds_whole *w, bool *fits_out, struct ckpt_err *err)
{
	const int rc = ck_index_add_tensor(ds->ix, p->name, p->shape, p->ndim, CKPT_ROLE_TRAINABLE,
					   &p->tensor, err);

	if (rc < 0)
		return rc;
	ds->ix->tensor[p->tensor].group = g->group;
	*fits_out = p->ndim == w->ndim &&
		    (!p->ndim || !memcmp(p->shape, w->shape, p->ndim * sizeof(*p->shape)));
	if (!*fits_out)
		ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, p->name,
				"a file of experts and param_shapes give different shapes");
	return 0;
}

static int add_whole(struct ds_step *ds, const struct ck_map *param, const struct ds_whole *w,
		     struct ckpt_err *err)
{
	bool fits = true;
	uint32_t tensor;
	uint64_t v;
	int rc;

	if (ck_map_find(&ds->in_module, w->name, strlen(w->name), NULL)) {
		ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, w->name,
				"both 'module' and a file of experts have it");
		return 0;
	}
	if (ck_map_find(param, w->name, strlen(w->name), &v)) {
		struct ds_group *g = &ds->group[v >> 32];
		struct ds_param *p = &g->param[(uint32_t)v];

		rc = add_trained(ds, g, p, w, &fits, err);
		tensor = p->tensor;
	} else {
		rc = ck_index_add_tensor(ds->ix, w->name, w->shape, w->ndim, role_of(ds, w->like),
					 &tensor, err);
	}
	return rc < 0 || !fits ? rc : add_weight(ds, w, tensor, err);
}

int ck_ds_experts_index(struct ds_step *ds, const struct ck_map *param, struct ckpt_err *err)
{
	const struct ds_experts *x = ds->experts;
	int rc = 0;

	for (uint64_t i = 0; x && !rc && i < x->nwhole; i++)
		rc = add_whole(ds, param, &x->whole[i], err);
	return rc;
}

bool ck_ds_experts_is_stack(const struct ds_step *ds, const char *name)
{
	return ds->experts && ck_ds_experts_stack(ds, name);
}

enum ckpt_dtype ck_ds_experts_dtype(const struct ds_step *ds, const char *name)
{
	enum ckpt_dtype all = (enum ckpt_dtype)0;

	if (!ck_ds_experts_is_stack(ds, name))
		return all;
	for (uint32_t g = 0; g < ds->ngroups; g++)
		for (uint32_t i = 0; i < ds->group[g].nparams; i++) {
			const char *other = ds->group[g].param[i].name;
			const enum ckpt_dtype type = ck_ds_placeholder_dtype(ds, other);

			if (type && all && type != all)
				return (enum ckpt_dtype)0;
			all = type ? type : all;
		}
	return all;
}
