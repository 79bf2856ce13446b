/*
 * en_lora.c -- an adapter beside a linear module: y += s B (A d(x)), d being dropout or nothing.
 *
 * The scale is applied to the product, which is rounded after it: t = s A d(x), y += B t.  On the
 * way back d(x) and t are computed again, with the same bits, so that a layer keeps nothing for
 * its adapters.
 *	dB = dy^T t;  u = s dy B;  dA = u^T d(x);  dx += d(u A)
 */
#include "engine/model/en_layer_priv.h"

#define MODULE_STEP 0x9e3779b97f4a7c15u	/* between seeds of modules: 2^64 by the golden ratio */

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

/* ---- dropout ---- */

static bool drops(const struct en_exec *exec)
{
	return exec->model->drop && exec->batch && exec->batch->drop;
}

struct kn_dropout en_drop_of(const struct en_model *model, const struct en_batch *batch,
			     uint32_t layer, enum en_linear linear)
{
	const uint64_t module = (uint64_t)layer * EN_LINEARS + (uint64_t)linear + 1;

	return (struct kn_dropout){
		.seed = batch->drop->seed + MODULE_STEP * module, .sample = batch->drop->sample,
		.tokens = batch->tokens, .below = kn_dropout_below(model->lora.dropout),
	};
}

/* Rows of d(x): out = add + d(x), not rounded where it is added. */
struct dropping {
	struct kn_dropout how;
	const float *x, *add;
	float *out;
	size_t width;
};

static void drop_rows(struct en_exec *exec, void *arg, size_t first, size_t count, size_t job)
{
	const struct dropping *d = arg;
	const size_t at = first * d->width;

	(void)job;
	kn_dropout(d->out + at, d->x + at, d->add ? d->add + at : NULL, first, count, d->width,
		   &d->how, d->add ? KN_F32 : exec->type);
}

static void drop(struct en_exec *exec, const struct en_lora_of *of, const float *x,
		 const float *add, float *out)
{
	struct dropping d = {
		en_drop_of(exec->model, exec->batch, exec->layer, of->linear), x, add, out, of->in,
	};

	en_rows_run(exec, of->n, drop_rows, &d);
}

/* What goes into A: x, or in exec->dropped what is left of it. */
static const float *input(struct en_exec *exec, const struct en_lora_of *of)
{
	if (!drops(exec))
		return of->x;
	drop(exec, of, of->x, NULL, exec->dropped);
	return exec->dropped;
}

/* dx += d(u A), not rounded. */
static void add_dropped(struct en_exec *exec, const float *a, const struct en_lora_of *of,
			float *dx)
{
	struct en_mm mm = en_mm_input(exec->dlora, a, exec->dropped, of->n, of->in,
				      exec->model->lora.r, false);

	en_mm_run(exec, &mm, 1);
	drop(exec, of, exec->dropped, dx, dx);
}

/* ---- an adapter ---- */

/* exec->lora = s A x, of what goes into A. */
static void down(struct en_exec *exec, const float *a, const float *x, const struct en_lora_of *of)
{
	const size_t r = exec->model->lora.r;
	struct scale s = { exec->lora, r };
	struct en_mm mm = en_mm_forward(x, a, NULL, exec->lora, of->n, of->in, r);

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
	down(exec, a, input(exec, of), of);
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
	const float *x;
	size_t n = 0;

	if (!a)
		return;
	x = da || db ? input(exec, of) : NULL;
	if (db) {
		down(exec, a, x, of);
		mm[n] = en_mm_weight(dy, exec->lora, db, of->n, r, of->out, flags);
		mm[n++].lda = ldy;
	}
	mm[n] = en_mm_input(dy, b, exec->dlora, of->n, r, of->out, false);
	mm[n++].lda = ldy;
	en_mm_run(exec, mm, n);
	en_rows_run(exec, of->n, scale_rows, &s);
	n = 0;
	if (da)
		mm[n++] = en_mm_weight(exec->dlora, x, da, of->n, of->in, r, flags);
	if (dx && !drops(exec)) {
		mm[n] = en_mm_input(exec->dlora, a, dx, of->n, of->in, r, true);
		mm[n++].round = false;
	}
	en_mm_run(exec, mm, n);
	if (dx && drops(exec))
		add_dropped(exec, a, of, dx);
}
