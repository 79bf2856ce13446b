/*
 * op_convert_plan.c -- the files that `convert` writes: by the driver of the target, and the
 * model's configuration and tokenizer as copies.
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"

#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)

static const struct ck_format *target(const struct ck_cv *cv)
{
	const struct ck_formats *formats = cv->ck->formats;

	return cv->to == CKPT_DST_FOLDER ? formats->folder :
	       cv->to == CKPT_DST_TORCH ? formats->pickles : formats->file;
}

/* The file's name, or the stem of a folder's files. */
static const char *stem_of(const struct ck_cv *cv, const struct ck_cv_set *set)
{
	if (cv->to == CKPT_DST_STREAM)
		return "stream";
	if (cv->to != CKPT_DST_FOLDER)
		return ck_fs_base(cv->dst);
	return cv->config_text ? "adapter_model" : cv->opts->states ? set->state : "model";
}

/* Second names, for a target in which they share the bytes of the first. */
static int list_aliases(struct ck_cv *cv, const struct ck_cv_set *set, struct ck_want *want,
			struct ckpt_err *err)
{
	const uint64_t n = cv->ck->ix.ntensors;
	struct ck_want_alias *alias;
	uint64_t *item;

	if (cv->to != CKPT_DST_TORCH || !cv->sel.naliases)
		return 0;
	alias = ck_arena_alloc(&cv->arena, cv->sel.naliases * sizeof(*alias));
	item = ck_arena_zalloc(&cv->arena, n * sizeof(*item));
	if (!alias || !item)
		return ck_fail_nomem(err, "second names", cv->sel.naliases);
	for (uint64_t i = 0; i < set->nitems; i++)
		item[set->item[i].tensor] = i + 1;
	for (uint64_t i = 0; i < cv->sel.naliases; i++) {
		const struct ck_pick_alias *a = &cv->sel.alias[i];

		if (item[a->tensor])
			alias[want->naliases++] = (struct ck_want_alias){ a->name,
									  item[a->tensor] - 1 };
	}
	want->alias = alias;
	return 0;
}

/* What is copied beside the weights: the first of their files keeps the sums. */
static int list_beside(struct ck_cv *cv, struct ck_want *want, struct ckpt_err *err)
{
	const char **name = ck_arena_alloc(&cv->arena, cv->naux * sizeof(*name));

	if (!name)
		return ck_fail_nomem(err, "file names", cv->naux);
	for (uint64_t i = 0; i < cv->naux; i++)
		name[i] = cv->aux[i].name;
	want->beside = name;
	want->nbeside = cv->naux;
	return 0;
}

static int plan_set(struct ck_cv *cv, struct ck_cv_set *set, struct ckpt_err *err)
{
	const struct ck_format *driver = target(cv);
	struct ck_want want = {
		.ix = &cv->ck->ix, .item = set->item, .nitems = set->nitems,
		.stem = stem_of(cv, set), .state_name = set->state,
		.max_shard_bytes = cv->opts->max_shard_bytes,
		.digest = cv->opts->flags & CKPT_CONVERT_DIGEST,
		/* a stream sends the header before the bytes that they are of */
		.sums = !(cv->opts->flags & CKPT_CONVERT_NO_SUMS) && cv->to != CKPT_DST_STREAM,
	};
	int rc;

	if (!driver || !driver->plan)
		return ck_fail(err, CKPT_E_UNSUPPORTED, cv->dst, CKPT_NO_OFFSET,
			       "this build cannot write the format of this destination");
	if (cv->config_text)	/* PEFT reads one file */
		want.max_shard_bytes = UINT64_MAX;
	if (!want.max_shard_bytes)
		want.max_shard_bytes = DEFAULT_SHARD_BYTES;
	rc = ck_cv_make_meta(cv, set, err);
	want.meta = set->meta;
	want.nmeta = set->nmeta;
	if (!rc)
		rc = list_aliases(cv, set, &want, err);
	if (!rc && set == cv->set)
		rc = list_beside(cv, &want, err);
	return rc ? rc : driver->plan(&want, &cv->plan, err);
}

/* ------------------------------------------------- configuration and tokenizer */

static bool is_listed(const struct ck_cv *cv, const char *name)
{
	for (uint64_t i = 0; i < cv->naux; i++)
		if (!strcmp(cv->aux[i].name, name))
			return true;
	return false;
}

static int list_aux(struct ck_cv *cv, const struct ck_tree_entry *e, struct ckpt_err *err)
{
	struct ck_cv_aux aux = {
		.name = ck_arena_strdup(&cv->arena, e->name),
		.path = ck_arena_strdup(&cv->arena, e->path), .bytes = e->bytes,
	};
	int rc = aux.name && aux.path ? 0 : ck_fail_nomem(err, "a file name", strlen(e->path));

	if (!rc)
		rc = ck_grow(&cv->aux, &cv->aux_cap, cv->naux + 1, sizeof(aux), err);
	if (!rc)
		cv->aux[cv->naux++] = aux;
	return rc;
}

static int copy_wanted(struct ck_cv *cv, const struct ck_tree *tree, struct ckpt_err *err)
{
	const struct ck_format *driver = cv->ck->formats->folder;
	int rc = 0;

	for (uint64_t i = 0; !rc && driver && i < tree->n; i++) {
		const struct ck_tree_entry *e = &tree->entry[i];

		if (!e->is_dir && !e->is_odd && driver->is_aux && driver->is_aux(e->name) &&
		    !is_listed(cv, e->name))
			rc = list_aux(cv, e, err);
	}
	return rc;
}

