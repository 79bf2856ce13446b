/*
 * tg_bench.c -- time and bandwidth of the kernels at the shapes of Qwen3-8B, 8,192 tokens.
 *
 * Bytes are the fewest that a kernel must move: each input read once, each output written once.
 * Next to it is a copy on the device of as many bytes, read and written.  Caches are swept
 * before each run; times are medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernels/include/kn_cuda.h"
#include "tests/gpu/tg_gpu.h"
#include "tests/gpu/tg_kernels.h"

#define ROWS ((size_t)8192)
#define HIDDEN ((size_t)4096)
#define INTER ((size_t)12288)
#define HEADS ((size_t)32)
#define KV_HEADS ((size_t)8)
#define DIM ((size_t)128)
#define VOCAB ((size_t)151936)
#define LOGITS ((size_t)2048)	/* rows of a chunk of logits */
#define SHARD ((size_t)1 << 28)	/* elements of a shard */
#define QKV ((HEADS + 2 * KV_HEADS) * DIM)
#define RUNS 15
#define SWEEP ((size_t)512 << 20)

static struct {
	/* full of normal bf16 numbers, which are fine as fp32 as well */
	char *pool;
	size_t bytes, at;
	void *sweep;
	cudaEvent_t from, to;
	int32_t *ids, *target, *id, *begin, *index;
	size_t nid;
	struct kn_cu_qk qk;
} b;

/* The next 'n' elements of the pool. */
static void *take(size_t n, enum kn_type type)
{
	void *p = b.pool + b.at;

	b.at += (n * kn_type_size(type) + 255) / 256 * 256;
	if (b.at > b.bytes) {
		printf("FAILED: the pool of the bench is too small\n");
		exit(1);
	}
	return p;
}

static int by_size(const void *x, const void *y)
{
	const float a = *(const float *)x, c = *(const float *)y;

	return (a > c) - (a < c);
}

/* Median of a call in milliseconds. */
static float time_of(void (*call)(void *), void *arg)
{
	float ms[RUNS];

	for (int i = -3; i < RUNS; i++) {
		TG(cudaMemsetAsync(b.sweep, i & 0xff, SWEEP, NULL));
		TG(cudaEventRecord(b.from, NULL));
		call(arg);
		TG(cudaEventRecord(b.to, NULL));
		TG(cudaEventSynchronize(b.to));
		if (i >= 0)
			TG(cudaEventElapsedTime(&ms[i], b.from, b.to));
	}
	qsort(ms, RUNS, sizeof(ms[0]), by_size);
	return ms[RUNS / 2];
}

struct copy {
	char *to, *from;
	size_t bytes;
};

static void run_copy(void *arg)
{
	const struct copy *c = arg;

	TG(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, NULL));
}

/* A line; 'call' took its arrays from the pool, which is given back. */
static void line(const char *name, size_t bytes, void (*call)(void *), void *arg)
{
	struct copy c;
	float ms, copy;

	ms = time_of(call, arg);
	b.at = 0;
	c.bytes = bytes / 2;
	c.to = take(c.bytes / 2 + 1, KN_BF16);
	c.from = take(c.bytes / 2 + 1, KN_BF16);
	copy = time_of(run_copy, &c);
	b.at = 0;
	printf("  %-34s %9.1f %9.1f %8.0f %9.1f %8.0f %6.2f\n", name, (double)bytes / 1e6,
	       (double)ms * 1e3, (double)bytes / (double)ms / 1e6, (double)copy * 1e3,
	       (double)bytes / (double)copy / 1e6, (double)(copy / ms));
	fflush(stdout);
}

/* Arrays of a call, in the order of its arguments. */
struct args {
	void *p[10];
	struct kn_adam how;
};

/* ---------------------------------------------------------------- the calls */

static void run_embed(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_embed(a->p[0], a->p[1], b.ids, ROWS, HIDDEN, KN_BF16, NULL));
}

static void run_embed_back(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_embed_back(a->p[0], KN_BF16, a->p[1], b.id, b.begin, b.index, b.nid, HIDDEN,
			    KN_BF16, KN_CU_ADD, NULL));
}

static void run_norm(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_rmsnorm(a->p[0], a->p[1], a->p[2], a->p[3], ROWS, HIDDEN, 1e-6f, KN_BF16, NULL));
}

static void run_norm_back(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_rmsnorm_back(a->p[0], a->p[1], KN_BF16, a->p[2], a->p[3], a->p[4], a->p[5],
			      a->p[6], ROWS, HIDDEN, KN_BF16, 0, a->p[7], NULL));
}

static void run_qk(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_qk(&b.qk, a->p[0], a->p[1], a->p[2], a->p[3], a->p[4], a->p[5], a->p[6], NULL));
}

static void run_qk_back(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_qk_back(&b.qk, a->p[7], a->p[8], a->p[8], KN_F32, a->p[0], a->p[1], a->p[2],
			 a->p[3], a->p[4], a->p[5], a->p[6], 0, a->p[9], NULL));
}

static void run_rope_back(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_qk_back(&b.qk, a->p[7], NULL, NULL, KN_F32, a->p[0], a->p[1], NULL, NULL, NULL,
			 a->p[5], a->p[6], 0, NULL, NULL));
}

