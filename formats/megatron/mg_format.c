/*
 * mg_format.c -- the driver of distributed checkpoints of Megatron-Core (torch_dist): the order in
 * which one is read.
 */
#include <string.h>

#include "formats/megatron/mg.h"
#include "formats/megatron/mg_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_val.h"

#define BACKEND "metadata.json"
#define BACKEND_MOST 65536u

static bool has_file(const struct ck_tree *tree, const char *name)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, name);

	return e && !e->is_dir;
}

/* common.pt beside .metadata is enough: of a save that did not finish there is no metadata.json. */
static int holds(const struct ck_tree *tree)
{
	return has_file(tree, DCP_METADATA) &&
	       (has_file(tree, BACKEND) || has_file(tree, MG_COMMON)) ? 68 : 0;
}

static bool is_part(const char *name, bool is_dir)
{
	return !is_dir && (!strcmp(name, DCP_METADATA) || !strcmp(name, BACKEND) ||
			   !strcmp(name, MG_COMMON) || !strcmp(name, "integrity.json") ||
			   ck_ends_with(name, ".distcp"));
}

/* ---- metadata.json ---- */

static int check_backend(struct mg *mg, const char *path, const char *text, uint64_t len,
			 struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	int rc = ck_json_parse(&doc, text, len, &mg->fs.in->limits, 0, path, err);
	const struct ck_val *v = rc ? NULL : ck_json_val(&doc, 0, &mg->fs.arena);
	const char *backend = ck_val_str(ck_val_get(v, "sharded_backend"));

	if (!rc && (!backend || strcmp(backend, "torch_dist")))
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, path, CKPT_NO_OFFSET,
			     "sharded_backend is %.40s; zckpt reads torch_dist of Megatron-Core",
			     backend ? backend : "missing");
	ck_json_release(&doc);
	return rc;
}

static int read_backend(struct mg *mg, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(&mg->fs.at.tree, BACKEND);
	char *text;
	uint64_t len;
	int rc;

	if (!e || e->is_dir) {
		char *path = ck_fs_join(mg->fs.at.where, BACKEND);

		ck_findings_add(mg->fs.f, CK_FINDING_MODEL_FILE_MISSING,
				path ? path : mg->fs.at.where,
				"missing; Megatron-Core writes it last, so the save did not "
				"finish or the copy left it out; --as-warning MODEL_FILE_MISSING "
				"reads the rest");
		ck_free(path);
		return 0;
	}
	rc = ck_look_read(mg->fs.in->pool, e->path, BACKEND_MOST, &text, &len, err);
	if (rc)
		return rc;
	ck_hasher_add(mg->fs.ix->fingerprint, text, len);
	rc = check_backend(mg, e->path, text, len, err);
	ck_free(text);
	return rc;
}

/* ---- */

void ck_mg_release(struct mg *mg)
{
	for (uint64_t i = 0; i < mg->nparams; i++)
		for (int w = 0; w < MG_STATES; w++)
			ck_free(mg->param[i].state[w].piece);
	ck_dcp_value_close(&mg->common_file);
	ck_map_release(&mg->by_key);
	ck_free(mg->param);
	ck_free(mg->target);
	ck_dcp_files_release(&mg->fs);
}

static void look_at_root(struct mg *mg)
{
	const struct ck_val *root = mg->fs.nparts ? mg->fs.part[0].doc.root : NULL;

	if (!root || root->kind != CK_VAL_OBJECT)
		return;
	mg->mcore_data = ck_val_get(ck_dcp_state_of(root), "mcore_data");
	mg->is_mcore_class = !strcmp(root->u.obj->fn->u.global.name, "MCoreMetadata");
}

static int read_all(struct mg *mg, struct ckpt_err *err)
{
	struct ck_step_finder fd = { mg->fs.in, mg->fs.f, &mg->fs.arena };
	int rc = ck_step_find(&fd, mg->fs.ix, &mg->fs.at, err);

	mg->fs.ix->format = "megatron";
	if (!rc)
		rc = read_backend(mg, err);
	if (!rc)
		rc = ck_dcp_part_open(&mg->fs, "", err);
	if (!rc)
		rc = ck_dcp_items_read(&mg->fs, err);
	if (!rc)
		rc = ck_dcp_files_give(&mg->fs, err);
	look_at_root(mg);
	if (!rc)
		rc = ck_mg_common_read(mg, err);
	if (!rc)
		rc = ck_mg_items_find(mg, err);
	if (!rc)
		rc = ck_mg_items_check(mg, err);
	if (!rc)
		rc = ck_mg_states_find(mg, err);
	if (!rc)
		rc = ck_mg_shifted_find(mg, err);
	if (!rc)
		rc = ck_mg_buckets_find(mg, err);
	if (!rc)
		rc = ck_mg_names_make(mg, err);
	return rc ? rc : ck_mg_index_fill(mg, err);
}

static int mg_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct mg *mg = ck_zalloc(sizeof(*mg));
	struct ckpt_err mine = { 0 };
	int rc;

	if (!mg)
		return ck_fail_nomem(err, "a checkpoint", sizeof(*mg));
	ck_dcp_files_init(&mg->fs, in, ix, f);
	rc = read_all(mg, err ? err : &mine);
	rc = ck_arena_why(&mg->fs.arena, rc, in->path[0], err ? err : &mine);
	ck_mg_release(mg);
	ck_free(mg);
	return rc;
}

/* ---- the driver ---- */

/* A run's folder, although it names an iteration that is missing. */
static bool names_iteration(const struct ck_tree *tree)
{
	return ck_step_keeps_iterations(tree) &&
	       has_file(tree, "latest_checkpointed_iteration.txt");
}

static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (holds(&in->tree))
		return 68;
	rc = ck_step_chosen_kind(in, &kind, &named);
	if (rc || kind)
		return rc ? rc : kind == &ck_format_megatron ? 58 : 0;
	return names_iteration(&in->tree) ? 30 : 0;
}

const struct ck_format ck_format_megatron = {
	.name = "megatron",
	.noun = "distributed checkpoint of Megatron-Core",
	.is_model = true,
	.is_step = true,
	.has_names = true,
	.probe = probe,
	.index = mg_index,
	.holds = holds,
	.is_part = is_part,
	.values = ck_mg_values,
	.write_model = ck_mg_write_model,
};
