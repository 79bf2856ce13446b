/*
 * ck_est_share.c -- what one of many ranks has of a model: tensor, pipeline and expert parallel.
 *
 * DeepSpeed 0.19.8 (utils/groups.py, module_inject/auto_ep_folding.py).  A pipeline stage has
 * ranks / pp ranks.  Those of one tensor-parallel position divide the optimizer's states of what is
 * not an expert: dp = ranks / (tp pp).  Experts are not cut by tensor-parallel ranks
 * (expert_tensor_parallel_size is 1), so ranks that have the same experts divide the states of
 * these: edp = ranks / (pp ep).
 */
#include <inttypes.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/estimate/ck_estimate.h"

/* Groups of experts are cut at this many elements (deepspeed/moe/utils.py, max_group_size). */
#define MAX_GROUP UINT64_C(178956971)

/* ---- sizes ---- */

static int divides(uint64_t n, const char *what, uint64_t by, const char *option,
		   struct ckpt_err *err)
{
	if (n % by == 0)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "%" PRIu64 " %s cannot be divided by %s %" PRIu64, n, what, option, by);
}

static int check_ranks(const struct ckpt_setup *s, struct ckpt_share *w, struct ckpt_err *err)
{
	const uint64_t parts = (uint64_t)w->tp * w->pp;

	if (s->gpus % parts)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "%" PRIu32 " ranks cannot be divided by tp %" PRIu32 " x pp %" PRIu32
			       " = %" PRIu64, s->gpus, w->tp, w->pp, parts);
	w->dp = (uint32_t)(s->gpus / parts);
	if (s->gpus / w->pp % w->ep)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "%" PRIu32 " ranks of a stage cannot be divided by ep %" PRIu32,
			       s->gpus / w->pp, w->ep);
	w->edp = s->gpus / w->pp / w->ep;
	return 0;
}

static int check_model(const struct ckpt_model *m, const struct ckpt_share *w,
		       struct ckpt_err *err)
{
	const struct ckpt_arch *a = &m->info.arch;
	int rc;

	if (!m->shaped)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "tp %" PRIu32 ", pp %" PRIu32 " and ep %" PRIu32 " need a "
			       "config.json or a known model, which say how its parameters are "
			       "divided", w->tp, w->pp, w->ep);
	if (w->ep > 1 && !a->experts)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ep %" PRIu32 ", but the model has 0 experts", w->ep);
	if (w->pp > a->layers)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "pp %" PRIu32 " stages, but the model has %" PRIu64 " layers", w->pp,
			       a->layers);
	rc = divides(a->experts, "experts", w->ep, "ep", err);
	if (!rc)
		rc = divides(a->heads, "attention heads", w->tp, "tp", err);
	if (!rc)
		rc = divides(a->kv_heads, "key-value heads", w->tp, "tp", err);
	if (!rc && a->moe_layers < a->layers)
		rc = divides(a->inter, "columns of the MLP", w->tp, "tp", err);
	return rc ? rc : divides(a->shared_inter, "columns of the shared expert", w->tp, "tp", err);
}

static int check_stage(const struct ckpt_setup *s, const struct ckpt_share *w,
		       struct ckpt_err *err)
{
	if (s->engine != CKPT_ENGINE_DEEPSPEED)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain has equal ranks only, not tp %" PRIu32 ", pp %"
			       PRIu32 ", ep %" PRIu32, w->tp, w->pp, w->ep);
	if (s->stage == 3 && ck_share_is_one(w))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "stage 3: each of %" PRIu32 " ranks has a part of every parameter; "
			       "stages 0 to 2 have ranks to list", s->gpus);
	if (s->stage == 3)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "zckpt does not estimate stage 3 with tp %" PRIu32 ", pp %" PRIu32
			       ", ep %" PRIu32 ": use stage 1 or 2", w->tp, w->pp, w->ep);
	if (s->stage == 2 && w->pp > 1)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "DeepSpeed has no stage 2 with pp %" PRIu32 ": use stage 0 or 1",
			       w->pp);
	return 0;
}

int ck_share_check(const struct ckpt_model *m, const struct ckpt_setup *s,
		   const struct ckpt_share *w, struct ckpt_err *err)
{
	int rc = check_model(m, w, err);

	return rc ? rc : check_stage(s, w, err);
}

int ck_share_init(const struct ckpt_model *m, const struct ckpt_setup *s, struct ckpt_share *out,
		  struct ckpt_err *err)
{
	struct ckpt_share w = { .tp = s->tp ? s->tp : 1, .pp = s->pp ? s->pp : 1,
				.ep = s->ep ? s->ep : 1, .dp = s->gpus, .edp = s->gpus,
				.layers = m->info.arch.layers };
	int rc = 0;

	if (!ck_share_is_one(&w)) {
		rc = check_ranks(s, &w, err);
		if (!rc)
			rc = ck_share_check(m, s, &w, err);
	}
	if (!rc)
		*out = w;
	return rc;
}

/* ---- the model of a rank ---- */

/* The first stages have one more where there is a rest. */
uint64_t ck_share_first_layer(const struct ckpt_model *m, const struct ckpt_share *w,
			      uint32_t stage)
{
	const uint64_t all = m->info.arch.layers, rest = all % w->pp;

	return stage * (all / w->pp) + (stage < rest ? stage : rest);
}

