/*
 * rk_format.c -- the driver of FSDP's rank files: the order in which a folder is read.
 *
 * verl has a run's folder, in it global_step_N, and in that a folder for each model, "actor" and
 * "critic".  Any of the three may be given.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

/* The models of verl, the first first. */
static const char *const models[] = { "actor", "critic", "ref", "rm" };

/* "global_step_3/actor": the folder around a model is a step of verl. */
static bool is_in_step(const struct ck_tree_entry *e)
{
	const char *end = strrchr(e->path, '/'), *begin = end;

	while (begin && begin > e->path && begin[-1] != '/')
		begin--;
	return begin && !strncmp(begin, "global_step", 11);
}

static const struct ck_tree_entry *model_in(const struct ck_tree *tree)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(models); i++) {
		const struct ck_tree_entry *e = ck_tree_find(tree, models[i]);

		if (e && e->is_dir && is_in_step(e))
			return e;
	}
	return NULL;
}

static bool has_whole_model(const struct ck_tree *tree)
{
	return ck_tree_find(tree, "model.safetensors") ||
	       ck_tree_find(tree, "model.safetensors.index.json") ||
	       ck_tree_find(tree, "pytorch_model.bin");
}

static int holds(const struct ck_tree *tree)
{
	switch (ck_rk_names_in(tree)) {
	case RK_VERL:
	case RK_ACCEL:
		return 64;
	case RK_WHOLE:
		return has_whole_model(tree) ? 0 : 61;
	case RK_TC:
		return 60;
	default:
		return model_in(tree) ? 20 : 0;
	}
}

static bool is_part(const char *name, bool is_dir)
{
	struct rk_name id;

	for (size_t i = 0; is_dir && i < CK_ARRAY_LEN(models); i++)
		if (!strcmp(name, models[i]))
			return true;
	return !is_dir && (ck_rk_name_read(name, &id) || !strcmp(name, RK_TC_INDEX) ||
			   !strcmp(name, "fsdp_config.json"));
}

/* ---- the folder with the files ---- */

static void note_others(struct rk *r, const struct ck_tree_entry *taken)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(models); i++) {
		const struct ck_tree_entry *e = ck_tree_find(&r->at.tree, models[i]);

		if (e && e->is_dir && e != taken)
			ck_findings_add(r->f, CK_FINDING_FILE_UNKNOWN, e->path,
					"another model of the step, which is not read; give this "
					"folder to read it");
	}
}

static int list_model(struct rk *r, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = model_in(&r->at.tree);
	const char *path;

	if (ck_rk_names_in(&r->at.tree) || !e) {
		path = r->at.given_step ? NULL : r->ix->tag;
		r->sub = "";
		r->where = r->at.where;
	} else {
		path = r->at.given_step ? e->name :
		       ck_arena_printf(&r->arena, "%s/%s", r->ix->tag, e->name);
		r->sub = ck_arena_strdup(&r->arena, e->name);
		r->where = ck_arena_printf(&r->arena, "%s/%s", r->at.where, e->name);
		if (!path || !r->sub || !r->where)
			return ck_fail_nomem(err, "a path", 0);
		note_others(r, e);
	}
	return ck_look_list(r->in->pool, &r->tree, r->at.root, r->at.nroots, path,
			    r->in->limits.files, err);
}

static int find_files(struct rk *r, struct ckpt_err *err)
{
	int rc = list_model(r, err);

	if (rc)
		return rc;
	r->naming = (uint8_t)ck_rk_names_in(&r->tree);
	if (!r->naming)
		return ck_fail(err, CKPT_E_NOTFOUND, r->where, CKPT_NO_OFFSET,
			       "it has no file model_world_size_N_rank_R.pt: a model of verl that "
			       "FSDP did not save, or an incomplete copy");
	return ck_rk_files_open(r, err);
}

/* ---- */

static void release(void *of)
{
	struct rk *r = of;

	for (uint64_t i = 0; i < r->nfiles; i++) {
		ck_pt_close(r->file[i].pt);
		ck_src_close(r->file[i].src);
		ck_findings_release(&r->file[i].notes);
	}
	for (uint64_t i = 0; i < r->ntensors; i++) {
		ck_free(r->tensor[i].weight.block);
		for (struct rk_state *s = r->tensor[i].state; s; s = s->next)
			ck_free(s->block);
	}
	ck_free(r->file);
	ck_free(r->tensor);
	ck_free(r->id);
	ck_map_release(&r->by_name);
	ck_map_release(&r->by_id);
	ck_rk_tc_release(r->tc);
	ck_tree_release(&r->tree);
	ck_tree_release(&r->at.tree);
	ck_arena_release(&r->arena);
	ck_free(r);
}

static int read_all(struct rk *r, struct ckpt_err *err)
{
	struct ck_step_finder fd = { r->in, r->f, &r->arena };
	int rc = ck_step_find(&fd, r->ix, &r->at, err);

	r->ix->format = "fsdp";
	if (!rc)
		rc = find_files(r, err);
	if (!rc)
		rc = ck_rk_files_add(r, err);
	if (!rc)
		rc = ck_rk_extra_open(r, err);
	if (!rc)
		rc = ck_rk_model_read(r, err);
	if (!rc)
		rc = ck_rk_optim_read(r, err);
	if (!rc && r->tc)
		rc = ck_rk_tc_check(r, err);
	return rc ? rc : ck_rk_index_fill(r, err);
}

static int rk_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct rk *r = ck_alloc(sizeof(*r));
	struct ckpt_err mine = { 0 };
	int rc;

	if (!r)
		return ck_fail_nomem(err, "a step", sizeof(*r));
	if (!err)
		err = &mine;	/* findings are made of it */
	*r = (struct rk){ .in = in, .ix = ix, .f = f };
	r->arena.limit = in->limits.memory_bytes;
	rc = read_all(r, err);
	rc = ck_arena_why(&r->arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, r, release);
	return rc;
}

static int probe(const struct ck_input *in)
{
	return ck_step_bid(in, &ck_format_fsdp_ranks, 64, 57);
}

const struct ck_format ck_format_fsdp_ranks = {
	.name = "fsdp",
	.noun = "checkpoint of FSDP",
	.is_model = true,
	.is_step = true,
	.probe = probe,
	.index = rk_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = ck_rk_read_step,
	.write_step = ck_rk_write_step,
};
