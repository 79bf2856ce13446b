/*
 * mg_common.c -- what is no tensor: common.pt, or from 0.19 on the item 'common_state', and in it
 * the args of the run.  A pickle is read as a tree; no class of it is needed.
 */
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

#define COMMON_ITEM "common_state/shard_"

/* ---- the dictionary ---- */

/* An item of bytes is a list with one value. */
static const struct ck_val *value_in_item(const struct dcp_item *it)
{
	const struct ck_val *v = ck_dcp_value_of(it), *one = ck_val_at(v, 0);

	return one ? one : v;
}

const struct ck_val *ck_mg_common_in_items(const struct mg *mg)
{
	for (uint64_t i = 0; i < mg->fs.nitems; i++)
		if (!mg->fs.item[i].is_tensor &&
		    !strncmp(mg->fs.item[i].flat, COMMON_ITEM, strlen(COMMON_ITEM)))
			return value_in_item(&mg->fs.item[i]);
	return NULL;
}

static int open_common(struct mg *mg, const char *path, struct ckpt_err *err)
{
	struct ck_index *ix = mg->fs.ix;
	struct ckpt_err inner = { 0 };
	struct ck_src *src;
	uint8_t tail[8];
	uint32_t source;
	int rc = ck_src_open(mg->fs.in->pool, path, &src, err);

	if (rc)
		return rc;
	ck_put_le64(tail, ck_src_size(src));
	ck_hasher_add(ix->fingerprint, MG_COMMON, sizeof(MG_COMMON));
	ck_hasher_add(ix->fingerprint, tail, sizeof(tail));
	rc = ck_index_add_source(ix, path, src, -1, &source, err);
	if (rc)
		return rc;
	rc = ck_pt_open(ix->source[source].src, &mg->fs.in->limits, 0, NULL,
			&mg->common_file.pt, &inner);
	if (!rc) {
		ck_hasher_add(ix->fingerprint, &mg->common_file.pt->fingerprint,
			      sizeof(mg->common_file.pt->fingerprint));
		mg->common = mg->common_file.pt->doc.root;
		return 0;
	}
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_UNSAFE || rc == -CKPT_E_LIMIT)
		return ck_fail(err, inner.code, path, inner.offset, "%s", inner.msg);
	ck_findings_add(mg->fs.f, CK_FINDING_FILE_DAMAGED, path, "%s", inner.msg);
	return 0;
}

static int find_common(struct mg *mg, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(&mg->fs.at.tree, MG_COMMON);
	struct ck_val *const *pair;
	uint64_t n;
	int rc = 0;

	mg->common = ck_mg_common_in_items(mg);
	if (mg->common) {
		mg->has_common_item = true;
	} else if (e && !e->is_dir) {
		const char *path = ck_arena_strdup(&mg->fs.arena, e->path);

		rc = path ? open_common(mg, path, err) : ck_fail_nomem(err, "a path", 0);
	} else {
		char *path = ck_fs_join(mg->fs.at.where, MG_COMMON);

		ck_findings_add(mg->fs.f, CK_FINDING_MODEL_FILE_MISSING,
				path ? path : mg->fs.at.where,
				"missing, and '.metadata' has no item common_state, which "
				"Megatron-Core 0.19 writes in its place (was the copy partial?)");
		ck_free(path);
	}
	if (!rc && mg->common && !ck_val_pairs(mg->common, &pair, &n)) {
		ck_findings_add(mg->fs.f, CK_FINDING_FILE_DAMAGED, mg->fs.at.where,
				"the common state is no dictionary");
		mg->common = NULL;
	}
	return rc;
}

/* ---- args ---- */

static uint64_t size_in(const struct ck_val *args, const char *key)
{
	int64_t n;

	return ck_val_int(ck_val_get(args, key), &n) && n > 0 ? (uint64_t)n : 0;
}

static bool flag_in(const struct ck_val *args, const char *key)
{
	int64_t n;

	return ck_val_int(ck_val_get(args, key), &n) && n;
}

static void take_args(struct mg_model *m, const struct ck_val *args)
{
	m->has_args = true;
	m->layers = size_in(args, "num_layers");
	m->hidden = size_in(args, "hidden_size");
	m->heads = size_in(args, "num_attention_heads");
	m->groups = flag_in(args, "group_query_attention") ||
		    !ck_val_get(args, "group_query_attention") ?
		    size_in(args, "num_query_groups") : 0;
	m->groups = m->groups ? m->groups : m->heads;
	m->head_size = size_in(args, "kv_channels");
	if (!m->head_size && m->heads && m->hidden % m->heads == 0)
		m->head_size = m->hidden / m->heads;
	m->ffn = size_in(args, "ffn_hidden_size");
	m->experts = size_in(args, "num_experts");
	m->expert_ffn = size_in(args, "moe_ffn_hidden_size");
	m->shared_ffn = size_in(args, "moe_shared_expert_intermediate_size");
	m->vocab = size_in(args, "vocab_size");
	m->padded_vocab = size_in(args, "padded_vocab_size");
	m->tp = size_in(args, "tensor_model_parallel_size");
	m->pp = size_in(args, "pipeline_model_parallel_size");
	m->vpp = size_in(args, "virtual_pipeline_model_parallel_size");
	m->ep = size_in(args, "expert_model_parallel_size");
	m->etp = size_in(args, "expert_tensor_parallel_size");
	m->cp = size_in(args, "context_parallel_size");
	m->dp = size_in(args, "data_parallel_size");
	m->world = size_in(args, "world_size");
	m->swiglu = flag_in(args, "swiglu");
	m->grouped = flag_in(args, "moe_grouped_gemm");
	m->knows_tied = ck_val_get(args, "untie_embeddings_and_output_weights") != NULL;
	m->tied = m->knows_tied && !flag_in(args, "untie_embeddings_and_output_weights");
}

int ck_mg_common_read(struct mg *mg, struct ckpt_err *err)
{
	int64_t n;
	int rc = find_common(mg, err);

	if (rc || !mg->common)
		return rc;
	mg->content = ck_val_get(mg->common, "content_metadata");
	mg->args = ck_dcp_state_of(ck_val_get(mg->common, "args"));
	if (mg->args)
		take_args(&mg->model, mg->args);
	if (ck_val_int(ck_val_get(mg->common, "iteration"), &n) && n >= 0)
		mg->fs.ix->step = n;
	return 0;
}
