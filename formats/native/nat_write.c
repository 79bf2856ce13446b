/*
 * nat_write.c -- the step in the native form: values without elements in rest*.pt, elements in
 * files of pieces, which nat_plan.c lays out (docs/formats/native.md).
 */
#include <inttypes.h>
#include <string.h>

#include "formats/native/ck_nat.h"
#include "formats/native/nat_step.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_drop.h"

/* ---- the model's values ---- */

static struct ck_val *placeholder(struct wr *w, enum ckpt_dtype dtype, struct ckpt_err *err)
{
	const uint64_t none = 0;
	uint32_t number;

	if (ck_wr_storage(w, dtype, &number, err))
		return NULL;
	return ck_wr_tensor(w, number, &none, 1, false);
}

/* A buffer of this rank alone stays; what the index has becomes a placeholder of its type. */
static struct ck_val *module_entry(struct wr *w, const char *name, struct ck_val *old,
				   uint32_t rank, struct ckpt_err *err)
{
	const struct ck_tensor *t;
	uint32_t number, s;

	if (!name || !ck_index_find(w->ix, name, &number))
		return old;
	t = &w->ix->tensor[number];
	if (t->role == CKPT_ROLE_ALIAS)
		number = (uint32_t)t->alias_of;
	s = ck_index_state_find(w->ix, number, "weight");
	if (s == CK_NONE)
		return old;
	if (rank && (w->ix->state[s].flags & CKPT_STATE_PER_RANK))
		return old;
	return placeholder(w, (enum ckpt_dtype)w->ix->state[s].dtype, err);
}

static struct ck_val *module(struct wr *w, const struct ck_val *old, uint32_t rank,
			     struct ckpt_err *err)
{
	struct ck_val *dict = ck_val_new_ordered(&w->arena);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(old, &item, &n))
		return NULL;
	for (uint64_t i = 0; dict && i < n; i++)
		dict = ck_val_dict_add(&w->arena, dict, item[2 * i],
				       module_entry(w, ck_val_str(item[2 * i]), item[2 * i + 1],
						    rank, err));
	if (dict && old->kind == CK_VAL_OBJECT)
		dict->u.obj->state = old->u.obj->state;	/* _metadata */
	return dict;
}

/* ---- the optimizer's ---- */

static struct ck_val *make_none(struct wr *w, const char *name, const void *arg,
				struct ckpt_err *err)
{
	(void)name;
	(void)arg;
	(void)err;
	return ck_val_new_none(&w->arena);
}

static struct ck_val *entry_of(struct wr *w, uint32_t g, struct ckpt_err *err)
{
	const struct ck_val *old = w->step->group[g].entry;

	return ck_wr_own_tensors(w, ck_wr_edit_entry(w, old, w->t->group[g].param[0].tensor,
						     make_none, NULL, err), old, err);
}

static struct ck_val *states(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state = ck_val_new_dict(a);

	for (uint32_t g = 0; state && g < w->t->ngroups; g++)
		if (w->t->group[g].nparams && w->step->group[g].entry)
			state = ck_val_dict_add(a, state, ck_val_new_int(a, g),
						entry_of(w, g, err));
	return state;
}

static struct ck_val *groups(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *list = ck_val_new_list(a);

	for (uint32_t g = 0; list && g < w->t->ngroups && w->step->group[g].hyper; g++) {
		const struct ck_val *old = w->step->group[g].hyper;

		list = ck_val_list_add(a, list,
				       ck_wr_own_tensors(w, ck_wr_param_group(w, old, g, err),
							 old, err));
	}
	return list;
}

static struct ck_val *optimizer(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *base = ck_val_dict_sets(a, ck_val_new_dict(a), "state", states(w, err));

	base = ck_val_dict_sets(a, base, "param_groups", groups(w, err));
	return ck_val_dict_sets(a, ck_wr_zero_rest(w, err), "base_optimizer_state", base);
}

/* ---- rest.pt ---- */

static const char *hex(struct wr *w, struct ck_hash128 id)
{
	char text[33];

	ck_hash128_print(id, text);
	return ck_arena_strdup(&w->arena, text);
}

