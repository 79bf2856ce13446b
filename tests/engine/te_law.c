/* te_law.c -- see te_law.h.  Plain on purpose: everything is kept, nothing is shared. */
#include "tests/engine/te_law.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/ref/kn_ref_train.h"

struct law {
	const struct en_model *m;
	const struct en_model_config *c;
	const struct en_batch *batch;
	size_t n, h, q, kv, d, inter;
	double eps, *cos, *sin;
};

/* What a layer keeps. */
struct kept {
	double *w, *x, *u1, *q0, *k0, *q, *k, *v, *o, *mid, *u2, *gate, *up, *act;
};

static double *make(size_t n)
{
	double *p = t_alloc(n * sizeof(*p));

	memset(p, 0, n * sizeof(*p));
	return p;
}

static double *widen(const float *from, size_t n)
{
	double *p = make(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (double)from[i];
	return p;
}

static double *slot(const struct law *l, double *block, enum en_slot s)
{
	const uint64_t at = l->m->block[1].at[s];

	return at == UINT64_MAX ? NULL : block + at;
}

/* y = x W^T + b */
static void project(const struct law *l, const double *x, const double *w, const double *b,
		    double *y, size_t in, size_t out)
{
	kn_ref_gemm(KN_GEMM_TB, l->n, out, in, x, in, w, in, y, out);
	for (size_t i = 0; b && i < l->n * out; i++)
		y[i] += b[i % out];
}

/* dx += dy W, dW += dy^T x, db += sums of dy */
static void project_back(const struct law *l, const double *dy, const double *x, const double *w,
			 double *dx, double *dw, double *db, size_t in, size_t out)
{
	kn_ref_gemm(KN_GEMM_ADD, l->n, in, out, dy, out, w, in, dx, in);
	kn_ref_gemm(KN_GEMM_ADD | KN_GEMM_TA, out, in, l->n, dy, out, x, in, dw, in);
	for (size_t i = 0; db && i < l->n * out; i++)
		db[i % out] += dy[i];
}

/* The columns of one key/value head of one sample, there or back. */
static void head_copy(double *head, double *all, size_t rows, size_t width, size_t ld, int back)
{
	for (size_t i = 0; i < rows; i++, head += width, all += ld)
		memcpy(back ? all : head, back ? head : all, width * sizeof(double));
}

struct heads {
	double *q, *k, *v, *o, *dq, *dk, *dv;
};

static void attend(const struct law *l, struct kept *k, const double *go, double *dq, double *dk,
		   double *dv)
{
	const size_t t = l->batch->tokens, group = l->c->heads / l->c->kv_heads, gd = group * l->d;
	const double scale = 1 / sqrt((double)l->d);
	struct heads s = { make(t * gd), make(t * l->d), make(t * l->d), make(t * gd),
			   make(t * gd), make(t * l->d), make(t * l->d) };

	for (size_t j = 0; j < l->batch->rows * l->c->kv_heads; j++) {
		const size_t row = j / l->c->kv_heads * t, head = j % l->c->kv_heads;
		const size_t at = row * l->q + head * gd, kat = row * l->kv + head * l->d;

		head_copy(s.q, k->q + at, t, gd, l->q, 0);
		head_copy(s.k, k->k + kat, t, l->d, l->kv, 0);
		head_copy(s.v, k->v + kat, t, l->d, l->kv, 0);
		if (!go) {
			kn_ref_attn(s.o, s.q, s.k, s.v, t, group, l->d, scale);
			head_copy(s.o, k->o + at, t, gd, l->q, 1);
			continue;
		}
		head_copy(s.o, (double *)(uintptr_t)go + at, t, gd, l->q, 0);
		kn_ref_attn_back(s.dq, s.dk, s.dv, s.o, s.q, s.k, s.v, t, group, l->d, scale);
		head_copy(s.dq, dq + at, t, gd, l->q, 1);
		head_copy(s.dk, dk + kat, t, l->d, l->kv, 1);
		head_copy(s.dv, dv + kat, t, l->d, l->kv, 1);
	}
	free(s.q);
	free(s.k);
	free(s.v);
	free(s.o);
	free(s.dq);
	free(s.dk);
	free(s.dv);
}

static void turn(const struct law *l, double *q, double *k, double sign)
{
	const size_t t = l->batch->tokens;

	kn_ref_rope(q, l->cos, l->sin, l->n, 0, t, l->c->heads, l->d, sign);
	kn_ref_rope(k, l->cos, l->sin, l->n, 0, t, l->c->kv_heads, l->d, sign);
}

static void forward(const struct law *l, struct kept *k, double *y)
{
	double *rstd = make(l->n * l->c->heads);

	k->u1 = make(l->n * l->h);
	k->q0 = make(l->n * l->q);
	k->k0 = make(l->n * l->kv);
	k->q = make(l->n * l->q);
	k->k = make(l->n * l->kv);
	k->v = make(l->n * l->kv);
	k->o = make(l->n * l->q);
	k->mid = make(l->n * l->h);
	k->u2 = make(l->n * l->h);
	k->gate = make(l->n * l->inter);
	k->up = make(l->n * l->inter);
	k->act = make(l->n * l->inter);
	kn_ref_rmsnorm(k->u1, rstd, k->x, slot(l, k->w, EN_NORM_IN), l->n, l->h, l->eps);
	project(l, k->u1, slot(l, k->w, EN_Q), slot(l, k->w, EN_Q_BIAS), k->q0, l->h, l->q);
	project(l, k->u1, slot(l, k->w, EN_K), slot(l, k->w, EN_K_BIAS), k->k0, l->h, l->kv);
	project(l, k->u1, slot(l, k->w, EN_V), slot(l, k->w, EN_V_BIAS), k->v, l->h, l->kv);
	memcpy(k->q, k->q0, l->n * l->q * sizeof(double));
	memcpy(k->k, k->k0, l->n * l->kv * sizeof(double));
	if (slot(l, k->w, EN_Q_NORM)) {
		kn_ref_rmsnorm(k->q, rstd, k->q0, slot(l, k->w, EN_Q_NORM), l->n * l->c->heads,
			       l->d, l->eps);
		kn_ref_rmsnorm(k->k, rstd, k->k0, slot(l, k->w, EN_K_NORM), l->n * l->c->kv_heads,
			       l->d, l->eps);
	}
	turn(l, k->q, k->k, 1);
	attend(l, k, NULL, NULL, NULL, NULL);
	project(l, k->o, slot(l, k->w, EN_O), NULL, k->mid, l->q, l->h);
	for (size_t i = 0; i < l->n * l->h; i++)
		k->mid[i] += k->x[i];
	kn_ref_rmsnorm(k->u2, rstd, k->mid, slot(l, k->w, EN_NORM_POST), l->n, l->h, l->eps);
	project(l, k->u2, slot(l, k->w, EN_GATE), NULL, k->gate, l->h, l->inter);
	project(l, k->u2, slot(l, k->w, EN_UP), NULL, k->up, l->h, l->inter);
	kn_ref_swiglu(k->act, k->gate, k->up, l->n * l->inter);
	project(l, k->act, slot(l, k->w, EN_DOWN), NULL, y, l->inter, l->h);
	for (size_t i = 0; i < l->n * l->h; i++)
		y[i] += k->mid[i];
	free(rstd);
}

/* dx becomes the gradient of the layer's input. */
static void backward(const struct law *l, struct kept *k, double *dx, double *g)
{
	double *da = make(l->n * l->inter), *du = make(l->n * l->inter), *dn = make(l->n * l->h);
	double *more = make(l->n * l->h), *go = make(l->n * l->q), *dq = make(l->n * l->q);
	double *dk = make(l->n * l->kv), *dv = make(l->n * l->kv), *dq0 = make(l->n * l->q);
	double *dk0 = make(l->n * l->kv);

	project_back(l, dx, k->act, slot(l, k->w, EN_DOWN), da, slot(l, g, EN_DOWN), NULL, l->inter,
		     l->h);
	kn_ref_swiglu_back(da, du, da, k->gate, k->up, l->n * l->inter);
	project_back(l, da, k->u2, slot(l, k->w, EN_GATE), dn, slot(l, g, EN_GATE), NULL, l->h,
		     l->inter);
	project_back(l, du, k->u2, slot(l, k->w, EN_UP), dn, slot(l, g, EN_UP), NULL, l->h,
		     l->inter);
	kn_ref_rmsnorm_back(more, slot(l, g, EN_NORM_POST), dn, k->mid,
			    slot(l, k->w, EN_NORM_POST), l->n, l->h, l->eps);
	for (size_t i = 0; i < l->n * l->h; i++)
		dx[i] += more[i];
	project_back(l, dx, k->o, slot(l, k->w, EN_O), go, slot(l, g, EN_O), NULL, l->q, l->h);
	attend(l, k, go, dq, dk, dv);
	turn(l, dq, dk, -1);
	memcpy(dq0, dq, l->n * l->q * sizeof(double));
	memcpy(dk0, dk, l->n * l->kv * sizeof(double));
	if (slot(l, k->w, EN_Q_NORM)) {
		kn_ref_rmsnorm_back(dq0, slot(l, g, EN_Q_NORM), dq, k->q0,
				    slot(l, k->w, EN_Q_NORM), l->n * l->c->heads, l->d, l->eps);
		kn_ref_rmsnorm_back(dk0, slot(l, g, EN_K_NORM), dk, k->k0,
				    slot(l, k->w, EN_K_NORM), l->n * l->c->kv_heads, l->d, l->eps);
	}
	memset(dn, 0, l->n * l->h * sizeof(double));
	project_back(l, dq0, k->u1, slot(l, k->w, EN_Q), dn, slot(l, g, EN_Q),
		     slot(l, g, EN_Q_BIAS), l->h, l->q);
	project_back(l, dk0, k->u1, slot(l, k->w, EN_K), dn, slot(l, g, EN_K),
		     slot(l, g, EN_K_BIAS), l->h, l->kv);
	project_back(l, dv, k->u1, slot(l, k->w, EN_V), dn, slot(l, g, EN_V),
		     slot(l, g, EN_V_BIAS), l->h, l->kv);
	kn_ref_rmsnorm_back(more, slot(l, g, EN_NORM_IN), dn, k->x, slot(l, k->w, EN_NORM_IN),
			    l->n, l->h, l->eps);
	for (size_t i = 0; i < l->n * l->h; i++)
		dx[i] += more[i];
	free(da);
	free(du);
	free(dn);
	free(more);
	free(go);
	free(dq);
	free(dk);
	free(dv);
	free(dq0);
	free(dk0);
}

static void kept_free(struct kept *k)
{
	double *all[] = { k->w, k->x, k->u1, k->q0, k->k0, k->q, k->k, k->v, k->o, k->mid, k->u2,
			  k->gate, k->up, k->act };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
}

/* Norm, logits, loss; dx, dnorm and dhead get their gradients. */
static double head(const struct law *l, const double *x, const double *norm_w, const double *w,
		   double factor, double *dx, double *dnorm, double *dhead)
{
	const size_t v = l->c->vocab, t = l->batch->tokens;
	double *y = make(l->n * l->h), *rstd = make(l->n), *logits = make(l->n * v);
	double *dlogits = make(l->n * v), *dy = make(l->n * l->h), *loss = make(l->n), sum = 0;
	int32_t *target = t_alloc(l->n * sizeof(*target));

	for (size_t i = 0; i < l->n; i++) {
		const int32_t label = (i + 1) % t ? l->batch->labels[i + 1] : -100;

		target[i] = label < 0 ? -1 : label;
	}
	kn_ref_rmsnorm(y, rstd, x, norm_w, l->n, l->h, l->eps);
	project(l, y, w, NULL, logits, l->h, v);
	kn_ref_xent(dlogits, loss, logits, target, l->n, v, factor);
	project_back(l, dlogits, y, w, dy, dhead, NULL, l->h, v);
	kn_ref_rmsnorm_back(dx, dnorm, dy, x, norm_w, l->n, l->h, l->eps);
	for (size_t i = 0; i < l->n; i++)
		sum += loss[i];
	free(y);
	free(rstd);
	free(logits);
	free(dlogits);
	free(dy);
	free(loss);
	free(target);
	return sum;
}

static void fill_rope(struct law *l)
{
	const struct en_rope *r = &l->c->rope;
	const size_t half = l->d / 2;

	l->cos = make(l->batch->tokens * half);
	l->sin = make(l->batch->tokens * half);
	for (size_t i = 0; i < l->batch->tokens * half; i++) {
		const double f = pow(r->theta, -2.0 * (double)(i % half) / (double)l->d);

		l->cos[i] = cos((double)(i / half) * f);
		l->sin[i] = sin((double)(i / half) * f);
	}
}

double te_law(const struct en_model *model, const struct te_buffers *weight,
	      const struct en_batch *batch, double factor, struct te_buffers *grad)
{
	const struct en_model_config *c = &model->config;
	struct law l = { .m = model, .c = c, .batch = batch, .h = c->hidden, .d = c->head_dim,
			 .n = (size_t)batch->rows * batch->tokens, .inter = c->inter,
			 .q = (size_t)c->heads * c->head_dim,
			 .kv = (size_t)c->kv_heads * c->head_dim, .eps = c->norm_eps };
	struct kept *kept = t_alloc(c->layers * sizeof(*kept));
	double *embed = widen(weight->block[0], model->block[0].numel);
	double *last = widen(weight->block[c->layers + 1], model->block[c->layers + 1].numel);
	double *x = make(l.n * l.h), *g0 = grad->block[0], *gl = grad->block[c->layers + 1], sum;

	fill_rope(&l);
	for (size_t i = 0; i < l.n; i++)
		memcpy(x + i * l.h, embed + (size_t)batch->ids[i] * l.h, l.h * sizeof(*x));
	for (uint32_t i = 0; i < c->layers; i++) {
		kept[i] = (struct kept){ .w = widen(weight->block[i + 1],
						    model->block[i + 1].numel), .x = x };
		x = make(l.n * l.h);
		forward(&l, &kept[i], x);
	}
	for (uint32_t b = 0; b < model->nblocks; b++)
		memset(grad->block[b], 0, model->block[b].numel * sizeof(double));
	sum = head(&l, x, last, c->tied ? embed : last + l.h, factor, x, gl,
		   c->tied ? g0 : gl + l.h);
	for (uint32_t i = c->layers; i-- > 0;)
		backward(&l, &kept[i], x, grad->block[i + 1]);
	for (size_t i = 0; i < l.n * l.h; i++)
		g0[(size_t)batch->ids[i / l.h] * l.h + i % l.h] += x[i];
	for (uint32_t i = 0; i < c->layers; i++)
		kept_free(&kept[i]);
	free(kept);
	free(embed);
	free(last);
	free(x);
	free(l.cos);
	free(l.sin);
	return sum;
}
