/* ck_model.c -- see ck_model.h: sums, published models. */
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

/* 0: the shape is not known, or is not that of these parameters. */
static uint64_t active(const struct ckpt_model_info *info)
{
	const struct ckpt_arch *a = &info->arch;
	const uint64_t idle = a->moe_layers * (a->experts - a->top_k) * 3 * a->expert_inter *
			      a->hidden;

	return a->layers && idle < info->params ? info->params - idle : 0;
}

void ck_model_sum(struct ckpt_model *m)
{
	struct ckpt_model_info *info = &m->info;
	uint64_t in_module = 0;

	info->params = info->tower = info->trainable = info->largest = info->largest_module = 0;
	info->groups = 0;
	info->tensors = m->n;
	for (uint64_t i = 0; i < m->n; i++) {
		const struct ck_param *p = &m->param[i];

		in_module = i && p->module == p[-1].module ? in_module + p->numel : p->numel;
		info->params += p->numel;
		info->tower += p->tower ? p->numel : 0;
		info->trainable += p->frozen ? 0 : p->numel;
		if (p->numel > info->largest)
			info->largest = p->numel;
		if (in_module > info->largest_module)
			info->largest_module = in_module;
		if (!p->frozen && p->group >= info->groups)
			info->groups = p->group + 1;
	}
	info->active = active(info);
}

void ck_model_freeze_tower(struct ckpt_model *m)
{
	for (uint64_t i = 0; i < m->n; i++)
		m->param[i].frozen |= m->param[i].tower;
	ck_model_sum(m);
}

/* ---- published models ---- */

#define LLAMA (CK_SHAPE_GATED | CK_SHAPE_RMS)
#define LLAMA3(h, l, q, d, i, t) \
	{ .type = "llama", .layers = l, .hidden = h, .inter = i, .vocab = 128256, .heads = q, \
	  .kv_heads = 8, .head_dim = d, .has = LLAMA, .norms = 2, .tied = t }
#define QWEN25(h, l, q, kv, d, i, v, t) \
	{ .type = "qwen2", .layers = l, .hidden = h, .inter = i, .vocab = v, .heads = q, \
	  .kv_heads = kv, .head_dim = d, .has = LLAMA | CK_SHAPE_QKV_BIAS, .norms = 2, .tied = t }
#define QWEN3(h, l, q, i, t) \
	{ .type = "qwen3", .layers = l, .hidden = h, .inter = i, .vocab = 151936, .heads = q, \
	  .kv_heads = 8, .head_dim = 128, .has = LLAMA | CK_SHAPE_QK_NORM, .norms = 2, .tied = t }
#define MIXTRAL(h, l, q, i, v) \
	{ .type = "mixtral", .layers = l, .hidden = h, .inter = i, .vocab = v, .heads = q, \
	  .kv_heads = 8, .head_dim = 128, .has = LLAMA, .norms = 2, \
	  .moe = { .experts = 8, .top_k = 2, .inter = i } }
#define QWEN3_MOE(h, l, q, i, w) \
	{ .type = "qwen3_moe", .layers = l, .hidden = h, .inter = i, .vocab = 151936, .heads = q, \
	  .kv_heads = 4, .head_dim = 128, .has = LLAMA | CK_SHAPE_QK_NORM, .norms = 2, \
	  .moe = { .experts = 128, .top_k = 8, .inter = w } }

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
	{ "mixtral-8x7b", MIXTRAL(4096, 32, 32, 14336, 32000) },
	{ "mixtral-8x22b", MIXTRAL(6144, 56, 48, 16384, 32768) },
	{ "qwen3-30b-a3b", QWEN3_MOE(2048, 48, 32, 6144, 768) },
	{ "qwen3-235b-a22b", QWEN3_MOE(4096, 94, 64, 12288, 1536) },
	{ "deepseek-v3", { .type = "deepseek_v3", .layers = 61, .hidden = 7168, .inter = 18432,
			   .vocab = 129280, .heads = 128, .kv_heads = 128, .has = LLAMA,
			   .norms = 2,
			   .moe = { .experts = 256, .top_k = 8, .inter = 2048, .shared = 2048,
				    .first_dense = 3 },
			   .mla = { .q_rank = 1536, .kv_rank = 512, .nope = 128, .rope = 64,
				    .v = 128 } } },
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
		if (published[i].shape.moe.experts)
			continue;	/* a number alone is that of a dense model */
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
		if (!best->info.assumed) {
			memset(&best->info.arch, 0, sizeof(best->info.arch));
			best->shaped = false;
		}
		ck_model_sum(best);
	}
out:
	if (rc)
		ck_model_free(best);
	else
		*out = best;
	return rc;
}