static struct ck_val *rest_root(struct wr *w, const struct ck_val *old, uint32_t rank,
				const void *arg, struct ckpt_err *err)
{
	const struct ck_hash128 *id = arg;
	static const char *const cut[] = { "param_shapes", "shared_params", "optimizer" };
	struct ck_arena *a = &w->arena;
	struct ck_val *root = ck_val_clone(a, old);
	const char *text = hex(w, *id);

	if (!root || !text)
		return NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(cut); i++)	/* the manifest has it */
		ck_val_dict_drop(root, cut[i]);
	if (ck_val_get(root, "frozen_param_fragments"))	/* their shapes stay: see what is listed */
		root = ck_val_dict_sets(a, root, "frozen_param_fragments", ck_val_new_none(a));
	root = ck_val_dict_sets(a, root, "module", module(w, ck_val_get(old, "module"), rank, err));
	root = ck_val_dict_sets(a, root, "dp_world_size", ck_val_new_int(a, w->t->world));
	root = ck_val_dict_sets(a, root, "zckpt_id", ck_val_new_str(a, text));
	root = ck_val_dict_sets(a, root, "zckpt_rank", ck_val_new_int(a, rank));
	if (!rank)
		root = ck_val_dict_sets(a, root, "optimizer", optimizer(w, err));
	return root;
}

static int write_rest(struct wr *w, uint32_t rank, struct ck_hash128 id, struct ckpt_err *err)
{
	const char *stem = rank ? ck_arena_printf(&w->arena, "rest-%05" PRIu32, rank) : "rest";

	return ck_wr_rank_file(w, stem, rank, rank != 0, rest_root, &id, err);
}

/* A rank of the result that has rank 0's values gets no file. */
static bool has_own(const struct wr *w, uint32_t rank)
{
	return w->step->has_rank && w->step->has_rank(w->step, rank);
}

static int write_rests(struct wr *w, struct ck_hash128 id, struct ckpt_err *err)
{
	int rc = write_rest(w, 0, id, err);

	for (uint32_t r = 1; !rc && r < w->t->world; r++)
		if (has_own(w, r))
			rc = write_rest(w, r, id, err);
	return rc;
}

/* ---- tensors ---- */

/* Every state of the index that stays; a master or derived weight follows from the others. */
static int take_states(struct wr *w, struct ck_arena *a, uint32_t tensor, struct ck_nat_tensor *out,
		       struct ckpt_err *err)
{
	const struct ck_tensor *t = &w->ix->tensor[tensor];
	struct ck_nat_state *list = ck_arena_zalloc(a, (t->nstates + 1ull) * sizeof(*list));

	if (!list)
		return ck_fail_nomem(err, "states", t->nstates);
	out->state = list;
	out->tensor = tensor;
	out->group = -1;
	for (uint32_t s = t->first_state; s != CK_NONE; s = w->ix->state[s].next) {
		const struct ck_state *from = &w->ix->state[s];
		const bool model = !strcmp(from->name, "weight") || !strcmp(from->name, "master");

		if (!model && ck_step_is_dropped(w->want, from->name))
			continue;
		list[out->nstates++] = (struct ck_nat_state){
			.name = from->name, .dtype = from->dtype, .flags = from->flags,
			.state = w->want->reset && !model ? CK_NONE : s,
		};
	}
	return 0;
}

static int take_group(struct wr *w, struct ck_arena *a, uint32_t g, bool *taken,
		      struct ck_nat_tensor *list, uint64_t *n, struct ckpt_err *err)
{
	const struct tg_group *group = &w->t->group[g];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < group->nparams; i++) {
		rc = take_states(w, a, group->param[i].tensor, &list[*n], err);
		list[*n].group = (int32_t)g;
		taken[group->param[i].tensor] = true;
		++*n;
	}
	return rc;
}

/* In the order of the manifest: the optimizer's, then the index's. */
static int take_tensors(struct wr *w, struct ck_arena *a, struct ck_nat_want *want,
			struct ckpt_err *err)
{
	struct ck_nat_tensor *list = ck_arena_zalloc(a, (w->ix->ntensors + 1) * sizeof(*list));
	bool *taken = ck_arena_zalloc(a, w->ix->ntensors + 1);
	int rc = 0;

	if (!list || !taken)
		return ck_fail_nomem(err, "tensors", w->ix->ntensors);
	want->tensor = list;
	for (uint32_t g = 0; !rc && g < w->t->ngroups; g++)
		rc = take_group(w, a, g, taken, list, &want->n, err);
	want->ntrained = want->n;
	for (uint32_t t = 0; !rc && t < w->ix->ntensors; t++)
		if (!taken[t])
			rc = take_states(w, a, t, &list[want->n++], err);
	return rc;
}

/* What is counted anew after --reset-optimizer, and what depends on the ranks. */
static const char *value_of(struct wr *w, struct ck_arena *a, const struct ck_fact *f)
{
	const size_t n = strlen(f->key);

	if (!strcmp(f->key, "dp_world_size"))
		return ck_arena_printf(a, "%" PRIu32, w->t->world);
	if (w->want->reset && !strncmp(f->key, "group.", 6) && n > 5 &&
	    !strcmp(f->key + n - 5, ".step"))
		return "0";
	return f->value;
}

static int take_facts(struct wr *w, struct ck_arena *a, struct ck_nat_want *want,
		      struct ckpt_err *err)
{
	struct ck_fact *fact = ck_arena_zalloc(a, (w->ix->nfacts + 1) * sizeof(*fact));