static void run_bias(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_add_bias(a->p[0], QKV, a->p[1], ROWS, QKV, KN_BF16, NULL));
}

static void run_sum_rows(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_sum_rows(a->p[1], KN_BF16, a->p[0], QKV, ROWS, QKV, KN_BF16, 0, a->p[2], NULL));
}

static void run_swiglu(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_swiglu(a->p[0], a->p[1], ROWS, INTER, KN_BF16, NULL));
}

static void run_swiglu_back(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_swiglu_back(a->p[0], a->p[1], a->p[2], a->p[3], ROWS, INTER, KN_BF16, NULL));
}

static void run_xent(void *arg)
{
	const float factor = 1e-4f;
	struct args *a = arg;

	TG(kn_cu_xent(a->p[0], a->p[1], b.target, LOGITS, VOCAB, &factor, KN_BF16, NULL));
}

static void run_loss(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_xent(a->p[0], a->p[1], b.target, LOGITS, VOCAB, NULL, KN_BF16, NULL));
}

static void run_adam(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_adam(&a->how, a->p[0], a->p[1], a->p[2], a->p[3], KN_BF16, SHARD, a->p[4],
		      KN_BF16, NULL));
}

static void run_sumsq(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_sumsq(a->p[0], a->p[1], KN_BF16, SHARD, 4096, NULL));
}

static void run_sumsq_f32(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_sumsq(a->p[0], a->p[1], KN_F32, SHARD, 4096, NULL));
}

static void run_tree(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_tree_sum(a->p[0], a->p[1], SHARD / 4096, a->p[2], NULL));
}

static void run_sum(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_sum_f32(a->p[0], a->p[1], ROWS, 0, NULL));
}

static void run_not_finite(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_not_finite(a->p[0], a->p[1], KN_BF16, SHARD, NULL));
}

static void run_cast(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_cast(a->p[0], KN_BF16, a->p[1], KN_F32, SHARD, NULL));
}

static void run_add(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_add(a->p[0], KN_F32, a->p[1], KN_BF16, SHARD, NULL));
}

static void run_pieces(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_add_pieces(a->p[0], KN_BF16, a->p[1], KN_BF16, 4, SHARD / 4, SHARD / 4, 0, NULL));
}

static void run_scale(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_scale(a->p[0], KN_BF16, 1.0f, SHARD, NULL));
}

static void run_fill(void *arg)
{
	struct args *a = arg;

	TG(kn_cu_fill(a->p[0], KN_BF16, 1.0f, SHARD, NULL));
}

/* ---------------------------------------------------------------- the table */

static void layer_lines(void)
{
	const size_t x = ROWS * HIDDEN * 2, act = ROWS * INTER * 2, qkv = ROWS * QKV * 2;
	const size_t qk = ROWS * (HEADS + KV_HEADS) * DIM * 2;
	struct args a = { 0 };

	a.p[0] = take(ROWS * HIDDEN, KN_BF16);
	a.p[1] = take(VOCAB * HIDDEN, KN_BF16);
	line("embed", 2 * x, run_embed, &a);
	a.p[1] = take(ROWS * HIDDEN, KN_BF16);
	a.p[0] = take(VOCAB * HIDDEN, KN_BF16);
	line("embed_back, added", x + 2 * b.nid * HIDDEN * 2, run_embed_back, &a);
	for (int i = 0; i < 4; i++)
		a.p[i] = take(ROWS * HIDDEN, KN_BF16);
	line("rmsnorm", 2 * x, run_norm, &a);
	for (int i = 0; i < 7; i++)
		a.p[i] = take(ROWS * HIDDEN, KN_BF16);
	a.p[7] = take(kn_cu_rmsnorm_back_work(ROWS, HIDDEN) / 4, KN_F32);
	line("rmsnorm_back with add", 4 * x, run_norm_back, &a);
	a.p[6] = NULL;
	line("rmsnorm_back", 3 * x, run_norm_back, &a);
	for (int i = 0; i < 9; i++)
		a.p[i] = take(ROWS * QKV, KN_BF16);
	a.p[9] = take(kn_cu_qk_back_work(&b.qk) / 4, KN_F32);
	line("qk: norms and rope", 2 * qk, run_qk, &a);
	line("qk_back with norms", 3 * qk, run_qk_back, &a);
	line("qk_back without norms", 2 * qk, run_rope_back, &a);
	a.p[2] = take(kn_cu_sum_rows_work(ROWS, QKV) / 4, KN_F32);
	a.p[0] = take(ROWS * QKV, KN_BF16);
	a.p[1] = take(QKV, KN_BF16);
	line("add_bias", 2 * qkv, run_bias, &a);
	line("sum_rows", qkv, run_sum_rows, &a);
	a.p[0] = take(ROWS * INTER * 2, KN_BF16);
	a.p[1] = take(ROWS * INTER * 2, KN_BF16);
	a.p[2] = take(ROWS * INTER, KN_BF16);
	a.p[3] = take(ROWS * INTER * 2, KN_BF16);
	line("swiglu", 3 * act, run_swiglu, &a);
	line("swiglu_back with y", 6 * act, run_swiglu_back, &a);
}

