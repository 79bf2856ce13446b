/* ck_dtype.c -- see ck_dtype.h. */
#include "libckpt/tensor/ck_dtype.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

#define MAX_DTYPE (CKPT_F4X2 + 1)

static const struct ck_dtype_info table[MAX_DTYPE] = {
	[CKPT_BOOL] = { "BOOL", "bool", 8, CK_CLASS_BOOL, true },
	[CKPT_F4] = { "F4", NULL, 4, CK_CLASS_OTHER, true },
	[CKPT_F6_E2M3] = { "F6_E2M3", NULL, 6, CK_CLASS_OTHER, true },
	[CKPT_F6_E3M2] = { "F6_E3M2", NULL, 6, CK_CLASS_OTHER, true },
	[CKPT_U8] = { "U8", "uint8", 8, CK_CLASS_INT, true },
	[CKPT_I8] = { "I8", "int8", 8, CK_CLASS_INT, true },
	[CKPT_F8_E5M2] = { "F8_E5M2", "float8_e5m2", 8, CK_CLASS_OTHER, true },
	[CKPT_F8_E4M3] = { "F8_E4M3", "float8_e4m3fn", 8, CK_CLASS_OTHER, true },
	[CKPT_F8_E8M0] = { "F8_E8M0", "float8_e8m0fnu", 8, CK_CLASS_OTHER, true },
	[CKPT_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", "float8_e4m3fnuz", 8, CK_CLASS_OTHER, true },
	[CKPT_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", "float8_e5m2fnuz", 8, CK_CLASS_OTHER, true },
	[CKPT_I16] = { "I16", "int16", 16, CK_CLASS_INT, true },
	[CKPT_U16] = { "U16", "uint16", 16, CK_CLASS_INT, true },
	[CKPT_F16] = { "F16", "float16", 16, CK_CLASS_FLOAT, true },
	[CKPT_BF16] = { "BF16", "bfloat16", 16, CK_CLASS_FLOAT, true },
	[CKPT_I32] = { "I32", "int32", 32, CK_CLASS_INT, true },
	[CKPT_U32] = { "U32", "uint32", 32, CK_CLASS_INT, true },
	[CKPT_F32] = { "F32", "float32", 32, CK_CLASS_FLOAT, true },
	[CKPT_C64] = { "C64", "complex64", 64, CK_CLASS_COMPLEX, true },
	[CKPT_F64] = { "F64", "float64", 64, CK_CLASS_FLOAT, true },
	[CKPT_I64] = { "I64", "int64", 64, CK_CLASS_INT, true },
	[CKPT_U64] = { "U64", "uint64", 64, CK_CLASS_INT, true },
	[CKPT_C128] = { "C128", "complex128", 128, CK_CLASS_COMPLEX, false },
	[CKPT_C32] = { "C32", "complex32", 32, CK_CLASS_COMPLEX, false },
	[CKPT_BC32] = { "BC32", "bcomplex32", 32, CK_CLASS_COMPLEX, false },
	[CKPT_QI8] = { "QI8", "qint8", 8, CK_CLASS_OTHER, false },
	[CKPT_QU8] = { "QU8", "quint8", 8, CK_CLASS_OTHER, false },
	[CKPT_QI32] = { "QI32", "qint32", 32, CK_CLASS_OTHER, false },
	[CKPT_QU4X2] = { "QU4X2", "quint4x2", 8, CK_CLASS_OTHER, false },
	[CKPT_QU2X4] = { "QU2X4", "quint2x4", 8, CK_CLASS_OTHER, false },
	[CKPT_BITS8] = { "BITS8", "bits8", 8, CK_CLASS_OTHER, false },
	[CKPT_BITS16] = { "BITS16", "bits16", 16, CK_CLASS_OTHER, false },
	[CKPT_BITS1X8] = { "BITS1X8", "bits1x8", 8, CK_CLASS_OTHER, false },
	[CKPT_BITS2X4] = { "BITS2X4", "bits2x4", 8, CK_CLASS_OTHER, false },
	[CKPT_BITS4X2] = { "BITS4X2", "bits4x2", 8, CK_CLASS_OTHER, false },
	[CKPT_F4X2] = { "F4X2", "float4_e2m1fn_x2", 8, CK_CLASS_OTHER, false },
};

/* Second names: torch's aliases, and what people type. */
static const struct {
	const char *name;
	enum ckpt_dtype dtype;
} aliases[] = {
	{ "half", CKPT_F16 },	  { "float", CKPT_F32 },  { "double", CKPT_F64 },
	{ "cfloat", CKPT_C64 },	  { "cdouble", CKPT_C128 }, { "chalf", CKPT_C32 },
	{ "long", CKPT_I64 },	  { "int", CKPT_I32 },	  { "short", CKPT_I16 },
	{ "fp32", CKPT_F32 },	  { "fp16", CKPT_F16 },	  { "bf16", CKPT_BF16 },
	{ "fp64", CKPT_F64 },
};

const struct ck_dtype_info *ck_dtype_info(enum ckpt_dtype dtype)
{
	if ((unsigned)dtype >= MAX_DTYPE || !table[dtype].name)
		return NULL;
	return &table[dtype];
}

enum ckpt_dtype ck_dtype_by_name(const char *name, size_t len)
{
	for (unsigned i = 1; i < MAX_DTYPE; i++)
		if (table[i].name && table[i].in_safetensors && strlen(table[i].name) == len &&
		    !memcmp(table[i].name, name, len))
			return (enum ckpt_dtype)i;
	return (enum ckpt_dtype)0;
}

enum ckpt_dtype ck_dtype_by_torch_name(const char *name)
{
	for (unsigned i = 1; i < MAX_DTYPE; i++)
		if (table[i].torch && !strcmp(table[i].torch, name))
			return (enum ckpt_dtype)i;
	for (size_t i = 0; i < CK_ARRAY_LEN(aliases); i++)
		if (!strcmp(aliases[i].name, name))
			return aliases[i].dtype;
	return (enum ckpt_dtype)0;
}

bool ck_dtype_is_castable(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F64 || dtype == CKPT_F32 || dtype == CKPT_F16 ||
	       dtype == CKPT_BF16;
}

int ck_dtype_bytes(enum ckpt_dtype dtype, uint64_t numel, uint64_t *bytes_out,
		   struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);
	uint64_t bits;

	if (!info)
		return ck_fail(err, CKPT_E_CORRUPT, NULL, CKPT_NO_OFFSET,
			       "%d is not an element type", (int)dtype);
	if (info->bits >= 8) {
		uint64_t bytes;

		if (ck_mul_over(numel, info->bits / 8, &bytes) || bytes > INT64_MAX)
			goto limit;
		*bytes_out = bytes;
		return 0;
	}
	if (ck_mul_over(numel, info->bits, &bits))
		goto limit;
	if (bits % 8)
		return ck_fail(err, CKPT_E_CORRUPT, NULL, CKPT_NO_OFFSET,
			       "%" PRIu64 " elements of %u bits do not fill whole bytes", numel,
			       info->bits);
	*bytes_out = bits / 8;
	return 0;
limit:
	return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
		       "the size of %" PRIu64 " elements of type %s exceeds 2^63 bytes", numel,
		       info->name);
}

