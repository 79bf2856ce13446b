/*
 * ds_model.c -- the model file into tensors: roles, stored weights, buffers, frozen
 * parameters, tied names.  Optimizer states come later (ds_z12.c, ds_z3.c).
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/include/ckpt_zero.h"

#define MAX_CHAIN 64	/* names of names of one tensor */

struct pending {
	uint32_t tensor;
	const char *kept;	/* name it is an alias of */
};

struct names {
	struct ds_step *ds;
	struct ck_map param;	/* name -> group << 32 | number */
	struct ck_map place;	/* ck_pt_view_key() -> pair number in 'module' */
	struct ck_map shared;	/* alias -> pair number in shared_params */
	struct ck_map fragment;	/* name -> pair number in frozen_param_fragments */
	struct ck_val *const *shared_item, *const *fragment_item;
	struct ck_val *const *item;	/* of 'module' */
	uint64_t n;
	struct pending *pending;
	uint64_t npending;
	bool starved;	/* memory was wanting for a comparison */
};

static const struct ck_tensor_ref *tensor_at(const struct names *nm, uint64_t i)
{
	return ck_val_tensor(nm->item[2 * i + 1]);
}

static bool is_stage3(const struct ds_step *ds)
{
	return ds->model_rank != NULL;
}

/* (0,) since 0.6.0, (1,) before. */
static bool is_placeholder(const struct ds_step *ds, const struct ck_tensor_ref *t)
{
	if (!is_stage3(ds) || t->ndim != 1)
		return false;
	if (t->shape[0] == 0)
		return true;
	return t->shape[0] == 1 && ds->version[0] == 0 && ds->version[1] < 6 &&
	       ds->version[1] > 0;
}

static int map_params(struct names *nm, struct ckpt_err *err)
{
	struct ds_step *ds = nm->ds;
	int rc = 0;

	for (uint64_t g = 0; rc >= 0 && g < ds->ngroups; g++)
		for (uint64_t i = 0; rc >= 0 && i < ds->group[g].nparams; i++) {
			const char *name = ds->group[g].param[i].name;

			rc = ck_map_add(&nm->param, name, strlen(name), g << 32 | i, NULL, err);
			if (rc == 1)
				ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, name,
						"param_shapes has this name twice");
		}
	return rc < 0 ? rc : 0;
}

