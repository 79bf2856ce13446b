/*
 * dcp_tree.c -- values that are neither the model's nor the optimizer's, back in the dictionaries
 * and lists that they were saved from: '.metadata' has the path to each.
 */
#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define MOST_STEPS 64u	/* of a path */
#define MADE 1	/* mark of a dictionary on the way to an item */

static struct ck_val *number_of(struct ck_arena *a, const struct dcp_item *it)
{
	const bool whole = ck_dtype_info(it->dtype)->cls != CK_CLASS_FLOAT;

	return whole ? ck_val_new_int(a, it->whole) : ck_val_new_float(a, it->number);
}

/* The value of an item; NULL: none that another file can have. */
static struct ck_val *client_value(struct dcp *d, const struct dcp_item *it)
{
	if (it->is_tensor)
		return it->has_number ? number_of(&d->fs.arena, it) : NULL;
	return it->value && it->value->pt && !it->value->pt->nstorages ?
	       it->value->pt->doc.root : NULL;
}

struct ck_val *ck_dcp_tree_new(struct ck_arena *a)
{
	struct ck_val *v = ck_val_new_dict(a);

	if (v)
		v->mark = MADE;
	return v;
}

struct ck_val *ck_dcp_tree_at(struct ck_arena *a, struct ck_val *root, struct ck_val *const *step,
			      uint64_t n)
{
	for (uint64_t i = 0; root && i < n; i++) {
		struct ck_val *const *pair, *next = NULL;
		uint64_t np;

		if (!ck_val_pairs(root, &pair, &np))
			return NULL;
		for (uint64_t k = 0; k < np; k++)
			if (ck_val_equal(pair[2 * k], step[i], 1))
				next = pair[2 * k + 1];
		if (next && next->mark != MADE)	/* a value of the file, which is not changed */
			return NULL;
		if (!next) {
			next = ck_dcp_tree_new(a);
			root = next ? ck_val_dict_add(a, root, step[i], next) : NULL;
		}
		root = next;
	}
	return root;
}

/* A dictionary that was made here, with keys 0, 1, ..., was a list. */
static struct ck_val *lists_of(struct ck_arena *a, struct ck_val *v, unsigned depth)
{
	struct ck_val *const *pair, *list = ck_val_new_list(a);
	bool is_list = true;
	uint64_t n;

	if (!depth || !v || v->mark != MADE || !ck_val_pairs(v, &pair, &n))
		return v;
	v->mark = 0;
	for (uint64_t i = 0; i < n; i++) {
		int64_t number = -1;

		v->u.seq.item[2 * i + 1] = lists_of(a, v->u.seq.item[2 * i + 1], depth - 1);
		is_list &= pair[2 * i]->kind == CK_VAL_INT && ck_val_int(pair[2 * i], &number) &&
			   number == (int64_t)i;
	}
	for (uint64_t i = 0; is_list && i < n; i++)
		list = ck_val_list_add(a, list, v->u.seq.item[2 * i + 1]);
	return is_list && n ? list : v;
}

struct ck_val *ck_dcp_tree_done(struct ck_arena *a, struct ck_val *tree)
{
	return lists_of(a, tree, MOST_STEPS + 1);
}

int ck_dcp_client_add(struct dcp *d, struct ck_val *root, const struct dcp_item *it,
		      const char **why_out, struct ckpt_err *err)
{
	struct ck_val *v = client_value(d, it), *const *part, *in;
	uint64_t n = 0;

	*why_out = NULL;
	if (!v || !ck_val_seq(it->path, &part, &n) || !n || n > MOST_STEPS) {
		*why_out = it->is_tensor ? "a tensor outside the model" :
			   "a value that DeepSpeed's files have no place for";
		return 0;
	}
	in = ck_dcp_tree_at(&d->fs.arena, root, part, n - 1);
	if (!in)
		*why_out = "its path leads through a value that is no dictionary";
	else if (!ck_val_dict_add(&d->fs.arena, in, part[n - 1], v))
		return ck_fail_nomem(err, "a value of the client", n);
	return 0;
}

void ck_dcp_client_end(struct dcp *d, struct ck_val *root)
{
	for (uint64_t i = 0; root->kind == CK_VAL_DICT && i < root->u.seq.n; i += 2)
		root->u.seq.item[i + 1] = ck_dcp_tree_done(&d->fs.arena,
							   root->u.seq.item[i + 1]);
}
