/*
 * ds_experts_file.c -- files of experts: layer_<l>_expert_<e>_mp_rank_00_model_states.pt is a bare
 * dictionary of one expert's tensors, whose keys have the number e of the whole model.
 *
 *     PREFIX.deepspeed_moe.experts.deepspeed_experts.<e>.REST  a tensor of the model
 *     PREFIX.<w>.<e>  AutoEP: row e of the stack PREFIX.<w>
 *
 * All experts of a layer have the same tensors, so the first one says what the others must have.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- one file ---- */

static int copy_tensor(struct ds_step *ds, const char *name, const struct ck_tensor_ref *t,
		       struct ds_expert_tensor *out, struct ckpt_err *err)
{
	uint64_t *shape;

	pthread_mutex_lock(&ds->lock);
	out->name = ck_arena_strdup(&ds->arena, name);
	shape = ck_arena_alloc(&ds->arena, ((uint64_t)t->ndim + 1) * sizeof(*shape));
	pthread_mutex_unlock(&ds->lock);
	if (!out->name || !shape)
		return ck_fail_nomem(err, "a tensor of an expert", t->ndim);
	if (t->ndim)
		memcpy(shape, t->shape, t->ndim * sizeof(*shape));
	out->shape = shape;
	out->ndim = t->ndim;
	out->numel = t->numel;
	return 0;
}

static int take_item(struct ds_step *ds, struct ds_file *file, struct ck_val *const *item,
		     struct ds_expert *expert, struct ckpt_err *err)
{
	const struct ck_tensor_ref *t = ck_val_tensor(item[1]);
	struct ds_expert_tensor *out = &expert->tensor[expert->n];
	const char *name = ck_val_str(item[0]);
	int rc;

	if (!name || !t)
		return ck_fail(err, CKPT_E_MISMATCH, file->path, CKPT_NO_OFFSET,
			       "an entry of this expert is not a tensor with a name");
	if (!ck_ds_slice_of(file->pt, item[1], &out->slice))
		return ck_fail(err, CKPT_E_LAYOUT, file->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: %.100s is not a contiguous tensor", name);
	rc = copy_tensor(ds, name, t, out, err);
	if (!rc)
		expert->n++;
	return rc;
}

/* Stage 0 keeps an optimizer in each; with ZeRO it is None, or the shards count. */
static void look_at_optimizer(struct ds_step *ds, struct ds_expert *expert,
			      const struct ck_val *root)
{
	const struct ck_val *v = ck_val_get(root, "optimizer");
	const struct ck_val *inner = ck_val_get(v, "optimizer_state_dict");

	expert->optim_none = v && ck_val_is_none(v);
	expert->optim_there = v && !ck_val_is_none(v);
	expert->ep = ck_ds_experts_named(ck_val_get(inner ? inner : v, "param_groups"));

	pthread_mutex_lock(&ds->lock);
	ds->experts->optim_none |= v && ck_val_is_none(v);
	ds->experts->optim_there |= v && !ck_val_is_none(v);
	pthread_mutex_unlock(&ds->lock);
}

int ck_ds_experts_take(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	struct ds_expert *expert = &ds->experts->of_file[file - ds->file];
	const struct ck_val *root = file->pt->doc.root;
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(root, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "this file of experts holds no dictionary");
	if (file->id.kind == DS_EXPERT_OPTIM) {
		look_at_optimizer(ds, expert, root);
		return 0;
	}
	pthread_mutex_lock(&ds->lock);
	expert->tensor = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*expert->tensor));
	pthread_mutex_unlock(&ds->lock);
	if (!expert->tensor)
		return ck_fail_nomem(err, "an expert's tensors", n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_item(ds, file, item + 2 * i, expert, err);
	if (!rc)
		expert->file = file;
	return rc;
}

/* ---- all of them ---- */

