/* ck_model.c -- see ck_model.h: parameters from shapes, sums, published models. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_model.h"

/* ---- models ---- */

struct ckpt_model *ck_model_new(const char *what)
{
	struct ckpt_model *m = ck_zalloc(sizeof(*m));

	if (!m)
		return NULL;
	m->info.what = ck_arena_strdup(&m->arena, what);
	if (!m->info.what) {
		ck_model_free(m);
		return NULL;
	}
	return m;
}

void ck_model_free(struct ckpt_model *m)
{
	if (!m)
		return;
	ck_arena_release(&m->arena);
	ck_free(m->param);
	ck_free(m);
}

int ck_model_add(struct ckpt_model *m, const struct ck_param *param, struct ckpt_err *err)
{
	if (param->numel > CK_MODEL_MAX - m->total)
		return ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
			       "a model of %" PRIu64 " elements and %" PRIu64 " more exceeds "
			       "the limit of 2^48", m->total, param->numel);
	if (m->n == m->cap) {
		const uint64_t cap = m->cap ? m->cap * 2 : 256;
		struct ck_param *p = ck_alloc_array(cap, sizeof(*p));

		if (!p)
			return ck_fail_nomem(err, "parameters", cap);
		if (m->n)
			memcpy(p, m->param, m->n * sizeof(*p));
		ck_free(m->param);
		m->param = p;
		m->cap = cap;
	}
	m->total += param->numel;
	m->param[m->n++] = *param;
	return 0;
}

void ck_model_sum(struct ckpt_model *m)
{
	struct ckpt_model_info *info = &m->info;
	uint64_t in_module = 0;

	info->params = info->trainable = info->largest = info->largest_module = 0;
	info->groups = 0;
	info->tensors = m->n;
	for (uint64_t i = 0; i < m->n; i++) {
		const struct ck_param *p = &m->param[i];

		in_module = i && p->module == p[-1].module ? in_module + p->numel : p->numel;
		info->params += p->numel;
		info->trainable += p->frozen ? 0 : p->numel;
		if (p->numel > info->largest)
			info->largest = p->numel;
		if (in_module > info->largest_module)
			info->largest_module = in_module;
		if (!p->frozen && p->group >= info->groups)
			info->groups = p->group + 1;
	}
}

/* ---- shapes ---- */

/* A module: a weight, and a bias if it has one. */
static int add(struct ckpt_model *m, uint32_t block, uint64_t weight, uint64_t bias,
	       struct ckpt_err *err)
{
	struct ck_param p = { .numel = weight, .module = m->modules++, .block = block };
	int rc = ck_model_add(m, &p, err);

	p.numel = bias;
	return rc || !bias ? rc : ck_model_add(m, &p, err);
}

static int add_norm(struct ckpt_model *m, const struct ck_shape *s, uint32_t block, uint64_t n,
		    struct ckpt_err *err)
{
	if (s->has & CK_SHAPE_BARE_NORM)
		return 0;
	return add(m, block, n, s->has & CK_SHAPE_RMS ? 0 : n, err);
}

static int add_attention(struct ckpt_model *m, const struct ck_shape *s, uint32_t block,
			 struct ckpt_err *err)
{
	const uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, h = s->hidden;
	const bool bias = s->has & CK_SHAPE_QKV_BIAS, all = s->has & CK_SHAPE_QK_NORM_ALL;
	int rc;

	if (s->has & CK_SHAPE_FUSED_QKV) {
		rc = add(m, block, (q + 2 * kv) * h, bias ? q + 2 * kv : 0, err);
	} else {
		rc = add(m, block, q * h, bias ? q : 0, err);
		for (int i = 0; !rc && i < 2; i++)
			rc = add(m, block, kv * h, bias ? kv : 0, err);
	}
	if (!rc)
		rc = add(m, block, h * q, s->has & CK_SHAPE_O_BIAS ? h : 0, err);
	if (!rc && (all || (s->has & CK_SHAPE_QK_NORM)))
		rc = add(m, block, all ? q : s->head_dim, 0, err);
	if (!rc && (all || (s->has & CK_SHAPE_QK_NORM)))
		rc = add(m, block, all ? kv : s->head_dim, 0, err);
	return rc;
}

