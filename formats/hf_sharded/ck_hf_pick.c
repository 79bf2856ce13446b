/*
 * ck_hf_pick.c -- see ck_hf_pick.h.  The order is that of transformers' from_pretrained,
 * with variants and other stems behind the plain names of each kind.
 */
#include "formats/hf_sharded/ck_hf_pick.h"

#include <inttypes.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"

static bool starts_with(const char *s, const char *start)
{
	return !strncmp(s, start, strlen(start));
}

enum ck_hf_kind ck_hf_kind_of(const char *name)
{
	if (!strcmp(name, "model.safetensors"))
		return CK_HF_ST;
	if (!strcmp(name, "model.safetensors.index.json"))
		return CK_HF_ST_INDEX;
	if (!strcmp(name, "pytorch_model.bin"))
		return CK_HF_BIN;
	if (!strcmp(name, "pytorch_model.bin.index.json"))
		return CK_HF_BIN_INDEX;
	if (strstr(name, ".safetensors.index.") && ck_ends_with(name, ".json"))
		return CK_HF_ST_INDEX_OTHER;
	if (strstr(name, ".bin.index.") && ck_ends_with(name, ".json"))
		return CK_HF_BIN_INDEX_OTHER;
	if (ck_ends_with(name, ".safetensors") &&
	    !ck_hf_is_shard_name(name, ".safetensors", NULL, NULL, NULL) &&
	    (starts_with(name, "model.") || starts_with(name, "adapter_model.") ||
	     starts_with(name, "diffusion_pytorch_model.")))
		return CK_HF_ST_OTHER;
	if (ck_ends_with(name, ".bin") && !ck_hf_is_shard_name(name, ".bin", NULL, NULL, NULL) &&
	    (starts_with(name, "pytorch_model.") || starts_with(name, "adapter_model.") ||
	     starts_with(name, "diffusion_pytorch_model.")))
		return CK_HF_BIN_OTHER;
	return CK_HF_NONE;
}

bool ck_hf_kind_is_index(enum ck_hf_kind kind)
{
	return kind == CK_HF_ST_INDEX || kind == CK_HF_ST_INDEX_OTHER ||
	       kind == CK_HF_BIN_INDEX || kind == CK_HF_BIN_INDEX_OTHER;
}

bool ck_hf_kind_is_bin(enum ck_hf_kind kind)
{
	return kind >= CK_HF_BIN;
}

enum ck_hf_kind ck_hf_best(const struct ck_tree *tree)
{
	enum ck_hf_kind best = CK_HF_NONE;

	for (uint64_t i = 0; i < tree->n; i++) {
		const enum ck_hf_kind k =
			tree->entry[i].is_dir ? CK_HF_NONE : ck_hf_kind_of(tree->entry[i].name);

		if (k && (!best || k < best))
			best = k;
	}
	return best;
}

bool ck_hf_is_base_name(const char *name, uint64_t len)
{
	if (!len || (len == 1 && name[0] == '.') || (len == 2 && !memcmp(name, "..", 2)))
		return false;
	for (uint64_t i = 0; i < len; i++) {
		const unsigned char c = (unsigned char)name[i];

		if (c < 0x20 || c == 0x7f || c == '/' || c == '\\' || c == ':')
			return false;
	}
	return true;
}

/* ------------------------------------------------------------- config.json */

/* A config that is no JSON names no weights; that it is broken is not our affair. */
static int named_by_config(const struct ck_input *in, const struct ck_tree_entry **file_out,
			   struct ckpt_err *err)
{
	const struct ck_tree_entry *config = ck_tree_find(&in->tree, "config.json");
	struct ck_json doc = CK_JSON_INIT;
	const struct ck_json_tok *v;
	struct ckpt_err why = { 0 };
	char *text = NULL;
	uint64_t len, at;
	int rc = 0;

	if (!config || config->is_dir || config->is_odd)
		return 0;
	rc = ck_look_read(in->pool, config->path, in->limits.header_bytes, &text, &len, &why);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &in->limits, 0, config->path, &why);
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO || rc == -CKPT_E_LIMIT)
		rc = ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	else if (rc)
		rc = 0;
	if (rc || !doc.n)
		goto out;
	at = ck_json_get(&doc, 0, "transformers_weights");
	if (at == UINT64_MAX || doc.tok[at].type == CK_JSON_NULL)
		goto out;
	v = &doc.tok[at];
	*file_out = v->type == CK_JSON_STRING && ck_hf_is_base_name(v->str, v->str_len) &&
				    (ck_ends_with(v->str, ".safetensors") ||
				     ck_ends_with(v->str, ".safetensors.index.json"))
			    ? ck_tree_find(&in->tree, v->str) : NULL;
	if (!*file_out)
		rc = ck_fail(err, CKPT_E_NOTFOUND, config->path, v->off,
			     "transformers_weights names \"%.120s\", which is not a safetensors "
			     "file or index in this folder", v->str ? v->str : "?");