static bool is_in(const struct ckpt_model *m, const struct ckpt_share *w, uint32_t stage,
		  const struct ck_param *p)
{
	if (!p->block)
		return stage == 0;
	if (p->block == CK_BLOCK_BEHIND)
		return stage == w->pp - 1;
	return p->block > ck_share_first_layer(m, w, stage) &&
	       p->block <= ck_share_first_layer(m, w, stage + 1);
}

uint64_t ck_share_stage_params(const struct ckpt_model *m, const struct ckpt_share *w,
			       uint32_t stage)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < m->n; i++)
		n += is_in(m, w, stage, &m->param[i]) ? m->param[i].numel : 0;
	return n;
}

/* The most that a rank has of a parameter; with stages the embedding is cut like the head. */
static uint64_t local_numel(const struct ckpt_model *m, const struct ckpt_share *w,
			    const struct ck_param *p)
{
	const uint64_t hidden = m->info.arch.hidden, rows = p->numel / hidden;

	if (p->expert)
		return p->numel / w->ep;
	if (p->cut == CK_CUT_EVEN)
		return p->numel / w->tp;
	if (p->cut == CK_CUT_HEAD || (p->cut == CK_CUT_EMBEDDING && w->pp > 1))
		return (rows / w->tp + !!(rows % w->tp)) * hidden;
	return p->numel;
}

/* Experts that ranks divide have groups of their own, the first of them 'first'. */
struct expert_groups {
	uint32_t first, group;
	uint64_t in_group;
};

static int add_expert(struct ckpt_model *out, struct expert_groups *g, struct ck_param p,
		      struct ckpt_err *err)
{
	if (g->group == 0)
		g->group = g->first;
	if (g->in_group + p.numel > MAX_GROUP && g->in_group) {
		g->group++;
		g->in_group = 0;
	}
	g->in_group += p.numel;
	p.group = g->group;
	return ck_model_add(out, &p, err);
}

/* DeepSpeed has gate and up apart, in one tensor of the rank's experts each. */
static int add_local(const struct ckpt_model *m, const struct ckpt_share *w,
		     struct ckpt_model *out, struct expert_groups *g, uint64_t i,
		     struct ckpt_err *err)
{
	struct ck_param p = m->param[i];
	const bool pair = i + 1 < m->n && m->param[i + 1].module == p.module;
	int rc;

	p.numel = local_numel(m, w, &p);
	if (p.block && p.block != CK_BLOCK_BEHIND)
		p.block -= (uint32_t)ck_share_first_layer(m, w, w->stage);
	if (!p.expert || w->ep == 1)
		return ck_model_add(out, &p, err);
	if (!pair)
		return add_expert(out, g, p, err);
	p.numel /= 2;
	rc = add_expert(out, g, p, err);
	return rc ? rc : add_expert(out, g, p, err);
}

/* The last stage has a copy of a tied embedding. */
static int add_tied(const struct ckpt_model *m, const struct ckpt_share *w, struct ckpt_model *out,
		    struct ckpt_err *err)
{
	struct ck_param p = m->param[0];

	if (!m->tied || w->pp == 1 || w->stage != w->pp - 1)
		return 0;
	p.numel = local_numel(m, w, &p);
	p.block = CK_BLOCK_BEHIND;
	p.module = m->modules;
	return ck_model_add(out, &p, err);
}

static void fill_arch(const struct ckpt_model *m, const struct ckpt_share *w,
		      struct ckpt_model *out)
{
	struct ckpt_arch *a = &out->info.arch;
	uint32_t before = 0;

	*a = m->info.arch;
	out->lora = m->lora;
	out->lora_on = m->lora_on;
	out->lora_drops = m->lora_drops;
	a->layers = ck_share_first_layer(m, w, w->stage + 1) - ck_share_first_layer(m, w, w->stage);
	a->heads /= w->tp;
	a->kv_heads /= w->tp;
	a->inter /= w->tp;
	a->shared_inter /= w->tp;
	a->moe_layers = 0;
	for (uint64_t i = 0; i < out->n; i++) {
		a->moe_layers += out->param[i].expert && out->param[i].block != before;
		before = out->param[i].expert ? out->param[i].block : before;
	}
	if (w->stage < w->pp - 1)
		a->vocab = 0;
	else if (w->pp > 1)
		a->vocab = a->vocab / w->tp + !!(a->vocab % w->tp);
}

int ck_share_model(const struct ckpt_model *m, const struct ckpt_share *w, struct ckpt_model **out,
		   struct ckpt_err *err)
{
	struct expert_groups g = { .first = m->info.groups };
	struct ckpt_model *l = ck_model_new(m->info.what);
	int rc = l ? 0 : ck_fail_nomem(err, "a model", sizeof(*l));

	for (uint64_t i = 0; !rc && i < m->n; i++)
		if (is_in(m, w, w->stage, &m->param[i]))
			rc = add_local(m, w, l, &g, i, err);
	if (!rc)
		rc = add_tied(m, w, l, err);
	if (rc) {
		ck_model_free(l);
		return rc;
	}
	fill_arch(m, w, l);
	ck_model_sum(l);
	*out = l;
	return 0;
}
