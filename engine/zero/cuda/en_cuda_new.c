/* en_cuda_new.c -- memory of every stage on the GPU, taken once; the backend's table. */
#include <stdio.h>
#include <string.h>

#include "engine/zero/cuda/en_cuda_linear.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* Bytes of logits of a chunk, about. */
#define LOGITS ((size_t)1536 << 20)

const char *en_zero_cuda_text(const struct en_zero *z)
{
	return ((const struct en_cuda *)z)->text;
}

/* ---- blocks ---- */

static int new_params(struct en_cuda *c, struct en_zero_block *b, struct ckpt_err *err)
{
	const enum kn_type type = c->z.opts.type;
	const uint64_t es = kn_type_size(type), rank = c->z.comm->rank;
	int rc;

	if (en_cuda_has_host_params(c)) {
		rc = en_cuda_new_own(c, b->shard * es, &b->own, err);
		return rc || !b->fnumel ? rc : en_cuda_new_own(c, b->fshard * es, &b->frozen, err);
	}
	if (!en_cuda_is_whole(c)) {
		rc = en_cuda_new_shared(c, EN_MEM_PARAMS, b->shard * es, &b->own, err);
		return rc || !b->fnumel ? rc :
		       en_cuda_new_shared(c, EN_MEM_PARAMS, b->fshard * es, &b->frozen, err);
	}
	rc = en_cuda_new_shared(c, EN_MEM_PARAMS, (b->padded + b->fpadded) * es, &b->params, err);
	if (!rc && b->params) {
		b->own = en_cuda_at(b->params, rank * b->shard, type);
		b->frozen = en_cuda_at(b->params, b->padded + rank * b->fshard, type);
	}
	return rc;
}

/* In fp32 the parameters themselves are the masters, but for those of the host. */
static int new_optimizer(struct en_cuda *c, struct en_zero_block *b, struct ckpt_err *err)
{
	const uint64_t bytes = en_zero_updated(&c->z, b) * sizeof(float);
	int rc = 0;

	if (en_cuda_has_host_optimizer(c))
		return 0;
	if (c->z.opts.type == KN_F32 && !en_cuda_has_host_params(c))
		b->master = c->z.opts.stage ? b->own : b->params;
	else
		rc = en_cuda_new(c, EN_MEM_OPTIMIZER, bytes, &b->master, err);
	if (!rc)
		rc = en_cuda_new(c, EN_MEM_OPTIMIZER, bytes, &b->exp_avg, err);
	return rc ? rc : en_cuda_new(c, EN_MEM_OPTIMIZER, bytes, &b->exp_avg_sq, err);
}

/* What the step's gradient is summed in. */
static int new_total(struct en_cuda *c, struct en_cuda_block *b, struct ckpt_err *err)
{
	const uint32_t n = en_cuda_levels(&c->z.opts);
	int rc = 0;

	if (!c->tree)
		return en_cuda_new(c, EN_MEM_GRADS, b->z->shard * kn_type_size(c->sum_type),
				   &b->total, err);
	b->level = ck_zalloc(n * sizeof(*b->level));
	if (!b->level)
		return ck_fail_nomem(err, "partial sums", n);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = en_cuda_new(c, EN_MEM_GRADS, b->z->shard * sizeof(float), &b->level[i], err);
	return rc;
}

static int new_block(struct en_cuda *c, uint32_t number, struct ckpt_err *err)
{
	struct en_zero_block *b = &c->z.block[number];
	int rc = en_cuda_event(&c->block[number].whole, err);

	c->block[number].z = b;
	if (!rc)
		rc = new_params(c, b, err);
	if (!rc)
		rc = new_optimizer(c, b, err);
	return rc ? rc : new_total(c, &c->block[number], err);
}

static int new_blocks(struct en_cuda *c, struct ckpt_err *err)
{
	const uint32_t n = c->z.model->nblocks;
	int rc = en_zero_new_blocks(&c->z, err);

	if (rc)
		return rc;
	c->block = ck_zalloc(n * sizeof(*c->block));
	if (!c->block)
		return ck_fail_nomem(err, "blocks", n);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = new_block(c, i, err);
	return rc || c->expects ? rc : en_zero_cut_pieces(&c->z, err);
}

/* ---- what moves ---- */