out:
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

/* -------------------------------------------------------------------- choice */

static int no_weights(const struct ck_input *in, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < in->tree.n; i++) {
		const char *name = in->tree.entry[i].name;

		if (ck_hf_is_shard_name(name, ".safetensors", NULL, NULL, NULL) ||
		    ck_hf_is_shard_name(name, ".bin", NULL, NULL, NULL))
			return ck_fail(err, CKPT_E_INCOMPLETE, in->path[0], CKPT_NO_OFFSET,
				       "the index of the shards (%.120s) is missing, so a "
				       "missing shard cannot be detected", name);
	}
	return ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
		       "the folder holds no model weights");
}

/* What `convert --state all` wrote beside the weights, which are in shards. */
static void note_states(const struct ck_input *in, const struct ck_tree_entry *file,
			struct ck_findings *f)
{
	for (uint64_t i = 0; i < in->tree.n; i++) {
		const struct ck_tree_entry *e = &in->tree.entry[i];

		if (!e->is_dir && ck_ends_with(e->name, ".safetensors") &&
		    strncmp(e->name, "weight-", 7) && !ck_hf_kind_of(e->name))
			ck_findings_add(f, CK_FINDING_FORMAT_NOTE, e->path,
					"zckpt reads %s and ignores this file of another state; "
					"to read it, give it by itself", file->name);
	}
}

/* A rival matters if a loader might as well have taken it. */
static void note_rivals(const struct ck_input *in, const struct ck_tree_entry *file,
			enum ck_hf_kind kind, struct ck_findings *f)
{
	if (!strcmp(file->name, "weight.safetensors.index.json"))
		note_states(in, file, f);
	for (uint64_t i = 0; i < in->tree.n; i++) {
		const struct ck_tree_entry *e = &in->tree.entry[i];
		const enum ck_hf_kind k = e->is_dir ? CK_HF_NONE : ck_hf_kind_of(e->name);

		if (!k || e == file)
			continue;
		if (kind == CK_HF_ST && k == CK_HF_ST_INDEX)
			ck_findings_add(f, CK_FINDING_FORMAT_NOTE, e->path,
					"zckpt reads %s, as transformers does, and ignores "
					"this index beside it (is one of them "
					"old?)", file->name);
		else
			ck_findings_add(f, CK_FINDING_FILE_UNKNOWN, e->path,
					"zckpt reads %s and ignores this file", file->name);
	}
}

static int pick_best(const struct ck_input *in, const struct ck_tree_entry **file_out,
		     enum ck_hf_kind *kind_out, struct ckpt_err *err)
{
	const enum ck_hf_kind best = ck_hf_best(&in->tree);
	const struct ck_tree_entry *file = NULL;

	if (!best)
		return no_weights(in, err);
	for (uint64_t i = 0; i < in->tree.n; i++) {
		const struct ck_tree_entry *e = &in->tree.entry[i];

		if (e->is_dir || ck_hf_kind_of(e->name) != best)
			continue;
		if (file)
			return ck_fail(err, CKPT_E_MISMATCH, in->path[0], CKPT_NO_OFFSET,
				       "%.120s and %.120s could both be the weights; give a "
				       "folder with one of them", file->name, e->name);
		file = e;
	}
	*file_out = file;
	*kind_out = best;
	return 0;
}

int ck_hf_pick(const struct ck_input *in, struct ck_findings *f,
	       const struct ck_tree_entry **file_out, enum ck_hf_kind *kind_out,
	       struct ckpt_err *err)
{
	const struct ck_tree_entry *file = NULL;
	enum ck_hf_kind kind = CK_HF_NONE;
	int rc = named_by_config(in, &file, err);

	if (!rc && file)
		kind = ck_ends_with(file->name, ".json") ? CK_HF_ST_INDEX_OTHER : CK_HF_ST_OTHER;
	else if (!rc)
		rc = pick_best(in, &file, &kind, err);
	if (rc)
		return rc;
	note_rivals(in, file, kind, f);
	*file_out = file;
	*kind_out = kind;
	return 0;
}
