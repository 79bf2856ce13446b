/*
 * ck_st_plan.h -- laying out safetensors files to be written.  Planning only.
 */
#ifndef CK_ST_PLAN_H
#define CK_ST_PLAN_H

#include "libckpt/format/ck_plan.h"


/*
 * Append the file 'name' with the items number[0..n-1] of 'want', in the reference order
 * (widest type first, then name), whatever the order of the numbers.  With want->digest each
 * tensor gets a slot whose hash belongs into the header; with want->sums the header gets the
 * sums of docs/formats/safetensors.md, those of want->beside too.  Codes of ck_st_writer_*().
 */
int ck_st_plan_file(const struct ck_want *want, const uint32_t *number, uint64_t n,
		    const char *name, struct ck_plan *plan, struct ckpt_err *err);

/* One file named want->stem as it is, with every item. */
int ck_st_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err);

#endif