static uint64_t most_padded(const struct en_cuda *c, uint32_t parity)
{
	const struct en_model *m = c->z.model;
	uint64_t most = 0;

	for (uint32_t i = 0; i < m->nblocks; i++)
		if (!en_zero_is_tied(m, i) && (i & 1) == parity)
			most = ck_max_u64(most, c->z.block[i].padded);
	return most;
}

static int new_gathers(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_zero *z = &c->z;
	int rc;

	if (en_cuda_is_whole(c))
		return 0;
	rc = en_zero_new_gathers(z, en_zero_flow_of(&z->opts), err);
	if (rc)
		return rc;
	c->gather = ck_zalloc(z->slots.n * sizeof(*c->gather));
	if (!c->gather)
		return ck_fail_nomem(err, "slots of blocks", z->slots.n);
	for (uint32_t i = 0; !rc && i < z->slots.n; i++) {
		rc = en_cuda_event(&c->gather[i].ready, err);
		if (!rc)
			rc = en_cuda_event(&c->gather[i].left, err);
		if (!rc && z->slots.padded[i])
			rc = en_cuda_new_shared(c, EN_MEM_GATHERED,
						z->slots.padded[i] * kn_type_size(z->opts.type),
						&z->gather[i].p, err);
	}
	return rc;
}

static int new_reduces(struct en_cuda *c, struct ckpt_err *err)
{
	const uint64_t ws = kn_type_size(c->z.opts.wire);
	const bool one = c->z.comm->size == 1, several = c->z.opts.micro_batches > 1;
	int rc = 0;

	for (uint32_t i = 0; !rc && i <= EN_ZERO_REDUCES; i++) {
		struct en_cuda_reduce *r = &c->reduce[i];
		const uint64_t n = i < EN_ZERO_REDUCES ? most_padded(c, i) :
				   c->z.model->config.tied ? c->z.block[0].padded : 0;

		rc = en_cuda_event(&r->written, err);
		if (!rc)
			rc = en_cuda_event(&r->gone, err);
		if (!rc && n && !en_cuda_is_total(c))
			rc = en_cuda_new_shared(c, EN_MEM_GRADS, n * ws, &r->grads, err);
		if (!rc && n && !one && (c->tree || several))
			rc = en_cuda_new_shared(c, EN_MEM_GRADS, c->tree ? n * ws :
						n / c->z.comm->size * ws, &r->pieces, err);
	}
	if (!rc && !one && !c->z.opts.stage)
		rc = en_cuda_new(c, EN_MEM_GRADS,
				 ck_max_u64(most_padded(c, 0),
					    ck_max_u64(most_padded(c, 1), c->z.block[0].padded)) *
				 kn_type_size(c->sum_type), &c->whole, err);
	return rc;
}

/* ---- activations and memory to compute in ---- */

struct buffer {
	enum en_mem_kind kind;
	void *to;
	uint64_t bytes;
};

static int new_buffers(struct en_cuda *c, const struct buffer *buffer, size_t n,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < n; i++)
		if (buffer[i].bytes)
			rc = en_cuda_new(c, buffer[i].kind, buffer[i].bytes, buffer[i].to, err);
	return rc;
}

static int new_kept(struct en_cuda *c, struct en_cuda_kept *k, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	const uint64_t es = kn_type_size(c->z.opts.type), fs = sizeof(float);
	const enum en_mem_kind a = EN_MEM_ACTIVATIONS;
	const uint64_t all = en_cuda_keeps_all(c) ? n : 0;
	const struct buffer buffer[] = {
		{ a, &k->qkv, n * c->ld * es }, { a, &k->o, n * m->heads * m->head_dim * es },
		{ a, &k->mid, n * m->hidden * es }, { a, &k->gu, n * 2 * m->inter * es },
		{ a, &k->lse, n * m->heads * fs }, { a, &k->rstd_in, n * fs },
		{ a, &k->rstd_post, n * fs },
		{ a, &k->lora, n * c->z.model->lora.r * es *
			       en_cuda_adapters(c->z.model, EN_LINEAR_Q, EN_LINEARS) },
		{ a, &k->h_in, en_cuda_fp8_keeps(c, EN_Q) ? 0 : all * m->hidden * es },
		{ a, &k->h_post, en_cuda_fp8_keeps(c, EN_GATE) ? 0 : all * m->hidden * es },
		{ a, &k->q, all * m->heads * m->head_dim * es },
		{ a, &k->k, all * m->kv_heads * m->head_dim * es },
		{ a, &k->act, en_cuda_fp8_keeps(c, EN_DOWN) ? 0 : all * m->inter * es },
	};

	return new_buffers(c, buffer, CK_ARRAY_LEN(buffer), err);
}

