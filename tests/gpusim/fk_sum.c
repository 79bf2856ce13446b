/*
 * fk_sum.c -- sums over ranks, in their order: fp32 for floats of 32 bits and less, rounded once.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "tests/gpusim/fk_pipe.h"

size_t fk_size_of(ncclDataType_t type)
{
	static const size_t size[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };

	return (unsigned)type < FK_LEN(size) ? size[type] : 0;
}

static enum kn_type kn_of(ncclDataType_t type)
{
	return type == ncclFloat16 ? KN_F16 : type == ncclBfloat16 ? KN_BF16 :
	       type == ncclFloat32 ? KN_F32 : KN_F64;
}

static double join(double a, double b, ncclRedOp_t op)
{
	switch (op) {
	case ncclProd: return a * b;
	case ncclMax: return a != a || a > b ? a : b;
	case ncclMin: return a != a || a < b ? a : b;
	default: return a + b;
	}
}

#define JOIN_INTS(T) do { \
	T *x = to; \
	const T *y = from; \
	for (size_t i = 0; i < n; i++) \
		x[i] = op == ncclMax ? (x[i] > y[i] ? x[i] : y[i]) : \
		       op == ncclMin ? (x[i] < y[i] ? x[i] : y[i]) : \
		       op == ncclProd ? (T)(x[i] * y[i]) : (T)(x[i] + y[i]); \
} while (0)

static void join_ints(void *to, const void *from, size_t n, ncclDataType_t type, ncclRedOp_t op)
{
	switch (type) {
	case ncclInt8: JOIN_INTS(int8_t); break;
	case ncclUint8: JOIN_INTS(uint8_t); break;
	case ncclInt32: JOIN_INTS(int32_t); break;
	case ncclUint32: JOIN_INTS(uint32_t); break;
	case ncclInt64: JOIN_INTS(int64_t); break;
	default: JOIN_INTS(uint64_t); break;
	}
}

void fk_reduce(const struct ncclComm *c, void *to, uint8_t *const *part, size_t n,
	       ncclDataType_t type, ncclRedOp_t op)
{
	const bool wide = type == ncclFloat64;
	const size_t bytes = n * fk_size_of(type);
	double *d = NULL;
	float *f = NULL, *x = NULL;

	if (type < ncclFloat16) {
		for (uint32_t r = 1; r < c->size; r++)
			join_ints(part[0], part[r], n, type, op);
		memcpy(to, part[0], bytes);
		return;
	}
	if (wide) {
		d = (double *)(void *)part[0];
		for (uint32_t r = 1; r < c->size; r++)
			for (size_t i = 0; i < n; i++)
				d[i] = join(d[i], ((double *)(void *)part[r])[i], op);
		for (size_t i = 0; i < n && op == ncclAvg; i++)
			d[i] /= c->size;
		memcpy(to, d, bytes);
		return;
	}
	f = fk_room(n * sizeof(*f));
	x = fk_room(n * sizeof(*x));
	kn_cast(f, KN_F32, part[0], kn_of(type), n, NULL);
	for (uint32_t r = 1; r < c->size; r++) {
		kn_cast(x, KN_F32, part[r], kn_of(type), n, NULL);
		for (size_t i = 0; i < n; i++)
			f[i] = op == ncclSum || op == ncclAvg ? f[i] + x[i] :
			       (float)join((double)f[i], (double)x[i], op);
	}
	for (size_t i = 0; i < n && op == ncclAvg; i++)
		f[i] /= (float)c->size;
	kn_cast(to, kn_of(type), f, KN_F32, n, NULL);
	free(f);
	free(x);
}
