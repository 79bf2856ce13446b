/*
 * en_cuda_fp8.c -- the products of a layer's matrices in 8 bits; docs/internals/gpu.md, "fp8".
 *
 * A tensor has one scale, by its own largest number: inputs and matrices as E4M3, gradients as
 * E5M2.  Copies of 8 bits are made when a product wants them and stay until another tensor takes
 * their room; those of matrices stay for the whole step where several micro-batches use them.
 * What does not fit the products of 8-bit numbers is left to those of 16 bits.
 */
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/ztrain/ck_zt_fp8.h"

/* Matrices of a layer: of the slot, with those that follow it and share its products. */
enum { Q, K, V, O, GATE, DOWN, MATRICES };
/* Their inputs. */
enum { NORM_IN, ATTENTION, NORM_POST, ACT, INPUTS };

#define NONE (-1)

struct matrix {
	enum en_slot slot;
	int input;
	size_t out, in;		/* out 0: part of the one before, or its products do not fit */
	uint64_t at;		/* of its copies, where they stay */
};

/* A layer's scales: of inputs and gradients for a micro-batch, of matrices for a step. */
struct scales {
	struct kn_cu_fp8_scale x[INPUTS], dy[MATRICES];
};

/* What of a layer has scales, by bits. */
struct known {
	uint8_t matrices;	/* and copies, where they stay */
	uint8_t inputs, grads;
	uint8_t turned;		/* inputs whose transposed copies are kept */
};

struct en_cuda_fp8 {
	struct matrix matrix[MATRICES];
	bool wgrad;		/* gradients of matrices too */
	unsigned back;		/* flags of products on the way back */
	bool stays;		/* copies of matrices */
	bool keeps[INPUTS];	/* transposed copies of inputs, from the way forward to that back */
	size_t kept_at[INPUTS];	/* columns in 'kept' */
	uint8_t **kept;		/* [layers]: [sum of the inputs' columns, n], or NULL */
	uint64_t numel;		/* of a layer's matrices */
	uint8_t *a;		/* an input, or a gradient */
	uint8_t *bt;		/* a gradient, transposed */
	uint8_t *ct;		/* an input, transposed */
	uint8_t *w;		/* a matrix, as it is or transposed; or all, both ways */
	struct scales *scale;	/* [layers] */
	struct kn_cu_fp8_scale (*wscale)[MATRICES];	/* [layers] */
	struct known *known;	/* [layers] */
	bool stale;		/* the matrices are others since */
	/* The layer at work, and what is in a (x or dy), bt and ct. */
	uint32_t layer;
	const void *params, *grads;
	int x, dy, dyt, xt;
};

/* Rows and columns of a multiple of 16, and so the bytes before the matrix's gradient. */
static bool does_fit(const struct en_cuda *c, const struct matrix *m)
{
	return m->out % 16 == 0 && m->in % 16 == 0 &&
	       c->z.model->block[1].at[m->slot] * kn_type_size(c->z.opts.wire) % 16 == 0;
}

static void take_shapes(struct en_cuda_fp8 *f, const struct en_cuda *c)
{
	const struct en_model_config *m = &c->z.model->config;
	const size_t q = (size_t)m->heads * m->head_dim, kv = (size_t)m->kv_heads * m->head_dim;
	const bool three = c->z.model->block[1].at[EN_Q_BIAS] != UINT64_MAX;
	const struct matrix list[MATRICES] = {
		[Q] = { EN_Q, NORM_IN, three ? q : q + 2 * kv, m->hidden, 0 },
		[K] = { EN_K, NORM_IN, three ? kv : 0, m->hidden, 0 },
		[V] = { EN_V, NORM_IN, three ? kv : 0, m->hidden, 0 },
		[O] = { EN_O, ATTENTION, m->hidden, q, 0 },
		[GATE] = { EN_GATE, NORM_POST, 2 * (size_t)m->inter, m->hidden, 0 },
		[DOWN] = { EN_DOWN, ACT, m->hidden, m->inter, 0 },
	};

	for (int i = 0; i < INPUTS; i++)
		f->keeps[i] = f->wgrad && en_cuda_keeps_all(c);
	for (int i = 0; i < MATRICES; i++) {
		f->matrix[i] = list[i];
		if (!does_fit(c, &list[i])) {
			f->matrix[i].out = 0;
			f->keeps[list[i].input] = false;
		}
		f->matrix[i].at = f->numel;
		f->numel += (uint64_t)f->matrix[i].out * list[i].in;
	}
}