/* The string keys of a dictionary; of two alike the later one counts. */
static int map_keys(const struct ck_val *dict, struct ck_map *map,
		    struct ck_val *const **item_out, struct ckpt_err *err)
{
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(dict, item_out, &n))
		return 0;
	for (uint64_t i = n; rc >= 0 && i > 0; i--) {
		const char *key = ck_val_str((*item_out)[2 * (i - 1)]);

		if (key)
			rc = ck_map_add(map, key, strlen(key), i - 1, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

/* The value that map_keys() found for a name, or NULL. */
static const struct ck_val *mapped(const struct ck_map *map, struct ck_val *const *item,
				   const char *name)
{
	uint64_t i;

	return ck_map_find(map, name, strlen(name), &i) ? item[2 * i + 1] : NULL;
}

/* Placeholders of one storage are one tensor. */
static const char *view_of(struct names *nm, const struct ck_tensor_ref *t, size_t *n_out)
{
	const char *key = ck_pt_view_key(&nm->ds->arena, t, 0, n_out);

	nm->starved |= !key;
	return key;
}

/* Are both elements of one storage?  '*same_out': the same ones, in the same way. */
static bool one_storage(struct names *nm, const struct ck_tensor_ref *a,
			const struct ck_tensor_ref *b, bool *same_out)
{
	const char *x, *y;
	size_t n, m;

	if (!a || !b || !a->numel || a->storage != b->storage)
		return false;
	x = view_of(nm, a, &n);
	y = view_of(nm, b, &m);
	*same_out = x && y && n == m && !memcmp(x, y, n);
	return true;
}

/* Remember where each parameter lies: the optimizer's names before all others. */
static int map_places(struct names *nm, bool params, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < nm->n; i++) {
		const struct ck_tensor_ref *t = tensor_at(nm, i);
		const char *name = ck_val_str(nm->item[2 * i]);
		const char *key;
		size_t len;

		if (!t || !name || ck_map_find(&nm->ds->buffer_no, name, strlen(name), NULL) ||
		    ck_map_find(&nm->param, name, strlen(name), NULL) != params)
			continue;
		if (!t->numel && !is_stage3(nm->ds))
			continue;
		key = view_of(nm, t, &len);
		if (!key)
			return ck_fail_nomem(err, "a name", 0);
		rc = ck_map_add(&nm->place, key, len, i, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

/* A stored weight: the model's own tensor. */
static int add_weight(struct ds_step *ds, uint32_t tensor, const struct ck_tensor_ref *t,
		      struct ckpt_err *err)
{
	const struct ds_file *file = ds->model_file;

	if (ds->piped)
		return ck_ds_pipe_add_weight(ds, tensor, t, err);
	return ck_pt_add_state(file->pt, t, tensor, "weight", file->source, ds->ix, err);
}

static bool same_shape(const struct ck_tensor_ref *t, const uint64_t *shape, uint32_t ndim)
{
	return t->ndim == ndim && (!ndim || !memcmp(t->shape, shape, ndim * sizeof(*shape)));
}

static int new_tensor(struct names *nm, const char *name, const uint64_t *shape, uint32_t ndim,
		      enum ckpt_role role, uint32_t *out, struct ckpt_err *err)
{
	const int rc = ck_index_add_tensor(nm->ds->ix, name, shape, ndim, role, out, err);

	return rc < 0 ? rc : 0;
}

static int add_param(struct names *nm, uint64_t where, const struct ck_tensor_ref *t,
		     struct ckpt_err *err)
{
	struct ds_step *ds = nm->ds;
	struct ds_group *g = &ds->group[where >> 32];
	struct ds_param *p = &g->param[(uint32_t)where];
	int rc = new_tensor(nm, p->name, p->shape, p->ndim, CKPT_ROLE_TRAINABLE, &p->tensor, err);

	if (rc)
		return rc;
	ds->ix->tensor[p->tensor].group = g->group;
	if (!t || is_placeholder(ds, t))
		return 0;
	if (same_shape(t, p->shape, p->ndim))
		return add_weight(ds, p->tensor, t, err);
	ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, p->name,
			"'module' and param_shapes give different shapes (%" PRIu64 " and %" PRIu64
			" elements)", t->numel, p->numel);
	return 0;
}

/* Copies of a buffer in the model files of the other ranks. */
static int add_buffer_copies(struct ds_step *ds, uint64_t number, uint32_t tensor,
			     const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t r = 0; !rc && r < ds->world; r++) {
		const struct ds_model_rank *m = &ds->model_rank[r];

		if (!m->file || m->file == ds->model_file || m->buffer[number].numel != t->numel ||
		    m->buffer[number].dtype != t->dtype)
			continue;
		rc = ck_index_state_begin(ds->ix, tensor, "weight", (enum ckpt_dtype)t->dtype, 0,
					  err);
		if (!rc)
			rc = ck_ds_extent(ds, m->file, &m->buffer[number], 0, t->numel, 0, err);
		if (!rc)
			rc = ck_index_state_end(ds->ix, NULL, err);
		if (rc)
			ck_index_state_cancel(ds->ix);
	}
	return rc;
}

static int add_buffer(struct names *nm, const char *name, uint64_t number,
		      const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	uint32_t tensor;
	int rc = new_tensor(nm, name, t->shape, t->ndim, CKPT_ROLE_BUFFER, &tensor, err);

	if (!rc)
		rc = add_weight(nm->ds, tensor, t, err);
	if (!rc && is_stage3(nm->ds))
		rc = add_buffer_copies(nm->ds, number, tensor, t, err);
	return rc;
}

static int refuse_quantised(const struct ds_step *ds, const char *name, enum ckpt_dtype have,
			    enum ckpt_dtype want, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->at.where, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: quantised frozen parameters: the fragment of %s is %s, "
		       "the parameter %s, and the scales were not saved", name,
		       ckpt_dtype_name(have), ckpt_dtype_name(want));
}

/* Stage 3: each rank's model file holds ceil(n / N) slots of a frozen parameter. */
static int add_fragments(struct ds_step *ds, uint64_t number, uint32_t tensor,
			 enum ckpt_dtype placeholder, struct ckpt_err *err)
{
	const struct ds_named *d = &ds->frozen[number];
	const uint64_t part = ckpt_z3_part_numel(d->numel, ds->world);
	int rc = 0;

	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_model_rank *m = &ds->model_rank[r];

		if (!m->file)
			return 0;	/* the missing file is a finding already */
		if (m->frozen[number].dtype && m->frozen[number].dtype != placeholder)
			return refuse_quantised(ds, d->name, m->frozen[number].dtype, placeholder,
						err);
		if (!m->frozen[number].dtype || m->frozen[number].numel != part) {
			ck_ds_length_wrong(ds, m->file, d->name, m->frozen[number].numel, part);
			return 0;
		}
	}
	rc = ck_index_state_begin(ds->ix, tensor, "weight", placeholder, 0, err);
	for (uint32_t r = 0; !rc && r < ds->world; r++)
		rc = ck_ds_extent(ds, ds->model_rank[r].file, &ds->model_rank[r].frozen[number], 0,
			       ckpt_z3_valid_numel(d->numel, ds->world, r), r * part, err);
	if (!rc)
		rc = ck_index_state_end(ds->ix, NULL, err);
	if (rc)
		ck_index_state_cancel(ds->ix);
	return rc;
}

