/*
 * ck_slice.h -- a slice as Python writes it, applied to a shape.
 */
#ifndef CK_SLICE_H
#define CK_SLICE_H

#include "libckpt/base/ck_base.h"

#define CK_SLICE_DIMS 64

struct ck_slice {
	/* Of the result: what is left of the shape. */
	uint32_t ndim;
	uint64_t shape[CK_SLICE_DIMS];
	uint64_t numel;
	/*
	 * Where its elements are, row-major: first + sum(i[k] * stride[k]), i[k] < count[k], in as
	 * few dimensions as will do; none = one element.
	 */
	uint32_t nsteps;
	uint64_t count[CK_SLICE_DIMS];
	int64_t stride[CK_SLICE_DIMS];
	uint64_t first;
};

/*
 * 'text' without brackets, NULL or "" = all.  'where' is the tensor's name, for messages.
 * CKPT_E_USAGE, CKPT_E_LIMIT.
 */
int ck_slice_parse(const char *text, const uint64_t *shape, uint32_t ndim, const char *where,
		   struct ck_slice *out, struct ckpt_err *err);

#endif
