/*
 * gen_model.h - the tensor list of a Llama model by its dimensions, in the
 * order of state_dict(), and the values of its elements. A value is a pure
 * function of (seed, state, element number), so any writer can make any range
 * of any tensor without keeping the model in memory.
 */
#ifndef GEN_MODEL_H
#define GEN_MODEL_H

#include "tests/bench/gen_pickle.h"

enum gen_state { GEN_MASTER, GEN_EXP_AVG, GEN_EXP_AVG_SQ, GEN_BUFFER };

struct gen_dims {
	const char *name;
	uint64_t hidden, layers, vocab, ffn, kv;
};

struct gen_param {
	char name[80];
	uint64_t shape[2];
	size_t nd;
	uint64_t n;		/* elements */
	uint64_t base;		/* number of its first element in the model */
	int group;		/* 0: decay, 1: no decay, -1: a buffer */
	uint64_t in_group;	/* elements of the group that stand before it */
};

struct gen_model {
	struct gen_param *p;
	size_t np;		/* parameters and buffers */
	size_t count[2];	/* parameters by group */
	uint64_t total[2];	/* elements by group */
	uint64_t elems;		/* elements of all, buffers too */
	uint64_t seed;
};

/* Sizes in the comments are those of the fp32 output. */
static const struct gen_dims gen_presets[] = {
	{ "llama-tiny", 64, 2, 257, 176, 32 },
	{ "llama-0.2b", 1024, 10, 32000, 2816, 1024 },	/* 0.8 GB */
	{ "llama-0.8b", 1536, 26, 32000, 4096, 512 },	/* 3 GB */
	{ "llama-7b", 4096, 32, 32000, 11008, 4096 },	/* 27 GB */
	{ "llama-16b", 5120, 50, 32000, 13824, 5120 },	/* 65 GB */
	{ "llama-70b", 8192, 80, 128256, 28672, 1024 },
	{ "llama-405b", 16384, 126, 128256, 53248, 1024 },
};

#define GEN_PRESETS (sizeof gen_presets / sizeof *gen_presets)

static uint64_t gen_layer_elems(const struct gen_dims *d)
{
	return 2 * d->hidden * (d->hidden + d->kv) + 3 * d->hidden * d->ffn +
	       2 * d->hidden;
}

/* The preset next below bytes of fp32, with layers to make up the rest. */
static struct gen_dims gen_dims_for(uint64_t bytes)
{
	struct gen_dims d = gen_presets[0], best = d;

	for (size_t i = 0; i < GEN_PRESETS; i++) {
		d = gen_presets[i];
		if (8 * d.vocab * d.hidden + 8 * gen_layer_elems(&d) <= bytes)
			best = d;
	}
	d = best;
	d.layers = 1;
	if (bytes > 8 * d.vocab * d.hidden)
		d.layers = (bytes - 8 * d.vocab * d.hidden) /
			   (4 * gen_layer_elems(&d));
	d.layers += !d.layers;
	return d;
}

static void gen_add(struct gen_model *m, const char *name, size_t nd,
		    uint64_t d0, uint64_t d1, int group)
{
	struct gen_param *p;

	if (m->np % 64 == 0)
		m->p = gen_alloc(m->p, (m->np + 64) * sizeof *m->p);
	p = &m->p[m->np++];
	memset(p, 0, sizeof *p);
	snprintf(p->name, sizeof p->name, "%s", name);
	p->nd = nd;
	p->shape[0] = d0;
	p->shape[1] = d1;
	p->n = nd == 2 ? d0 * d1 : d0;
	p->base = m->elems;
	p->group = group;
	m->elems += p->n + (p->n & 1);	/* values come in pairs */
	if (group < 0)
		return;
	p->in_group = m->total[group];
	m->total[group] += p->n;
	m->count[group]++;
}

static void gen_layer(struct gen_model *m, const struct gen_dims *d, uint64_t i)
{
	const struct { const char *name; uint64_t d0, d1; } w[] = {
		{ "self_attn.q_proj", d->hidden, d->hidden },
		{ "self_attn.k_proj", d->kv, d->hidden },
		{ "self_attn.v_proj", d->kv, d->hidden },
		{ "self_attn.o_proj", d->hidden, d->hidden },
		{ "mlp.gate_proj", d->ffn, d->hidden },
		{ "mlp.up_proj", d->ffn, d->hidden },
		{ "mlp.down_proj", d->hidden, d->ffn },
		{ "input_layernorm", d->hidden, 0 },
		{ "post_attention_layernorm", d->hidden, 0 },
	};
	char name[80];

	for (size_t k = 0; k < sizeof w / sizeof *w; k++) {
		snprintf(name, sizeof name, "model.layers.%llu.%s.weight",
			 (unsigned long long)i, w[k].name);
		gen_add(m, name, w[k].d1 ? 2 : 1, w[k].d0, w[k].d1, !w[k].d1);
	}
}

static void gen_model_make(struct gen_model *m, const struct gen_dims *d,
			   uint64_t seed)
{
	memset(m, 0, sizeof *m);
	m->seed = seed;
	gen_add(m, "model.embed_tokens.weight", 2, d->vocab, d->hidden, 0);
	for (uint64_t i = 0; i < d->layers; i++)
		gen_layer(m, d, i);
	gen_add(m, "model.norm.weight", 1, d->hidden, 0, 1);
	gen_add(m, "model.rotary_emb.inv_freq", 1, 64, 0, -1);
	gen_add(m, "lm_head.weight", 2, d->vocab, d->hidden, 0);
}

static uint64_t gen_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Sign mask and lowest exponent of a state's values; four exponents wide. */
static uint32_t gen_shape_bits(uint32_t h, enum gen_state st)
{
	static const uint32_t sign[] = { 0x80000000, 0x80000000, 0, 0 };
	static const uint32_t low[] = { 119, 107, 92, 122 };

	return (h & (sign[st] | 0x7fffff)) | (low[st] + (h >> 23 & 3)) << 23;
}

static void gen_floats(const struct gen_model *m, enum gen_state st,
		       uint64_t first, size_t n, uint32_t *out)
{
	uint64_t s = gen_mix(m->seed * 4 + st), at = first >> 1;
	size_t i = 0;

	if (n && first & 1)
		out[i++] = gen_shape_bits((uint32_t)(gen_mix(s + at++) >> 32), st);
	for (; i + 2 <= n; i += 2) {
		uint64_t h = gen_mix(s + at++);

		out[i] = gen_shape_bits((uint32_t)h, st);
		out[i + 1] = gen_shape_bits((uint32_t)(h >> 32), st);
	}
	if (i < n)
		out[i] = gen_shape_bits((uint32_t)gen_mix(s + at), st);
}

/* Rounds to nearest even; the values here are finite. */
static uint16_t gen_bf16(uint32_t f)
{
	return (uint16_t)((f + 0x7fff + (f >> 16 & 1)) >> 16);
}

static void gen_bf16s(const struct gen_model *m, enum gen_state st,
		      uint64_t first, size_t n, uint16_t *out)
{
	uint32_t tmp[1024];

	while (n) {
		size_t k = n < 1024 ? n : 1024;

		gen_floats(m, st, first, k, tmp);
		for (size_t i = 0; i < k; i++)
			out[i] = gen_bf16(tmp[i]);
		first += k;
		out += k;
		n -= k;
	}
}

#endif
