/*
 * ck_est_layers.c -- a save of ranks with tensor, pipeline and expert parallel sizes: DeepSpeed's
 * files of layers and experts, and the same state in a folder of Megatron-Core.  The rules, and the
 * folders that they were compared with: docs/internals/memory.md.
 */
#include "libckpt/estimate/ck_estimate.h"

#define STEP_BYTES 4u

/* Megatron-Core pads the vocabulary to a multiple of this, for each tensor-parallel rank. */
#define MCORE_ROWS 128u

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Elements by what file has them. */
struct stage {
	uint64_t dense, experts;	/* of a rank */
	uint64_t largest, files;	/* parts with parameters: embedding, layers, norm, head */
	uint64_t tied;			/* of the copy of the embedding, which has no file */
	uint64_t trained;		/* parameters */
};

/* Parts of a pipeline: everything before the layers, each layer, and each module after them. */
static void count(const struct ck_estimating *e, struct stage *s)
{
	const struct ckpt_model *m = e->m;
	uint64_t part = 0;

	for (uint64_t i = 0; i < m->n; i++) {
		const struct ck_param *p = &m->param[i];
		const bool mine = !(p->expert && e->share->ep > 1);
		const bool same = i && p[-1].block == p->block &&
				  (p->block != CK_BLOCK_BEHIND || p[-1].module == p->module);

		s->trained += !p->frozen;
		if (!mine) {
			s->experts += p->numel;
			continue;
		}
		s->dense += p->numel;
		if (p->block == CK_BLOCK_BEHIND && p->cut == CK_CUT_EMBEDDING) {
			s->tied = p->numel;
			continue;
		}
		s->files += !same;
		part = same ? part + p->numel : p->numel;
		s->largest = most(s->largest, part);
	}
}

static void add_experts(const struct ck_estimating *e, struct ckpt_save *sum)
{
	const struct ckpt_arch *a = &e->m->info.arch;

	if (e->share->ep == 1)
		return;
	sum->expert_files += a->moe_layers * a->experts * e->share->tp;
	sum->expert_bytes = e->b * 3 * a->expert_inter * a->hidden;
}

/* AutoEP keeps the router's weight under its old name too, as a tensor of its own. */
static uint64_t routers(const struct ck_estimating *e)
{
	const struct ckpt_arch *a = &e->m->info.arch;

	return e->share->ep > 1 ? a->moe_layers * a->experts * a->hidden : 0;
}

void ck_est_save_stage(const struct ck_estimating *e, struct ckpt_save *sum)
{
	const struct ckpt_share *w = e->share;
	struct stage s = { 0 };
	uint64_t model = 0, optim = 0, states, layers, mine;

	count(e, &s);
	states = (e->b == 4 ? 8 : 12) * (s.dense + s.experts) + STEP_BYTES * s.trained;
	layers = e->b * (s.dense - s.tied);
	if (e->s.stage)
		optim = 12 * e->part + STEP_BYTES * e->m->info.groups;
	if (w->pp == 1)
		model = e->b * ((e->s.stage ? e->flat - e->expert_flat : s.dense) + routers(e));
	if (!e->s.stage)
		model += states;
	sum->model_files += w->tp;
	sum->model_bytes = most(sum->model_bytes, model);
	sum->bytes += w->tp * model;
	sum->optim_files += e->s.stage ? (uint64_t)w->tp * w->dp : 0;
	sum->optim_bytes = most(sum->optim_bytes, optim);
	sum->bytes += optim * w->tp * w->dp;
	if (w->pp > 1) {
		sum->layer_files += s.files * w->tp;
		sum->layer_bytes = most(sum->layer_bytes, e->b * s.largest);
		sum->bytes += layers * w->tp;
	}
	if (!e->s.stage && w->ep > 1) {
		sum->expp_files += (uint64_t)w->ep * w->tp;
		sum->expp_bytes = most(sum->expp_bytes, states);
		sum->bytes += states * w->ep * w->tp;
	}
	add_experts(e, sum);
	sum->bytes += e->b * s.experts * w->ep * w->tp;
	/* its own shard, the model file or files of its stage, its experts */
	mine = model + optim + (w->pp > 1 ? layers : 0) + e->b * s.experts +
	       (!e->s.stage && w->ep > 1 ? states : 0);
	sum->resume_same += mine * w->tp * w->dp;
	sum->files = sum->model_files + sum->optim_files + sum->layer_files + sum->expert_files +
		     sum->expp_files;
	sum->resume_other = sum->bytes;
}

/*
 * Weights, and three fp32 states, of every element once; the ranks of a stage write equal shares.
 * The padding of the vocabulary is in the first stage, and with the head in the last one.
 */
void ck_est_save_mcore(const struct ckpt_model *m, const struct ckpt_share *w, uint64_t b,
		       struct ckpt_save *out)
{
	const struct ckpt_arch *a = &m->info.arch;
	const uint64_t unit = (uint64_t)MCORE_ROWS * w->tp, ranks = (uint64_t)w->tp * w->dp;
	const uint64_t rows = (a->vocab + unit - 1) / unit * unit;
	const uint64_t more = (rows - a->vocab) * a->hidden;
	uint64_t largest = 0;

	for (uint32_t i = 0; i < w->pp; i++) {
		uint64_t n = ck_share_stage_params(m, w, i);

		n += i ? 0 : more;
		n += i == w->pp - 1 && !m->tied ? more : 0;
		largest = most(largest, n);
	}
	out->mcore_files = ranks * w->pp;
	out->mcore_vocab = rows;
	out->mcore_bytes = (b + 12) * (m->info.params + (m->tied ? 1 : 2) * more);
	out->mcore_rank_bytes = (b + 12) * ((largest + ranks - 1) / ranks);
}
