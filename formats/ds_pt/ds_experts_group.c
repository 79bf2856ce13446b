/*
 * ds_experts_group.c -- param groups of experts.  param_shapes is rank 0's and counts experts from
 * 0 on every expert rank; here each group gets the names and shapes of the whole model.
 *
 * A group whose experts are spread over K expert ranks has partition_count = N / K of N ranks.  So
 * N / K ranks hold the flat run of one expert rank E, which begins with expert E * local:
 *
 *	rank = place * K + E		place 0 .. N / K - 1
 *	rank = E * (N / K) + place	with use_data_before_expert_parallelism
 *
 * All runs of a group have the same lengths and order.  AutoEP stacks: run E has an equal part of
 * each parameter along axis 0.  DeepSpeed 0.15 and 0.16 write no param_shapes beside experts: names
 * and order come from param_slice_mappings in the order of the partitions, shapes from the weights.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- names and order without param_shapes ---- */

int ck_ds_experts_count_groups(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ds->zero || !ck_val_seq(ck_val_get(ds->zero, "param_slice_mappings"), &item, &n))
		return 0;
	if (!ck_val_seq(ck_val_get(ds->zero, "single_partition_of_fp32_groups"), &item, &n) || !n)
		return 0;
	if (n > ds->in->limits.groups)
		return ck_fail_limit(err, ds->at.where, CKPT_NO_OFFSET, "groups",
				     ds->in->limits.groups, "the optimizer has %" PRIu64 " groups",
				     n);
	ds->group = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*ds->group));
	ds->experts->mapped = ck_arena_zalloc(&ds->arena, ((uint64_t)ds->world + 1) *
					      sizeof(*ds->experts->mapped));
	if (!ds->group || !ds->experts->mapped)
		return ck_fail_nomem(err, "groups", n);
	ds->ngroups = (uint32_t)n;
	ds->experts->by_mappings = true;
	return ck_ds_name_groups(ds, err);
}

/* {numel, start} of an object of class fragment_address. */
static bool length_of(const struct ck_val *v, uint64_t *out)
{
	int64_t n;

	if (!v || v->kind != CK_VAL_OBJECT ||
	    !ck_val_int(ck_val_get(v->u.obj->state, "numel"), &n) || n < 0)
		return false;
	*out = (uint64_t)n;
	return true;
}

static int take_mapping(struct ds_step *ds, const struct ds_file *file, const struct ck_val *dict,
			struct ds_mappings *out, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(dict, &item, &n) || n > UINT32_MAX)
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "an entry of param_slice_mappings is not a dictionary");
	out->item = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*out->item));
	if (!out->item)
		return ck_fail_nomem(err, "names of a partition", n);
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !length_of(item[2 * i + 1], &out->item[i].numel))
			return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
				       "entry %" PRIu64 " of param_slice_mappings has no "
				       "name or no "
				       "length", i);
		out->item[i].name = ck_arena_strdup(&ds->arena, name);
		if (!out->item[i].name)
			return ck_fail_nomem(err, "a name", 0);
	}
	out->n = (uint32_t)n;
	return 0;
}

int ck_ds_experts_take_mappings(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	const struct ck_val *zero = ck_val_get(file->pt->doc.root, "optimizer_state_dict");
	struct ds_mappings *m;
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_seq(ck_val_get(zero, "param_slice_mappings"), &item, &n) || n != ds->ngroups)
		return ck_fail(err, CKPT_E_MISMATCH, file->path, CKPT_NO_OFFSET,
			       "this shard has no param_slice_mappings of %u groups, and the "
			       "model file has no param_shapes", ds->ngroups);
	pthread_mutex_lock(&ds->lock);
	m = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*m));
	if (!m)
		rc = ck_fail_nomem(err, "names of a shard", n);
	for (uint64_t g = 0; !rc && g < n; g++)
		rc = take_mapping(ds, file, item[g], &m[g], err);
	pthread_mutex_unlock(&ds->lock);
	if (!rc)
		ds->experts->mapped[file->id.rank] = m;
	return rc;
}

/* The shape of a weight: of 'module', or of an expert of expert rank 0. */
static bool shape_of_weight(const struct ds_step *ds, const char *name, struct ds_param *out)
{
	const struct ds_experts *x = ds->experts;
	const struct ck_tensor_ref *t;
	struct ck_val *const *item;
	uint64_t i, n;

	out->name = name;
	out->tensor = CK_NONE;
	if (ck_map_find(&x->in_files, name, strlen(name), &i)) {
		out->shape = x->whole[i].shape;
		out->ndim = x->whole[i].ndim;
	} else if (ck_map_find(&ds->in_module, name, strlen(name), &i) &&
		   ck_val_pairs(ds->module, &item, &n) &&
		   (t = ck_val_tensor(item[2 * i + 1])) != NULL) {
		out->shape = t->shape;
		out->ndim = t->ndim;
	} else {
		return false;
	}
	return !ck_shape_numel(out->shape, out->ndim, &out->numel, NULL);
}

