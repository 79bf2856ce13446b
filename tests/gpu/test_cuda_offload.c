/*
 * test_cuda_offload.c -- masters, moments and parameters on the host or on a drive, next to the
 * same run with all of them on the GPU: the same bits of losses, norms, masters and moments, since
 * the kernels' update and the cores' are one law; and memory is where it is said to be.  Exit 77
 * without a GPU.
 *
 * If this fails, a copy to or from the host is not waited for, or goes to the wrong place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/zero/cuda/en_zero_cuda.h"

#define STEPS 3
#define ROWS 1u
#define TOKENS 128u
#define TILES 4u		/* rooms of engine/zero/cuda/en_cuda_offload.c */

struct row {
	const char *name;
	bool tied;
	enum kn_type type, wire;
	uint32_t units, stage;
	bool recompute;
};

static const struct row rows[] = {
	{ "bf16, stage 1", false, KN_BF16, KN_BF16, 1, 1, false },
	{ "bf16 tied, stage 2, 2 units", true, KN_BF16, KN_BF16, 2, 2, false },
	{ "bf16, stage 3, recomputed", false, KN_BF16, KN_BF16, 1, 3, true },
	{ "bf16 tied, fp32 sent, stage 3, 3 units", true, KN_BF16, KN_F32, 3, 3, false },
	{ "fp16 tied, stage 3", true, KN_F16, KN_F16, 1, 3, false },
	{ "fp32, stage 2", false, KN_F32, KN_F32, 1, 2, false },
	{ "fp32 tied, stage 3, 2 units", true, KN_F32, KN_F32, 2, 3, false },
};

/* What is off the GPU, and in which way. */
struct way {
	const char *name;
	bool optimizer, params, drive;
	uint64_t tile;
	uint32_t threads;
};

static const struct way ways[] = {
	{ "optimizer on the host", true, false, false, 4096, 2 },
	{ "optimizer and parameters on the host", true, true, false, 8192, 1 },
	{ "parameters on the host", false, true, false, 0, 1 },
	{ "optimizer on a drive", true, false, true, 4096, 2 },
	{ "optimizer on a drive, parameters on the host", true, true, true, 8192, 3 },
	{ "optimizer on the host, tiles as they are", true, false, false, 0, 2 },
};

struct told {
	double loss[STEPS], norm[STEPS], eval;
	float *state;		/* [3 n]: by piece masters, moments */
	uint64_t n;
	struct en_mem mem, want;	/* held, and expected */
};

static int failed, passed;

static void fill(int32_t *ids, uint32_t vocab, uint64_t seed)
{
	uint64_t bits[1];

	for (uint32_t i = 0; i < ROWS * TOKENS; i++) {
		kn_random_bits(bits, 1, 7, seed, i);
		ids[i] = (int32_t)(bits[0] % vocab);
	}
}

static struct en_model *make_model(const struct row *r)
{
	const struct en_model_config c = {
		.arch = EN_QWEN3, .vocab = 259, .hidden = 64, .inter = 168, .layers = 3,
		.heads = 2, .kv_heads = 1, .head_dim = 64, .max_positions = 1024,
		.norm_eps = 1e-5, .init_range = 0.05, .tied = r->tied,
		.rope = { .theta = 10000 },
	};
	struct en_model *m = NULL;
	struct ckpt_err err = { 0 };

	if (en_model_new(&c, &m, &err)) {
		printf("FAILED %s: %s\n", r->name, err.msg);
		exit(1);
	}
	return m;
}

static int step(struct en_zero *z, const struct row *r, const struct en_model *m, uint32_t k,
		struct told *out, struct ckpt_err *err)
{
	const struct en_zero_hyper hyper[2] = {
		{ 1e-3, 0.9, 0.95, 1e-8, 0.1 }, { 1e-3, 0.9, 0.95, 1e-8, 0 },
	};
	static int32_t ids[ROWS * TOKENS];
	const struct en_batch b = { ROWS, TOKENS, ids, ids, NULL, NULL };
	int rc = 0;

