/*
 * sv_hf.c -- the plan of a save that is a folder of weights for transformers: safetensors files in
 * which every rank has its places, config.json, and what else of a model's folder goes along.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/save/ck_save.h"

#define SHARD_BYTES UINT64_C(5000000000)
#define CONFIG "config.json"
#define MAX_META 3u	/* beside second names */

/* Buffers that transformers makes itself are weights like others: convert writes them as well. */
static int list_items(const struct sv_spec *s, struct ck_want *want, struct ckpt_err *err)
{
	struct ck_item *item = ck_alloc_array(s->ix.ntensors + 1ull, sizeof(*item));

	if (!item)
		return ck_fail_nomem(err, "a list of tensors", s->ix.ntensors);
	want->item = item;
	for (uint32_t i = 0; i < s->ix.ntensors; i++) {
		const uint32_t state = ck_index_state_find(&s->ix, i, "weight");

		if (state == CK_NONE)	/* a second name */
			continue;
		item[want->nitems++] = (struct ck_item){
			.name = s->ix.tensor[i].name, .tensor = i, .state = state,
			.dtype = s->ix.state[state].dtype,
		};
	}
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct ck_fact *x = a, *y = b;

	return strcmp(x->key, y->key);
}

/*
 * A second name is a key of the metadata.  `convert` gives one that cannot be a key bytes of its
 * own; here each element is put once, and goes to one place.
 */
static int check_aliases(const struct sv_spec *s, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < s->ix.ntensors; i++) {
		const struct ck_tensor *t = &s->ix.tensor[i];

		if (t->role == CKPT_ROLE_ALIAS && ck_plan_is_taken_key(t->name))
			return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
				       "it is an alias of %s, and the files keep an alias as a "
				       "metadata key, but this key has another meaning there; "
				       "give the alias another name, or save it as a tensor of "
				       "its own", s->ix.tensor[t->alias_of].name);
	}
	return 0;
}

/* Nothing here tells who saved with how many ranks: the files are the same bytes. */
static int list_meta(struct sv_spec *s, struct ck_want *want, struct ckpt_err *err)
{
	struct ck_fact *meta = ck_alloc_array(s->ix.ntensors + (uint64_t)MAX_META, sizeof(*meta));
	const char *step = ck_arena_printf(&s->arena, "%" PRId64, s->now.steps);

	if (!meta || !step) {
		ck_free(meta);
		return ck_fail_nomem(err, "metadata", s->ix.ntensors);
	}
	want->meta = meta;
	meta[want->nmeta++] = (struct ck_fact){ "format", "pt" };
	meta[want->nmeta++] = (struct ck_fact){ "zckpt.global_step", step };
	meta[want->nmeta++] = (struct ck_fact){ "zckpt.version", CKPT_VERSION_STRING };
	for (uint32_t i = 0; i < s->ix.ntensors; i++) {
		const struct ck_tensor *t = &s->ix.tensor[i];

		if (t->role == CKPT_ROLE_ALIAS)
			meta[want->nmeta++] = (struct ck_fact){
				t->name, s->ix.tensor[t->alias_of].name,
			};
	}
	qsort(meta, want->nmeta, sizeof(*meta), by_key);
	return 0;
}

/* Files that go along, but for a config.json that is given. */
static bool goes_along(const struct sv_spec *s, const struct ck_format *driver,
		       const struct ck_tree_entry *e)
{
	return !e->is_dir && !e->is_odd && driver->is_aux(e->name) &&
	       !(s->hf.config && !strcmp(e->name, CONFIG));
}

/* All files beside the weights, which keep their sums; lent from 'tree'. */
static int list_beside(const struct sv_spec *s, const struct ck_format *driver,
		       const struct ck_tree *tree, struct ck_want *want, struct ckpt_err *err)
{
	const char **name = ck_alloc_array(tree->n + 1, sizeof(*name));

	if (!name)
		return ck_fail_nomem(err, "file names", tree->n);
	if (s->hf.config)
		name[want->nbeside++] = CONFIG;
	for (uint64_t i = 0; i < tree->n; i++)
		if (goes_along(s, driver, &tree->entry[i]))
			name[want->nbeside++] = tree->entry[i].name;
	want->beside = name;
	return 0;
}

static int add_config(const struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = s->hf.config ? ck_plan_file(plan, CONFIG, err) : 0;

	if (!rc && s->hf.config)
		rc = ck_plan_literal(plan, s->hf.config, strlen(s->hf.config), err);
	return rc || !s->hf.config ? rc : ck_plan_sum_file(plan, err);
}

static int add_aux(const struct sv_spec *s, const struct ck_format *driver,
		   const struct ck_tree *tree, struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < tree->n; i++) {
		const struct ck_tree_entry *e = &tree->entry[i];

		if (!goes_along(s, driver, e))
			continue;
		rc = ck_plan_file(plan, e->name, err);
		if (!rc)
			rc = ck_plan_copy(plan, e->path, 0, e->bytes, err);
		if (!rc)
			rc = ck_plan_sum_file(plan, err);
	}
	return rc;
}

/* As the plan of a step has them: within the folder of the tag. */
static int name_files(const struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < plan->nfiles; i++) {
		struct ck_outfile *f = &plan->file[i];

		f->name = ck_arena_printf(&plan->arena, "%s/%s", s->tag, f->name);
		if (!f->name)
			return ck_fail_nomem(err, "a file name", 0);
	}
	return 0;
}

int ck_sv_hf_plan(struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_format *driver = s->formats->folder;
	struct ck_want want = {
		.ix = &s->ix, .stem = "model", .state_name = "weight",
		.max_shard_bytes = s->hf.max_shard_bytes ? s->hf.max_shard_bytes : SHARD_BYTES,
		.sums = true,
	};
	struct ck_tree tree = CK_TREE_INIT;
	int rc;

	if (!driver || !driver->plan || !driver->is_aux)
		return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "this build cannot write folders of weights");
	rc = check_aliases(s, err);
	if (!rc)
		rc = list_items(s, &want, err);
	if (!rc)
		rc = list_meta(s, &want, err);
	if (!rc && s->hf.aux_dir)
		rc = ck_tree_list(&tree, &s->hf.aux_dir, 1, NULL, s->limits.files, err);
	if (!rc)
		rc = list_beside(s, driver, &tree, &want, err);
	if (!rc)
		rc = driver->plan(&want, plan, err);
	if (!rc)
		rc = add_config(s, plan, err);
	if (!rc)
		rc = add_aux(s, driver, &tree, plan, err);
	if (!rc)
		rc = name_files(s, plan, err);
	ck_tree_release(&tree);
	ck_free((void *)(uintptr_t)want.beside);
	ck_free((void *)(uintptr_t)want.item);
	ck_free((void *)(uintptr_t)want.meta);
	return rc;
}

static int copy_text(struct sv_spec *s, const char *text, const char **out, struct ckpt_err *err)
{
	*out = text ? ck_arena_strdup(&s->arena, text) : NULL;
	return !text || *out ? 0 : ck_fail_nomem(err, "a text", strlen(text));
}

int ck_sv_hf_take(struct sv_spec *s, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	int rc = copy_text(s, step->config_json, &s->hf.config, err);

	if (!rc)
		rc = copy_text(s, step->aux_dir, &s->hf.aux_dir, err);
	s->hf.max_shard_bytes = step->max_shard_bytes;
	s->hf.wanted = true;
	s->latest = false;
	return rc;
}

ck_is_ours_fn *ck_sv_hf_outputs(const struct sv_spec *s)
{
	return s->hf.wanted ? s->formats->folder->is_output : NULL;
}
