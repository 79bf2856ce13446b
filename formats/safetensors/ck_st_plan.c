/* ck_st_plan.c -- see ck_st_plan.h. */
#include "formats/safetensors/ck_st_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define SUM_DIGITS 32u
#define NO_DIGEST_YET "00000000000000000000000000000000"

static int by_reference(const void *a, const void *b)
{
	const struct ck_item *const *x = a, *const *y = b;

	return ck_st_order((*x)->dtype, (*x)->name, (*y)->dtype, (*y)->name);
}

/* "zckpt.digest.NAME" or "zckpt.file.NAME": known later. */
static int add_key(struct ck_st_writer *w, const char *prefix, const char *name,
		   struct ckpt_err *err)
{
	char *key = ck_asprintf("%s%s", prefix, name);
	int rc = key ? ck_st_writer_meta(w, key, NO_DIGEST_YET, err) :
		       ck_fail_nomem(err, "metadata", strlen(name));

	ck_free(key);
	return rc;
}

static int add_sums(const struct ck_want *want, uint64_t n, struct ck_st_writer *w,
		    struct ckpt_err *err)
{
	char *sums;
	int rc;

	if (n > CK_ST_MAX_HEADER / SUM_DIGITS)
		return ck_fail(err, CKPT_E_LIMIT, want->stem, CKPT_NO_OFFSET,
			       "%" PRIu64 " tensors are too many for the header of one file", n);
	sums = ck_alloc(n * SUM_DIGITS + 1);
	if (!sums)
		return ck_fail_nomem(err, "sums", n * SUM_DIGITS + 1);
	memset(sums, '0', n * SUM_DIGITS);
	sums[n * SUM_DIGITS] = 0;
	rc = ck_st_writer_meta(w, CK_ST_SUMS_KEY, sums, err);
	if (!rc)
		rc = ck_st_writer_meta(w, CK_ST_HEADER_KEY, NO_DIGEST_YET, err);
	for (uint64_t i = 0; !rc && i < want->nbeside; i++)
		rc = add_key(w, CK_ST_FILE_KEY, want->beside[i], err);
	ck_free(sums);
	return rc;
}

static int fill_header(const struct ck_want *want, const struct ck_item *const *item,
		       uint64_t n, struct ck_st_writer *w, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < want->nmeta; i++)
		rc = ck_st_writer_meta(w, want->meta[i].key, want->meta[i].value, err);
	for (uint64_t i = 0; !rc && want->digest && i < n; i++)
		rc = add_key(w, CK_ST_DIGEST_KEY, item[i]->name, err);
	if (!rc && want->sums)
		rc = add_sums(want, n, w, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ck_tensor *t = &want->ix->tensor[item[i]->tensor];

		rc = ck_st_writer_tensor(w, item[i]->name, item[i]->dtype, t->shape, t->ndim,
					 NULL, err);
	}
	return rc;
}

/* Where the value of a key begins, and UINT64_MAX without the key. */
static int find_value(const struct ck_st_writer *w, const char *prefix, const char *name,
		      uint64_t *at_out, struct ckpt_err *err)
{
	char *key = ck_asprintf("%s%s", prefix, name);

	if (!key)
		return ck_fail_nomem(err, "metadata", strlen(name));
	if (!ck_st_writer_value_at(w, key, at_out))
		*at_out = UINT64_MAX;
	ck_free(key);
	return 0;
}

/* A slot of the tensor's digest, one of its sum, or the second as a part of the first. */
static int add_slots(const struct ck_want *want, const struct ck_item *item, uint64_t sum_at,
		     const struct ck_st_writer *w, struct ck_plan *plan, uint32_t *slot_out,
		     struct ckpt_err *err)
{
	const struct ck_tensor *t = &want->ix->tensor[item->tensor];
	struct ck_slot slot = {
		.name = item->name, .state = want->state_name, .shape = t->shape,
		.ndim = t->ndim, .dtype = item->dtype, .file = (uint32_t)(plan->nfiles - 1),
	};
	struct ck_slot sum = {
		.name = "", .state = "", .file = slot.file, .fill = sum_at,
		.whole = CK_SLOT_SUM, .ends = UINT64_MAX,
	};
	int rc = 0;

	if (want->digest) {
		rc = find_value(w, CK_ST_DIGEST_KEY, item->name, &slot.fill, err);
		if (!rc)
			rc = ck_plan_slot(plan, &slot, slot_out, err);
		sum.whole = *slot_out + 1;
	}
	return rc || !want->sums ? rc : ck_plan_slot(plan, &sum, slot_out, err);
}

static int add_tensors(const struct ck_want *want, const struct ck_item *const *item,
		       uint64_t n, const struct ck_st_writer *w, struct ck_plan *plan,
		       struct ckpt_err *err)
{
	uint64_t sums = 0;
	int rc = want->sums ? find_value(w, CK_ST_SUMS_KEY, "", &sums, err) : 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		uint32_t slot = CK_NONE;

		rc = add_slots(want, item[i], sums + i * SUM_DIGITS, w, plan, &slot, err);
		if (!rc)
			rc = ck_plan_state(plan, want->ix, item[i]->state, item[i]->dtype, 0,
					   want->ix->tensor[item[i]->tensor].numel, slot, err);
	}
	plan->file[plan->nfiles - 1].ntensors = n;
	return rc;
}

/* What the header says of itself, and of files beside this one. */
static int add_own_sums(const struct ck_want *want, const struct ck_st_writer *w, uint64_t len,
			struct ck_plan *plan, struct ckpt_err *err)
{
	uint64_t at;
	int rc = want->sums ? find_value(w, CK_ST_HEADER_KEY, "", &at, err) : 0;

	if (rc || !want->sums)
		return rc;
	rc = ck_plan_head(plan, len, at, err);
	for (uint64_t i = 0; !rc && i < want->nbeside; i++) {
		rc = find_value(w, CK_ST_FILE_KEY, want->beside[i], &at, err);
		if (!rc)
			rc = ck_plan_beside(plan, want->beside[i], at, err);
	}
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
		rc = add_own_sums(want, w, len, plan, err);
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
