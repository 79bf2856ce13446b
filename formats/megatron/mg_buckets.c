/*
 * mg_buckets.c -- states in buckets of the optimizer, which have no names.
 */
#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"

int ck_mg_buckets_find(struct mg *mg, struct ckpt_err *err)
{
	uint64_t n = 0;

	(void)err;
	for (uint64_t i = 0; i < mg->fs.nitems; i++)
		n += mg->fs.item[i].use == MG_BUCKET;
	if (n)
		ck_findings_add(mg->fs.f, CK_FINDING_NOT_IN_CHECKPOINT, mg->fs.at.where,
				"the optimizer's states are in %llu buckets without names; the "
				"weights can be read", (unsigned long long)n);
	return 0;
}