static int take_kept(struct en_cuda_fp8 *f, struct en_cuda *c, struct ckpt_err *err)
{
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	const size_t in[INPUTS] = {
		f->matrix[Q].in, f->matrix[O].in, f->matrix[GATE].in, f->matrix[DOWN].in,
	};
	const uint32_t layers = c->z.model->config.layers;
	size_t all = 0;
	int rc = 0;

	for (int i = 0; i < INPUTS; i++) {
		f->kept_at[i] = all;
		all += f->keeps[i] ? in[i] : 0;
	}
	f->kept = ck_zalloc(layers * sizeof(*f->kept));
	if (!f->kept)
		return ck_fail_nomem(err, "layers", layers);
	for (uint32_t i = 0; !rc && all && i < layers; i++)
		rc = en_cuda_new(c, EN_MEM_ACTIVATIONS, n * all, &f->kept[i], err);
	return rc;
}

_Static_assert(MATRICES == CK_ZT_FP8_MATRICES && INPUTS == CK_ZT_FP8_INPUTS &&
	       sizeof(struct kn_cu_fp8_scale) == CK_ZT_FP8_SCALE, "sizes of ck_zt_fp8.h");

static int take_memory(struct en_cuda_fp8 *f, struct en_cuda *c, struct ckpt_err *err)
{
	struct ck_zt_fp8_setup s = {
		.n = (uint64_t)c->z.opts.rows * c->z.opts.tokens,
		.layers = c->z.model->config.layers, .wgrad = f->wgrad, .stays = f->stays,
	};
	struct ck_zt_fp8 size;
	int rc;

	for (int i = 0; i < MATRICES; i++) {
		s.matrix[i].out = f->matrix[i].out;
		s.matrix[i].in = f->matrix[i].in;
	}
	ck_zt_fp8(&s, &size);
	rc = en_cuda_new(c, EN_MEM_WORK, size.a, &f->a, err);
	if (!rc && size.bt)
		rc = en_cuda_new(c, EN_MEM_WORK, size.bt, &f->bt, err);
	if (!rc && size.ct)
		rc = en_cuda_new(c, EN_MEM_WORK, size.ct, &f->ct, err);
	if (!rc)
		rc = en_cuda_new(c, EN_MEM_WORK, size.w, &f->w, err);
	if (!rc)
		rc = en_cuda_new(c, EN_MEM_WORK, size.scale, &f->scale, err);
	return rc ? rc : en_cuda_new(c, EN_MEM_WORK, size.wscale, &f->wscale, err);
}

/* Each layer has its parameters at the same places as the first. */
static bool is_uniform(const struct en_model *m)
{
	const struct en_block *first = &m->block[1];

	for (uint32_t i = 2; i <= m->config.layers; i++)
		if (memcmp(m->block[i].at, first->at, sizeof(first->at)) != 0)
			return false;
	return true;
}

int en_cuda_fp8_new(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_cuda_fp8 *f;
	int rc;

	if (!c->cuda.fp8)
		return 0;
	if (c->z.opts.type == KN_F32)
		return ck_fail(err, CKPT_E_UNSUPPORTED, "GPU", CKPT_NO_OFFSET,
			       "--fp8 needs bf16 or fp16, and the precision is fp32; give "
			       "--precision bf16");
	if (!is_uniform(c->z.model))
		return ck_fail(err, CKPT_E_UNSUPPORTED, "GPU", CKPT_NO_OFFSET,
			       "--fp8 needs layers that are alike, and --freeze freezes other "
			       "parameters in some; freeze the same in all layers, or leave out "
			       "one of the two options");
	f = c->fp8 = ck_zalloc(sizeof(*f));
	if (!f)
		return ck_fail_nomem(err, "scales", sizeof(*f));
	f->known = ck_alloc_array(c->z.model->config.layers, sizeof(*f->known));
	if (!f->known)
		return ck_fail_nomem(err, "scales", c->z.model->config.layers);
	f->stale = true;
	f->back = c->cuda.fp8 == EN_CUDA_FP8_TENSORWISE_FAST ? KN_CU_FP8_FAST : 0;
	/* beside frozen matrices those of the others are in 16 bits */
	f->wgrad = c->cuda.fp8 != EN_CUDA_FP8_TENSORWISE_GW_HP && !c->z.model->block[1].frozen;
	f->stays = en_cuda_is_whole(c) && (c->z.opts.micro_batches > 1 || en_cuda_keeps_all(c));
	take_shapes(f, c);
	rc = take_kept(f, c, err);
	return rc ? rc : take_memory(f, c, err);
}