static int by_number(const void *a, const void *b)
{
	const struct ds_name *x = &(*(struct ds_expert *const *)a)->file->id;
	const struct ds_name *y = &(*(struct ds_expert *const *)b)->file->id;

	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int sort_experts(struct ds_step *ds, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;

	x->sorted = ck_arena_alloc(&ds->arena, (ds->nfiles + 1) * sizeof(*x->sorted));
	if (!x->sorted)
		return ck_fail_nomem(err, "a list of experts", ds->nfiles);
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (x->of_file[i].file)
			x->sorted[x->nsorted++] = &x->of_file[i];
	qsort(x->sorted, x->nsorted, sizeof(*x->sorted), by_number);
	for (uint32_t i = 0; i < x->nsorted; i++) {
		struct ds_expert_layer *layer = &x->layer[x->sorted[i]->file->id.layer];

		if (!layer->count++)
			layer->first = i;
	}
	return 0;
}

/* Files of experts that num_experts does not count are not read. */
static void tell_extra(struct ds_step *ds)
{
	const struct ds_experts *x = ds->experts;

	for (uint64_t i = 0; i < ds->nfiles; i++) {
		const struct ds_file *file = &ds->file[i];

		if (file->id.kind != DS_EXPERT)
			continue;
		if (file->id.layer >= x->nlayers)
			ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
					"this is an expert of layer %u, but the model has %u "
					"layers with experts (left over from another model?)",
					file->id.layer, x->nlayers);
		else if (file->id.rank >= x->layer[file->id.layer].n)
			ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
					"this is expert %u of layer %u, which has %u experts (left "
					"over from a model with more?)", file->id.rank,
					file->id.layer, x->layer[file->id.layer].n);
	}
}

static void tell_missing(struct ds_step *ds, uint32_t l, uint32_t e, uint32_t until)
{
	const struct ds_expert_layer *layer = &ds->experts->layer[l];
	const char *path = ck_arena_printf(&ds->arena, "%s/layer_%u_expert_%u_mp_rank_00_"
					   "model_states.pt", ds->at.where, l, e);

	if (until - e > 1)
		ck_findings_add(ds->f, CK_FINDING_MODEL_FILE_MISSING, path ? path : ds->at.where,
				"experts %u to %u of layer %u have no file; %u of %u have one (was "
				"the save interrupted, or the copy partial?)", e, until - 1, l,
				layer->count, layer->n);
	else
		ck_findings_add(ds->f, CK_FINDING_MODEL_FILE_MISSING, path ? path : ds->at.where,
				"expert %u of layer %u has no file; %u of %u have one (was the "
				"save interrupted, or the copy partial?)", e, l, layer->count,
				layer->n);
}

static int check_whole(struct ds_step *ds, uint32_t l, struct ckpt_err *err)
{
	struct ds_expert_layer *layer = &ds->experts->layer[l];
	bool *has = ck_zalloc((uint64_t)layer->n + 1);
	uint32_t e = 0, until;

	if (!has)
		return ck_fail_nomem(err, "a list of experts", layer->n);
	for (uint64_t i = 0; i < ds->nfiles; i++) {
		const struct ds_name *id = &ds->file[i].id;

		if (id->kind == DS_EXPERT && id->layer == l && id->rank < layer->n)
			has[id->rank] = true;	/* also if damaged, which an error says already */
	}
	/* a universal checkpoint has masters alone */
	while (e < layer->n && !ds->no_shards) {
		for (until = e; until < layer->n && !has[until]; until++)
			;
		if (until > e)
			tell_missing(ds, l, e, until);
		e = until + 1;
	}
	layer->whole = layer->count == layer->n;
	ck_free(has);
	return 0;
}

/* ---- keys ---- */

/* The number at 'p', which nothing but 'end' may follow; written as DeepSpeed does. */
static bool number_at(const char *p, char end, uint32_t *out, const char **rest_out)
{
	uint32_t v = 0, n = 0;

	while (p[n] >= '0' && p[n] <= '9' && n < 7)
		v = v * 10 + (uint32_t)(p[n++] - '0');
	if (!n || n > 6 || (n > 1 && *p == '0') || p[n] != end)
		return false;
	*out = v;
	*rest_out = p + n;
	return true;
}

