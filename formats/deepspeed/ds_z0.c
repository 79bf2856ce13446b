/*
 * ds_z0.c -- stage 0: the optimizer's states, which are stored without names, and the order of
 * its parameters.  ds_z0_match.c says which names follow from the files.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_z0.h"
#include "libckpt/base/ck_err.h"

/* ---- what there is ---- */

static int list_params(struct z0 *z, struct ckpt_err *err)
{
	const struct ck_index *ix = z->ds->ix;

	z->param = ck_arena_zalloc(&z->ds->arena, (ix->ntensors + 1) * sizeof(*z->param));
	if (!z->param)
		return ck_fail_nomem(err, "a list of parameters", ix->ntensors);
	for (uint32_t i = 0; i < ix->ntensors; i++)
		if (ix->tensor[i].role != CKPT_ROLE_BUFFER && ix->tensor[i].role != CKPT_ROLE_ALIAS)
			z->param[z->nparams++].tensor = i;
	return 0;
}

/* Find the torch optimizer's dictionary and number its states. */
static int find_torch(struct z0 *z, const struct ck_val *opt, struct ckpt_err *err)
{
	const struct ck_val *inner = ck_val_get(opt, "optimizer_state_dict");
	uint64_t n;
	int rc = 0;

	if (!inner)
		inner = opt;
	z->torch_groups = ck_val_get(inner, "param_groups");
	if (!ck_val_pairs(ck_val_get(inner, "state"), &z->state, &n))
		return 0;
	for (uint64_t i = n; rc >= 0 && i > 0; i--) {	/* of two, the later one counts */
		const struct ck_val *key = z->state[2 * (i - 1)];

		if (key->kind == CK_VAL_INT)
			rc = ck_map_add(&z->by_key, (const char *)&key->u.i, sizeof(key->u.i),
					i - 1, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

/* The state of number 'i' in the 'params' of group 'g', or NULL. */
static const struct ck_val *state_of(const struct z0 *z, uint64_t g, uint64_t i)
{
	const struct ck_val *params = ck_val_get(ck_val_at(z->torch_groups, g), "params");
	uint64_t pair;
	int64_t key;

	if (!ck_val_int(ck_val_at(params, i), &key) ||
	    !ck_map_find(&z->by_key, (const char *)&key, sizeof(key), &pair))
		return NULL;
	return z->state[2 * pair + 1];
}

/* Any tensor among a parameter's states that is not its scalar step. */
static const struct ck_tensor_ref *state_tensor(const struct ck_val *state)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(state, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++)
		if (!ck_val_is_str(item[2 * i], "step") && ck_val_tensor(item[2 * i + 1]))
			return ck_val_tensor(item[2 * i + 1]);
	return NULL;
}

static int make_places(struct z0 *z, struct z0_group *g, uint64_t n, struct ckpt_err *err)
{
	if (n > z->room)	/* one list may hang in many groups */
		return ck_fail(err, CKPT_E_CORRUPT, z->ds->at.where, CKPT_NO_OFFSET,
			       "NAMES_WRONG: the optimizer's groups list more parameters than the "
			       "file has values, so some are listed twice");
	z->room -= n;
	g->place = ck_arena_zalloc(&z->ds->arena, (n + 1) * sizeof(*g->place));
	if (!g->place)
		return ck_fail_nomem(err, "a group's parameters", n);
	for (uint64_t i = 0; i < n; i++)
		g->place[i].param = CK_NONE;
	return 0;
}

static void take_slice(const struct z0 *z, const struct ck_val *v, struct ds_slice *out)
{
	if (!ck_ds_slice_of(z->file->pt, v, out))
		out->dtype = 0;
}

/* Group 'number': 'master' is its item of fp32_groups or fp32_groups_flat, if there are masters. */
static int take_group(struct z0 *z, uint32_t number, const struct ck_val *master,
		      struct ckpt_err *err)
{
	const struct ck_val *torch = ck_val_at(z->torch_groups, number);
	struct z0_group *g = &z->group[number];
	struct ck_val *const *item = NULL;
	uint64_t n = 0;
	int rc;

	g->names = ck_val_get(torch, "param_names");
	if (z->form == Z0_FLAT) {
		take_slice(z, master, &g->flat);
		g->state = state_of(z, number, 0);
		return 0;
	}
	if (!ck_val_seq(z->form == Z0_WHOLE ? master : ck_val_get(torch, "params"), &item, &n) ||
	    n > UINT32_MAX)
		return 0;
	rc = make_places(z, g, n, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct z0_place *place = &g->place[i];

		place->state = state_of(z, number, i);
		place->like = z->form == Z0_WHOLE ? ck_val_tensor(item[i]) :
			      state_tensor(place->state);
		if (z->form == Z0_WHOLE)
			take_slice(z, item[i], &place->master);
	}
	g->nplaces = rc ? 0 : (uint32_t)n;
	return rc;
}

static int take_groups(struct z0 *z, const struct ck_val *opt, struct ckpt_err *err)
{
	const struct ck_val *whole = ck_val_get(opt, "fp32_groups");
	const struct ck_val *flat = ck_val_get(opt, "fp32_groups_flat");
	const struct ck_val *list = whole ? whole : flat ? flat : z->torch_groups;
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	z->form = whole ? Z0_WHOLE : flat ? Z0_FLAT : Z0_TORCH;
	z->room = z->file->pt->doc.nodes;
	if (!ck_val_seq(list, &item, &n))
		return 0;
	if (n > z->ds->in->limits.groups)
		return ck_fail_limit(err, z->ds->at.where, CKPT_NO_OFFSET, "groups",
				     z->ds->in->limits.groups, "the optimizer has %" PRIu64 " "
					     "param groups", n);
	z->group = ck_arena_zalloc(&z->ds->arena, (n + 1) * sizeof(*z->group));
	if (!z->group)
		return ck_fail_nomem(err, "groups", n);
	z->ngroups = (uint32_t)n;
	for (uint32_t g = 0; !rc && g < n; g++)
		rc = take_group(z, g, item[g], err);
	if (!rc && z->form == Z0_FLAT) {	/* each parameter is in one group at most */
		z->pool = ck_arena_alloc(&z->ds->arena, ((uint64_t)z->nparams + 1) *
					 sizeof(*z->pool));
		rc = z->pool ? 0 : ck_fail_nomem(err, "parameters", z->nparams);
	}
	return rc;
}

/* ---- what was named ---- */

/* Elements [at, at + numel of the tensor) of 's' as a state. */
static int add_slice(struct z0 *z, uint32_t tensor, const char *name, const struct ds_slice *s,
		     uint64_t at, struct ckpt_err *err)
{
	struct ck_index *ix = z->ds->ix;
	int rc = ck_index_state_begin(ix, tensor, name, (enum ckpt_dtype)s->dtype, 0, err);

	if (!rc)
		rc = ck_ds_extent(z->ds, z->file, s, at, ix->tensor[tensor].numel, 0, err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

static bool has_shape(const struct z0 *z, uint32_t tensor, const struct ck_tensor_ref *r)
{
	const struct ck_tensor *t = &z->ds->ix->tensor[tensor];

	return r->ndim == t->ndim && ckpt_dtype_bits((enum ckpt_dtype)r->dtype) >= 8 &&
	       (!t->ndim || !memcmp(r->shape, t->shape, t->ndim * sizeof(*t->shape)));
}

/* A state that is left out: said once for each name, when all parameters are through. */
static void leave_out(struct z0 *z, uint32_t tensor, const char *name)
{
	uint32_t i = 0;

	while (i < z->nleft && strcmp(z->left[i].name, name))
		i++;
	if (i == DS_MAX_STATES)
		return;
	if (i == z->nleft)
		z->left[z->nleft++] = (struct z0_left){
			.name = name, .first = z->ds->ix->tensor[tensor].name,
		};
	z->left[i].params++;
}

static void tell_left(struct z0 *z)
{
	for (uint32_t i = 0; i < z->nleft; i++) {
		const struct z0_left *l = &z->left[i];

		ck_findings_add(z->ds->f, CK_FINDING_NOT_IN_CHECKPOINT, l->first,
				"state %.60s is left out for %" PRIu64 " parameters, this one "
				"first: %s", l->name, l->params,
				strcmp(l->name, "weight") && strcmp(l->name, "master") ?
				"it does not have the parameter's shape" :
				"its name has another meaning here");
	}
}

/* A state that is cut: of the parameter's shape, or a run of the group's flat tensor. */
static int add_state(struct z0 *z, uint32_t tensor, const struct z0_place *place,
		     const char *name, const struct ck_val *v, struct ckpt_err *err)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	const bool taken = !strcmp(name, "weight") || !strcmp(name, "master");
	struct ds_slice s;

	if (z->form == Z0_FLAT && !taken && t->numel == place->master.numel &&
	    ck_ds_slice_of(z->file->pt, v, &s))
		return add_slice(z, tensor, name, &s, place->at, err);
	if (z->form != Z0_FLAT && !taken && has_shape(z, tensor, t))
		return ck_pt_add_state(z->file->pt, t, tensor, name, z->file->source, z->ds->ix,
				       err);
	if (t->numel > 1 || taken)	/* one number is a value */
		leave_out(z, tensor, name);
	return 0;
}

/* Every state of one parameter. */
static int add_states(struct z0 *z, uint32_t tensor, const struct z0_place *place,
		      struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(place->state, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && strcmp(name, "step") && ck_val_tensor(item[2 * i + 1]))
			rc = add_state(z, tensor, place, name, item[2 * i + 1], err);
	}
	return rc;
}

static int add_master(struct z0 *z, uint32_t tensor, const struct z0_place *place,
		      struct ckpt_err *err)
{
	if (z->form == Z0_FLAT)
		return add_slice(z, tensor, "master", &place->master, place->at, err);
	if (z->form == Z0_WHOLE && place->like && has_shape(z, tensor, place->like))
		return ck_pt_add_state(z->file->pt, place->like, tensor, "master",
				       z->file->source, z->ds->ix, err);
	return 0;
}

static int add_place(struct z0 *z, uint32_t group, const struct z0_place *place,
		     struct ckpt_err *err)
{
	const uint32_t tensor = z->param[place->param].tensor;
	struct ck_tensor *t = &z->ds->ix->tensor[tensor];
	int rc;

	t->role = CKPT_ROLE_TRAINABLE;
	t->group = (int32_t)group;
	rc = add_master(z, tensor, place, err);
	return rc ? rc : add_states(z, tensor, place, err);
}

/* The optimizer's own order of its parameters, for who writes the step again. */
static int keep_order(struct z0 *z, struct ckpt_err *err)
{
	struct ds_step *ds = z->ds;
	struct ds_group *group = ck_arena_zalloc(&ds->arena,
						 ((uint64_t)z->ngroups + 1) * sizeof(*group));

	if (!group)
		return ck_fail_nomem(err, "groups", z->ngroups);
	for (uint32_t g = 0; g < z->ngroups; g++) {
		const uint32_t n = z->group[g].nplaces;

		group[g] = (struct ds_group){ .nparams = n, .group = (int32_t)g, .state_key = g };
		group[g].param = ck_arena_zalloc(&ds->arena,
						 ((uint64_t)n + 1) * sizeof(*group[g].param));
		if (!group[g].param)
			return ck_fail_nomem(err, "a group's parameters", n);
		for (uint32_t i = 0; i < n; i++) {
			const struct z0_place *place = &z->group[g].place[i];
			const uint32_t tensor = z->param[place->param].tensor;
			const struct ck_tensor *t = &ds->ix->tensor[tensor];

			group[g].param[i] = (struct ds_param){
				.name = t->name, .shape = t->shape, .ndim = t->ndim,
				.tensor = tensor, .numel = t->numel, .state = place->state,
			};
		}
	}
	ds->group = group;
	ds->ngroups = z->ngroups;
	return 0;
}

/* With every place named, what is left is in no optimizer group: frozen, as a rule. */
static void set_frozen(struct z0 *z)
{
	for (uint32_t i = 0; i < z->nparams; i++) {
		struct ck_tensor *t = &z->ds->ix->tensor[z->param[i].tensor];

		if (t->role == CKPT_ROLE_PLAIN)
			t->role = CKPT_ROLE_FROZEN;
	}
}

static int add_all(struct z0 *z, struct ckpt_err *err)
{
	uint64_t named = 0, left = 0;
	int rc = 0;

	for (uint32_t g = 0; !rc && g < z->ngroups; g++)
		for (uint32_t i = 0; !rc && i < z->group[g].nplaces; i++) {
			const struct z0_place *place = &z->group[g].place[i];

			named += place->param != CK_NONE;
			left += place->param == CK_NONE;
			if (place->param != CK_NONE)
				rc = add_place(z, g, place, err);
		}
	tell_left(z);
	if (z->form == Z0_FLAT && !named)
		left = z->nparams;
	if (left)
		ck_findings_add(z->ds->f, CK_FINDING_NOT_IN_CHECKPOINT, z->ds->at.where,
				"stage 0 stores optimizer states without names: %" PRIu64 " "
				"parameters have theirs left out, as the files do not determine "
				"them; %" PRIu64 " are named", left, named);
	if (rc || left || !named)
		return rc;
	set_frozen(z);
	return keep_order(z, err);
}

int ck_ds_index_z0(struct ds_step *ds, struct ckpt_err *err)
{
	struct z0 z = { .ds = ds, .file = ds->model_file };
	const struct ck_val *opt = ck_val_get(ds->model, "optimizer");
	int rc = list_params(&z, err);

	if (!rc)
		rc = find_torch(&z, opt, err);
	if (!rc)
		rc = take_groups(&z, opt, err);
	if (!rc) {
		ck_z0_read_weights(&z);
		rc = ck_z0_match(&z, err);
	}
	if (!rc)
		rc = add_all(&z, err);
	ck_map_release(&z.by_key);
	return rc;
}