void en_cuda_fp8_free(struct en_cuda *c)
{
	if (c->fp8) {
		ck_free(c->fp8->known);
		ck_free(c->fp8->kept);
	}
	ck_free(c->fp8);
}

void en_cuda_fp8_stale(struct en_cuda *c)
{
	if (c->fp8)
		c->fp8->stale = true;
}

int en_cuda_fp8_begin(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_cuda_fp8 *f = c->fp8;
	const uint32_t layers = c->z.model->config.layers;
	int rc;

	if (!f)
		return 0;
	rc = (int)cudaMemsetAsync(f->scale, 0, layers * sizeof(*f->scale), c->work);
	if (!rc && f->stale)
		rc = (int)cudaMemsetAsync(f->wscale, 0, layers * sizeof(*f->wscale), c->work);
	for (uint32_t i = 0; i < layers; i++) {
		f->known[i].inputs = f->known[i].grads = f->known[i].turned = 0;
		if (f->stale)
			f->known[i].matrices = 0;
	}
	f->stale = false;
	return en_cuda_cuda(rc, "scales", err);
}

void en_cuda_fp8_layer(struct en_cuda *c, uint32_t layer, const void *params, const void *grads)
{
	struct en_cuda_fp8 *f = c->fp8;

	if (!f)
		return;
	f->layer = layer;
	f->params = params;
	f->grads = grads;
	f->x = f->dy = f->dyt = f->xt = NONE;
}

/* ---- copies of 8 bits ---- */

/* Of the matrix at w (or whose gradient is there) with 'out' rows, or NONE. */
static int find(const struct en_cuda *c, const void *p, const void *of, size_t out,
		enum kn_type type)
{
	const struct en_cuda_fp8 *f = c->fp8;

	for (int i = 0; f && p && of && i < MATRICES; i++)
		if (f->matrix[i].out == out &&
		    p == en_cuda_at_const(of, c->z.model->block[1].at[f->matrix[i].slot], type))
			return i;
	return NONE;
}

/* The kernel that makes a tensor finds its largest number, too; NULL: it is known. */
static struct kn_cu_fp8_scale *note(uint8_t *known, int i, struct kn_cu_fp8_scale *s)
{
	const bool has = *known >> i & 1;

	*known = (uint8_t)(*known | 1 << i);
	return has ? NULL : &s[i];
}

static int input_of(enum en_slot slot)
{
	return slot == EN_Q ? NORM_IN : slot == EN_GATE ? NORM_POST : ACT;
}

struct kn_cu_fp8_scale *en_cuda_fp8_of_input(struct en_cuda *c, enum en_slot slot)
{
	struct en_cuda_fp8 *f = c->fp8;

	return f ? note(&f->known[f->layer].inputs, input_of(slot), f->scale[f->layer].x) : NULL;
}

bool en_cuda_fp8_keeps(const struct en_cuda *c, enum en_slot slot)
{
	return c->fp8 && c->fp8->keeps[input_of(slot)];
}

bool en_cuda_fp8_has(const struct en_cuda *c, enum en_slot slot)
{
	return c->fp8 && c->fp8->known[c->fp8->layer].turned >> input_of(slot) & 1;
}

