/*
 * mg_names.c -- what the tensors of the index are called, and of which parts of the parameters
 * they are made.
 */
#include "formats/megatron/mg.h"

/* Each parameter is a tensor of its own name and shape. */
static int make_native(struct mg *mg, struct ckpt_err *err)
{
	int rc = 0;

	mg->is_native = true;
	for (uint64_t i = 0; !rc && i < mg->nparams; i++)
		rc = ck_mg_target_add(mg, mg->param[i].key, mg->param[i].shape, mg->param[i].ndim,
				      i, NULL, 0, err);
	return rc;
}

int ck_mg_names_make(struct mg *mg, struct ckpt_err *err)
{
	return make_native(mg, err);
}