static int add_layer(struct ckpt_model *m, const struct ck_shape *s, uint32_t block,
		     struct ckpt_err *err)
{
	const unsigned ups = s->has & CK_SHAPE_GATED ? 2 : 1;
	const uint64_t fused = s->has & CK_SHAPE_FUSED_GATE ? ups : 1;
	const bool bias = s->has & CK_SHAPE_MLP_BIAS;
	int rc = add_attention(m, s, block, err);

	for (unsigned i = 0; !rc && i < ups / fused; i++)
		rc = add(m, block, fused * s->inter * s->hidden, bias ? fused * s->inter : 0, err);
	if (!rc)
		rc = add(m, block, s->inter * s->hidden, bias ? s->hidden : 0, err);
	for (uint32_t i = 0; !rc && i < s->norms; i++)
		rc = add_norm(m, s, block, s->hidden, err);
	return rc;
}

void ck_model_take_arch(struct ckpt_model *m, const struct ck_shape *s)
{
	m->info.arch = (struct ckpt_arch){
		.layers = s->layers, .hidden = s->hidden, .inter = s->inter, .vocab = s->vocab,
		.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim,
		.gated = !!(s->has & CK_SHAPE_GATED), .rms = !!(s->has & CK_SHAPE_RMS),
		.norms = s->norms,
		.qk_norm = !!(s->has & (CK_SHAPE_QK_NORM | CK_SHAPE_QK_NORM_ALL)),
	};
}

int ck_model_add_shape(struct ckpt_model *m, const struct ck_shape *s, struct ckpt_err *err)
{
	int rc = add(m, 0, s->vocab * s->hidden, 0, err);

	if (!rc && s->positions)
		rc = add(m, 0, s->positions * s->hidden, 0, err);
	for (uint64_t i = 0; !rc && i < s->layers; i++)
		rc = add_layer(m, s, (uint32_t)i + 1, err);
	if (!rc)
		rc = add_norm(m, s, CK_BLOCK_BEHIND, s->hidden, err);
	if (!rc && !s->tied)
		rc = add(m, CK_BLOCK_BEHIND, s->vocab * s->hidden, 0, err);
	if (!rc)
		ck_model_take_arch(m, s);
	return rc;
}

/* ---- published models ---- */

#define LLAMA3(h, l, q, d, i, t) \
	{ "llama", l, h, i, 128256, q, 8, d, 0, CK_SHAPE_GATED | CK_SHAPE_RMS, 2, t }
#define QWEN25(h, l, q, kv, d, i, v, t) \
	{ "qwen2", l, h, i, v, q, kv, d, 0, \
	  CK_SHAPE_GATED | CK_SHAPE_RMS | CK_SHAPE_QKV_BIAS, 2, t }
#define QWEN3(h, l, q, i, t) \
	{ "qwen3", l, h, i, 151936, q, 8, 128, 0, \
	  CK_SHAPE_GATED | CK_SHAPE_RMS | CK_SHAPE_QK_NORM, 2, t }

static const struct {
	const char *name;
	struct ck_shape shape;
} published[] = {
	{ "llama-3-8b", LLAMA3(4096, 32, 32, 128, 14336, false) },
	{ "llama-3-70b", LLAMA3(8192, 80, 64, 128, 28672, false) },
	{ "llama-3.2-1b", LLAMA3(2048, 16, 32, 64, 8192, true) },
	{ "llama-3.2-3b", LLAMA3(3072, 28, 24, 128, 8192, true) },
	{ "qwen2.5-0.5b", QWEN25(896, 24, 14, 2, 64, 4864, 151936, true) },
	{ "qwen2.5-1.5b", QWEN25(1536, 28, 12, 2, 128, 8960, 151936, true) },
	{ "qwen2.5-3b", QWEN25(2048, 36, 16, 2, 128, 11008, 151936, true) },
	{ "qwen2.5-7b", QWEN25(3584, 28, 28, 4, 128, 18944, 152064, false) },
	{ "qwen2.5-14b", QWEN25(5120, 48, 40, 8, 128, 13824, 152064, false) },
	{ "qwen2.5-32b", QWEN25(5120, 64, 40, 8, 128, 27648, 152064, false) },
	{ "qwen3-0.6b", QWEN3(1024, 28, 16, 3072, true) },
	{ "qwen3-1.7b", QWEN3(2048, 28, 16, 6144, true) },
	{ "qwen3-4b", QWEN3(2560, 36, 32, 9728, true) },
	{ "qwen3-8b", QWEN3(4096, 36, 32, 12288, false) },
	{ "qwen3-14b", QWEN3(5120, 40, 40, 17408, false) },
	{ "qwen3-32b", QWEN3(5120, 64, 64, 25600, false) },
};

