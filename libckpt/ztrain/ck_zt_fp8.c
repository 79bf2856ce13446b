/* ck_zt_fp8.c -- see ck_zt_fp8.h. */
#include "libckpt/ztrain/ck_zt_fp8.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void ck_zt_fp8(const struct ck_zt_fp8_setup *s, struct ck_zt_fp8 *out)
{
	const uint64_t scales = s->layers * CK_ZT_FP8_SCALE;
	uint64_t rows = 0, columns = 0, most = 0, all = 0;
	struct ck_zt_fp8 f;

	for (unsigned i = 0; i < CK_ZT_FP8_MATRICES; i++) {
		const uint64_t n = s->matrix[i].out * s->matrix[i].in;

		rows = larger(rows, s->matrix[i].out);
		columns = larger(columns, s->matrix[i].in);
		most = larger(most, n);
		all += n;
	}
	f.a = s->n * larger(rows, columns);
	f.bt = s->wgrad ? s->n * rows : 0;
	f.ct = s->wgrad ? s->n * columns : 0;
	f.w = s->stays ? 2 * s->layers * all : most;
	f.scale = scales * (CK_ZT_FP8_INPUTS + CK_ZT_FP8_MATRICES);
	f.wscale = scales * CK_ZT_FP8_MATRICES;
	f.all = f.a + f.bt + f.ct + f.w + f.scale + f.wscale;
	*out = f;
}
