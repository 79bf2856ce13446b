/*
 * ck_values.h -- the value trees of a rank's files, as a driver hands them out.
 */
#ifndef CK_VALUES_H
#define CK_VALUES_H

#include "libckpt/tensor/ck_index.h"
#include "libckpt/tensor/ck_val.h"

struct ck_values {
	const struct ck_val *model;	/* dictionary of the model file */
	const struct ck_val *optimizer;	/* NULL = none was saved, as below */
	const struct ck_val *groups;	/* list of param groups, in 'optimizer' */
	const struct ck_val *scaler;	/* dictionary of the loss scaler's attributes, likewise */
	void *own;			/* the driver's */
	/*
	 * The elements of a tensor, row-major and little endian, in new memory (ck_free), if they
	 * and what they span are at most 'max' bytes; else '*out' is NULL.  'in_model' says which
	 * tree it hangs in.
	 */
	int (*bytes)(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		     uint64_t max, uint8_t **out, struct ckpt_err *err);
	void (*close)(struct ck_values *v);
};

#endif
