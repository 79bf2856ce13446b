/*
 * ck_step_fact.h -- a value of a step as a fact of the index: text.
 */
#ifndef CK_STEP_FACT_H
#define CK_STEP_FACT_H

#include "libckpt/tensor/ck_index.h"
#include "libckpt/tensor/ck_val.h"

/*
 * Numbers, booleans, None, strings, and short lists of them; any other value, or none, adds
 * nothing.  CKPT_E_NOMEM.
 */
int ck_step_add_fact(struct ck_index *ix, const char *key, const struct ck_val *v,
		     struct ckpt_err *err);
/* The shortest decimal that reads back as the same double. */
int ck_step_add_number(struct ck_index *ix, const char *key, double v, struct ckpt_err *err);

#endif
