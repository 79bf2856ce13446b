/*
 * ck_dtype.h -- element types: one table with size, kind and the two spellings.
 */
#ifndef CK_DTYPE_H
#define CK_DTYPE_H

#include "libckpt/base/ck_base.h"

enum ck_dtype_class {
	CK_CLASS_BOOL = 1, CK_CLASS_INT, CK_CLASS_FLOAT, CK_CLASS_COMPLEX, CK_CLASS_OTHER,
};

struct ck_dtype_info {
	const char *name;	/* safetensors' spelling, or one in its manner */
	const char *torch;	/* without "torch.", NULL = none */
	uint8_t bits;
	uint8_t cls;		/* enum ck_dtype_class */
	bool in_safetensors;
};

/* NULL for a number that is no type. */
const struct ck_dtype_info *ck_dtype_info(enum ckpt_dtype dtype);
/* By exact safetensors name; 0 if there is none. */
enum ckpt_dtype ck_dtype_by_name(const char *name, size_t len);
/* By torch's name ("float32", "half"); 0 if there is none. */
enum ckpt_dtype ck_dtype_by_torch_name(const char *name);
/* F64, F32, F16 and BF16: the types that kernels cast. */
bool ck_dtype_is_castable(enum ckpt_dtype dtype);
/* One element, little endian, as a double; false for a type of no real numbers or below 8 bits. */
bool ck_dtype_number(enum ckpt_dtype dtype, const uint8_t *p, double *out);

/*
 * Bytes of 'numel' elements.  CKPT_E_LIMIT when they exceed 63 bits, CKPT_E_CORRUPT when
 * sub-byte elements do not fill whole bytes.
 */
int ck_dtype_bytes(enum ckpt_dtype dtype, uint64_t numel, uint64_t *bytes_out,
		   struct ckpt_err *err);
/* Product of the sizes, 1 for none.  CKPT_E_LIMIT beyond 63 bits. */
int ck_shape_numel(const uint64_t *dim, uint32_t ndim, uint64_t *numel_out,
		   struct ckpt_err *err);

#endif
