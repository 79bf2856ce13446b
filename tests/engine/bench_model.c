/*
 * bench_model.c -- seconds of a training step of a random model, in one process.
 *
 * usage: bench_model [THREADS [STEPS [fp32|bf16|fp16 [ROWS TOKENS]]]]
 *
 * The model has 25.2 million parameters: V 12288, h 512, I 1536, L 6, H/K 8/4, d 64, tied.  A step
 * is forward, backward, gradient norm, clipping and AdamW.  Prints the best and the median step and
 * the parts of the best one; tests/engine/bench_torch.py does the same with PyTorch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/ref/en_whole.h"

#define CHUNK 1024u
#define MOST_STEPS 1000

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct bench {
	struct en_model *model;
	struct en_exec *exec;
	struct en_whole *whole;
	enum kn_type type;
	struct te_buffers master, m, v, grad, copy;
	double *sums[256];
	struct kn_adam adam;
	uint32_t block;		/* in work */
};

#define PIECE 65536u

static uint64_t piece(const struct bench *b, size_t job, uint64_t *first)
{
	const uint64_t numel = b->model->block[b->block].numel;

	*first = (uint64_t)job * PIECE;
	return numel - *first < PIECE ? numel - *first : PIECE;
}

static void norm_job(void *arg, size_t job, uint32_t thread)
{
	const struct bench *b = arg;
	uint64_t first, n = piece(b, job, &first);

	(void)thread;
	kn_sumsq(b->sums[b->block] + first / CHUNK, (float *)b->grad.block[b->block] + first, n,
		 CHUNK);
}

static void adam_job(void *arg, size_t job, uint32_t thread)
{
	const struct bench *b = arg;
	const uint32_t i = b->block;
	uint64_t first, n = piece(b, job, &first);
	char *copy = b->type == KN_F32 ? NULL :
					 (char *)b->copy.block[i] + first * kn_type_size(b->type);

	(void)thread;
	kn_adam(&b->adam, (float *)b->master.block[i] + first, (float *)b->m.block[i] + first,
		(float *)b->v.block[i] + first, (float *)b->grad.block[i] + first, n, copy,
		b->type);
}

static void each_block(struct bench *b, en_job_fn fn)
{
	for (b->block = 0; b->block < b->model->nblocks; b->block++)
		en_pool_run(en_exec_pool(b->exec),
			    (b->model->block[b->block].numel + PIECE - 1) / PIECE, fn, b);
}

static double clip(struct bench *b)
{
	double sum = 0;

	each_block(b, norm_job);
	for (uint32_t i = 0; i < b->model->nblocks; i++)
		sum += kn_tree_sum(b->sums[i], (b->model->block[i].numel + CHUNK - 1) / CHUNK);
	return sqrt(sum);
}

static void set_up(struct bench *b, uint32_t rows, uint32_t tokens, uint32_t threads)
{
	const struct en_model_config c = {
		.arch = EN_LLAMA, .vocab = 12288, .hidden = 512, .inter = 1536, .layers = 6,
		.heads = 8, .kv_heads = 4, .head_dim = 64, .norm_eps = 1e-5, .init_range = 0.02,
		.tied = true, .rope = { .theta = 10000 },
	};
	const struct en_exec_opts opts = { .rows = rows, .tokens = tokens, .type = b->type,
					   .threads = threads };
	struct ckpt_err err = { 0 };

	if (en_model_new(&c, &b->model, &err) || en_exec_new(b->model, &opts, &b->exec, &err) ||
	    en_whole_new(b->exec, 0, &b->whole, &err))
		t_die("%s", err.msg);
	b->master = te_buffers_new(b->model, KN_F32);
	for (uint32_t i = 0; i < b->model->nparams; i++) {
		const struct en_param *p = &b->model->param[i];

		en_model_init(b->model, i, 1, 0, p->numel,
			      (float *)b->master.block[p->block] + p->offset);
	}
	b->m = te_buffers_new(b->model, KN_F32);
	b->v = te_buffers_new(b->model, KN_F32);
	b->grad = te_buffers_new(b->model, KN_F32);
	b->copy = te_buffers_cast(b->model, &b->master, b->type);
	for (uint32_t i = 0; i < b->model->nblocks; i++)
		b->sums[i] = t_alloc((b->model->block[i].numel / CHUNK + 1) * sizeof(double));
	b->adam = (struct kn_adam){ .rule = KN_ADAM_TORCH, .decoupled = 1, .bias_correction = 1,
				    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
				    .decay = 0.1, .grad_scale = 1 };
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	const uint32_t threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
	const int steps = argc > 2 ? atoi(argv[2]) : 10;
	const uint32_t rows = argc > 5 ? (uint32_t)atoi(argv[4]) : 4;
	const uint32_t tokens = argc > 5 ? (uint32_t)atoi(argv[5]) : 256;
	static double took[MOST_STEPS];
	double work = 1e9;
	struct bench b = { .type = KN_F32 };
	double best[3] = { 1e9, 1e9, 1e9 };
	int32_t *ids;

	if (argc > 3 && strcmp(argv[3], "fp32"))
		b.type = strcmp(argv[3], "bf16") ? KN_F16 : KN_BF16;
	if (steps < 1 || steps > MOST_STEPS)
		t_die("1 to %d steps", MOST_STEPS);
	set_up(&b, rows, tokens, threads);
	ids = t_alloc((size_t)rows * tokens * sizeof(*ids));
	for (int s = 0; s < steps; s++) {
		struct en_batch batch = { rows, tokens, ids, ids, NULL, NULL };
		struct te_buffers *w = b.type == KN_F32 ? &b.master : &b.copy;
		const clock_t began = clock();
		double at[4], norm, used;
		struct en_loss loss;

		for (size_t i = 0; i < (size_t)rows * tokens; i++)
			ids[i] = (int32_t)((i * 2654435761u + (unsigned)s * 97u) % 12288);
		at[0] = now();
		en_whole_run(b.whole, &batch, (const void *const *)w->block,
			     (float *const *)(void *)b.grad.block,
			     1 / (float)en_batch_count(&batch), 0, NULL, NULL, &loss);
		at[1] = now();
		norm = clip(&b);
		at[2] = now();
		b.adam.grad_scale = norm > 1 ? (float)(1 / (norm + 1e-6)) : 1;
		b.adam.step = (uint64_t)s + 1;
		each_block(&b, adam_job);
		at[3] = now();
		took[s] = at[3] - at[0];
		used = (double)(clock() - began) / CLOCKS_PER_SEC;
		work = used < work ? used : work;
		if (took[s] < best[0] + best[1] + best[2])
			for (int i = 0; i < 3; i++)
				best[i] = at[i + 1] - at[i];
		if (s == 0 || s == steps - 1)
			printf("step %d: loss %.4f, gradient norm %.3f\n", s + 1,
			       loss.sum / (double)loss.count, norm);
	}
	qsort(took, (size_t)steps, sizeof(*took), by_size);
	printf("%u threads, %s: best %.1f ms (median %.1f): forward and backward %.1f, norm %.1f, "
	       "AdamW %.1f; least processor time %.1f\n", threads, kn_gemm_name(), took[0] * 1e3,
	       took[steps / 2] * 1e3, best[0] * 1e3, best[1] * 1e3, best[2] * 1e3, work * 1e3);
	return 0;
}