/* Take a key apart; false if it is none of an expert. */
static bool parse_key(const struct ds_expert_layer *layer, struct ds_expert_tensor *t, uint32_t *e)
{
	const char *p;

	if (layer->autoep) {
		const size_t n = strlen(layer->prefix);

		p = strrchr(t->name, '.');
		if (strncmp(t->name, layer->prefix, n) || t->name[n] != '.' || p <= t->name + n)
			return false;
		p++;
	} else {
		p = strstr(t->name, DS_EXPERT_MARK);
		if (!p)
			return false;
		p += strlen(DS_EXPERT_MARK);
	}
	t->stem = (size_t)(p - t->name);
	return number_at(p, layer->autoep ? 0 : '.', e, &t->rest);
}

static void tell_wrong(struct ds_step *ds, struct ds_expert *expert, const char *key,
		       const char *what)
{
	expert->wrong = true;
	ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, expert->file->path,
			"%.100s: %s", key, what);
}

static bool check_keys(struct ds_step *ds, const struct ds_expert_layer *layer,
		       struct ds_expert *expert)
{
	for (uint32_t i = 0; i < expert->n; i++) {
		uint32_t e = 0;

		if (!parse_key(layer, &expert->tensor[i], &e)) {
			tell_wrong(ds, expert, expert->tensor[i].name,
				   "this is no key of an expert of the layer (a file of another "
				   "layer or model?)");
			return false;
		}
		if (e == expert->file->id.rank)
			continue;
		expert->wrong = true;
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_SWAPPED, expert->file->path,
				"its name says expert %u, its keys say expert %u (was a file "
				"renamed or copied over another?)", expert->file->id.rank, e);
		return false;
	}
	return true;
}

static bool same_tensor(const struct ds_expert_tensor *a, const struct ds_expert_tensor *b)
{
	return a->stem == b->stem && !memcmp(a->name, b->name, a->stem) &&
	       !strcmp(a->rest, b->rest) && a->ndim == b->ndim &&
	       a->slice.dtype == b->slice.dtype &&
	       (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)));
}

static void compare(struct ds_step *ds, const struct ds_expert *first, struct ds_expert *expert)
{
	for (uint32_t i = 0; i < expert->n && i < first->n; i++)
		if (!same_tensor(&first->tensor[i], &expert->tensor[i])) {
			tell_wrong(ds, expert, expert->tensor[i].name,
				   "the other experts of the layer have another tensor in this "
				   "place (a file of another layer or model?)");
			return;
		}
	if (expert->n == first->n)
		return;
	expert->wrong = true;
	ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, expert->file->path,
			"%u tensors here, %u in %s (a file of another layer or model?)", expert->n,
			first->n, first->file->name);
}

/* The part of the keys in front of the mark is what tells layers apart. */
static int name_layer(struct ds_step *ds, uint32_t l, struct ds_expert *first,
		      struct ckpt_err *err)
{
	const size_t mark = strlen(DS_EXPERT_MARK);
	struct ds_expert_layer *layer = &ds->experts->layer[l];
	uint64_t other;
	int rc;

	if (layer->autoep || !first->n)
		return 0;
	layer->prefix = ck_arena_strndup(&ds->arena, first->tensor[0].name,
					 first->tensor[0].stem - mark);
	if (!layer->prefix)
		return ck_fail_nomem(err, "a name", 0);
	rc = ck_map_add(&ds->experts->by_prefix, layer->prefix, strlen(layer->prefix), l, &other,
			err);
	if (rc == 1) {
		first->wrong = true;
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_SWAPPED, first->file->path,
				"its name says layer %u, its keys are those of layer %" PRIu64
				" (was a file renamed or copied over another?)", l, other);
		return 0;
	}
	return rc;
}

/*
 * Files that were saved under other names do not say what the others must have, unless all are
 * such.
 */
static bool skip_swapped(const struct ds_step *ds, const struct ds_expert_layer *layer)
{
	for (uint32_t i = 0; i < layer->count; i++)
		if (!ck_ds_is_swapped(ds->experts->sorted[layer->first + i]->file))
			return true;
	return false;
}

static int check_layer(struct ds_step *ds, uint32_t l, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;
	struct ds_expert_layer *layer = &x->layer[l];
	const bool skip = skip_swapped(ds, layer);
	struct ds_expert *first = NULL;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < layer->count; i++) {
		struct ds_expert *expert = x->sorted[layer->first + i];

		if (skip && ck_ds_is_swapped(expert->file)) {
			expert->wrong = true;
			continue;
		}
		if (!check_keys(ds, layer, expert))
			continue;
		if (first) {
			compare(ds, first, expert);
			continue;
		}
		first = expert;
		rc = name_layer(ds, l, first, err);
	}
	for (uint32_t i = 0; i < layer->count; i++)
		layer->whole &= !x->sorted[layer->first + i]->wrong;
	return rc;
}

