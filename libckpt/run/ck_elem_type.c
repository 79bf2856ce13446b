/* ck_elem_type.c -- see ck_elem_type.h. */
#include "libckpt/run/ck_elem_type.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/tensor/ck_dtype.h"

#define PART_TEXT 30	/* the longest double has 24 */

struct ck_elem_type ck_elem_type_of(enum ckpt_dtype dtype)
{
	switch (dtype) {
	case CKPT_F64:
		return (struct ck_elem_type){ KN_NUM_F64, 1 };
	case CKPT_F32:
		return (struct ck_elem_type){ KN_NUM_F32, 1 };
	case CKPT_F16:
		return (struct ck_elem_type){ KN_NUM_F16, 1 };
	case CKPT_BF16:
		return (struct ck_elem_type){ KN_NUM_BF16, 1 };
	case CKPT_C128:
		return (struct ck_elem_type){ KN_NUM_F64, 2 };
	case CKPT_C64:
		return (struct ck_elem_type){ KN_NUM_F32, 2 };
	case CKPT_C32:
		return (struct ck_elem_type){ KN_NUM_F16, 2 };
	case CKPT_BC32:
		return (struct ck_elem_type){ KN_NUM_BF16, 2 };
	case CKPT_F8_E4M3:
		return (struct ck_elem_type){ KN_NUM_F8_E4M3, 1 };
	case CKPT_F8_E5M2:
		return (struct ck_elem_type){ KN_NUM_F8_E5M2, 1 };
	case CKPT_F8_E4M3FNUZ:
		return (struct ck_elem_type){ KN_NUM_F8_E4M3FNUZ, 1 };
	case CKPT_F8_E5M2FNUZ:
		return (struct ck_elem_type){ KN_NUM_F8_E5M2FNUZ, 1 };
	case CKPT_F8_E8M0:
		return (struct ck_elem_type){ KN_NUM_F8_E8M0, 1 };
	case CKPT_I8:
		return (struct ck_elem_type){ KN_NUM_I8, 1 };
	case CKPT_I16:
		return (struct ck_elem_type){ KN_NUM_I16, 1 };
	case CKPT_I32:
		return (struct ck_elem_type){ KN_NUM_I32, 1 };
	case CKPT_I64:
		return (struct ck_elem_type){ KN_NUM_I64, 1 };
	case CKPT_BOOL:
	case CKPT_U8:
		return (struct ck_elem_type){ KN_NUM_U8, 1 };
	case CKPT_U16:
		return (struct ck_elem_type){ KN_NUM_U16, 1 };
	case CKPT_U32:
		return (struct ck_elem_type){ KN_NUM_U32, 1 };
	case CKPT_U64:
		return (struct ck_elem_type){ KN_NUM_U64, 1 };
	default:
		return (struct ck_elem_type){ KN_NUM_BYTE, ckpt_dtype_bits(dtype) < 16 ? 1 :
						     ckpt_dtype_bits(dtype) / 8 };
	}
}

bool ck_elem_type_is_castable(enum kn_num type)
{
	return type >= KN_NUM_F64 && type <= KN_NUM_BF16;
}

/* Whether the text reads back as the number at 'p'. */
static bool reads_back(enum kn_num type, const void *p, double v, const char *text)
{
	const double again = strtod(text, NULL);
	uint64_t bits = 0;

	if (!ck_elem_type_is_castable(type))
		return again == v;
	kn_cast(&bits, (enum kn_type)type, &again, KN_F64, 1, NULL);
	return !memcmp(&bits, p, kn_num_size(type));
}

static void put_part(enum kn_num type, const void *p, char out[PART_TEXT])
{
	const double v = kn_num_value(type, p);
	uint64_t u = 0;
	int64_t i;

	switch (type) {
	case KN_NUM_U8:
	case KN_NUM_U16:
	case KN_NUM_U32:
	case KN_NUM_U64:
		memcpy(&u, p, kn_num_size(type));
		snprintf(out, PART_TEXT, "%" PRIu64, u);
		return;
	case KN_NUM_I8:
	case KN_NUM_I16:
	case KN_NUM_I32:
		snprintf(out, PART_TEXT, "%.0f", v);
		return;
	case KN_NUM_I64:
		memcpy(&i, p, sizeof(i));
		snprintf(out, PART_TEXT, "%" PRId64, i);
		return;
	default:
		break;
	}
	if (isnan(v) || isinf(v)) {
		snprintf(out, PART_TEXT, "%s", isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, PART_TEXT, "%.*g", digits, v);
		if (reads_back(type, p, v, out))
			break;
	}
}

static void put_hex(const uint8_t *p, unsigned n, char *out)
{
	out += snprintf(out, 3, "0x");
	while (n--)
		out += snprintf(out, 3, "%02x", p[n]);
}

void ck_elem_type_text(enum ckpt_dtype dtype, const void *p, char out[CK_ELEM_TYPE_TEXT])
{
	const struct ck_elem_type num = ck_elem_type_of(dtype);
	char re[PART_TEXT], im[PART_TEXT];

	if (num.type == KN_NUM_BYTE) {
		put_hex(p, num.parts, out);
		return;
	}
	if (dtype == CKPT_BOOL && *(const uint8_t *)p < 2) {
		snprintf(out, CK_ELEM_TYPE_TEXT, "%s", *(const uint8_t *)p ? "true" : "false");
		return;
	}
	put_part(num.type, p, re);
	if (num.parts == 1) {
		snprintf(out, CK_ELEM_TYPE_TEXT, "%s", re);
		return;
	}
	put_part(num.type, (const uint8_t *)p + kn_num_size(num.type), im);
	snprintf(out, CK_ELEM_TYPE_TEXT, "%s%s%sj", re, im[0] == '-' ? "" : "+", im);
}