	for (uint32_t u = 0; !rc && u < r->units; u++) {
		struct en_zero_micro_batch unit = { .batch = &b };
		struct en_loss loss;

		fill(ids, m->config.vocab, k * 16 + u);
		unit.factor = 1.0 / ((double)en_batch_count(&b) * r->units);
		rc = en_zero_micro_batch(z, u, &unit, &loss, err);
		out->loss[k] += loss.sum;
	}
	if (!rc)
		rc = en_zero_norm(z, &out->norm[k], err);
	return rc ? rc : en_zero_update(z, hyper, k + 1, out->norm[k] > 1 ?
					(float)(1 / out->norm[k]) : 1, err);
}

static int take_state(struct en_zero *z, const struct en_model *m, struct told *out,
		      struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);
	int rc = 0;

	out->state = calloc(3 * m->numel, sizeof(float));
	for (uint64_t i = 0; !rc && i < n; i++) {
		for (int s = 0; !rc && s < EN_STATES; s++) {
			const struct en_zero_slice slice = { p[i].block, (enum en_state)s,
							     p[i].at, p[i].count };

			rc = en_zero_read(z, &slice, out->state + (uint64_t)s * m->numel + out->n,
					 err);
		}
		out->n += p[i].count;
	}
	return rc;
}

static int evaluate(struct en_zero *z, const struct en_model *m, double *out, struct ckpt_err *err)
{
	static int32_t ids[ROWS * TOKENS];
	const struct en_batch b = { ROWS, TOKENS, ids, ids, NULL, NULL };
	struct en_loss loss;
	int rc;

	fill(ids, m->config.vocab, 99);
	rc = en_zero_eval(z, &b, &loss, err);
	*out = rc ? 0 : loss.sum;
	return rc;
}

/* 'way' NULL: all is on the GPU. */
static int train(const struct row *r, const struct way *way, const char *dir,
		 const struct en_model *m, struct told *out, struct ckpt_err *err)
{
	const struct en_cuda_opts cuda = { .device = 0, .fixed = true };
	const struct en_nvme_opts drive = { .dir = dir, .block = 8192, .depth = 4 };
	struct en_zero_opts o = {
		.stage = r->stage, .type = r->type, .wire = r->wire, .micro_batches = r->units,
		.rows = ROWS, .tokens = TOKENS, .threads = 2, .recompute = r->recompute,
	};
	const struct en_zero_rule rule = { KN_ADAM_CPU, true, true, false };
	struct en_comm *comm = NULL;
	struct en_zero *z = NULL;
	int rc = en_comm_local_open(&comm, err);

	memset(out, 0, sizeof(*out));
	if (way) {
		o.host_optimizer = way->optimizer;
		o.host_params = way->params;
		if (way->drive)
			o.nvme = drive;
		o.off_tile = way->tile;
		o.off_buffers = 3;
		o.threads = way->threads;
	}
	if (!rc)
		rc = en_zero_cuda_new(m, comm, &o, &rule, &cuda, &z, err);
	if (!rc)
		rc = en_zero_init(z, 3, err);
	if (!rc)
		rc = en_zero_sync_params(z, err);
	for (uint32_t k = 0; !rc && k < STEPS; k++)
		rc = step(z, r, m, k, out, err);
	if (!rc)
		rc = evaluate(z, m, &out->eval, err);
	if (!rc)
		rc = take_state(z, m, out, err);
	if (!rc)
		out->mem = *en_zero_mem(z);
	if (!rc)
		rc = en_zero_cuda_expect(m, &o, 1, &cuda, false, &out->want, err);
	en_zero_free(z);
	en_comm_close(comm, NULL);
	return rc;
}

static void bad(const struct row *r, const struct way *way, const char *what)
{
	failed++;
	printf("FAILED %s, %s: %s\n", r->name, way->name, what);
}

static bool same_bits(const struct told *a, const struct told *b, const struct en_model *m)
{
	return !memcmp(a->loss, b->loss, sizeof(a->loss)) &&
	       !memcmp(a->norm, b->norm, sizeof(a->norm)) && a->eval == b->eval &&
	       a->n == m->numel && b->n == m->numel &&
	       !memcmp(a->state, b->state, 3 * m->numel * sizeof(float));
}