static int new_acts(struct en_cuda *c, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	int rc = 0;

	c->x = ck_zalloc((m->layers + 1ull) * sizeof(*c->x));
	c->kept = ck_zalloc((m->layers + 1ull) * sizeof(*c->kept));
	if (!c->x || !c->kept)
		return ck_fail_nomem(err, "layers", m->layers);
	for (uint32_t i = 0; !rc && i <= m->layers; i++)
		rc = en_cuda_new(c, EN_MEM_ACTIVATIONS,
				 n * m->hidden * kn_type_size(c->z.opts.type), &c->x[i], err);
	for (uint32_t i = 0; !rc && i < m->layers; i++) {
		if (i && c->z.opts.recompute)
			c->kept[i] = c->kept[0];
		else
			rc = new_kept(c, &c->kept[i], err);
	}
	return rc;
}

/* Reductions over rows, whichever takes most. */
static size_t part_bytes(const struct en_cuda *c, size_t n)
{
	const struct en_model_config *m = &c->z.model->config;
	const struct kn_cu_qk qk = {
		.rows = n, .tokens = c->z.opts.tokens, .heads = m->heads,
		.kv_heads = m->kv_heads, .d = m->head_dim, .ld = c->ld, .ldq = c->ld,
		.ldk = c->ld, .eps = (float)m->norm_eps, .type = c->z.opts.type,
	};
	const size_t a = kn_cu_rmsnorm_back_work(n, m->hidden), b = kn_cu_qk_back_work(&qk),
		     s = kn_cu_sum_rows_work(n, c->ld);

	return a > b ? (a > s ? a : s) : b > s ? b : s;
}

static size_t chunk_of(const struct en_cuda *c, size_t n)
{
	const size_t row = c->z.model->config.vocab * kn_type_size(c->z.opts.type);
	const size_t fit = LOGITS / row / 256 * 256;
	size_t parts;

	if (!fit)
		return n < 256 ? n : 256;
	parts = (n + fit - 1) / fit;	/* alike, so that products have one shape */
	return (n + parts - 1) / parts;
}

/* Adapters with one input, at most. */
static uint32_t widest_side(const struct en_model *m)
{
	const uint32_t qkv = en_cuda_adapters(m, EN_LINEAR_Q, EN_LINEAR_O);
	const uint32_t gate_up = en_cuda_adapters(m, EN_LINEAR_GATE, EN_LINEAR_DOWN);
	const uint32_t most = qkv > gate_up ? qkv : gate_up;

	return most ? most : 1;
}

