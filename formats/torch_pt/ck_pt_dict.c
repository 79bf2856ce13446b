/* ck_pt_dict.c -- a state dict to be written: an OrderedDict of tensors by name. */
#include <string.h>

#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_val_new.h"

struct dict {
	const struct ck_want *want;
	struct ck_plan *plan;
	struct ck_arena arena;
	struct ck_pt_part *part;
	struct ck_pt_piece *piece;
	struct ck_val **tensor;	/* by item */
	struct ck_val *root;
};

/* safetensors counts 4-bit floats one by one, torch in pairs. */
static int pair_up(struct dict *d, const struct ck_item *item, struct ck_tensor_ref *t,
		   struct ckpt_err *err)
{
	uint64_t *shape;

	if (item->dtype != CKPT_F4)
		return 0;
	if (!t->ndim || t->shape[t->ndim - 1] % 2)
		return ck_fail(err, CKPT_E_UNSUPPORTED, item->name, CKPT_NO_OFFSET,
			       "torch stores 4-bit floats in pairs, but the last dimension "
			       "of this tensor is odd");
	shape = ck_arena_alloc(&d->arena, t->ndim * sizeof(*shape));
	if (!shape)
		return ck_fail_nomem(err, "a shape", t->ndim);
	memcpy(shape, t->shape, t->ndim * sizeof(*shape));
	shape[t->ndim - 1] /= 2;
	t->shape = shape;
	t->dtype = CKPT_F4X2;
	return 0;
}

static int make_stride(struct dict *d, struct ck_tensor_ref *t, struct ckpt_err *err)
{
	uint64_t *stride = ck_arena_alloc(&d->arena, t->ndim * sizeof(*stride));
	uint64_t step = 1;

	if (!stride)
		return ck_fail_nomem(err, "strides", t->ndim);
	for (uint32_t i = t->ndim; i-- > 0;) {
		stride[i] = step;
		/* A size of 0 counts as 1, as torch has it; the product fits: the bytes do. */
		if (ck_mul_over(step, ck_max_u64(t->shape[i], 1), &step) || step > INT64_MAX)
			step = INT64_MAX;
	}
	t->stride = stride;
	return 0;
}

static int add_slot(struct dict *d, const struct ck_item *item, struct ck_pt_piece *piece,
		    struct ckpt_err *err)
{
	const struct ck_tensor *t = &d->want->ix->tensor[item->tensor];
	const struct ck_slot slot = {
		.name = item->name, .state = d->want->state_name, .shape = t->shape,
		.ndim = t->ndim, .dtype = item->dtype, .file = (uint32_t)d->plan->nfiles,
		.fill = UINT64_MAX,
	};

	return d->want->digest ? ck_plan_slot(d->plan, &slot, &piece->slot, err) : 0;
}

static int add_item(struct dict *d, uint64_t i, struct ckpt_err *err)
{
	const struct ck_item *item = &d->want->item[i];
	const struct ck_tensor *t = &d->want->ix->tensor[item->tensor];
	struct ck_tensor_ref ref = {
		.storage = (uint32_t)i, .dtype = item->dtype, .ndim = t->ndim, .shape = t->shape,
		.numel = t->numel,
	};
	int rc;

	d->piece[i] = (struct ck_pt_piece){
		.kind = CK_SEG_STATE, .dtype = item->dtype, .state = item->state,
		.count = t->numel, .slot = CK_NONE,
	};
	rc = add_slot(d, item, &d->piece[i], err);
	if (!rc)
		rc = pair_up(d, item, &ref, err);
	if (!rc)
		rc = make_stride(d, &ref, err);
	if (rc)
		return rc;
	d->part[i] = (struct ck_pt_part){
		.dtype = ref.dtype, .piece = &d->piece[i], .npieces = 1,
	};
	d->tensor[i] = ck_val_new_tensor(&d->arena, &ref);
	if (!ck_val_dict_add(&d->arena, d->root, ck_val_new_str(&d->arena, item->name),
			     d->tensor[i]))
		return ck_fail_nomem(err, "a state dict", i);
	return 0;
}

/* A second name is a tensor of its own on the same storage, as tied weights are. */
static int add_alias(struct dict *d, const struct ck_want_alias *alias, struct ckpt_err *err)
{
	struct ck_val *twin = ck_val_clone(&d->arena, d->tensor[alias->item]);

	if (!ck_val_dict_add(&d->arena, d->root, ck_val_new_str(&d->arena, alias->name), twin))
		return ck_fail_nomem(err, "a state dict", 0);
	return 0;
}

static int make_dict(struct dict *d, struct ckpt_err *err)
{
	const uint64_t n = d->want->nitems;
	int rc = 0;

	d->part = ck_alloc_array(n, sizeof(*d->part));
	d->piece = ck_alloc_array(n, sizeof(*d->piece));
	d->tensor = ck_alloc_array(n, sizeof(*d->tensor));
	d->root = ck_val_new_ordered(&d->arena);
	if (!d->part || !d->piece || !d->tensor || !d->root)
		return ck_fail_nomem(err, "a state dict", n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_item(d, i, err);
	for (uint64_t i = 0; !rc && i < d->want->naliases; i++)
		rc = add_alias(d, &d->want->alias[i], err);
	return rc;
}

int ck_pt_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	struct dict d = { .want = want, .plan = plan, .arena = CK_ARENA_INIT };
	int rc = make_dict(&d, err);

	if (!rc) {
		const struct ck_pt_want file = {
			.ix = want->ix, .name = want->stem, .root = d.root, .storage = d.part,
			.nstorages = want->nitems,
		};

		rc = ck_pt_plan_file(&file, plan, err);
	}
	if (!rc)
		plan->file[plan->nfiles - 1].ntensors = want->nitems + want->naliases;
	ck_free(d.part);
	ck_free(d.piece);
	ck_free(d.tensor);
	ck_arena_release(&d.arena);
	return rc;
}