static void head_lines(void)
{
	const size_t l = LOGITS * VOCAB * 2;
	struct args a = { 0 };

	a.p[1] = take(LOGITS, KN_F32);
	a.p[0] = take(LOGITS * VOCAB, KN_BF16);
	line("xent, loss alone", l, run_loss, &a);
	line("xent, gradient", 2 * l, run_xent, &a);
	a.p[0] = take(1024, KN_F32);
	a.p[1] = take(ROWS, KN_F32);
	line("sum of losses", ROWS * 4, run_sum, &a);
}

static void optim_lines(void)
{
	struct args a = { .how = { .rule = KN_ADAM_TORCH, .decoupled = 1, .bias_correction = 1,
				   .step = 100, .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.95,
				   .eps = 1e-8, .decay = 0.1, .grad_scale = 1 } };

	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 3; k++)
			a.p[k] = take(SHARD, KN_F32);
		a.p[3] = take(SHARD, KN_BF16);
		a.p[4] = take(SHARD, KN_BF16);
		TG(kn_cu_fill(a.p[2], KN_F32, 1e-4f, SHARD, NULL));
		a.how.rule = i ? KN_ADAM_FUSED : KN_ADAM_TORCH;
		line(i ? "adam, FusedAdam's" : "adam, torch's, 16-bit gradient", 28 * SHARD,
		     run_adam, &a);
	}
	a.p[0] = take(SHARD / 4096 * 2, KN_F32);
	a.p[1] = take(SHARD, KN_F32);
	a.p[2] = take(SHARD / 4096 * 2, KN_F32);
	line("sumsq bf16", 2 * SHARD, run_sumsq, &a);
	line("sumsq f32", 4 * SHARD, run_sumsq_f32, &a);
	line("tree_sum of their sums", SHARD / 4096 * 8, run_tree, &a);
	line("not_finite bf16", 2 * SHARD, run_not_finite, &a);
	a.p[0] = take(SHARD, KN_F32);
	a.p[1] = take(SHARD, KN_F32);
	line("cast f32 to bf16", 6 * SHARD, run_cast, &a);
	line("add bf16 to f32", 10 * SHARD, run_add, &a);
	line("add 4 pieces bf16", 2 * SHARD + SHARD / 2, run_pieces, &a);
	line("scale bf16", 4 * SHARD, run_scale, &a);
	line("fill bf16", 2 * SHARD, run_fill, &a);
}

/* Ids that a text might have: half of them from the first few hundred. */
static void make_ids(void)
{
	int32_t *ids = tg_alloc(ROWS * 4), *id = tg_alloc(ROWS * 4), *at = tg_alloc(ROWS * 4);
	int32_t *begin = tg_alloc((ROWS + 1) * 4);
	uint64_t *work = tg_alloc(ROWS * 8);

	for (size_t r = 0; r < ROWS; r++)
		ids[r] = (int32_t)tg_below(tg_below(2) ? 300 : VOCAB);
	b.nid = kn_cu_embed_list(ids, ROWS, id, begin, at, work);
	b.ids = tg_put(ids, ROWS * 4, 0);
	b.target = tg_put(ids, LOGITS * 4, 0);
	b.id = tg_put(id, b.nid * 4, 0);
	b.begin = tg_put(begin, (b.nid + 1) * 4, 0);
	b.index = tg_put(at, ROWS * 4, 0);
	free(ids);
	free(id);
	free(at);
	free(begin);
	free(work);
}

void tg_bench_kernels(void)
{
	const size_t piece = (size_t)16 << 20;
	struct tg_array a;

	b.bytes = (size_t)9 << 30;
	if (cudaMalloc((void **)&b.pool, b.bytes) != cudaSuccess) {
		(void)cudaGetLastError();
		printf("no table: it wants %zu GiB of memory\n", b.bytes >> 30);
		return;
	}
	tg_begin(NULL);
	tg_reset();
	TG(cudaMalloc(&b.sweep, SWEEP));
	TG(cudaEventCreate(&b.from));
	TG(cudaEventCreate(&b.to));
	a = tg_random(piece, 1, KN_BF16);
	for (size_t at = 0; at < b.bytes; at += 2 * piece)
		TG(cudaMemcpy(b.pool + at, a.raw, 2 * piece, cudaMemcpyHostToDevice));
	tg_free(&a);
	make_ids();
	b.qk = (struct kn_cu_qk){ ROWS, 4096, HEADS, KV_HEADS, DIM, QKV, HEADS * DIM,
				  KV_HEADS * DIM, 1e-6f, KN_BF16, NULL };
	printf("  %-34s %9s %9s %8s %9s %8s %6s\n", "at Qwen3-8B's shapes, 8192 tokens", "MB",
	       "us", "GB/s", "copy us", "GB/s", "ratio");
	layer_lines();
	head_lines();
	optim_lines();
	TG(cudaEventDestroy(b.from));
	TG(cudaEventDestroy(b.to));
	TG(cudaFree(b.sweep));
	TG(cudaFree(b.pool));
}
