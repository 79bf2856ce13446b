/*
 * ck_hf_bin.c -- see ck_hf_bin.h.  Not ck_pt_index(): that one names tensors by their
 * path, with the dots of a key escaped; here the key is the name.
 */
#include "formats/hf_sharded/ck_hf_bin.h"

#include <inttypes.h>
#include <string.h>

#include "formats/safetensors/ck_st.h"
#include "formats/torch_pt/ck_pt.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"

/* One .bin while it is read. */
struct bin {
	const struct ck_pt *pt;
	const char *file;
	uint32_t source;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_map views;	/* view -> tensor */
	struct ck_arena arena;	/* keys of 'views' */
	struct ckpt_err *err;
};

/* True if an earlier key has the same bytes; an empty tensor shares nothing. */
static int find_twin(struct bin *b, const struct ck_tensor_ref *t, uint32_t tensor,
		     uint64_t *twin_out)
{
	size_t len;
	const char *key;

	if (!t->numel)
		return 0;
	key = ck_pt_view_key(&b->arena, t, 0, &len);
	if (!key)
		return ck_fail_nomem(b->err, "views", t->ndim);
	return ck_map_add(&b->views, key, len, tensor, twin_out, b->err);
}

static int add_tensor(struct bin *b, const char *name, const struct ck_tensor_ref *t)
{
	uint64_t twin = 0;
	uint32_t tensor;
	int rc = ck_index_add_tensor(b->ix, name, t->shape, t->ndim, CKPT_ROLE_PLAIN, &tensor,
				     b->err);

	if (rc > 0) {
		ck_findings_add(b->f, CK_FINDING_TENSOR_DUPLICATE, name,
				"it is in %s and in an earlier file", b->file);
		return 0;
	}
	if (!rc)
		rc = find_twin(b, t, tensor, &twin);
	if (rc > 0) {
		b->ix->tensor[tensor].role = CKPT_ROLE_ALIAS;
		b->ix->tensor[tensor].alias_of = twin;
		return 0;
	}
	return rc ? rc : ck_pt_add_state(b->pt, t, tensor, "weight", b->source, b->ix, b->err);
}

static int add_pair(struct bin *b, const struct ck_val *key, const struct ck_val *value)
{
	const char *name = ck_val_str(key);
	const struct ck_tensor_ref *t = ck_val_tensor(value);

	if (!name || !t) {
		ck_findings_add(b->f, CK_FINDING_TENSOR_OPAQUE, name ? name : b->file,
				name ? "it is not a dense tensor and is left out"
				     : "a key that is not text is left out");
		return 0;
	}
	if (ck_st_name_fault(name, strlen(name)))
		return ck_fail(b->err, CKPT_E_CORRUPT, b->file, CKPT_NO_OFFSET,
			       "a tensor name holds the control character 0x%02x",
			       ck_st_name_fault(name, strlen(name)));
	return add_tensor(b, name, t);
}

int ck_hf_bin_index(struct ck_src *src, uint32_t source, const struct ckpt_limits *limits,
		    struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err)
{
	struct bin b = {
		.file = ck_src_name(src), .source = source, .ix = ix, .f = f, .err = err,
	};
	struct ck_val *const *item;
	struct ck_pt *pt = NULL;
	uint64_t npairs;
	int rc = ck_pt_open(src, limits, 0, f, &pt, err);

	if (rc)
		return rc;
	b.pt = pt;
	if (!ck_val_pairs(pt->doc.root, &item, &npairs))
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, b.file, CKPT_NO_OFFSET,
			     "the file holds no dict of tensors, which a model's .bin must have");
	for (uint64_t i = 0; !rc && i < npairs; i++)
		rc = add_pair(&b, item[2 * i], item[2 * i + 1]);
	if (!rc)
		ck_hasher_add(ix->fingerprint, &pt->fingerprint, sizeof(pt->fingerprint));
	ck_map_release(&b.views);
	ck_arena_release(&b.arena);
	ck_pt_close(pt);
	return rc;
}