int ck_shape_numel(const uint64_t *dim, uint32_t ndim, uint64_t *numel_out,
		   struct ckpt_err *err)
{
	uint64_t n = 1;

	for (uint32_t i = 0; i < ndim; i++)
		if (ck_mul_over(n, dim[i], &n) || n > INT64_MAX)
			return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
				       "the product of the shape exceeds 2^63 at dimension %u", i);
	*numel_out = n;
	return 0;
}

uint32_t ckpt_dtype_bits(enum ckpt_dtype dtype)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);

	return info ? info->bits : 0;
}

const char *ckpt_dtype_name(enum ckpt_dtype dtype)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);

	return info ? info->name : "?";
}

const char *ckpt_dtype_torch_name(enum ckpt_dtype dtype)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);

	return info ? info->torch : NULL;
}

enum ckpt_dtype ckpt_dtype_parse(const char *name)
{
	for (unsigned i = 1; i < MAX_DTYPE; i++)
		if (table[i].name && !strcmp(table[i].name, name))
			return (enum ckpt_dtype)i;
	return ck_dtype_by_torch_name(name);
}

static double of_f16(uint16_t h)
{
	const int exponent = h >> 10 & 31, fraction = h & 1023;
	const double v = exponent == 31 ? (fraction ? NAN : INFINITY) :
			 exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	return h & 0x8000 ? -v : v;
}

static double of_f32(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

bool ck_dtype_number(enum ckpt_dtype dtype, const uint8_t *p, double *out)
{
	uint64_t bits;

	switch (dtype) {
	case CKPT_F64:
		bits = ck_le64(p);
		memcpy(out, &bits, sizeof(*out));
		return true;
	case CKPT_F32:
		*out = of_f32(ck_le32(p));
		return true;
	case CKPT_BF16:
		*out = of_f32((uint32_t)ck_le16(p) << 16);
		return true;
	case CKPT_F16:
		*out = of_f16(ck_le16(p));
		return true;
	case CKPT_I64:
		*out = (double)(int64_t)ck_le64(p);
		return true;
	case CKPT_I32:
		*out = (double)(int32_t)ck_le32(p);
		return true;
	default:
		return false;
	}
}
