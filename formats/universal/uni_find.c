/*
 * uni_find.c -- which folder is meant: the universal checkpoint itself, or the folder above it,
 * whose 'latest_universal' names it.
 *
 * A folder with a DeepSpeed step too ('latest') is that step unless --tag names this one.
 */
#include <string.h>

#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_mount.h"

/* Is there a universal checkpoint 'sub' below the roots? */
static int is_below(const struct ck_input *in, const char *sub, bool *out, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_tree t = CK_TREE_INIT;
	const int rc = ck_look_list(in->pool, &t, in->path, in->npaths, sub, in->limits.files,
				    &inner);

	*out = !rc && ck_ds_is_universal(&t);
	ck_tree_release(&t);
	return ck_err_take_system(rc, &inner, err);
}

int ck_uni_probe(const struct ck_input *in)
{
	bool yes;
	int rc;

	if (!in->is_dir)
		return 0;
	if (ck_ds_is_universal(&in->tree))
		return 70;
	if (in->tag) {
		rc = is_below(in, in->tag, &yes, NULL);
		return rc == -CKPT_E_NOMEM ? rc : !rc && yes ? 70 : 0;
	}
	return ck_tree_find(&in->tree, "latest_universal") ? 54 : 0;
}

static int take_latest(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	const struct ck_input *in = ds->in;
	bool yes;
	char *tag;
	int rc = ck_ds_latest(ds, &in->tree, "latest_universal", &tag, err);

	if (rc)
		return rc;
	if (!tag)
		return ck_fail(err, CKPT_E_NOTFOUND, in->path[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: the file 'latest_universal' is empty or no text (a "
			       "full disk?); --tag names a folder");
	if (ck_ds_leads_outside(tag))
		return ck_fail(err, CKPT_E_UNSAFE, in->path[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: 'latest_universal' names %s, which is outside this "
			       "folder; give that folder itself if it is meant", tag);
	rc = is_below(in, tag, &yes, err);
	if (rc)
		return rc;
	if (!yes)
		return ck_fail(err, CKPT_E_NOTFOUND, in->path[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: 'latest_universal' names %s, which is not there or "
			       "is no universal checkpoint (a folder 'zero' beside "
			       "*_model_states.pt)", tag);
	return ck_ds_take_step(ds, in->path, in->npaths, tag, "'latest_universal' names it", err);
}

int ck_uni_find(struct uni *u, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	const struct ck_input *in = ds->in;

	if (ck_ds_is_universal(&in->tree)) {
		if (in->tag && strcmp(in->tag, ck_fs_base(in->path[0])))
			return ck_fail(err, CKPT_E_USAGE, in->path[0], CKPT_NO_OFFSET,
				       "this folder is itself the checkpoint %s; --tag %s goes "
				       "with the folder above "
				       "it", ck_fs_base(in->path[0]), in->tag);
		return ck_ds_take_step(ds, in->path, in->npaths, NULL,
				       "the folder given is a universal checkpoint", err);
	}
	if (in->tag)
		return ck_ds_take_step(ds, in->path, in->npaths, in->tag, "--tag names it", err);
	return take_latest(u, err);
}