/* Stage 2 keeps a second copy of each frozen parameter beside 'module'. */
static int add_frozen_copy(struct names *nm, const char *name, uint32_t tensor,
			   const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	const struct ck_tensor_ref *f = ck_val_tensor(mapped(&nm->fragment, nm->fragment_item,
							     name));
	bool same = false;

	if (!f || f->numel != t->numel || f->dtype != t->dtype ||
	    (one_storage(nm, f, t, &same) && same))
		return 0;
	return add_weight(nm->ds, tensor, f, err);
}

static int add_frozen(struct names *nm, uint64_t number, const struct ck_tensor_ref *t,
		      struct ckpt_err *err)
{
	struct ds_step *ds = nm->ds;
	const struct ds_named *d = &ds->frozen[number];
	uint32_t tensor;
	int rc = new_tensor(nm, d->name, d->shape, d->ndim, CKPT_ROLE_FROZEN, &tensor, err);

	if (rc)
		return rc;
	if (is_placeholder(ds, t))
		return add_fragments(ds, number, tensor, (enum ckpt_dtype)t->dtype, err);
	if (!same_shape(t, d->shape, d->ndim)) {
		ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, d->name,
				"'module' and frozen_param_shapes give different shapes");
		return 0;
	}
	rc = add_weight(ds, tensor, t, err);
	return rc ? rc : add_frozen_copy(nm, d->name, tensor, t, err);
}

static int add_alias(struct names *nm, const char *name, const uint64_t *shape, uint32_t ndim,
		     const char *kept, struct ckpt_err *err)
{
	uint32_t tensor;
	int rc = new_tensor(nm, name, shape, ndim, CKPT_ROLE_ALIAS, &tensor, err);

	if (!rc)
		nm->pending[nm->npending++] = (struct pending){ tensor, kept };
	return rc;
}

/* Shape of a name that is stored: from the optimizer's or the frozen list, or 'module'. */
static bool shape_of_name(const struct names *nm, const char *name, const uint64_t **shape,
			  uint32_t *ndim)
{
	const struct ck_tensor_ref *t;
	uint64_t v;

	if (ck_map_find(&nm->param, name, strlen(name), &v)) {
		const struct ds_param *p = &nm->ds->group[v >> 32].param[(uint32_t)v];

		*shape = p->shape;
		*ndim = p->ndim;
		return true;
	}
	if (ck_map_find(&nm->ds->frozen_no, name, strlen(name), &v)) {
		*shape = nm->ds->frozen[v].shape;
		*ndim = nm->ds->frozen[v].ndim;
		return true;
	}
	if (!ck_map_find(&nm->ds->in_module, name, strlen(name), &v))
		return false;
	t = tensor_at(nm, v);
	if (!t || is_placeholder(nm->ds, t))
		return false;
	*shape = t->shape;
	*ndim = t->ndim;
	return true;
}

/* 'kept' is what shared_params says: NULL if it cannot be. */
static const char *shared_name(struct names *nm, const char *name, const struct ck_tensor_ref *t,
			       const char *kept)
{
	const char *what = NULL;
	const uint64_t *shape;
	bool same = false;
	uint32_t ndim;
	uint64_t i;

	if (is_placeholder(nm->ds, t) || !shape_of_name(nm, kept, &shape, &ndim))
		return kept;
	if (!same_shape(t, shape, ndim))
		what = "their shapes differ";
	else if (ck_map_find(&nm->ds->in_module, kept, strlen(kept), &i) &&
		 one_storage(nm, tensor_at(nm, i), t, &same) && !same)
		what = "they are two views of one storage";
	if (!what)
		return kept;
	ck_findings_add(nm->ds->f, CK_FINDING_ALIAS_DOUBTFUL, name,
			"shared_params names it an alias of %s, but %s; it is kept as a tensor "
			"of its own", kept, what);
	return NULL;
}

