/*
 * ck_pt_format.c -- one torch file (.pt, .pth, .bin, .ckpt) as a driver: its value tree
 * into an index.
 *
 * Bids: a zip archive may be many things, so it bids low; the magic number of the legacy
 * stream is as good as certain.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_audit.h"
#include "formats/torch_pt/ck_pt_driver.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "formats/torch_pt/ck_pt_slim.h"
#include "formats/torch_pt/ck_pt_step.h"
#include "formats/torch_pt/ck_pt_write.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

static int pt_probe(const struct ck_input *in)
{
	if (in->is_dir || in->npaths != 1)
		return 0;
	if (ck_pt_is_legacy(in->head, in->head_len))
		return 80;
	return ck_pt_probe(in->head, in->head_len) ? 32 : 0;
}

/* Name, size and archive directory, as every driver feeds them. */
static void feed_fingerprint(const struct ck_pt *pt, const struct ck_input *in,
			     struct ck_index *ix)
{
	const char *slash = strrchr(in->path[0], '/');
	const char *name = slash ? slash + 1 : in->path[0];
	uint8_t tail[24];

	ck_put_le64(tail, in->bytes);
	ck_put_le64(tail + 8, pt->fingerprint.lo);
	ck_put_le64(tail + 16, pt->fingerprint.hi);
	ck_hasher_add(ix->fingerprint, name, strlen(name) + 1);
	ck_hasher_add(ix->fingerprint, tail, sizeof(tail));
}

static bool is_float(const struct ck_tensor_ref *t)
{
	return t->dtype == CKPT_F16 || t->dtype == CKPT_BF16 || t->dtype == CKPT_F32;
}

/*
 * One file of a DeepSpeed step, taken alone: its tensors are not what its user wants.  A parameter
 * that stage 3 has cut is empty, and up to 0.5.10, whose model files have no param_shapes, it has
 * one element.
 */
static void judge_part(const struct ck_pt *pt, const struct ck_input *in, struct ck_findings *f)
{
	const struct ck_val *root = pt->doc.root;
	const bool shapes = !ck_val_is_none(ck_val_get(root, "param_shapes"));
	struct ck_val *const *item;
	uint64_t n, empty = 0, ones = 0, floats = 0;

	if (!ck_val_get(root, "ds_version") ||
	    (!ck_val_get(root, "module") && !ck_val_get(root, "optimizer_state_dict")))
		return;
	if (ck_val_pairs(ck_val_get(root, "module"), &item, &n))
		for (uint64_t i = 0; i < n; i++) {
			const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);

			empty += shapes && t && t->ndim == 1 && t->shape[0] == 0;
			ones += t && t->ndim == 1 && t->shape[0] == 1 && is_float(t);
			floats += t && is_float(t);
		}
	if (!empty && ones > 1 && 2 * ones > floats)
		ck_findings_add(f, CK_FINDING_PLACEHOLDERS_ONLY, in->path[0],
				"a model file of a ZeRO stage-3 step: %" PRIu64 " of its tensors "
				"are placeholders of one element, the parameters are in the shards "
				"beside it; give the folder that holds it", ones);
	else if (empty)
		ck_findings_add(f, CK_FINDING_PLACEHOLDERS_ONLY, in->path[0],
				"a model file of a ZeRO stage-3 step: %" PRIu64 " of its tensors "
				"are empty placeholders, the parameters are in the shards beside "
				"it; give the folder that holds it", empty);
	else
		ck_findings_add(f, CK_FINDING_PART_OF_STEP, in->path[0],
				"one file of a DeepSpeed step; give the folder that holds it to "
				"get whole parameters under the model's names");
}