struct kn_cu_fp8_scale *en_cuda_fp8_of_grad(struct en_cuda *c, enum en_slot slot, bool before)
{
	struct en_cuda_fp8 *f = c->fp8;
	const int i = slot == EN_O ? O : slot == EN_GATE ? GATE : DOWN;

	if (!f || (before && !f->layer))
		return NULL;
	return note(&f->known[f->layer - before].grads, i, f->scale[f->layer - before].dy);
}

/* As it is, or transposed. */
static int get_matrix(struct en_cuda *c, int i, const void *w, bool turned, const void **out)
{
	struct en_cuda_fp8 *f = c->fp8;
	const struct matrix *m = &f->matrix[i];
	struct kn_cu_fp8_scale *s = &f->wscale[f->layer][i];
	uint8_t *known = &f->known[f->layer].matrices, *plain = f->w, *other = f->w;
	const bool has = *known >> i & 1;
	int rc = 0;

	if (f->stays) {
		plain += 2 * (f->layer * f->numel + m->at);
		other = plain + m->out * m->in;
	}
	if (!has)
		rc = kn_cu_fp8_amax(s, w, c->z.opts.type, m->in, m->out, m->in, c->work);
	if (!rc && !(f->stays && has))
		rc = kn_cu_fp8_cast(f->stays || !turned ? plain : NULL,
				    f->stays || turned ? other : NULL, s, KN_E4M3, w,
				    c->z.opts.type, m->in, m->out, m->in, c->work);
	*known = (uint8_t)(*known | 1 << i);
	*out = turned ? other : plain;
	return rc;
}

/* To 'y', or transposed to 'yt'; either may be NULL. */
static int copy_input(struct en_cuda *c, int i, void *y, void *yt, const void *x, size_t n,
		      size_t in)
{
	struct en_cuda_fp8 *f = c->fp8;
	struct kn_cu_fp8_scale *s = f->scale[f->layer].x;
	int rc = 0;

	if (note(&f->known[f->layer].inputs, i, s))
		rc = kn_cu_fp8_amax(&s[i], x, c->z.opts.type, in, n, in, c->work);
	return rc ? rc : kn_cu_fp8_cast(y, yt, &s[i], KN_E4M3, x, c->z.opts.type, in, n, in,
					c->work);
}

/* To 'a', and with the same read to where its transposed copy is kept. */
static int get_input(struct en_cuda *c, int i, const void *x, size_t n, size_t in)
{
	struct en_cuda_fp8 *f = c->fp8;
	struct known *known = &f->known[f->layer];
	void *kept = NULL;

	if (f->x == i)
		return 0;
	f->x = i;
	f->dy = NONE;
	if (f->keeps[i] && n % 16 == 0) {
		kept = f->kept[f->layer] + f->kept_at[i] * n;
		known->turned = (uint8_t)(known->turned | 1 << i);
	}
	return copy_input(c, i, f->a, kept, x, n, in);
}

/* As it was kept, or to 'ct'. */
static int get_turned(struct en_cuda *c, int i, const void *x, size_t n, size_t in,
		      const void **out)
{
	struct en_cuda_fp8 *f = c->fp8;

	if (f->known[f->layer].turned >> i & 1) {
		*out = f->kept[f->layer] + f->kept_at[i] * n;
		return 0;
	}
	*out = f->ct;
	if (f->xt == i)
		return 0;
	f->xt = i;
	return copy_input(c, i, NULL, f->ct, x, n, in);
}

/* To 'a', and with 'turned' transposed to 'bt'. */
static int get_grad(struct en_cuda *c, int i, const void *dy, size_t ld, size_t n, size_t out,
		    bool turned)
{
	struct en_cuda_fp8 *f = c->fp8;
	struct kn_cu_fp8_scale *s = f->scale[f->layer].dy;
	int rc = 0;

	if (turned ? f->dyt == i : f->dy == i)
		return 0;
	if (note(&f->known[f->layer].grads, i, s))
		rc = kn_cu_fp8_amax(&s[i], dy, c->z.opts.type, ld, n, out, c->work);
	f->dy = i;
	f->x = NONE;
	if (turned)
		f->dyt = i;
	return rc ? rc : kn_cu_fp8_cast(f->a, turned ? f->bt : NULL, &s[i], KN_E5M2,
					dy, c->z.opts.type, ld, n, out, c->work);
}