static int new_work(struct en_cuda *c, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	const uint64_t es = kn_type_size(c->z.opts.type), fs = sizeof(float);
	const uint64_t q = (uint64_t)m->heads * m->head_dim;
	const uint64_t kv = (uint64_t)m->kv_heads * m->head_dim;
	const uint64_t again = en_cuda_keeps_all(c) ? 0 : n;
	const enum en_mem_kind w = EN_MEM_WORK;
	const bool apart = en_cuda_adds_products(c->z.model);
	const struct en_block *of_head = &c->z.model->block[m->tied ? 0 : m->layers + 1];
	const bool head = of_head->grad[m->tied ? EN_EMBED : EN_HEAD] != UINT64_MAX;
	const uint64_t frozen = c->z.model->trained != c->z.model->numel;
	const uint64_t side = widest_side(c->z.model);
	const uint64_t joined = side > 1 ? side * c->z.model->lora.r * m->hidden : 0;
	const enum kn_type wire = c->z.opts.wire;
	const uint64_t unused = ck_max_u64(m->hidden, 2 * m->head_dim);
	const uint64_t all = c->z.sums_of_all ? en_zero_all_chunks(&c->z) : 0;
	const struct buffer buffer[] = {
		{ w, &c->h, n * m->hidden * es }, { w, &c->q, again * q * es },
		{ w, &c->k, again * kv * es }, { w, &c->act, n * m->inter * es },
		{ w, &c->g, n * m->hidden * es }, { w, &c->t, n * m->hidden * es },
		{ w, &c->spare, apart ? n * m->hidden * es : 0 },
		{ w, &c->dlora, n * c->z.model->lora.r * side * es },
		{ w, &c->lora_a, joined * es }, { w, &c->lora_da, joined * kn_type_size(wire) },
		{ w, &c->dropped, n * c->z.model->drop * es },
		{ w, &c->unused, frozen * unused * fs },
		{ w, &c->dout, n * q * es }, { w, &c->dqkv, n * c->ld * es },
		{ w, &c->dgu, n * 2 * m->inter * es }, { w, &c->part, part_bytes(c, n) },
		{ w, &c->logits, c->chunk * m->vocab * es }, { w, &c->loss, 2 * n * fs },
		{ w, &c->cos, c->z.opts.tokens * m->head_dim / 2 * fs },
		{ w, &c->sin, c->z.opts.tokens * m->head_dim / 2 * fs },
		{ w, &c->ids, n * sizeof(int32_t) }, { w, &c->target, n * sizeof(int32_t) },
		{ w, &c->starts, n * sizeof(int32_t) }, { w, &c->list_id, n * sizeof(int32_t) },
		{ w, &c->list_begin, (n + 1) * sizeof(int32_t) },
		{ w, &c->list_at, n * sizeof(int32_t) },
		{ w, &c->result, 2 * sizeof(double) },
		{ w, &c->sums, c->z.nsums * sizeof(double) },
		{ w, &c->all_sums, all ? c->z.nsums * c->z.comm->size * sizeof(double) : 0 },
		{ w, &c->ordered, all * sizeof(double) },
		{ w, &c->tree_work,
		  kn_cu_tree_sum_work(ck_max_u64(all, c->z.nsums)) * sizeof(double) },
		{ w, &c->dhead, head && c->chunk < n && c->z.opts.wire != KN_F32 ?
			(uint64_t)m->vocab * m->hidden * fs : 0 },
		{ w, &c->gemm_work, KN_CU_GEMM_WORK },
	};

	return new_buffers(c, buffer, CK_ARRAY_LEN(buffer), err);
}

/* ---- the host's side ---- */

static int new_host(struct en_cuda *c, struct ckpt_err *err)
{
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	const size_t half = c->z.model->config.head_dim / 2;
	float *angles = ck_alloc_array(2 * c->z.opts.tokens * half, sizeof(*angles));
	const size_t bytes = c->z.opts.tokens * half * sizeof(*angles);
	int rc = (int)cudaMallocHost((void **)&c->host_ids, (6 * n + 1) * sizeof(int32_t));

	if (!rc)
		rc = (int)cudaMallocHost((void **)&c->host_list, n * sizeof(uint64_t));
	if (!rc)
		rc = (int)cudaMallocHost((void **)&c->host_result, 2 * sizeof(double));
	c->rank_sums = ck_alloc_array(c->z.comm->size, sizeof(double));
	if (!rc && (!angles || !c->rank_sums)) {
		ck_free(angles);
		return ck_fail_nomem(err, "rotations", bytes);
	}
	if (!rc) {
		en_rope_fill(&c->z.model->config, c->z.opts.type, c->z.opts.tokens, angles,
			     angles + c->z.opts.tokens * half);
		/* after the zeros that en_cuda_new() has asked for */
		rc = (int)cudaMemcpyAsync(c->cos, angles, bytes, cudaMemcpyHostToDevice, c->work);
	}
	if (!rc)
		rc = (int)cudaMemcpyAsync(c->sin, angles + c->z.opts.tokens * half, bytes,
					  cudaMemcpyHostToDevice, c->work);
	ck_free(angles);
	return en_cuda_cuda(rc, "memory of the host", err);
}

static int check_fp8(const struct en_cuda *c, const struct cudaDeviceProp *prop,
		     struct ckpt_err *err)
{
	if (!c->cuda.fp8 || prop->major > 8 || (prop->major == 8 && prop->minor >= 9))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, "GPU", CKPT_NO_OFFSET,
		       "--fp8 needs compute capability 8.9 or later (Ada, Hopper, Blackwell), and "
		       "%.80s has %d.%d; without --fp8 it trains in bf16", prop->name, prop->major,
		       prop->minor);
}