/* One of FSDP's files of ranks: a DTensor or a ShardedTensor is a part of a tensor. */
static void judge_rank(const struct ck_pt *pt, const struct ck_input *in, struct ck_findings *f)
{
	struct ck_val *const *item, *const *arg;
	const char *slash = strrchr(in->path[0], '/');
	uint64_t n, nargs, parts = 0;

	if (!strstr(slash ? slash : in->path[0], "rank") ||
	    !ck_val_pairs(pt->doc.root, &item, &n))
		return;
	for (uint64_t i = 0; i < n; i++) {
		const struct ck_val *v = item[2 * i + 1];

		if (ck_pt_call_of(v) == CK_PT_FROM_TYPE &&
		    ck_val_seq(v->u.obj->args, &arg, &nargs) && nargs > 1 &&
		    arg[1]->kind == CK_VAL_GLOBAL)
			parts += ck_ends_with(arg[1]->u.global.name, "DTensor") ||
				 ck_ends_with(arg[1]->u.global.name, "ShardedTensor");
	}
	if (parts)
		ck_findings_add(f, CK_FINDING_PART_OF_STEP, in->path[0],
				"the file of one rank of FSDP: %" PRIu64
				" of its tensors are parts; "
				"give the folder that holds it to get whole ones",
				parts);
}

/* A training file's model under its own names, with the moments; else all there is. */
static int index_model(struct ck_pt_read *r, uint32_t source, const struct ck_input *in,
		       struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	const struct ck_pt *pt = r->pt;
	const char *prefix = NULL;
	int rc = 0;

	r->t.model = pt->doc.root;
	if (in->subtree || (in->find_model && !ck_val_get(pt->doc.root, "ds_version")))
		rc = ck_pt_training_choose(pt, in->subtree, f, &r->t, err);
	if (!rc && r->t.optimizer)
		rc = ck_pt_read_names(r, &prefix, err);
	if (!rc)
		rc = ck_pt_index_below(pt, r->t.model, source, &in->limits, ix, f, err);
	if (!rc && r->t.key) {
		ck_hasher_add(ix->fingerprint, r->t.key, strlen(r->t.key) + 1);
		rc = ck_index_add_fact(ix, err, "subtree", "%s", r->t.key);
	}
	if (!rc && prefix)
		rc = ck_index_add_fact(ix, err, "wrapper", "%s", prefix);
	if (!rc)
		rc = ck_pt_owners_find(pt, &r->t, ix, in, &r->arena, &r->owners, err);
	if (!rc && r->owners.role) {	/* another order is another checkpoint */
		ck_hasher_add(ix->fingerprint, r->owners.role, ix->ntensors);
		ck_hasher_add(ix->fingerprint, r->owners.param,
			      r->owners.why ? 0 : r->owners.n * sizeof(*r->owners.param));
	}
	return rc ? rc : ck_pt_owners_add(pt, &r->owners, source, ix, f, err);
}

/* 'src' is the index's from here on. */
static int index_file(struct ck_pt_read *r, struct ck_src *src, const struct ck_input *in,
		      struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	uint32_t source;
	int rc = ck_index_add_source(ix, in->path[0], src, -1, &source, err);

	if (!rc)
		rc = index_model(r, source, in, ix, f, err);
	if (rc)
		return rc;
	if (ix->step >= 0) {
		ix->tag = ck_arena_printf(&ix->arena, "global_step%" PRId64, ix->step);
		if (!ix->tag)
			return ck_fail_nomem(err, "a name", 0);
	}
	feed_fingerprint(r->pt, in, ix);
	judge_part(r->pt, in, f);
	judge_rank(r->pt, in, f);
	return 0;
}

static int pt_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		    struct ckpt_err *err)
{
	struct ck_pt_read *r = ck_zalloc(sizeof(*r));
	struct ck_src *src = NULL;
	int rc = r ? ck_src_open(in->pool, in->path[0], &src, err) :
		     ck_fail_nomem(err, "a file", sizeof(*r));

	if (!rc)
		rc = ck_pt_open(src, &in->limits, 0, f, &r->pt, err);
	if (rc) {
		ck_src_close(src);
		ck_pt_read_free(r);
		return rc;
	}
	r->arena.limit = in->limits.memory_bytes;
	ix->format = "torch";
	rc = index_file(r, src, in, ix, f, err);
	rc = ck_arena_why(&r->arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, r, ck_pt_read_free);
	return rc;
}

const struct ck_format ck_format_torch = {
	.name = "torch",
	.is_model = true,
	.has_subtrees = true,
	.has_untyped_steps = true,
	.probe = pt_probe,
	.index = pt_index,
	.plan = ck_pt_plan,
	.audit = ck_pt_audit,
	.slim = ck_pt_slim,
	.values = ck_pt_values,
	.read_step = ck_pt_read_step,
	.write_step = ck_pt_write_step,
};