/* ---- products ---- */

bool en_cuda_fp8_forward(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out)
{
	const int i = find(c, l->w, c->fp8 ? c->fp8->params : NULL, l->out,
			   c->z.opts.type);
	const struct kn_cu_mm8 mm = {
		.flags = KN_CU_FP8_FAST | (l->add ? KN_GEMM_ADD : 0), .m = l->n, .n = l->out,
		.k = l->in, .ldc = l->ld, .ldd = l->ld, .a = KN_E4M3, .b = KN_E4M3,
		.out = c->z.opts.type,
	};
	struct en_cuda_fp8 *f = c->fp8;
	const void *w = NULL;

	if (i == NONE || !kn_cu_gemm_fits8(&mm, l->add, l->d))
		return false;
	*rc_out = get_matrix(c, i, l->w, false, &w);
	if (!*rc_out)
		*rc_out = get_input(c, f->matrix[i].input, l->x, l->n, l->in);
	if (!*rc_out)
		*rc_out = kn_cu_gemm_run8(c->gemm, &mm, f->a,
					  &f->scale[f->layer].x[f->matrix[i].input], w,
					  &f->wscale[f->layer][i], l->add, l->d, c->work);
	return true;
}

/* Whether a gradient is wanted transposed as well. */
static bool has_wgrad(const struct en_cuda_fp8 *f, const struct en_cuda_linear *l)
{
	return f->wgrad && f->grads && l->in % 16 == 0 && l->n % 16 == 0;
}

bool en_cuda_fp8_input(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out)
{
	const int i = find(c, l->w, c->fp8 ? c->fp8->params : NULL, l->out,
			   c->z.opts.type);
	const struct kn_cu_mm8 mm = {
		.flags = (c->fp8 ? c->fp8->back : 0) | (l->add ? KN_GEMM_ADD : 0), .m = l->n,
		.n = l->in, .k = l->out, .ldc = l->in, .ldd = l->in, .a = KN_E5M2, .b = KN_E4M3,
		.out = c->z.opts.type,
	};
	struct en_cuda_fp8 *f = c->fp8;
	const void *w = NULL;

	if (i == NONE || !kn_cu_gemm_fits8(&mm, l->add, l->d))
		return false;
	*rc_out = get_matrix(c, i, l->w, true, &w);
	if (!*rc_out)
		*rc_out = get_grad(c, i, l->dy, l->ld, l->n, l->out, has_wgrad(f, l));
	if (!*rc_out)
		*rc_out = kn_cu_gemm_run8(c->gemm, &mm, f->a, &f->scale[f->layer].dy[i], w,
					  &f->wscale[f->layer][i], l->add, l->d, c->work);
	return true;
}

bool en_cuda_fp8_weight(struct en_cuda *c, const struct en_cuda_linear *l, int *rc_out)
{
	const int i = find(c, l->d, c->fp8 ? c->fp8->grads : NULL, l->out,
			   c->z.opts.wire);
	const struct kn_cu_mm8 mm = {
		.flags = c->fp8 ? c->fp8->back : 0, .m = l->out, .n = l->in, .k = l->n,
		.ldd = l->in, .a = KN_E5M2, .b = KN_E4M3, .out = c->z.opts.wire,
	};
	struct en_cuda_fp8 *f = c->fp8;
	const void *x = NULL;

	if (i == NONE || !has_wgrad(f, l) || !kn_cu_gemm_fits8(&mm, NULL, l->d))
		return false;
	*rc_out = get_grad(c, i, l->dy, l->ld, l->n, l->out, true);
	if (!*rc_out)
		*rc_out = get_turned(c, f->matrix[i].input, l->x, l->n, l->in, &x);
	if (!*rc_out)
		*rc_out = kn_cu_gemm_run8(c->gemm, &mm, f->bt, &f->scale[f->layer].dy[i], x,
					  &f->scale[f->layer].x[f->matrix[i].input], NULL, l->d,
					  c->work);
	return true;
}
