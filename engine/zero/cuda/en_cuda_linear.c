/* en_cuda_linear.c -- see en_cuda_linear.h. */
#include "engine/zero/cuda/en_cuda_linear.h"

#include "kernels/include/kn_cuda_random.h"

/* ---- products ---- */

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

/* ---- adapters ---- */

/* y [n, out] = s x w^T or s x w, small: of an adapter. */
static void scaled_mm(struct en_cuda_layer *l, void *y, const void *x, size_t ld, const void *w,
		      unsigned flags, size_t in, size_t out)
{
	const struct kn_cu_mm mm = {
		.flags = flags,
		.m = l->n,
		.n = out,
		.k = in,
		.lda = ld,
		.ldb = flags & KN_GEMM_TB ? in : out,
		.ldd = out,
		.type = l->type,
		.out = l->type,
	};

	if (!l->rc)
		en_cuda_note(l,
			     kn_cu_gemm_run(l->c->gemm, &mm, l->c->z.model->scale, x, w, NULL, y,
					    l->c->work),
			     "an adapter");
}

bool en_cuda_drops(const struct en_cuda_layer *l)
{
	return l->c->z.model->drop && l->batch->drop;
}

void en_cuda_drop(struct en_cuda_layer *l, enum en_linear linear, void *out, const void *x,
		  const void *add, size_t in)
{
	const struct kn_dropout d = en_drop_of(l->c->z.model, l->batch, l->number, linear);

	if (!l->rc)
		en_cuda_note(l, kn_cu_dropout(out, x, add, l->n, in, &d, l->type, l->c->work),
			     "dropout");
}

/* What goes into A: x, or in c->dropped what is left of it. */
static const void *adapter_input(struct en_cuda_layer *l, enum en_linear linear, const void *x,
				 size_t in)
{
	if (!en_cuda_drops(l))
		return x;
	en_cuda_drop(l, linear, l->c->dropped, x, NULL, in);
	return l->c->dropped;
}

/* c->lora = s x A^T. */
static void adapter_in(struct en_cuda_layer *l, enum en_linear linear, const void *x, size_t in)
{
	scaled_mm(l, l->c->lora, x, in, en_cuda_weight(l, EN_LORA_A + linear), KN_GEMM_TB, in,
		  l->c->z.model->lora.r);
}

const void *en_cuda_adapt(struct en_cuda_layer *l, enum en_linear linear, void *room, size_t ld,
			  const void *x, const void *add, size_t in, size_t out)
{
	if (!en_cuda_has_adapter(l->block, linear))
		return add;
	adapter_in(l, linear, adapter_input(l, linear, x, in), in);
	en_cuda_forward_mm(l, room, ld, l->c->lora, en_cuda_weight(l, EN_LORA_B + linear), add,
			   l->c->z.model->lora.r, out);
	return room;
}

void en_cuda_adapter_back(struct en_cuda_layer *l, enum en_linear linear, const void *dy, size_t ld,
			  size_t out)
{
	scaled_mm(l, l->c->dlora, dy, ld, en_cuda_weight(l, EN_LORA_B + linear), 0, out,
		  l->c->z.model->lora.r);
}

void en_cuda_adapter_grads(struct en_cuda_layer *l, enum en_linear linear, const void *dy,
			   size_t ld, const void *x, size_t in, size_t out)
{
	const size_t r = l->c->z.model->lora.r;

	x = adapter_input(l, linear, x, in);
	en_cuda_weight_mm(l, en_cuda_grad(l, EN_LORA_A + linear), l->c->dlora, r, x, in, r);
	adapter_in(l, linear, x, in);
	en_cuda_weight_mm(l, en_cuda_grad(l, EN_LORA_B + linear), dy, ld, l->c->lora, r, out);
}

const void *en_cuda_adapter_input(struct en_cuda_layer *l, enum en_linear linear, void *room,
				  const void *dy, size_t ld, size_t in, size_t out)
{
	if (!en_cuda_has_adapter(l->block, linear))
		return NULL;
	en_cuda_adapter_back(l, linear, dy, ld, out);
	en_cuda_input_mm(l, room, l->c->dlora, l->c->z.model->lora.r,
			 en_cuda_weight(l, EN_LORA_A + linear), NULL, in, l->c->z.model->lora.r);
	if (en_cuda_drops(l))
		en_cuda_drop(l, linear, room, room, NULL, in);
	return room;
}
