/*
 * op_convert_plan.c -- the files that `convert` writes: by the driver of the target, and the
 * model's configuration and tokenizer as copies.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/ops/op_convert.h"

#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)

static const struct ck_format *target(const struct ck_cv *cv)
{
	return ck_format_by_name(cv->to == CK_CV_FOLDER ? "huggingface" :
				 cv->torch ? "torch" : "safetensors");
}

/* The file's name, or the stem of a folder's files. */
static const char *stem_of(const struct ck_cv *cv, const struct ck_cv_set *set)
{
	if (cv->to == CK_CV_STREAM)
		return "stream";
	if (cv->to == CK_CV_FILE)
		return ck_fs_base(cv->dst);
	return cv->opts->states ? set->state : "model";
}

/* Second names, for a target in which they share the bytes of the first. */
static int list_aliases(struct ck_cv *cv, const struct ck_cv_set *set, struct ck_want *want,
			struct ckpt_err *err)
{
	const uint64_t n = cv->ck->ix.ntensors;
	struct ck_want_alias *alias;
	uint64_t *item;

	if (!cv->torch || !cv->sel.naliases)
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

static int plan_set(struct ck_cv *cv, struct ck_cv_set *set, struct ckpt_err *err)
{
	const struct ck_format *driver = target(cv);
	struct ck_want want = {
		.ix = &cv->ck->ix, .item = set->item, .nitems = set->nitems,
		.stem = stem_of(cv, set), .state_name = set->state,
		.max_shard_bytes = cv->opts->max_shard_bytes,
		.digest = cv->opts->flags & CKPT_CONVERT_DIGEST,
	};
	int rc;

	if (!driver || !driver->plan)
		return ck_fail(err, CKPT_E_UNSUPPORTED, cv->dst, CKPT_NO_OFFSET,
			       "this library was built without a writer for it");
	if (!want.max_shard_bytes)
		want.max_shard_bytes = DEFAULT_SHARD_BYTES;
	rc = ck_cv_make_meta(cv, set, err);
	want.meta = set->meta;
	want.nmeta = set->nmeta;
	if (!rc)
		rc = list_aliases(cv, set, &want, err);
	return rc ? rc : driver->plan(&want, &cv->plan, err);
}

/* ------------------------------------------------- configuration and tokenizer */

static bool is_planned(const struct ck_plan *plan, const char *name)
{
	for (uint64_t i = 0; i < plan->nfiles; i++)
		if (!strcmp(plan->file[i].name, name))
			return true;
	return false;
}

static int copy_wanted(struct ck_cv *cv, const struct ck_tree *tree, struct ckpt_err *err)
{
	const struct ck_format *driver = target(cv);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < tree->n; i++) {
		const struct ck_tree_entry *e = &tree->entry[i];

		if (e->is_dir || e->is_odd || !driver->is_aux || !driver->is_aux(e->name) ||
		    is_planned(&cv->plan, e->name))
			continue;
		rc = ck_plan_file(&cv->plan, e->name, err);
		if (!rc)
			rc = ck_plan_copy(&cv->plan, e->path, 0, e->bytes, err);
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
	if (!rc && above && strcmp(above, dir) && !is_planned(&cv->plan, "config.json"))
		if (copy_from(cv, above, "config.json", NULL) == -CKPT_E_NOMEM)
			rc = ck_fail_nomem(err, "a listing", 0);
	ck_free(above);
	ck_free(dir);
	return rc;
}

static int plan_aux(struct ck_cv *cv, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc;

	if (cv->opts->aux_dir) {
		rc = ck_fs_kind(cv->opts->aux_dir, &kind, err);
		if (!rc && kind != CK_FS_DIR)
			rc = ck_fail(err, CKPT_E_NOTFOUND, cv->opts->aux_dir, CKPT_NO_OFFSET,
				     "there is no folder with configuration and tokenizer files "
				     "here");
		if (rc || cv->to != CK_CV_FOLDER)
			return rc;
		return copy_from(cv, cv->opts->aux_dir, NULL, err);
	}
	if (cv->to != CK_CV_FOLDER || cv->opts->states)
		return 0;
	return copy_from_beside(cv, err);
}

int ck_cv_make_plan(struct ck_cv *cv, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < cv->nsets; i++)
		rc = plan_set(cv, &cv->set[i], err);
	if (!rc)
		rc = plan_aux(cv, err);
	return rc ? rc : ck_plan_finish(&cv->plan, err);
}

/* ---------------------------------------------------------- what --force replaces */

bool ck_cv_is_state_output(const char *name)
{
	static const char *const states[] = {
		"weight", "master", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
		"sum", "square_avg", "acc_delta", "grad_avg", "exp_inf",
	};
	static const char *const rests[] = { ".safetensors", ".safetensors.index.json" };
	static const char digits[] = "0123456789";

	for (size_t i = 0; i < CK_ARRAY_LEN(states); i++) {
		const char *p = name + strlen(states[i]);
		size_t n;

		if (strncmp(name, states[i], strlen(states[i])))
			continue;
		n = *p == '-' ? strspn(p + 1, digits) : 0;
		if (n >= 5 && !strncmp(p + 1 + n, "-of-", 4) &&
		    strspn(p + 1 + n + 4, digits) >= 5)
			p += 1 + n + 4 + strspn(p + 1 + n + 4, digits);
		if (!strcmp(p, rests[0]) || !strcmp(p, rests[1]))
			return true;
	}
	return false;
}
