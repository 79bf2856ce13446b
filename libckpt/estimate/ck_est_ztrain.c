/*
 * ck_est_ztrain.c -- the terms of a CPU rank of ztrain: ck_zt_memory.h counts, this file says what.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_estimate.h"
#include "libckpt/ztrain/ck_zt_fp8.h"
#include "libckpt/ztrain/ck_zt_memory.h"

#define ALL CKPT_PHASE_ALL
#define SAVE_MORE ((uint64_t)16 << 20)	/* of a saver's buffer */
#define MOST_LAYERS 100000u

struct zt {
	struct ck_estimating *e;
	uint64_t *block, *frozen;	/* elements, trained or not, [layers + 2] each */
	struct ck_zt_setup s;
	struct ck_zt_memory m;
};

/* ---- the model ---- */

static int count_blocks(struct zt *z, struct ckpt_err *err)
{
	const struct ckpt_model *m = z->e->m;
	const struct ckpt_arch *a = &m->info.arch;
	const uint64_t n = a->layers + 2;

	if (!a->layers || a->layers > MOST_LAYERS || !a->gated || !a->rms || a->norms != 2)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain trains only models of the shape of Llama 3, Qwen2.5 and "
			       "Qwen3; %s", a->layers ? "this model's shape differs" :
			       "this model's shape is unknown");
	z->block = ck_zalloc(2 * n * sizeof(*z->block));
	if (!z->block)
		return ck_fail_nomem(err, "blocks", n);
	z->frozen = z->block + n;
	for (uint64_t i = 0; i < m->n; i++)
		(m->param[i].frozen ? z->frozen : z->block)[
			ck_min_u64(m->param[i].block, n - 1)] += m->param[i].numel;
	for (uint64_t i = 0; i < n; i++)
		if (!z->block[i] && !z->frozen[i])
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "ztrain's memory depends on the layers, which a "
				       "number of parameters does not give: use a "
				       "config.json or a published model");
	return 0;
}

/* Of the first rank, which has the least padding; collectives are messages. */
static void set_up(struct zt *z)
{
	uint64_t widest;
	const struct ckpt_setup *s = &z->e->s;
	const struct ckpt_arch *a = &z->e->m->info.arch;

	ck_model_lora_inputs(z->e->m, &widest);
	z->s = (struct ck_zt_setup){
		.block = z->block, .frozen = z->frozen, .lora = z->e->m->lora,
		.lora_drop = z->e->m->lora_drops ? widest : 0,
		.nblocks = a->layers + 2,
		.tied = z->block[a->layers + 1] + z->frozen[a->layers + 1] < a->vocab * a->hidden,
		.qk_norm = a->qk_norm,
		.hidden = a->hidden, .inter = a->inter, .heads = a->heads,
		.kv_heads = a->kv_heads, .head_dim = a->head_dim, .vocab = a->vocab,
		.stage = s->stage, .ranks = s->gpus, .micro_batches = s->accumulation,
		.rows = s->micro, .tokens = s->sequence, .type = (uint32_t)z->e->b,
		.wire = (uint32_t)z->e->b, .threads = 1, .recompute = s->recompute,
		.messages = true,
	};
	ck_zt_memory(&z->s, &z->m);
}

/* ---- terms ---- */

static void states(struct zt *z)
{
	const struct ck_zt_memory *m = &z->m;
	const uint32_t stage = z->s.stage, b = z->s.type;
	const uint64_t updated = stage ? m->part : m->padded;
	struct ck_counts c = { .at = 0 };

	const uint64_t frozen = stage == 3 ? m->fpart : m->fpadded;

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL,
		    stage == 3 && (z->e->s.offload & CKPT_OFFLOAD_PARAMS) ? "host parameters" :
		    "parameters", m->params, "%u B x %s%s%s%s%s, each block padded to %s x %u", b,
		    frozen ? "(" : "", ck_count(&c, stage == 3 ? m->part : m->padded),
		    frozen ? " + frozen " : "", frozen ? ck_count(&c, frozen) : "",
		    frozen ? ")" : "", ck_count(&c, z->s.ranks), CK_ZT_CHUNK);
	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gathered", m->gathered,
		    "%u B x %s: a block in use and one being gathered", b, ck_count(&c, m->gather));
	if (stage < 2)
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gradients", m->grads,
			    "4 B x (%s + %s sums x %s)", ck_count(&c, m->padded),
			    ck_count(&c, m->levels), ck_count(&c, m->part));
	else
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gradients", m->grads,
			    "4 B x (%s sums x %s + blocks in flight %s)",
			    ck_count(&c, m->levels), ck_count(&c, m->part),
			    ck_count(&c, m->reduce));
	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, z->e->s.offload ? "host optimizer" : "optimizer",
		    m->optimizer, "%u B x %s: %stwo moments", b == 4 ? 8 : 12,
		    ck_count(&c, updated), b == 4 ? "" : "master and ");
}

static void activations(struct zt *z)
{
	const struct ck_zt_memory *m = &z->m;
	const uint64_t layers = z->s.nblocks - 2;
	struct ck_counts c = { .at = 0 };

	if (z->s.type == 4)
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "activations", m->activations,
			    "%s inputs x %s B, %s x %s B kept", ck_count(&c, layers + 1),
			    ck_count(&c, m->stream), ck_count(&c, z->s.recompute ? 1 : layers),
			    ck_count(&c, m->kept));
	else
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "activations", m->activations,
			    "%s x %s B, %s B of a layer, %s x %s B put away",
			    ck_count(&c, z->s.recompute && layers > 1 ? 3 : 2),
			    ck_count(&c, m->stream), ck_count(&c, m->kept),
			    ck_count(&c, layers - 1), ck_count(&c, m->away));
	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "work", m->work, "%s", z->s.type == 4 ?
		    "a layer's gradients, a part of the logits" :
		    "a layer's gradients, a part of the logits, a block in fp32");
}

