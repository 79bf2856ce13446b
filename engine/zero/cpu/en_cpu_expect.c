/* en_cpu_expect.c -- what a rank will hold, by the arithmetic of ck_zt_memory.h. */
#include "engine/zero/cpu/en_cpu_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/ztrain/ck_zt_memory.h"

/* 'block' [2 nblocks]: trained elements, then frozen ones. */
static void count(const struct en_model *model, const struct en_zero_opts *o, uint64_t *block,
		  uint32_t rank, uint32_t size, bool messages, struct ck_zt_memory *out)
{
	const struct en_model_config *c = &model->config;
	const struct ck_zt_setup s = {
		.block = block, .frozen = block + model->nblocks, .lora = model->lora.r,
		.lora_drop = model->drop,
		.nblocks = model->nblocks, .tied = c->tied,
		.qk_norm = c->arch == EN_QWEN3, .hidden = c->hidden, .inter = c->inter,
		.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
		.vocab = c->vocab, .stage = o->stage, .rank = rank, .ranks = size,
		.micro_batches = o->micro_batches, .rows = o->rows, .tokens = o->tokens,
		.type = (uint32_t)kn_type_size(o->type), .wire = (uint32_t)kn_type_size(o->wire),
		.threads = o->threads, .recompute = o->recompute, .messages = messages,
	};

	for (uint32_t i = 0; i < model->nblocks; i++) {
		block[i] = model->block[i].numel;
		block[i + model->nblocks] = model->block[i].frozen;
	}
	ck_zt_memory(&s, out);
}

int en_zero_cpu_expect(const struct en_model *model, const struct en_zero_opts *opts,
		       uint32_t rank, uint32_t size, bool messages, struct en_mem *out,
		       uint64_t *state_out, struct ckpt_err *err)
{
	struct en_mem mem = { .total = 0 };
	struct ck_zt_memory m;
	uint64_t *block;
	int rc = en_zero_check(opts, err);

	if (!rc && rank >= size)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "rank %u of %u", rank, size);
	if (rc)
		return rc;
	block = ck_alloc_array(2ull * model->nblocks, sizeof(*block));
	if (!block)
		return ck_fail_nomem(err, "blocks", model->nblocks);
	count(model, opts, block, rank, size, messages, &m);
	ck_free(block);
	if (opts->nvme.dir)	/* of states in a file the tiles that are being worked on */
		m.optimizer = en_zero_ring(opts, opts->type != KN_F32, m.largest);
	en_mem_note(&mem, en_zero_param_kind(opts), (int64_t)m.params);
	en_mem_note(&mem, opts->nvme.dir ? EN_MEM_HOST_OPTIMIZER : en_zero_optimizer_kind(opts),
		    (int64_t)m.optimizer);
	en_mem_note(&mem, EN_MEM_GATHERED, (int64_t)m.gathered);
	en_mem_note(&mem, EN_MEM_GRADS, (int64_t)m.grads);
	en_mem_note(&mem, EN_MEM_ACTIVATIONS, (int64_t)m.activations);
	en_mem_note(&mem, EN_MEM_WORK, (int64_t)m.work);
	en_mem_note(&mem, EN_MEM_COLLECTIVES, (int64_t)(m.norm_sums + m.scratch));
	*out = mem;
	if (state_out)
		*state_out = 12 * m.real;
	return 0;
}