static int open_device(struct en_cuda *c, struct ckpt_err *err)
{
	struct cudaDeviceProp prop;
	int low = 0, high = 0;
	int rc = (int)cudaSetDevice((int)c->cuda.device);

	if (!rc)
		rc = (int)cudaGetDeviceProperties(&prop, (int)c->cuda.device);
	if (!rc)
		rc = (int)cudaDeviceGetStreamPriorityRange(&low, &high);
	if (!rc)
		rc = (int)cudaStreamCreateWithPriority(&c->work, cudaStreamNonBlocking, low);
	if (!rc)
		rc = (int)cudaStreamCreateWithPriority(&c->move, cudaStreamNonBlocking, high);
	if (rc)
		return en_cuda_cuda(rc, "the device", err);
	rc = check_fp8(c, &prop, err);
	if (rc)
		return rc;
	snprintf(c->text, sizeof(c->text), "%.80s%s%s%s", prop.name,
		 c->cuda.fp8 ? ", linear layers in fp8 (" : "",
		 c->cuda.fp8 ? en_cuda_fp8_name(c->cuda.fp8) : "", c->cuda.fp8 ? ")" : "");
	rc = en_cuda_event(&c->updated, err);
	if (!rc)
		rc = en_cuda_event(&c->loss_ready, err);
	return rc ? rc : en_cuda_join(c, err);
}

int en_cuda_take_memory(struct en_cuda *c, struct ckpt_err *err)
{
	const struct en_model_config *m = &c->z.model->config;
	const uint64_t n = (uint64_t)c->z.opts.rows * c->z.opts.tokens;
	int rc;

	c->ld = (m->heads + 2 * m->kv_heads) * m->head_dim;
	c->tree = c->cuda.sum == EN_CUDA_SUM_TREE && !en_cuda_is_total(c);
	c->sum_type = c->z.opts.as_deepspeed ? KN_F16 :
		      c->z.opts.micro_batches > 1 || c->tree ? KN_F32 : c->z.opts.wire;
	c->z.sums_of_all = c->tree && c->z.comm->size > 1;
	c->z.grad_type = c->z.opts.wire;
	c->shares = c->nccl != NULL;
	c->chunk = chunk_of(c, n);
	rc = en_cuda_off_new(c, err);
	if (!rc)
		rc = new_blocks(c, err);
	if (!rc)
		rc = new_gathers(c, err);
	if (!rc)
		rc = new_reduces(c, err);
	if (!rc)
		rc = en_cuda_fp8_new(c, err);
	if (!rc)
		rc = new_acts(c, err);
	return rc ? rc : new_work(c, err);
}

int en_cuda_plan_most(struct en_cuda *c, struct ckpt_err *err)
{
	const struct en_batch most = { .rows = c->z.opts.rows, .tokens = c->z.opts.tokens };
	const struct kn_cu_attn *attn;

	return en_cuda_plan(c, &most, &attn, err);
}

static int make(struct en_cuda *c, struct ckpt_err *err)
{
	int rc = open_device(c, err);

	if (!rc)
		rc = en_cuda_take_memory(c, err);
	if (!rc)
		rc = new_host(c, err);
	if (!rc && kn_cu_gemm_new(&c->gemm, c->gemm_work, KN_CU_GEMM_WORK))
		rc = ck_fail(err, CKPT_E_IO, "GPU", CKPT_NO_OFFSET,
			     "cuBLASLt initialisation failed");
	if (!rc)
		rc = en_cuda_plan_most(c, err);
	return rc ? rc : en_cuda_wait(c, c->work, NULL, "the device", err);
}

/* ---- the end ---- */

static void free_events(struct en_cuda *c)
{
	for (uint32_t i = 0; c->gather && i < c->z.slots.n; i++) {
		en_cuda_event_free(c->gather[i].ready);
		en_cuda_event_free(c->gather[i].left);
	}
	for (uint32_t i = 0; i <= EN_ZERO_REDUCES; i++) {
		en_cuda_event_free(c->reduce[i].written);
		en_cuda_event_free(c->reduce[i].gone);
	}
	en_cuda_event_free(c->updated);
	en_cuda_event_free(c->loss_ready);
}

static void free_blocks(struct en_cuda *c)
{
	for (uint32_t i = 0; c->block && i < c->z.model->nblocks; i++) {
		struct en_cuda_block *b = &c->block[i];

		en_cuda_event_free(b->whole);
		ck_free(b->level);
	}
	ck_free(c->block);
}