static uint32_t rank_of(const struct ds_step *ds, uint32_t ep, uint32_t place)
{
	return ds->experts->by_data ? place : place * ep;
}

/* Group 'g' from what the ranks of expert rank 0 list; a name at a border is in two of them. */
static int join_mappings(struct ds_step *ds, uint32_t g, uint32_t ep, struct ckpt_err *err)
{
	const uint32_t nplaces = ds->world / ep;
	struct ds_group *group = &ds->group[g];
	uint64_t *sum, most = 1;

	for (uint32_t p = 0; p < nplaces; p++) {
		const struct ds_mappings *m = ds->experts->mapped[rank_of(ds, ep, p)];

		if (!m)
			return 0;	/* a missing shard is an error already */
		most += m[g].n;
	}
	group->param = ck_arena_zalloc(&ds->arena, most * sizeof(*group->param));
	sum = ck_arena_zalloc(&ds->arena, most * sizeof(*sum));
	if (!group->param || !sum)
		return ck_fail_nomem(err, "a list of parameters", most);
	for (uint32_t p = 0; p < nplaces; p++) {
		const struct ds_mappings *m = &ds->experts->mapped[rank_of(ds, ep, p)][g];

		for (uint32_t i = 0; i < m->n; i++) {
			const uint32_t n = group->nparams;

			if (!i && n && !strcmp(group->param[n - 1].name, m->item[i].name)) {
				sum[n - 1] += m->item[i].numel;
				continue;
			}
			if (!shape_of_weight(ds, m->item[i].name, &group->param[n]))
				return ck_fail(err, CKPT_E_MISMATCH, ds->at.where, CKPT_NO_OFFSET,
					       "NAMES_WRONG: param_slice_mappings list %.100s, "
					       "which no file has a weight of",
					       m->item[i].name);
			sum[n] = m->item[i].numel;
			group->nparams++;
		}
	}
	for (uint32_t i = 0; i < group->nparams; i++)
		if (sum[i] != group->param[i].numel)
			return ck_fail(err, CKPT_E_MISMATCH, ds->at.where, CKPT_NO_OFFSET,
				       "NAMES_WRONG: param_slice_mappings give %.100s %" PRIu64
				       " elements, its weight has %" PRIu64, group->param[i].name,
				       sum[i], group->param[i].numel);
	return 0;
}

/* ---- local to whole ---- */

static int mismatch(const struct ds_step *ds, const char *name, const char *what,
		    struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, ds->at.where, CKPT_NO_OFFSET,
		       "NAMES_WRONG: %.100s: %s", name, what);
}

/* No layer has this parameter's files: is it one whose files are all missing? */
static int no_layer(const struct ds_step *ds, const char *name, struct ckpt_err *err)
{
	for (uint32_t l = 0; l < ds->experts->nlayers; l++)
		if (!ds->experts->layer[l].count)
			return ck_fail(err, CKPT_E_INCOMPLETE, ds->at.where, CKPT_NO_OFFSET,
				       "MODEL_FILE_MISSING: all layer_%u_expert_*_mp_rank_00_"
				       "model_states.pt are missing; num_experts says %u of them, "
				       "and the optimizer has %.100s (was the save interrupted, or "
				       "the copy partial?)", l, ds->experts->layer[l].n, name);
	return mismatch(ds, name, "the optimizer has this expert, and no file of an expert is of "
			"its layer", err);
}

static struct ds_expert_layer *layer_of(const struct ds_step *ds, const char *prefix, size_t n)
{
	uint64_t l;

	return ck_map_find(&ds->experts->by_prefix, prefix, n, &l) ? &ds->experts->layer[l] : NULL;
}

struct ds_expert_layer *ck_ds_experts_stack(const struct ds_step *ds, const char *name)
{
	const char *dot = strrchr(name, '.');
	struct ds_expert_layer *layer = dot ? layer_of(ds, name, (size_t)(dot - name)) : NULL;

	return layer && layer->autoep ? layer : NULL;
}

