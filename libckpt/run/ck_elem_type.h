/*
 * ck_elem_type.h -- element types as numbers: what kernels call them, and one element as text.
 */
#ifndef CK_ELEM_TYPE_H
#define CK_ELEM_TYPE_H

#include "kernels/include/kn.h"
#include "libckpt/base/ck_base.h"

#define CK_ELEM_TYPE_TEXT 64

/* An element is 'parts' numbers of 'type'; of types without numbers, 'parts' bytes. */
struct ck_elem_type {
	enum kn_num type;
	unsigned parts;
};

/* Types below 8 bits are bytes, several elements each. */
struct ck_elem_type ck_elem_type_of(enum ckpt_dtype dtype);
/* The types that kn_cast() takes. */
bool ck_elem_type_is_castable(enum kn_num type);

/*
 * One element (of a type below 8 bits: one byte) as text: as few digits as read back as the same
 * number of that type, "nan", "inf", "1.5-2j" for complex ones, "0x3f" for types without numbers.
 */
void ck_elem_type_text(enum ckpt_dtype dtype, const void *p, char out[CK_ELEM_TYPE_TEXT]);

#endif
