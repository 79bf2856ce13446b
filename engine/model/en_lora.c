/*
 * en_lora.c -- an adapter beside a linear module: y += s B (A x).
 *
 * The scale is applied to A x, which is rounded after it: t = s A x, y += B t.  On the way back t
 * is computed again, with the same bits, so that a layer keeps nothing for its adapters.
 *	dB = dy^T t;  u = s dy B;  dA = u^T x;  dx += u A
 */
#include "engine/model/en_layer_priv.h"

struct scale {
	float *p;
	size_t r;
};

static void scale_rows(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct scale *s = arg;
	float *p = s->p + first * s->r;

	(void)job;
	kn_scale(p, p, exec->model->scale, count * s->r);
	kn_round(p, count * s->r, exec->type);
}

/* exec->lora = s A x. */
static void down(struct en_exec *exec, const float *a, const struct en_lora_of *of)
{
	const size_t r = exec->model->lora.r;
	struct scale s = { exec->lora, r };
	struct en_mm mm = en_mm_forward(of->x, a, NULL, exec->lora, of->n, of->in, r);

	en_mm_run(exec, &mm, 1);
	en_rows_run(exec, of->n, scale_rows, &s);
}

void en_lora_forward(struct en_exec *exec, const struct en_layer_const *w,
		     const struct en_lora_of *of, float *y, size_t ldy)
{
	const float *a = w->slot[EN_LORA_A + of->linear], *b = w->slot[EN_LORA_B + of->linear];
	struct en_mm mm;

	if (!a)
		return;
	down(exec, a, of);
	mm = en_mm_forward(exec->lora, b, NULL, y, of->n, exec->model->lora.r, of->out);
	mm.flags |= KN_GEMM_ADD;
	mm.ldc = ldy;
	en_mm_run(exec, &mm, 1);
}

void en_lora_backward(struct en_exec *exec, const struct en_layer_const *w,
		      const struct en_layer *g, const struct en_lora_of *of, const float *dy,
		      size_t ldy, float *dx, unsigned flags)
{
	const size_t r = exec->model->lora.r;
	const float *a = w->slot[EN_LORA_A + of->linear], *b = w->slot[EN_LORA_B + of->linear];
	float *da = g->slot[EN_LORA_A + of->linear], *db = g->slot[EN_LORA_B + of->linear];
	struct scale s = { exec->dlora, r };
	struct en_mm mm[2];
	size_t n = 0;

	if (!a)
		return;
	if (db) {
		down(exec, a, of);
		mm[n] = en_mm_weight(dy, exec->lora, db, of->n, r, of->out, flags);
		mm[n++].lda = ldy;
	}
	mm[n] = en_mm_input(dy, b, exec->dlora, of->n, r, of->out, false);
	mm[n++].lda = ldy;
	en_mm_run(exec, mm, n);
	en_rows_run(exec, of->n, scale_rows, &s);
	n = 0;
	if (da)
		mm[n++] = en_mm_weight(exec->dlora, of->x, da, of->n, of->in, r, flags);
	if (dx) {
		mm[n] = en_mm_input(exec->dlora, a, dx, of->n, of->in, r, true);
		mm[n++].round = false;
	}
	en_mm_run(exec, mm, n);
}