static void collectives(struct zt *z)
{
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "collectives", z->m.norm_sums + z->m.scratch,
		    "partial sums of the norm %s B, messages in flight %s B",
		    ck_count(&c, z->m.norm_sums), ck_count(&c, z->m.scratch));
}

/* The native form has the states alone, which any number of ranks reads. */
static void saves(struct zt *z)
{
	const struct ckpt_model_info *info = &z->e->m->info;
	const uint64_t state = 12 * z->m.real;
	const uint64_t all = 12 * info->trainable + z->e->b * (info->params - info->trainable);
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "save buffer", state + state / 64 + SAVE_MORE,
		    "12 B x %s, a 64th and 16 MiB more; nothing without --save",
		    ck_count(&c, z->m.real));
	z->e->out->save = (struct ckpt_save){
		.files = z->s.ranks, .bytes = all, .optim_files = z->s.ranks,
		.optim_bytes = state, .resume_same = all, .resume_other = all,
	};
}

static void ranks(struct zt *z)
{
	struct ck_estimating *e = z->e;
	struct ck_counts c = { .at = 0 };
	uint64_t rank = 0;

	ck_est_term(e, CKPT_PLACE_GPU, ALL, "program, libraries, MPI", e->s.overhead,
		    "measured, see the manual; --overhead changes it");
	for (uint32_t i = 0; i < e->out->nterms; i++)
		rank += e->out->term[i].bytes;
	ck_est_term(e, CKPT_PLACE_HOST, ALL, "ranks", rank * e->hosts_ranks, "%s ranks x %s B",
		    ck_count(&c, e->hosts_ranks), ck_count(&c, rank));
}

/* ---- fp8, on GPUs ---- */

/* Queries, keys and values have biases, and so products of their own. */
static bool has_biases(const struct zt *z, uint64_t q, uint64_t kv)
{
	const struct ck_zt_setup *s = &z->s;
	const uint64_t layer = s->lora ? z->frozen[1] : z->block[1] + z->frozen[1];

	return layer > s->hidden * (2 * q + 2 * kv + 3 * s->inter + 2) +
		       (s->qk_norm ? 2 * s->head_dim : 0);
}

/* As en_cuda_fp8.c, without --keep-all. */
static int fp8(struct zt *z, struct ckpt_err *err)
{
	const struct ck_zt_setup *s = &z->s;
	const uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
	const bool three = has_biases(z, q, kv);
	const bool whole = s->stage < 3 ||
			   (s->ranks == 1 && !(z->e->s.offload & CKPT_OFFLOAD_PARAMS));
	const struct ck_zt_fp8_setup f = {
		.matrix = {
			{ three ? q : q + 2 * kv, s->hidden }, { three ? kv : 0, s->hidden },
			{ three ? kv : 0, s->hidden }, { s->hidden, q },
			{ 2 * s->inter, s->hidden }, { s->hidden, s->inter },
		},
		.n = s->rows * s->tokens, .layers = s->nblocks - 2,
		.wgrad = z->e->s.fp8 != CKPT_FP8_TENSORWISE_GW_HP && !z->frozen[1],
		.stays = whole && s->micro_batches > 1,
	};
	struct ck_zt_fp8 m;
	struct ck_counts c = { .at = 0 };

	if (!z->e->s.fp8)
		return 0;
	if (z->e->s.fp8 > CKPT_FP8_TENSORWISE_FAST || s->type == 4)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, s->type == 4 ?
			       "--fp8 needs bf16 or fp16, and the type is fp32" :
			       "there is no recipe number %u of fp8", z->e->s.fp8);
	if ((s->hidden | s->inter | q | kv) % 16 || s->head_dim % 4)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "--fp8: some matrices of this model have sides that are no "
			       "multiple of 16, which ztrain leaves to 16 bits; plan does not "
			       "count these");
	ck_zt_fp8(&f, &m);
	ck_est_term(z->e, CKPT_PLACE_GPU, 0, "fp8 copies on a GPU, not in the sum", m.all,
		    "matrices %s B%s, inputs and gradients %s B, scales %s B",
		    ck_count(&c, m.w), f.stays ? " (all, both ways)" : " (one)",
		    ck_count(&c, m.a + m.bt + m.ct), ck_count(&c, m.scale + m.wscale));
	return 0;
}

static int check(const struct ck_estimating *e, struct ckpt_err *err)
{
	if (e->m->info.tower)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain trains language models, and %" PRIu64 " of %" PRIu64 " "
			       "parameters are of a vision tower; zckpt convert --language-part "
			       "writes the language model alone", e->m->info.tower,
			       e->m->info.params);
	if (!e->m->info.trainable)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "all %" PRIu64 " parameters are frozen here: there is nothing to "
			       "train", e->m->info.params);
	if (e->s.attention_matrix || e->s.ops != CKPT_OPS_EAGER)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain has its own attention and layers: --attention and --ops "
			       "do not apply");
	if (e->out->tokens > INT32_MAX)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a micro-batch has %" PRIu64 " tokens, but at most %d are "
			       "possible", e->out->tokens, INT32_MAX);
	return 0;
}

int ck_est_ztrain(struct ck_estimating *e, struct ckpt_err *err)
{
	struct zt z = { .e = e };
	int rc = check(e, err);

	if (!rc)
		rc = count_blocks(&z, err);
	if (!rc) {
		set_up(&z);
		states(&z);
		activations(&z);
		collectives(&z);
		saves(&z);
		ranks(&z);
		rc = fp8(&z, err);
	}
	ck_free(z.block);
	return rc;
}
