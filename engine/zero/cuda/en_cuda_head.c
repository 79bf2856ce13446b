/* en_cuda_head.c -- the two ends of the model: tokens in, loss out. */
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"

/* ---- what a batch is made of ---- */

/* target[b, t] = labels[b, t + 1]; -1 counts as nothing. */
static void fill_targets(const struct en_batch *b, int32_t *target)
{
	const size_t n = (size_t)b->rows * b->tokens;

	for (size_t i = 0; i < n; i++) {
		const bool last = (i + 1) % b->tokens == 0;

		target[i] = last || !b->labels || b->labels[i + 1] < 0 ? -1 : b->labels[i + 1];
	}
}

static int copy_up(struct en_cuda *c, int32_t *to, const int32_t *from, size_t n,
		   struct ckpt_err *err)
{
	return en_cuda_cuda((int)cudaMemcpyAsync(to, from, n * sizeof(*to), cudaMemcpyHostToDevice,
						 c->work), "tokens", err);
}

/* The host's side is free again when the micro-batch is over: its end is waited for. */
int en_cuda_upload(struct en_cuda *c, const struct en_batch *b, struct ckpt_err *err)
{
	const size_t n = (size_t)b->rows * b->tokens;
	int32_t *ids = c->host_ids, *target = ids + n, *id = target + n, *begin = id + n,
		*at = begin + n + 1, *starts = at + n;
	int rc;

	memcpy(ids, b->ids, n * sizeof(*ids));
	fill_targets(b, target);
	c->nid = kn_cu_embed_list(ids, n, id, begin, at, c->host_list);
	rc = copy_up(c, c->ids, ids, n, err);
	if (!rc)
		rc = copy_up(c, c->target, target, n, err);
	if (!rc)
		rc = copy_up(c, c->list_id, id, c->nid, err);
	if (!rc)
		rc = copy_up(c, c->list_begin, begin, c->nid + 1, err);
	c->seams = en_batch_has_seams(b);
	if (!rc && c->seams) {
		memcpy(starts, b->starts, n * sizeof(*starts));
		rc = copy_up(c, c->starts, starts, n, err);
	}
	return rc ? rc : copy_up(c, c->list_at, at, n, err);
}

/* ---- embedding ---- */

int en_cuda_embed_forward(struct en_zero_pass *p, const void *params, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);

	return en_cuda_cuda(kn_cu_embed(c->x[0], params, c->ids,
					(size_t)p->batch->rows * p->batch->tokens,
					c->z.model->config.hidden, c->z.opts.type, c->work),
			    "the embedding", err);
}

/* A tied model's head has written into the same matrix. */
int en_cuda_embed_backward(struct en_zero_pass *p, void *grads, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);
	const enum kn_type wire = c->z.opts.wire;
	const bool add = c->z.model->config.tied;
	int rc = 0;

	if (!add)
		rc = (int)cudaMemsetAsync(grads, 0, c->z.block[0].numel * kn_type_size(wire),
					  c->work);
	if (!rc)
		rc = kn_cu_embed_back(grads, wire, c->g, c->list_id, c->list_begin, c->list_at,
				      c->nid, c->z.model->config.hidden, c->z.opts.type,
				      add ? KN_CU_ADD : 0, c->work);
	return en_cuda_cuda(rc, "the embedding", err);
}

/* ---- head ---- */

struct head {
	struct en_cuda *c;
	const void *w;
	void *dhead;		/* NULL: frozen, or the loss alone */
	bool back;
	enum kn_type dtype;	/* of dhead as it is summed */
	float factor;
	size_t n;
};

/* Positions [first, first + n): their loss, and the gradient of c->h in its place. */
static int chunk(struct head *h, size_t first, size_t n)
{
	struct en_cuda *c = h->c;
	const size_t hidden = c->z.model->config.hidden, vocab = c->z.model->config.vocab;
	const enum kn_type type = c->z.opts.type;
	void *x = en_cuda_at(c->h, first * hidden, type), *dx = en_cuda_at(c->g, first * hidden,
									   type);
	const struct kn_cu_mm logits = {
		.flags = KN_GEMM_TB, .m = n, .n = vocab, .k = hidden, .lda = hidden, .ldb = hidden,
		.ldd = vocab, .type = type, .out = type,
	}, input = {
		.m = n, .n = hidden, .k = vocab, .lda = vocab, .ldb = hidden, .ldd = hidden,
		.type = type, .out = type,
	}, weight = {
		.flags = KN_GEMM_TA | (first ? KN_GEMM_ADD : 0), .m = vocab, .n = hidden, .k = n,
		.lda = vocab, .ldb = hidden, .ldc = hidden, .ldd = hidden, .type = type,
		.out = h->dtype,
	};
	int rc = kn_cu_gemm_run(c->gemm, &logits, 1, x, h->w, NULL, c->logits, c->work);

	if (!rc)
		rc = kn_cu_xent(c->logits, c->loss + first, c->target + first, n, vocab,
				h->back ? &h->factor : NULL, type, c->work);
	if (rc || !h->back)
		return rc;
	if (h->dhead)
		rc = kn_cu_gemm_run(c->gemm, &weight, 1, c->logits, x, first ? h->dhead : NULL,
				    h->dhead, c->work);
	return rc ? rc : kn_cu_gemm_run(c->gemm, &input, 1, c->logits, h->w, NULL, dx, c->work);
}

static int chunks(struct head *h)
{
	int rc = 0;

	for (size_t at = 0; !rc && at < h->n; at += h->c->chunk)
		rc = chunk(h, at, h->n - at < h->c->chunk ? h->n - at : h->c->chunk);
	return rc;
}

static int fail(struct en_cuda *c, int rc, struct ckpt_err *err)
{
	return rc < 0 ? en_cuda_attn(rc, kn_cu_gemm_why(c->gemm), err) : en_cuda_cuda(rc,
										      "the head", err);
}

int en_cuda_head(struct en_zero_pass *p, const struct en_zero_head *of, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(p->z);
	const struct en_model_config *m = &c->z.model->config;
	const enum kn_type type = c->z.opts.type, wire = c->z.opts.wire;
	const void *x = c->x[m->layers];
	struct head h = {
		.c = c, .w = of->head, .dhead = of->dhead && c->dhead ? c->dhead : of->dhead,
		.back = p->back, .dtype = c->dhead ? KN_F32 : wire, .factor = p->factor,
		.n = (size_t)p->batch->rows * p->batch->tokens,
	};
	const uint64_t norm_at = p->z->model->block[m->layers + 1].at[EN_NORM_FINAL];
	const void *norm = en_cuda_at_const(of->params, norm_at, type);
	float *rstd = c->loss + h.n;
	int rc = kn_cu_rmsnorm(c->h, rstd, x, norm, h.n, m->hidden, (float)m->norm_eps, type,
			       c->work);

	if (!rc)
		rc = chunks(&h);
	if (!rc)
		rc = kn_cu_sum_f32(c->result, c->loss, h.n, 0, c->work);
	if (rc || !h.back)
		return fail(c, rc, err);
	if (of->dhead && c->dhead)
		rc = kn_cu_cast(of->dhead, wire, c->dhead, KN_F32, (size_t)m->vocab * m->hidden,
				c->work);
	if (!rc)
		rc = kn_cu_rmsnorm_back(c->g, of->dnorm ? of->dnorm : c->unused, wire, c->g, x,
					rstd, norm, NULL, h.n, m->hidden, type, 0, c->part,
					c->work);
	return fail(c, rc, err);
}