/* ---- tensors of the model ---- */

static int add_whole(struct ds_step *ds, const struct ds_whole *w, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;
	int rc;

	if (!w->name || !w->like)
		return ck_fail_nomem(err, "a name", 0);
	rc = ck_map_add(&x->in_files, w->name, strlen(w->name), x->nwhole, NULL, err);
	if (rc == 1) {
		ck_findings_add(ds->f, CK_FINDING_NAMES_WRONG, w->name,
				"files of experts have this name twice");
		return 0;
	}
	if (!rc)
		x->whole[x->nwhole++] = *w;
	return rc;
}

static int add_own(struct ds_step *ds, uint32_t l, uint32_t at, struct ckpt_err *err)
{
	const struct ds_expert *expert = ds->experts->sorted[at];
	int rc = 0;

	for (uint32_t k = 0; !rc && k < expert->n; k++) {
		const struct ds_expert_tensor *t = &expert->tensor[k];
		const struct ds_whole w = {
			.name = t->name, .shape = t->shape, .ndim = t->ndim, .layer = l,
			.expert = at, .nexperts = 1, .tensor = k,
			.like = ck_arena_printf(&ds->arena, "%.*s0%s", (int)t->stem, t->name,
						t->rest),
		};

		rc = add_whole(ds, &w, err);
	}
	return rc;
}

/* AutoEP: the rows of all experts, one after the other. */
static int add_stack(struct ds_step *ds, uint32_t l, struct ckpt_err *err)
{
	const struct ds_expert_layer *layer = &ds->experts->layer[l];
	const struct ds_expert *first = ds->experts->sorted[layer->first];
	int rc = 0;

	for (uint32_t k = 0; !rc && k < first->n; k++) {
		const struct ds_expert_tensor *t = &first->tensor[k];
		const char *name = ck_arena_strndup(&ds->arena, t->name, t->stem - 1);
		uint64_t *shape = ck_arena_alloc(&ds->arena, (t->ndim + 1) * sizeof(*shape));
		const struct ds_whole w = {
			.name = name, .like = name, .shape = shape, .ndim = t->ndim + 1, .layer = l,
			.expert = layer->first, .nexperts = layer->n, .tensor = k,
		};

		if (!shape)
			return ck_fail_nomem(err, "a shape", t->ndim);
		shape[0] = layer->n;
		if (t->ndim)
			memcpy(shape + 1, t->shape, t->ndim * sizeof(*shape));
		rc = add_whole(ds, &w, err);
	}
	return rc;
}

static int list_wholes(struct ds_step *ds, struct ckpt_err *err)
{
	struct ds_experts *x = ds->experts;
	uint64_t room = 1;
	int rc = 0;

	for (uint32_t i = 0; i < x->nsorted; i++)
		room += x->sorted[i]->n;
	x->whole = ck_arena_alloc(&ds->arena, room * sizeof(*x->whole));
	if (!x->whole)
		return ck_fail_nomem(err, "tensors of experts", room);
	for (uint32_t l = 0; !rc && l < x->nlayers; l++) {
		const struct ds_expert_layer *layer = &x->layer[l];

		if (layer->autoep && layer->whole)
			rc = add_stack(ds, l, err);
		for (uint32_t i = 0; !rc && !layer->autoep && i < layer->count; i++)
			if (!x->sorted[layer->first + i]->wrong)
				rc = add_own(ds, l, layer->first + i, err);
	}
	return rc;
}

int ck_ds_experts_gather(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = sort_experts(ds, err);

	if (rc)
		return rc;
	tell_extra(ds);
	for (uint32_t l = 0; !rc && l < ds->experts->nlayers; l++) {
		rc = check_whole(ds, l, err);
		if (!rc)
			rc = check_layer(ds, l, err);
	}
	return rc ? rc : list_wholes(ds, err);
}
