/*
 * en_cuda_adapter.c -- adapters of a layer; see en_cuda_linear.h.  What goes through A of modules
 * side by side is one product of all their A's, one after the other in c->lora_a, unless dropout
 * gives each an input of its own.
 */
#include <cuda_runtime_api.h>

#include "engine/zero/cuda/en_cuda_linear.h"
#include "kernels/include/kn_cuda_random.h"

/* Modules with one input, the columns of their outputs, and the adapters that they have. */
struct side {
	enum en_linear first;
	uint32_t n;
	size_t in, ld, at[3], out[3];
	size_t r, all; /* of one, of all that have one */
	void *z;       /* [n, all]: kept */
};

static struct side side_of(const struct en_cuda_layer *l, enum en_linear first)
{
	const struct en_model *model = l->c->z.model;
	const size_t hidden = model->config.hidden, inter = model->config.inter;
	const size_t q = l->qk.ldq, kv = l->qk.ldk;
	struct side s = {.first = first, .n = 1, .in = hidden, .ld = hidden, .out = {hidden}};

	if (first == EN_LINEAR_Q)
		s = (struct side){first, 3, hidden, l->c->ld, {0, q, q + kv}, {q, kv, kv}, 0, 0, 0};
	else if (first == EN_LINEAR_GATE)
		s = (struct side){first, 2, hidden, 2 * inter, {0, inter}, {inter, inter}, 0, 0, 0};
	else
		s.in = first == EN_LINEAR_O ? q : inter;
	s.r = model->lora.r;
	s.all = s.r * en_cuda_adapters(model, first, first + s.n);
	s.z = en_cuda_at(l->kept->lora, l->n * s.r * en_cuda_adapters(model, EN_LINEAR_Q, first),
			 l->type);
	return s;
}

/* The column of module i's adapter in z. */
static size_t column(const struct en_cuda_layer *l, const struct side *s, uint32_t i)
{
	return s->r * en_cuda_adapters(l->c->z.model, s->first, s->first + i);
}

static bool has(const struct en_cuda_layer *l, const struct side *s, uint32_t i)
{
	return en_cuda_has_adapter(l->block, s->first + i);
}

static bool drops(const struct en_cuda_layer *l)
{
	return l->c->z.model->drop && l->batch->drop;
}

static void drop(struct en_cuda_layer *l, enum en_linear linear, void *out, const void *x,
		 const void *add, size_t in)
{
	const struct kn_dropout d = en_drop_of(l->c->z.model, l->batch, l->number, linear);

	if (!l->rc)
		en_cuda_note(l, kn_cu_dropout(out, x, add, l->n, in, &d, l->type, l->c->work),
			     "dropout");
}

static void product(struct en_cuda_layer *l, struct kn_cu_mm mm, float scale, const void *a,
		    const void *b, const void *add, void *d)
{
	mm.type = l->type;
	mm.flags |= add ? KN_GEMM_ADD : 0;
	mm.ldc = mm.ldd;
	if (!l->rc)
		en_cuda_note(l, kn_cu_gemm_run(l->c->gemm, &mm, scale, a, b, add, d, l->c->work),
			     "an adapter");
}

static void copy(struct en_cuda_layer *l, void *to, const void *from, size_t bytes)
{
	if (!l->rc)
		en_cuda_note(
			l,
			(int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, l->c->work),
			"an adapter");
}

/* All A's as one matrix [all, in]. */
static const void *joined(struct en_cuda_layer *l, const struct side *s)
{
	const size_t one = s->r * s->in;

	for (uint32_t i = 0; i < s->n; i++) {
		const void *a = has(l, s, i) ? en_cuda_weight(l, EN_LORA_A + s->first + i) : NULL;

		if (a && s->all == s->r)
			return a;
		if (a)
			copy(l, en_cuda_at(l->c->lora_a, column(l, s, i) * s->in, l->type), a,
			     one * kn_type_size(l->type));
	}
	return l->c->lora_a;
}

/* The gradients of all A's from one matrix [all, in]. */
static void split(struct en_cuda_layer *l, const struct side *s, const void *da)
{
	const enum kn_type wire = l->c->z.opts.wire;
	const size_t one = s->r * s->in;

	for (uint32_t i = 0; i < s->n; i++)
		if (has(l, s, i))
			copy(l, en_cuda_grad(l, EN_LORA_A + s->first + i),
			     en_cuda_at_const(da, column(l, s, i) * s->in, wire),
			     one * kn_type_size(wire));
}

/* z from column 'at' on = s x a^T, of r rows of a. */
static void through_a(struct en_cuda_layer *l, const struct side *s, size_t at, const void *x,
		      const void *a, size_t r)
{
	product(l,
		(struct kn_cu_mm){
			.flags = KN_GEMM_TB,
			.m = l->n,
			.n = r,
			.k = s->in,
			.lda = s->in,
			.ldb = s->in,
			.ldd = s->all,
			.out = l->type,
		},
		l->c->z.model->scale, x, a, NULL, en_cuda_at(s->z, at, l->type));
}

void en_cuda_adapter_in(struct en_cuda_layer *l, enum en_linear first, const void *x)
{
	const struct side s = side_of(l, first);

	if (s.all && !drops(l))
		through_a(l, &s, 0, x, joined(l, &s), s.all);
	for (uint32_t i = 0; i < s.n && drops(l); i++) {
		if (!has(l, &s, i))
			continue;
		drop(l, first + i, l->c->dropped, x, NULL, s.in);
		through_a(l, &s, column(l, &s, i), l->c->dropped,
			  en_cuda_weight(l, EN_LORA_A + first + i), s.r);
	}
}

