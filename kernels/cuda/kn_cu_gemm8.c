/* kn_cu_gemm8.c -- products of 8-bit numbers by cuBLASLt: a shape of kn_cu_gemm.c with scales. */
#include <cublasLt.h>

#include "kernels/cuda/kn_cu_gemm_impl.h"
#include "kernels/include/kn_cuda_fp8.h"

bool kn_cu_gemm_fits8(const struct kn_cu_mm8 *mm, const void *c, const void *d)
{
	const size_t e = mm->out == KN_F32 ? 4 : 2;
	const bool add = mm->flags & KN_GEMM_ADD;

	return mm->k && mm->n % 16 == 0 && mm->k % 16 == 0 && mm->ldd * e % 16 == 0 &&
	       !((uintptr_t)d & 15) && (!add || (mm->ldc * e % 16 == 0 && !((uintptr_t)c & 15)));
}

static struct kn_cu_gemm_key key_of(const struct kn_cu_mm8 *mm)
{
	const bool add = mm->flags & KN_GEMM_ADD;

	return (struct kn_cu_gemm_key){
		.m = mm->m,
		.n = mm->n,
		.k = mm->k,
		.lda = mm->k,
		.ldb = mm->k,
		.ldc = add ? mm->ldc : mm->ldd,
		.ldd = mm->ldd,
		.flags = KN_GEMM_TB | KN_GEMM8 | (mm->flags & (KN_GEMM_ADD | KN_CU_FP8_FAST)) |
			 (mm->a == KN_E5M2 ? KN_GEMM8_A_E5M2 : 0) |
			 (mm->b == KN_E5M2 ? KN_GEMM8_B_E5M2 : 0),
		.type = mm->out,
		.out = mm->out,
		.align = 16,
	};
}

int kn_cu_gemm_run8(struct kn_cu_gemm *g, const struct kn_cu_mm8 *mm, const void *a,
		    const struct kn_cu_fp8_scale *as, const void *b,
		    const struct kn_cu_fp8_scale *bs, const void *c, void *d,
		    struct CUstream_st *stream)
{
	const struct kn_cu_gemm_key key = key_of(mm);
	const bool add = mm->flags & KN_GEMM_ADD;
	const float *first = &bs->inverse, *second = &as->inverse;	/* the other way round */
	struct kn_cu_gemm_plan *p;
	cublasStatus_t st;
	int rc;

	if (!kn_cu_gemm_fits8(mm, c, d) || ((uintptr_t)a & 15) || ((uintptr_t)b & 15) ||
	    (mm->a == KN_E5M2 && mm->b == KN_E5M2) || !kn_cu_gemm_type(mm->out) ||
	    (add && (!c || (c == d && mm->out != KN_F32))))
		return kn_cu_gemm_fail(g, "kn_cu_gemm_run8", "no such product of 8-bit numbers");
	if (!mm->m || !mm->n)
		return 0;
	rc = kn_cu_gemm_plan_for(g, &key, &p);
	if (rc)
		return rc;
	st = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &first,
					    sizeof(first));
	if (!st)
		st = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
						    &second, sizeof(second));
	if (!st)
		st = kn_cu_gemm_launch(g, p, &p->algo, 1, a, b, c, d, stream);
	return st ? kn_cu_gemm_fail(g, "cublasLtMatmul of 8-bit numbers",
				    cublasLtGetStatusString(st)) : 0;
}