static int plan_copies(struct ck_cv *cv, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < cv->naux; i++) {
		rc = ck_plan_file(&cv->plan, cv->aux[i].name, err);
		if (!rc && !cv->aux[i].path)
			rc = ck_plan_literal(&cv->plan, cv->config_text, cv->aux[i].bytes, err);
		else if (!rc && !strcmp(cv->aux[i].name, "config.json"))
			rc = ck_cv_plan_config(cv, &cv->aux[i], err);
		else if (!rc)
			rc = ck_plan_copy(&cv->plan, cv->aux[i].path, 0, cv->aux[i].bytes, err);
		if (!rc)
			rc = ck_plan_sum_file(&cv->plan, err);
	}
	return rc;
}

/* Copies from one folder.  'marker' (may be NULL) must be in it, else nothing is taken. */
static int copy_from(struct ck_cv *cv, const char *dir, const char *marker, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_look_list(cv->ck->pool, &tree, &dir, 1, NULL, cv->ck->limits.files, err);

	if (!rc && (!marker || ck_tree_find(&tree, marker)))
		rc = copy_wanted(cv, &tree, err);
	ck_tree_release(&tree);
	return rc;
}

/* The step's folder, and the one above it where that is a model's ("checkpoint-500"). */
static int copy_from_beside(struct ck_cv *cv, struct ckpt_err *err)
{
	const char *path = cv->ck->ix.path;
	enum ck_fs_kind kind;
	char *dir, *above = NULL;
	int rc = ck_look_kind(cv->ck->pool, path, &kind, NULL, err);

	if (rc)
		return rc;
	dir = kind == CK_FS_DIR ? ck_strdup(path) : ck_fs_parent(path);
	if (dir && kind == CK_FS_DIR)
		above = ck_fs_parent(dir);
	if (!dir || (kind == CK_FS_DIR && !above))
		rc = ck_fail_nomem(err, "a file name", strlen(path));
	if (!rc)
		rc = copy_from(cv, dir, NULL, err);
	/* a folder above that cannot be listed is no reason to stop */
	if (!rc && above && strcmp(above, dir) && !is_listed(cv, "config.json"))
		if (copy_from(cv, above, "config.json", NULL) == -CKPT_E_NOMEM)
			rc = ck_fail_nomem(err, "a listing", 0);
	ck_free(above);
	ck_free(dir);
	return rc;
}

/*
 * The configuration that the names were made with, whatever its file is called, and the tokenizer
 * in its folder.
 */
static int copy_model(struct ck_cv *cv, struct ckpt_err *err)
{
	const char *path = cv->ck->ix.model_config;
	struct ck_tree_entry e = { .name = "config.json", .path = (char *)path };
	enum ck_fs_kind kind;
	char *dir;
	int rc;

	if (!path)
		return 0;
	dir = ck_fs_parent(path);
	rc = dir ? ck_look_kind(cv->ck->pool, path, &kind, &e.bytes, err) :
		   ck_fail_nomem(err, "a file name", strlen(path));
	if (!rc && !is_listed(cv, e.name))
		rc = list_aux(cv, &e, err);
	if (!rc)
		rc = copy_from(cv, dir, NULL, err);
	ck_free(dir);
	return rc;
}

static int list_all(struct ck_cv *cv, struct ckpt_err *err)
{
	const bool asked = cv->opts->aux_dir;
	int rc = asked ? copy_from(cv, cv->opts->aux_dir, NULL, err) : copy_model(cv, err);

	if (rc)
		return rc;
	return asked ? copy_model(cv, err) : copy_from_beside(cv, err);
}

static int check_aux_dir(const struct ck_cv *cv, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(cv->opts->aux_dir, &kind, err);

	if (rc || kind == CK_FS_DIR)
		return rc;
	return ck_fail(err, CKPT_E_NOTFOUND, cv->opts->aux_dir, CKPT_NO_OFFSET,
		       "--aux takes a folder, that of the model with config.json "
		       "and the tokenizer; %s", kind == CK_FS_NOTHING ?
		       "no such folder" : "this is a file");
}

/* The configuration names the model also where no file is copied. */
int ck_cv_find_aux(struct ck_cv *cv, struct ckpt_err *err)
{
	const bool adapter = cv->opts->peft && !cv->opts->peft->merge;
	const bool copies = cv->to == CKPT_DST_FOLDER && (cv->opts->aux_dir ||
			    (!cv->opts->states && !adapter));
	int rc = cv->opts->aux_dir ? check_aux_dir(cv, err) : 0;

	if (rc)
		return rc;
	rc = list_all(cv, copies ? err : NULL);
	if (!copies)	/* a folder that cannot be listed is no reason to stop then */
		rc = rc == -CKPT_E_NOMEM ? ck_fail_nomem(err, "file names", cv->naux) : 0;
	for (uint64_t i = 0; i < cv->naux; i++)
		if (!strcmp(cv->aux[i].name, "config.json"))
			cv->config = cv->aux[i].path;
	if (!copies)
		cv->naux = 0;
	return rc;
}

int ck_cv_make_plan(struct ck_cv *cv, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < cv->nsets; i++)
		rc = plan_set(cv, &cv->set[i], err);
	if (!rc)
		rc = plan_copies(cv, err);
	return rc ? rc : ck_plan_finish(&cv->plan, err);
}