const void *en_cuda_adapt(struct en_cuda_layer *l, enum en_linear first, void *room, const void *x,
			  const void *add)
{
	const struct side s = side_of(l, first);

	if (!s.all)
		return add;
	en_cuda_adapter_in(l, first, x);
	for (uint32_t i = 0; i < s.n; i++)
		if (has(l, &s, i))
			product(l,
				(struct kn_cu_mm){
					.flags = KN_GEMM_TB,
					.m = l->n,
					.n = s.out[i],
					.k = s.r,
					.lda = s.all,
					.ldb = s.r,
					.ldd = s.ld,
					.out = l->type,
				},
				1, en_cuda_at_const(s.z, column(l, &s, i), l->type),
				en_cuda_weight(l, EN_LORA_B + first + i), add,
				en_cuda_at(room, s.at[i], l->type));
	return room;
}

void en_cuda_adapter_back(struct en_cuda_layer *l, enum en_linear first, const void *dy)
{
	const struct side s = side_of(l, first);

	for (uint32_t i = 0; i < s.n; i++)
		if (has(l, &s, i))
			product(l,
				(struct kn_cu_mm){
					.m = l->n,
					.n = s.r,
					.k = s.out[i],
					.lda = s.ld,
					.ldb = s.r,
					.ldd = s.all,
					.out = l->type,
				},
				l->c->z.model->scale, en_cuda_at_const(dy, s.at[i], l->type),
				en_cuda_weight(l, EN_LORA_B + first + i), NULL,
				en_cuda_at(l->c->dlora, column(l, &s, i), l->type));
}

uint32_t en_cuda_adapter_terms(const struct en_cuda_layer *l, enum en_linear first)
{
	const struct side s = side_of(l, first);

	return drops(l) ? en_cuda_adapters(l->c->z.model, first, first + s.n) : s.all > 0;
}

/* to [n, in] = add + r columns of c->dlora from 'at' on, times a. */
static void back_through_a(struct en_cuda_layer *l, const struct side *s, size_t at, const void *a,
			   size_t r, const void *add, void *to)
{
	product(l,
		(struct kn_cu_mm){
			.m = l->n,
			.n = s->in,
			.k = r,
			.lda = s->all,
			.ldb = s->in,
			.ldd = s->in,
			.out = l->type,
		},
		1, en_cuda_at_const(l->c->dlora, at, l->type), a, add, to);
}

void en_cuda_adapter_term(struct en_cuda_layer *l, enum en_linear first, uint32_t term, void *to,
			  const void *add)
{
	const struct side s = side_of(l, first);
	uint32_t i = 0;

	if (!drops(l)) {
		back_through_a(l, &s, 0, joined(l, &s), s.all, add, to);
		return;
	}
	while (!has(l, &s, i) || column(l, &s, i) != term * s.r)
		i++;
	back_through_a(l, &s, term * s.r, en_cuda_weight(l, EN_LORA_A + first + i), s.r, NULL,
		       l->c->dropped);
	drop(l, first + i, to, l->c->dropped, add, s.in);
}

/* da [r, in] = r columns of c->dlora from 'at' on, transposed, times x. */
static void grad_of_a(struct en_cuda_layer *l, const struct side *s, size_t at, const void *x,
		      size_t r, void *da)
{
	product(l,
		(struct kn_cu_mm){
			.flags = KN_GEMM_TA,
			.m = r,
			.n = s->in,
			.k = l->n,
			.lda = s->all,
			.ldb = s->in,
			.ldd = s->in,
			.out = l->c->z.opts.wire,
		},
		1, en_cuda_at_const(l->c->dlora, at, l->type), x, NULL, da);
}

static void grads_of_a(struct en_cuda_layer *l, const struct side *s, const void *x)
{
	const bool join = !drops(l) && s->all > s->r;

	if (join) {
		grad_of_a(l, s, 0, x, s->all, l->c->lora_da);
		split(l, s, l->c->lora_da);
	}
	for (uint32_t i = 0; i < s->n && !join; i++) {
		if (!has(l, s, i))
			continue;
		if (drops(l))
			drop(l, s->first + i, l->c->dropped, x, NULL, s->in);
		grad_of_a(l, s, column(l, s, i), drops(l) ? l->c->dropped : x, s->r,
			  en_cuda_grad(l, EN_LORA_A + s->first + i));
	}
}

void en_cuda_adapter_grads(struct en_cuda_layer *l, enum en_linear first, const void *dy,
			   const void *x)
{
	const struct side s = side_of(l, first);

	grads_of_a(l, &s, x);
	for (uint32_t i = 0; i < s.n; i++)
		if (has(l, &s, i))
			product(l,
				(struct kn_cu_mm){
					.flags = KN_GEMM_TA,
					.m = s.out[i],
					.n = s.r,
					.k = l->n,
					.lda = s.ld,
					.ldb = s.all,
					.ldd = s.r,
					.out = l->c->z.opts.wire,
				},
				1, en_cuda_at_const(dy, s.at[i], l->type),
				en_cuda_at_const(s.z, column(l, &s, i), l->type), NULL,
				en_cuda_grad(l, EN_LORA_B + first + i));
}

const void *en_cuda_adapter_input(struct en_cuda_layer *l, enum en_linear linear, void *room,
				  const void *dy)
{
	if (!en_cuda_has_adapter(l->block, linear))
		return NULL;
	en_cuda_adapter_back(l, linear, dy);
	en_cuda_adapter_term(l, linear, 0, room, NULL);
	return room;
}