const char *ckpt_model_name(uint32_t number)
{
	return number < CK_ARRAY_LEN(published) ? published[number].name : NULL;
}

static int make_published(size_t i, const char *what, struct ckpt_model **out,
			  struct ckpt_err *err)
{
	struct ckpt_model *m = ck_model_new(what);
	int rc = m ? ck_model_add_shape(m, &published[i].shape, err) :
		     ck_fail_nomem(err, "a model", sizeof(*m));

	if (rc) {
		ck_model_free(m);
		return rc;
	}
	ck_model_sum(m);
	*out = m;
	return 0;
}

int ck_model_named(const char *name, struct ckpt_model **out, struct ckpt_err *err)
{
	char what[80];

	for (size_t i = 0; i < CK_ARRAY_LEN(published); i++) {
		if (strcasecmp(published[i].name, name))
			continue;
		snprintf(what, sizeof(what), "the published shape of %s", published[i].name);
		return make_published(i, what, out, err);
	}
	return ck_fail(err, CKPT_E_NOTFOUND, name, CKPT_NO_OFFSET,
		       "zckpt knows no published model of this name");
}

/* a / b, as far from 1 as it is, whichever is larger. */
static double ratio(uint64_t a, uint64_t b)
{
	return a > b ? (double)a / (double)b : (double)b / (double)a;
}

/* Every parameter in proportion; what rounding leaves goes to the largest. */
static void scale(struct ckpt_model *m, uint64_t params)
{
	const double by = (double)params / (double)m->info.params;
	uint64_t sum = 0, big = 0;

	for (uint64_t i = 0; i < m->n; i++) {
		const double x = (double)m->param[i].numel * by;

		m->param[i].numel = (uint64_t)x;
		if (m->param[i].numel > params - sum)
			m->param[i].numel = params - sum;
		sum += m->param[i].numel;
		if (m->param[i].numel > m->param[big].numel)
			big = i;
	}
	m->param[big].numel += params - sum;
}

int ck_model_count(uint64_t params, struct ckpt_model **out, struct ckpt_err *err)
{
	struct ckpt_model *best = NULL, *m;
	size_t at = 0;
	char what[120];
	int rc = 0;

	if (!params || params > CK_MODEL_MAX)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "%" PRIu64 " parameters: expected 1 to 2^48", params);
	for (size_t i = 0; i < CK_ARRAY_LEN(published); i++) {
		rc = make_published(i, "", &m, err);
		if (rc)
			goto out;
		if (best && ratio(m->info.params, params) >= ratio(best->info.params, params)) {
			ck_model_free(m);
			continue;
		}
		ck_model_free(best);
		best = m;
		at = i;
	}
	best->info.assumed = best->info.params != params && ratio(best->info.params, params) <= 2;
	if (best->info.params == params)
		snprintf(what, sizeof(what), "the number of %s, with its shape",
			 published[at].name);
	else if (best->info.assumed)
		snprintf(what, sizeof(what), "a number; assumed to have the shape of %s",
			 published[at].name);
	else
		snprintf(what, sizeof(what), "a number; no published model is of about this size");
	best->info.what = ck_arena_strdup(&best->arena, what);
	if (!best->info.what)
		rc = ck_fail_nomem(err, "a model", sizeof(what));
	if (!rc && best->info.params != params) {
		scale(best, params);
		if (!best->info.assumed)
			memset(&best->info.arch, 0, sizeof(best->info.arch));
		ck_model_sum(best);
	}
out:
	if (rc)
		ck_model_free(best);
	else
		*out = best;
	return rc;
}
