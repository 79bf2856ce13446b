/* en_cuda_linear.c -- see en_cuda_linear.h. */
#include "engine/zero/cuda/en_cuda_linear.h"

void en_cuda_forward_mm(struct en_cuda_layer *l, void *y, size_t ld, const void *x, const void *w,
			const void *add, size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = KN_GEMM_TB | (add ? KN_GEMM_ADD : 0),
		.m = l->n,
		.n = out,
		.k = in,
		.lda = in,
		.ldb = in,
		.ldc = ld,
		.ldd = ld,
		.type = l->type,
		.out = l->type,
	};
	const struct en_cuda_linear of = {
		.n = l->n,
		.in = in,
		.out = out,
		.ld = ld,
		.x = x,
		.w = w,
		.add = add,
		.d = y,
	};
	int rc = 0;

	if (!l->rc && en_cuda_fp8_forward(l->c, &of, &rc))
		en_cuda_note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc)
		en_cuda_note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, x, w, add, y, l->c->work),
			     "a product");
}

void en_cuda_input_mm(struct en_cuda_layer *l, void *dx, const void *dy, size_t ld, const void *w,
		      const void *add, size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = add ? KN_GEMM_ADD : 0,
		.m = l->n,
		.n = in,
		.k = out,
		.lda = ld,
		.ldb = in,
		.ldc = in,
		.ldd = in,
		.type = l->type,
		.out = l->type,
	};
	const struct en_cuda_linear of = {
		.n = l->n,
		.in = in,
		.out = out,
		.ld = ld,
		.dy = dy,
		.w = w,
		.add = add,
		.d = dx,
	};
	int rc = 0;

	if (!l->rc && en_cuda_fp8_input(l->c, &of, &rc))
		en_cuda_note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc)
		en_cuda_note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, dy, w, add, dx, l->c->work),
			     "a product");
}

void en_cuda_weight_mm(struct en_cuda_layer *l, void *dw, const void *dy, size_t ld, const void *x,
		       size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = KN_GEMM_TA,
		.m = out,
		.n = in,
		.k = l->n,
		.lda = ld,
		.ldb = in,
		.ldd = in,
		.type = l->type,
		.out = l->c->z.opts.wire,
	};
	const struct en_cuda_linear of = {
		.n = l->n,
		.in = in,
		.out = out,
		.ld = ld,
		.x = x,
		.dy = dy,
		.d = dw,
	};
	int rc = 0;

	if (!l->rc && dw && en_cuda_fp8_weight(l->c, &of, &rc))
		en_cuda_note(l, rc, "a product of 8-bit numbers");
	else if (!l->rc && dw)
		en_cuda_note(l, kn_cu_gemm_run(l->c->gemm, &mm, 1, dy, x, NULL, dw, l->c->work),
			     "a product");
}