void en_cuda_free(struct en_zero *z)
{
	struct en_cuda *c = en_cuda_of(z);

	if (!en_cuda_drain(c))
		return;		/* the process ends with an error */
	en_cuda_off_wait(c);
	en_cuda_snap_free(c);
	en_cuda_free_load(c);
	en_cuda_trace(z, NULL, NULL);
	for (uint32_t i = 0; i < EN_CUDA_PLANS; i++)
		kn_cu_attn_free(c->attn[i]);
	kn_cu_gemm_free(c->gemm);
	en_cuda_free_all(c);
	if (c->nccl)
		ncclCommDestroy(c->nccl);
	free_events(c);
	free_blocks(c);
	en_cuda_off_free(c);
	en_cuda_fp8_free(c);
	ck_free(c->gather);
	ck_free(c->x);
	ck_free(c->kept);
	cudaFreeHost(c->host_ids);
	cudaFreeHost(c->host_list);
	cudaFreeHost(c->host_result);
	if (c->work)
		cudaStreamDestroy(c->work);
	if (c->move)
		cudaStreamDestroy(c->move);
	ck_free(c->rank_sums);
	en_zero_release_shared(z);
	ck_free(c);
}

#define BOTH \
	.name = "cuda", .free = en_cuda_free, .trace = en_cuda_trace, \
	.whole_wait = en_cuda_whole_wait, .gather_begin = en_cuda_gather_begin, \
	.gather_wait = en_cuda_gather_wait, .release = en_cuda_release, \
	.grad_buffer = en_cuda_grad_buffer, .reduce_begin = en_cuda_reduce_begin, \
	.pass_begin = en_cuda_pass_begin, .embed_forward = en_cuda_embed_forward, \
	.layer_forward = en_cuda_layer_forward, .head = en_cuda_head, \
	.loss_begin = en_cuda_loss_begin, .layer_backward = en_cuda_layer_backward, \
	.embed_backward = en_cuda_embed_backward, .pass_end = en_cuda_pass_end, \
	.norm_begin = en_cuda_norm_begin, .norm_order = en_cuda_norm_order, \
	.norm_end = en_cuda_norm_end, .frozen_put = en_cuda_frozen_put, \
	.frozen_init = en_cuda_frozen_init, \
	.frozen_get = en_cuda_frozen_get, .frozen_share = en_cuda_frozen_share

static const struct en_zero_backend cuda = {
	BOTH,
	.update_begin = en_cuda_update_begin, .update_block = en_cuda_update_block,
	.adam = en_cuda_adam, .cast = en_cuda_cast, .sync_block = en_cuda_sync_block,
	.update_end = en_cuda_update_end,
	.init = en_cuda_init, .get = en_cuda_get, .load_buffer = en_cuda_load_buffer,
	.load_send = en_cuda_load_send,
	.snap_new = en_cuda_snap_new, .snap_begin = en_cuda_snap_begin,
	.snap_start = en_cuda_snap_start, .snap_next = en_cuda_snap_next,
	.snap_end = en_cuda_snap_end,
};

/* Masters and moments in the host's memory, which saves and loads see as it is; or in a file. */
static const struct en_zero_backend cuda_host = {
	BOTH,
	.update_begin = en_cuda_off_begin,
	.tile_begin = en_cuda_off_tile_begin, .adam = en_adam_host, .cast = en_adam_host_cast,
	.tile_end = en_cuda_off_tile_end, .sync_block = en_cuda_off_sync_block,
	.update_end = en_cuda_off_end,
};

int en_zero_cuda_new(const struct en_model *model, struct en_comm *comm,
		     const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		     const struct en_cuda_opts *how, struct en_zero **z_out,
		     struct ckpt_err *err)
{
	struct en_cuda *c;
	int rc = en_zero_check(opts, err);

	if (!rc && how->device >= en_cuda_count())
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, "GPU", CKPT_NO_OFFSET,
			     "GPU number %u requested; %u GPUs are visible", how->device,
			     en_cuda_count());
	if (rc)
		return rc;
	c = ck_zalloc(sizeof(*c));
	if (!c)
		return ck_fail_nomem(err, "a training state", sizeof(*c));
	c->z.backend = !opts->stage || !opts->host_optimizer ? &cuda : &cuda_host;
	c->z.model = model;
	c->z.comm = comm;
	c->z.opts = *opts;
	c->z.rule = *rule;
	c->cuda = *how;
	rc = make(c, err);
	if (rc)
		en_cuda_free(&c->z);
	else
		*z_out = &c->z;
	return rc;
}
