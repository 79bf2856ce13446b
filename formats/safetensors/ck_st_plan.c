/* ck_st_plan.c -- see ck_st_plan.h. */
#include "formats/safetensors/ck_st_plan.h"

#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define NO_DIGEST_YET "00000000000000000000000000000000"

static int by_reference(const void *a, const void *b)
{
	const struct ck_item *const *x = a, *const *y = b;

	return ck_st_order((*x)->dtype, (*x)->name, (*y)->dtype, (*y)->name);
}

static int add_digest_key(struct ck_st_writer *w, const char *name, struct ckpt_err *err)
{
	char *key = ck_asprintf(CK_ST_DIGEST_KEY "%s", name);
	int rc = key ? ck_st_writer_meta(w, key, NO_DIGEST_YET, err) :
		       ck_fail_nomem(err, "metadata", strlen(name));

	ck_free(key);
	return rc;
}

static int fill_header(const struct ck_want *want, const struct ck_item *const *item,
		       uint64_t n, struct ck_st_writer *w, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < want->nmeta; i++)
		rc = ck_st_writer_meta(w, want->meta[i].key, want->meta[i].value, err);
	for (uint64_t i = 0; !rc && want->digest && i < n; i++)
		rc = add_digest_key(w, item[i]->name, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ck_tensor *t = &want->ix->tensor[item[i]->tensor];

		rc = ck_st_writer_tensor(w, item[i]->name, item[i]->dtype, t->shape, t->ndim,
					 NULL, err);
	}
	return rc;
}

static int add_slot(const struct ck_want *want, const struct ck_item *item,
		    const struct ck_st_writer *w, struct ck_plan *plan, uint32_t *slot_out,
		    struct ckpt_err *err)
{
	const struct ck_tensor *t = &want->ix->tensor[item->tensor];
	struct ck_slot slot = {
		.name = item->name, .state = want->state_name, .shape = t->shape,
		.ndim = t->ndim, .dtype = item->dtype, .file = (uint32_t)(plan->nfiles - 1),
		.fill = UINT64_MAX,
	};
	char *key = ck_asprintf(CK_ST_DIGEST_KEY "%s", item->name);

	if (!key)
		return ck_fail_nomem(err, "metadata", strlen(item->name));
	if (!ck_st_writer_value_at(w, key, &slot.fill))
		slot.fill = UINT64_MAX;
	ck_free(key);
	return ck_plan_slot(plan, &slot, slot_out, err);
}

static int add_tensors(const struct ck_want *want, const struct ck_item *const *item,
		       uint64_t n, const struct ck_st_writer *w, struct ck_plan *plan,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		uint32_t slot = CK_NONE;

		if (want->digest)
			rc = add_slot(want, item[i], w, plan, &slot, err);
		if (!rc)
			rc = ck_plan_state(plan, want->ix, item[i]->state, item[i]->dtype, 0,
					   want->ix->tensor[item[i]->tensor].numel, slot, err);
	}
	plan->file[plan->nfiles - 1].ntensors = n;
	return rc;
}

int ck_st_plan_file(const struct ck_want *want, const uint32_t *number, uint64_t n,
		    const char *name, struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_item **item = ck_alloc_array(n, sizeof(*item));
	struct ck_st_writer *w = NULL;
	char *header = NULL;
	uint64_t len = 0;
	int rc;

	if (!item)
		return ck_fail_nomem(err, "a list of tensors", n);
	for (uint64_t i = 0; i < n; i++)
		item[i] = &want->item[number[i]];
	qsort(item, n, sizeof(*item), by_reference);
	rc = ck_st_writer_new(&w, err);
	if (!rc)
		rc = fill_header(want, item, n, w, err);
	if (!rc)
		rc = ck_st_writer_finish(w, 8, &header, &len, NULL, NULL, err);
	if (!rc)
		rc = ck_plan_file(plan, name, err);
	if (!rc)
		rc = ck_plan_literal(plan, header, len, err);
	if (!rc)
		rc = add_tensors(want, item, n, w, plan, err);
	ck_free(header);
	ck_st_writer_free(w);
	ck_free(item);
	return rc;
}

int ck_st_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	uint32_t *number = ck_alloc_array(want->nitems, sizeof(*number));
	int rc;

	if (!number)
		return ck_fail_nomem(err, "a list of tensors", want->nitems);
	for (uint64_t i = 0; i < want->nitems; i++)
		number[i] = (uint32_t)i;
	rc = ck_st_plan_file(want, number, want->nitems, want->stem, plan, err);
	ck_free(number);
	return rc;
}
