/*
 * ck_hf_trainer_config.c -- config.json of the model of a Trainer's folder: in the folder, or given
 * by the caller.  A folder of PEFT has none; its adapter_config.json names the model, which may be
 * a folder here.
 */
#include "formats/hf_sharded/ck_hf_trainer.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"

#define ADAPTER "adapter_config.json"

static bool is_file(const char *path)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;

	return !ck_fs_kind(path, &kind, NULL) && kind == CK_FS_FILE;
}

/* 'path', or the config.json in it if that is a folder. */
static const char *in_folder(struct trn *t, const char *path)
{
	enum ck_fs_kind kind = CK_FS_NOTHING;

	return !ck_fs_kind(path, &kind, NULL) && kind == CK_FS_DIR ?
	       ck_arena_printf(&t->arena, "%s/config.json", path) : path;
}

int ck_trn_base_config(const struct ck_input *in, const struct ck_tree *tree,
		       struct ck_arena *arena, const char **path_out, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, ADAPTER);
	struct ck_json doc = CK_JSON_INIT;
	uint64_t len, tok = UINT64_MAX;
	const char *path = NULL;
	char *text = NULL;
	int rc = 0;

	*path_out = NULL;
	if (!e || ck_look_read(in->pool, e->path, in->limits.header_bytes, &text, &len, NULL))
		return 0;
	if (!ck_json_parse(&doc, text, len, &in->limits, 0, e->path, NULL) && doc.n)
		tok = ck_json_get(&doc, 0, "base_model_name_or_path");
	if (tok != UINT64_MAX && doc.tok[tok].type == CK_JSON_STRING && *doc.tok[tok].str) {
		path = ck_arena_printf(arena, "%s/config.json", doc.tok[tok].str);
		rc = path ? 0 : ck_fail_nomem(err, "a path", 0);
	}
	if (path && is_file(path))
		*path_out = path;
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

int ck_trn_config(struct trn *t, struct ck_order_config *out, char **text_out,
		  struct ckpt_err *err)
{
	int rc = 0;

	if (t->src[TRN_IN_CONFIG]) {
		out->path = t->path[TRN_IN_CONFIG];
		return ck_trn_text(t, TRN_IN_CONFIG, text_out, &out->len, err);
	}
	out->path = NULL;
	if (t->in->model_config)
		out->path = in_folder(t, t->in->model_config);
	else if (t->adapter)
		rc = ck_trn_base_config(t->in, &t->at.tree, &t->arena, &out->path, err);
	if (!rc && !out->path)
		rc = ck_fail(err, CKPT_E_NOTFOUND, t->at.where, CKPT_NO_OFFSET,
			     "config.json is missing");
	return rc ? rc : ck_file_read(out->path, t->in->limits.header_bytes, text_out, &out->len,
				      err);
}
