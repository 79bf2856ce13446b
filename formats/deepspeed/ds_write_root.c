/* ds_write_root.c -- what stands beside the tag folder of a step that is written. */
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

/* Plain files beside the tag folder that go along: scripts, configs, a trainer's state. */
static bool goes_along(const struct ck_tree_entry *e)
{
	return !e->is_dir && !e->is_odd && strcmp(e->name, "latest") &&
	       strcmp(e->name, "latest_universal") && strncmp(e->name, "rng_state", 9);
}

static int copy_beside(struct wr *w, const struct ck_tree *root, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < root->n; i++) {
		const struct ck_tree_entry *e = &root->entry[i];

		if (!goes_along(e))
			continue;
		rc = ck_plan_file(w->plan, e->name, err);
		if (!rc)
			rc = ck_plan_copy(w->plan, e->path, 0, e->bytes, err);
	}
	return rc;
}

/* rng_state_R.pth of a trainer: rank r takes that of source rank r mod N. */
static int copy_rng(struct wr *w, const struct ck_tree *root, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t r = 0; !rc && r < w->t->world; r++) {
		const struct ck_tree_entry *e;
		char from[40], to[40];

		snprintf(from, sizeof(from), "rng_state_%u.pth", r % w->ds->world);
		snprintf(to, sizeof(to), "rng_state_%u.pth", r);
		e = ck_tree_find(root, from);
		if (!e || e->is_dir)
			continue;
		rc = ck_plan_file(w->plan, to, err);
		if (!rc)
			rc = ck_plan_copy(w->plan, e->path, 0, e->bytes, err);
	}
	return rc;
}

/* 'latest' names the step; it is the last file of the plan. */
int ck_wr_root(struct wr *w, struct ckpt_err *err)
{
	struct ck_tree root = CK_TREE_INIT;
	char *dir = ck_fs_parent(w->ds->where);
	int rc = dir ? 0 : ck_fail_nomem(err, "a path", 0);

	if (!rc && !w->ds->given_step) {
		const char *one = dir;

		rc = ck_tree_list(&root, &one, 1, NULL, w->ds->in->limits.files, err);
		if (!rc)
			rc = copy_beside(w, &root, err);
		if (!rc)
			rc = copy_rng(w, &root, err);
	}
	if (!rc)
		rc = ck_plan_file(w->plan, "latest", err);
	if (!rc)
		rc = ck_plan_literal(w->plan, w->tag, strlen(w->tag), err);
	ck_tree_release(&root);
	ck_free(dir);
	return rc;
}