/* The name that 'name' shares its elements with, or NULL. */
static const char *kept_name(struct names *nm, const char *name, uint64_t i,
			     const struct ck_tensor_ref *t)
{
	const char *kept = ck_val_str(mapped(&nm->shared, nm->shared_item, name)), *key;
	const uint64_t *shape;
	uint32_t ndim;
	uint64_t first;
	size_t n;

	if (kept && strcmp(kept, name) && shape_of_name(nm, kept, &shape, &ndim))
		return shared_name(nm, name, t, kept);
	key = view_of(nm, t, &n);
	if (!key || !ck_map_find(&nm->place, key, n, &first) || first == i)
		return NULL;
	kept = ck_val_str(nm->item[2 * first]);
	if (!kept || !shape_of_name(nm, kept, &shape, &ndim))
		return NULL;
	return is_placeholder(nm->ds, t) || same_shape(t, shape, ndim) ? kept : NULL;
}

/* Why a parameter is in no list: by what the files say, else by the version. */
static const char *why_placeholder(const struct ds_step *ds)
{
	const struct ck_val *v = ck_val_get(ds->model, "frozen_param_shapes");

	if (ds->frozen_listed)
		return "it is in no optimizer group";
	if (v && ck_val_is_none(v))
		return "frozen parameters were excluded when it was saved";
	if (ds->version[0] || ds->version[1] >= 9)
		return "no list of frozen parameters is in the model file";
	return "DeepSpeed before 0.9 saved no frozen parameters at stage 3";
}

static int add_rest(struct names *nm, const char *name, const struct ck_tensor_ref *t,
		    struct ckpt_err *err)
{
	struct ds_step *ds = nm->ds;
	uint32_t tensor;
	int rc;

	if (is_placeholder(ds, t)) {
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, name,
				"the step has only a placeholder of it (%s), so it is left out",
				why_placeholder(ds));
		return 0;
	}
	rc = new_tensor(nm, name, t->shape, t->ndim, ck_ds_role_of_rest(ds), &tensor, err);
	return rc ? rc : add_weight(ds, tensor, t, err);
}

static int add_entry(struct names *nm, uint64_t i, struct ckpt_err *err)
{
	const char *name = ck_val_str(nm->item[2 * i]);
	const struct ck_tensor_ref *t = tensor_at(nm, i);
	const uint64_t *shape;
	const char *kept;
	uint64_t v;
	uint32_t ndim;

	if (!name || ck_val_is_none(nm->item[2 * i + 1]))
		return 0;
	if (!t) {
		ck_findings_add(nm->ds->f, CK_FINDING_TENSOR_OPAQUE, name,
				"this entry of 'module' is not a plain tensor; it is left out");
		return 0;
	}
	if (ck_map_find(&nm->param, name, strlen(name), &v))
		return add_param(nm, v, t, err);
	if (ck_map_find(&nm->ds->buffer_no, name, strlen(name), &v))
		return add_buffer(nm, name, v, t, err);
	if (ck_map_find(&nm->ds->frozen_no, name, strlen(name), &v))
		return add_frozen(nm, v, t, err);
	kept = kept_name(nm, name, i, t);
	if (kept && shape_of_name(nm, kept, &shape, &ndim))
		return add_alias(nm, name, shape, ndim, kept, err);
	return add_rest(nm, name, t, err);
}

/* Names are aliases of each other, or of nothing: leave this one without data. */
static void drop_alias(struct names *nm, uint64_t i)
{
	struct ck_tensor *t = &nm->ds->ix->tensor[nm->pending[i].tensor];

	t->role = CKPT_ROLE_UNTRAINED;
	t->alias_of = 0;
	ck_findings_add(nm->ds->f, CK_FINDING_NAMES_WRONG, t->name,
			"it is recorded as another name of %s, which is not stored either",
			nm->pending[i].kept);
}