static int whole_shape(struct ds_step *ds, struct ds_param *p, uint32_t ep, uint32_t n,
		       struct ckpt_err *err)
{
	uint64_t *shape;

	if (!p->ndim || p->shape[0] > n || p->shape[0] * ep != n)
		return mismatch(ds, p->name, "param_shapes gives it another number of experts than "
				"the layer has on each expert rank", err);
	shape = ck_arena_alloc(&ds->arena, p->ndim * sizeof(*shape));
	if (!shape)
		return ck_fail_nomem(err, "a shape", p->ndim);
	memcpy(shape, p->shape, p->ndim * sizeof(*shape));
	shape[0] = n;
	p->shape = shape;
	return ck_shape_numel(shape, p->ndim, &p->numel, NULL) ?
	       mismatch(ds, p->name, "its shape is too large", err) : 0;
}

/* AutoEP: every parameter of the group is a stack of its layer's experts. */
static int widen_stacks(struct ds_step *ds, struct ds_group *group, uint32_t ep,
			struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < group->nparams; i++) {
		struct ds_param *p = &group->param[i];
		const struct ds_expert_layer *layer = ck_ds_experts_stack(ds, p->name);

		if (!layer || layer->ep != ep)
			return mismatch(ds, p->name, "the group is divided otherwise than "
					"ds_autoep_layers says", err);
		rc = whole_shape(ds, p, ep, layer->n, err);
	}
	group->stacked = true;
	return rc;
}

/* Local expert i of expert rank e as the whole model numbers it. */
static int rename_expert(struct ds_step *ds, const struct ds_param *local, uint32_t ep, uint32_t e,
			 struct ds_param *out, struct ckpt_err *err)
{
	const char *mark = strstr(local->name, DS_EXPERT_MARK), *rest;
	const struct ds_expert_layer *layer;
	uint32_t i = 0, n = 0;

	if (!mark)
		return mismatch(ds, local->name, "it is in a group of experts, and its name is "
				"that of no expert", err);
	layer = layer_of(ds, local->name, (size_t)(mark - local->name));
	if (!layer)
		return no_layer(ds, local->name, err);
	for (rest = mark + strlen(DS_EXPERT_MARK); *rest >= '0' && *rest <= '9' && n < 6; rest++) {
		i = i * 10 + (uint32_t)(*rest - '0');
		n++;
	}
	if (!n || *rest != '.' || layer->n % ep || i >= layer->n / ep)
		return ck_fail(err, CKPT_E_MISMATCH, ds->at.where, CKPT_NO_OFFSET,
			       "NAMES_WRONG: %.100s: each of %u expert ranks has experts from 0 "
			       "on, and num_experts says %u of the layer (a model file of another "
			       "run?)", local->name, ep, layer->n);
	*out = *local;
	out->name = ck_arena_printf(&ds->arena, "%.*s%u%s",
				    (int)(mark - local->name + (ptrdiff_t)strlen(DS_EXPERT_MARK)),
				    local->name, e * (layer->n / ep) + i, rest);
	return out->name ? 0 : ck_fail_nomem(err, "a name", 0);
}

static int number_experts(struct ds_step *ds, struct ds_group *group, uint32_t ep,
			  struct ckpt_err *err)
{
	const uint64_t most = (uint64_t)group->nparams * ep;
	struct ds_param *all;
	int rc = 0;

	if (most > UINT32_MAX)
		return ck_fail(err, CKPT_E_LIMIT, ds->at.where, CKPT_NO_OFFSET,
			       "a group of experts has %" PRIu64 " parameters", most);
	all = ck_arena_zalloc(&ds->arena, (most + 1) * sizeof(*all));
	if (!all)
		return ck_fail_nomem(err, "parameters of experts", most);
	for (uint32_t e = 0; e < ep; e++)
		for (uint32_t i = 0; !rc && i < group->nparams; i++)
			rc = rename_expert(ds, &group->param[i], ep, e,
					   &all[(uint64_t)e * group->nparams + i], err);
	group->param = all;
	group->nparams = (uint32_t)most;
	return rc;
}

static int64_t count_of(const struct ds_step *ds, uint32_t g)
{
	const struct ck_val *v = ck_val_get(ds->zero, "partition_count");
	int64_t n = 0;

	if (!ck_val_int(v, &n))
		ck_val_int(ck_val_at(v, g), &n);
	return n;
}

/* The expert ranks of group 'g', by its partition_count; its name and flag must agree. */
static int count_ranks(struct ds_step *ds, uint32_t g, uint32_t *ep_out, bool *moe_out,
		       struct ckpt_err *err)
{
	const struct ck_val *group = ck_val_at(ds->param_groups, g);
	const char *name = ck_val_str(ck_val_get(group, "name"));
	const int64_t count = count_of(ds, g);
	int64_t moe = 0;
	unsigned named;