	if (!fact)
		return ck_fail_nomem(err, "facts", w->ix->nfacts);
	want->fact = fact;
	for (uint64_t i = 0; i < w->ix->nfacts; i++) {
		const struct ck_fact *f = &w->ix->fact[i];

		/* of the folder and its ranks, not of the step */
		if (!strcmp(f->key, "universal") || !strcmp(f->key, "prefix") ||
		    !strcmp(f->key, "layout"))
			continue;
		fact[want->nfacts] = (struct ck_fact){ f->key, value_of(w, a, f) };
		if (!fact[want->nfacts++].value)
			return ck_fail_nomem(err, "facts", w->ix->nfacts);
	}
	return 0;
}

/* What is in the step's folder besides: of the source's, or of the caller's. */
static int take_along(struct wr *w, struct ck_arena *a, struct ck_nat_want *want,
		      struct ckpt_err *err)
{
	const uint64_t most = w->along.nfiles + w->want->nalong;
	const size_t skip = strlen(w->tag) + 1;
	struct ck_along *list = ck_arena_zalloc(a, (most + 1) * sizeof(*list));

	if (!list)
		return ck_fail_nomem(err, "a list of files", most);
	want->along = list;
	for (uint64_t i = 0; i < w->along.nfiles; i++)
		if (w->along.file[i].in_tag)
			list[want->nalong++] = (struct ck_along){
				w->along.file[i].name + skip, w->along.file[i].bytes,
			};
	for (uint64_t i = 0; i < w->want->nalong; i++)
		list[want->nalong++] = w->want->along[i];
	return 0;
}

/* The same source and call give the same name, so that a run that goes on writes the same bytes. */
static int make_id(struct wr *w, struct ck_hash128 *out, struct ckpt_err *err)
{
	const struct ck_hash128 from = ck_hasher_sum(w->ix->fingerprint);
	struct ck_hasher *h = ck_hasher_new();
	uint8_t text[24];

	if (!h)
		return ck_fail_nomem(err, "a hash", 0);
	ck_put_le64(text, from.lo);
	ck_put_le64(text + 8, from.hi);
	ck_put_le64(text + 16, (uint64_t)w->t->world << 1 | w->want->reset);
	ck_hasher_add(h, text, sizeof(text));
	ck_hasher_add(h, w->tag, strlen(w->tag));
	for (const char *const *p = w->want->drop; p && *p; p++)
		ck_hasher_add(h, *p, strlen(*p) + 1);
	*out = ck_hasher_sum(h);
	ck_hasher_free(h);
	return 0;
}

static int write_files(struct wr *w, struct ckpt_err *err)
{
	struct ck_arena a = CK_ARENA_INIT;	/* w->arena is one file's */
	struct ck_nat_want want = {
		.ix = w->ix, .tag = w->tag, .world = w->t->world, .ngroups = w->t->ngroups,
		.stage = w->step->format ? w->step->stage :
			 w->want->stage == 4 ? 1 : w->want->stage,
		.cut = w->want->cut, .ncuts = w->want->ncuts, .cut_rank = w->want->cut_rank,
		.alone = w->want->cut_alone,
	};
	int rc = w->step->elastic ?
		 ck_fail(err, CKPT_E_UNSUPPORTED, w->step->at.where, CKPT_NO_OFFSET,
			 "an elastic step has no hyper-parameters, so it can be written for "
			 "stages 1 and 2 only") : make_id(w, &want.id, err);

	if (!rc)
		rc = write_rests(w, want.id, err);
	if (!rc)
		rc = take_tensors(w, &a, &want, err);
	if (!rc)
		rc = take_facts(w, &a, &want, err);
	if (!rc)
		rc = take_along(w, &a, &want, err);
	if (!rc)
		rc = ck_nat_plan(&want, w->plan, err);
	ck_arena_release(&a);
	return rc;
}

int ck_nat_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err)
{
	struct tg_layout layout;
	struct wr w;
	int rc = ck_wr_init(&w, step, ix, want, plan, err);

	if (!rc && step->complete)
		rc = step->complete(step, err);
	if (!rc)
		rc = ck_ds_target_groups(step, ix, want, &layout, err);
	if (rc)
		return rc;
	ck_wr_layout(&w, &layout);
	w.by_rank = true;
	rc = ck_wr_check(&w, err);
	if (!rc)
		ck_wr_tell_own(&w);
	if (!rc)
		rc = ck_step_along_list(&w.along, err);
	if (!rc)
		rc = write_files(&w, err);
	if (!rc)
		rc = ck_step_along_plan(&w.along, plan, err);
	ck_wr_end(&w);
	return rc;
}