/* Elements of all blocks, padded, and of the largest one. */
static uint64_t padded(const struct en_model *m, uint64_t *largest_out)
{
	uint64_t n = 0;

	*largest_out = 0;
	for (uint32_t i = 0; i < m->nblocks; i++) {
		const uint64_t p = (m->block[i].numel + EN_ZERO_CHUNK - 1) / EN_ZERO_CHUNK *
				   EN_ZERO_CHUNK;

		n += p;
		*largest_out = p > *largest_out ? p : *largest_out;
	}
	return n;
}

/* To the byte: what left the GPU, and what the host has of it. */
static void check_memory(const struct row *r, const struct way *way, const struct en_model *m,
			 const struct told *gpu, const struct told *off)
{
	const uint64_t es = kn_type_size(r->type);
	const uint64_t sum = kn_type_size(r->units > 1 ? KN_F32 : r->wire);
	uint64_t largest, n = padded(m, &largest), want = 0;
	const uint64_t tile = way->tile && way->tile < largest ? way->tile : largest;
	const bool params = way->params && r->stage == 3;

	if (way->optimizer)
		want = (way->drive ? 3 * 12 * tile + 4096 : 12 * n) +
		       TILES * tile * (sum + (params ? 0 : es));
	for (int k = 0; k < EN_MEM_KINDS; k++)
		if (off->mem.now[k] != off->want.now[k]) {
			bad(r, way, "another number of bytes than expected");
			printf("    %s: %llu, expected %llu\n", en_mem_name((enum en_mem_kind)k),
			       (unsigned long long)off->mem.now[k],
			       (unsigned long long)off->want.now[k]);
		}
	if (off->mem.now[EN_MEM_HOST_OPTIMIZER] != want)
		bad(r, way, "bytes of the optimizer on the host");
	if (off->mem.now[EN_MEM_HOST_PARAMS] != (params ? n * es : 0))
		bad(r, way, "bytes of parameters on the host");
	if (way->optimizer && off->mem.now[EN_MEM_OPTIMIZER])
		bad(r, way, "the GPU still has an optimizer");
	if (params && off->mem.now[EN_MEM_PARAMS])
		bad(r, way, "the GPU still has all parameters");
	if (off->mem.now[EN_MEM_GRADS] != gpu->mem.now[EN_MEM_GRADS] ||
	    off->mem.now[EN_MEM_WORK] != gpu->mem.now[EN_MEM_WORK] ||
	    off->mem.now[EN_MEM_ACTIVATIONS] != gpu->mem.now[EN_MEM_ACTIVATIONS])
		bad(r, way, "what is not offloaded is another");
}

static void run_row(const struct row *r, const char *dir)
{
	struct en_model *m = make_model(r);
	struct ckpt_err err = { 0 };
	struct told gpu, off;

	if (train(r, NULL, dir, m, &gpu, &err)) {
		failed++;
		printf("FAILED %s: %s: %s\n", r->name, err.where, err.msg);
		en_model_free(m);
		return;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (!ways[i].optimizer && r->stage != 3)
			continue;
		if (train(r, &ways[i], dir, m, &off, &err)) {
			bad(r, &ways[i], err.msg);
			memset(&err, 0, sizeof(err));
		} else if (!same_bits(&gpu, &off, m)) {
			bad(r, &ways[i], "other bits");
			for (int k = 0; k < STEPS; k++)
				printf("    loss %.9g, %.9g; norm %.9g, %.9g\n", gpu.loss[k],
				       off.loss[k], gpu.norm[k], off.norm[k]);
		} else {
			passed++;
			check_memory(r, &ways[i], m, &gpu, &off);
		}
		free(off.state);
	}
	printf("  %-40s loss %.9g, norm %.9g\n", r->name, gpu.loss[STEPS - 1],
	       gpu.norm[STEPS - 1]);
	free(gpu.state);
	en_model_free(m);
}

int main(void)
{
	char dir[] = "/tmp/zckpt-offload.XXXXXX";

	if (!en_cuda_count()) {
		puts("no GPU is to be seen");
		return 77;
	}
	if (!mkdtemp(dir)) {
		perror(dir);
		return 1;
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run_row(&rows[i], dir);
	rmdir(dir);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