	if (count < 1 || count > ds->world || ds->world % count)
		return ck_fail(err, CKPT_E_MISMATCH, ds->optim_file->path, CKPT_NO_OFFSET,
			       "LENGTH_WRONG: group %u is divided among %" PRId64 " ranks "
			       "(partition_count), and %u ranks wrote the step (a shard of another "
			       "run?)", g, count, ds->world);
	*ep_out = ds->world / (uint32_t)count;
	*moe_out = ds->elastic ? *ep_out > 1 :
		   ck_val_int(ck_val_get(group, "moe"), &moe) && moe;
	if (!*moe_out && *ep_out > 1)
		return ck_fail(err, CKPT_E_MISMATCH, ds->optim_file->path, CKPT_NO_OFFSET,
			       "LENGTH_WRONG: group %u is divided among %" PRId64 " of %u ranks, "
			       "and it is no group of experts (a shard of another run?)", g, count,
			       ds->world);
	if (*moe_out && name && sscanf(name, "ep_size_%u", &named) == 1 && named != *ep_out)
		return ck_fail(err, CKPT_E_MISMATCH, ds->optim_file->path, CKPT_NO_OFFSET,
			       "LENGTH_WRONG: group %u is called %.60s, but partition_count "
			       "%" PRId64 " of %u ranks means %u expert ranks (a shard of another "
			       "run?)", g, name, count, ds->world, *ep_out);
	return 0;
}

static bool is_true(const struct ck_val *v)
{
	int64_t n = 0;

	return ck_val_int(v, &n) && n;
}

/* Names are known, and which ranks have what; else the finding says what is left out. */
static bool is_placed(struct ds_step *ds, uint32_t g, uint32_t ep)
{
	const struct ds_experts *x = ds->experts;
	const struct ck_val *zero = ck_val_get(ck_ds_experts_config(ds), "zero_optimization");

	if (x->by_mappings && (!x->config_known ||
			       is_true(ck_val_get(zero, "round_robin_gradients")))) {
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
				"all states of group %u are left out: the model file has no "
				"param_shapes, and round_robin_gradients is on or not known", g);
		return false;
	}
	if (ep > 1 && ep < ds->world && !x->config_known) {
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
				"all states of group %u are left out: ds_config is not in the "
				"files, so the order of the expert ranks "
				"(use_data_before_expert_parallelism) is not known", g);
		return false;
	}
	return true;
}

static int place_group(struct ds_step *ds, uint32_t g, struct ckpt_err *err)
{
	struct ds_group *group = &ds->group[g];
	uint32_t ep = 1;
	bool moe = false;
	int rc = count_ranks(ds, g, &ep, &moe, err);

	if (rc)
		return rc;
	group->unplaced = !is_placed(ds, g, ep);
	if (ds->experts->by_mappings && !group->unplaced)
		rc = join_mappings(ds, g, ep, err);
	if (rc || !moe)
		return rc;
	group->ep = ep;
	if (group->nparams && ck_ds_experts_stack(ds, group->param[0].name))
		return widen_stacks(ds, group, ep, err);
	return ep > 1 ? number_experts(ds, group, ep, err) : 0;
}

/* A universal checkpoint has whole tensors; its model file has the shapes of expert rank 0. */
static int widen_universal(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; g < ds->ngroups; g++)
		for (uint32_t i = 0; !rc && i < ds->group[g].nparams; i++) {
			struct ds_param *p = &ds->group[g].param[i];
			const struct ds_expert_layer *layer = ck_ds_experts_stack(ds, p->name);

			if (layer)
				rc = whole_shape(ds, p, layer->ep, layer->n, err);
		}
	return rc;
}

int ck_ds_experts_place(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_val *config = ck_ds_experts_config(ds);
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	ds->experts->config_known = ck_val_pairs(config, &item, &n);
	ds->experts->by_data = is_true(ck_val_get(config, "use_data_before_expert_parallelism"));
	if (ds->no_shards)
		return widen_universal(ds, err);
	if (ds->optim_file && ds->stage == 3)
		return ck_fail(err, CKPT_E_LAYOUT, ds->optim_file->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: mixture of experts at stage 3");
	for (uint32_t g = 0; !rc && ds->optim_file && g < ds->ngroups; g++)
		rc = place_group(ds, g, err);
	return rc;
}