/* An alias of an alias is one of what that one keeps. */
static void settle_aliases(struct names *nm)
{
	struct ck_index *ix = nm->ds->ix;

	for (uint64_t i = 0; i < nm->npending; i++) {
		uint32_t kept;

		if (ck_index_find(ix, nm->pending[i].kept, &kept))
			ix->tensor[nm->pending[i].tensor].alias_of = kept;
		else
			drop_alias(nm, i);
	}
	for (uint64_t i = 0; i < nm->npending; i++) {
		struct ck_tensor *t = &ix->tensor[nm->pending[i].tensor];
		uint64_t kept = t->alias_of;

		if (t->role != CKPT_ROLE_ALIAS)
			continue;
		for (int k = 0; k < MAX_CHAIN && ix->tensor[kept].role == CKPT_ROLE_ALIAS; k++)
			kept = ix->tensor[kept].alias_of;
		t->alias_of = kept;
		if (ix->tensor[kept].role == CKPT_ROLE_ALIAS)
			drop_alias(nm, i);
	}
}

/* Parameters that 'module' lacks: the master is all there is. */
static int add_missing(struct names *nm, struct ckpt_err *err)
{
	struct ds_step *ds = nm->ds;
	int rc = 0;

	for (uint64_t g = 0; !rc && g < ds->ngroups; g++)
		for (uint64_t i = 0; !rc && i < ds->group[g].nparams; i++) {
			const char *name = ds->group[g].param[i].name;
			uint32_t old;

			if (ck_index_find(ds->ix, name, &old))
				continue;
			/* ds_pipe.c says what is missing */
			if (!ds->piped && (!ds->no_shards || !ck_ds_experts_dtype(ds, name)))
				ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, name,
					"'module' lacks its weight; %s", ds->optim_whole ?
					"its fp32 master is used" : "no other file has it");
			rc = add_param(nm, g << 32 | i, NULL, err);
		}
	return rc;
}

/* Buffers and frozen parameters that are listed, but not in 'module'. */
static void tell_missing(struct ds_step *ds, const struct ds_named *d, uint64_t n,
			 const char *list)
{
	uint32_t old;

	for (uint64_t i = 0; i < n; i++)
		if (!ck_index_find(ds->ix, d[i].name, &old))
			ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, d[i].name,
					"%s lists it, but 'module' has no tensor of this "
					"name", list);
}

/* A frozen parameter or buffer that the optimizer has as well. */
static void tell_double(struct names *nm, const struct ds_named *d, uint64_t n, const char *list)
{
	for (uint64_t i = 0; i < n; i++)
		if (ck_map_find(&nm->param, d[i].name, strlen(d[i].name), NULL))
			ck_findings_add(nm->ds->f, CK_FINDING_NAMES_WRONG, d[i].name,
					"both param_shapes and %s list it", list);
}

static void warn_excluded(struct ds_step *ds)
{
	const struct ck_val *v = ck_val_get(ds->model, "frozen_param_shapes");

	if (ds->stage >= 2 && v && ck_val_is_none(v))
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->model_file->path,
				"saved with exclude_frozen_parameters: frozen parameters, if the "
				"model has any, are not in the files, not even by name");
}

int ck_ds_index_model(struct ds_step *ds, struct ckpt_err *err)
{
	struct names nm = { .ds = ds };
	int rc;

	ck_val_pairs(ds->module, &nm.item, &nm.n);
	nm.pending = ck_arena_zalloc(&ds->arena, (nm.n + 1) * sizeof(*nm.pending));
	if (!nm.pending)
		return ck_fail_nomem(err, "names", nm.n);
	rc = map_params(&nm, err);
	if (!rc)
		rc = map_keys(ck_val_get(ds->model, "shared_params"), &nm.shared, &nm.shared_item,
			      err);
	if (!rc)
		rc = map_keys(ck_val_get(ds->model, "frozen_param_fragments"), &nm.fragment,
			      &nm.fragment_item, err);
	if (!rc)
		rc = map_places(&nm, true, err);
	if (!rc)
		rc = map_places(&nm, false, err);
	for (uint64_t i = 0; !rc && i < nm.n; i++)
		rc = add_entry(&nm, i, err);
	if (!rc)
		rc = ck_ds_experts_index(ds, &nm.param, err);
	if (!rc && nm.starved)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = add_missing(&nm, err);
	if (!rc) {
		settle_aliases(&nm);
		tell_double(&nm, ds->buffer, ds->nbuffers, "buffer_names");
		tell_double(&nm, ds->frozen, ds->nfrozen, "frozen_param_shapes");
		tell_missing(ds, ds->buffer, ds->nbuffers, "buffer_names");
		tell_missing(ds, ds->frozen, ds->nfrozen, "frozen_param_shapes");
		warn_excluded(ds);
	}
	ck_map_release(&nm.param);
	ck_map_release(&nm.shared);
	ck_map_release(&nm.fragment);
	ck_map_release(&nm.place);
	return rc;
}
