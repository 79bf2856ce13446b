/*
 * en_mm.c -- matrix products and row-wise work, cut into jobs.
 *
 * A product is cut along the longer side of C, into pieces that depend on its shape only: each is
 * one call on one thread, so the bits of C do not depend on the number of threads.
 */
#include <string.h>

#include "engine/model/en_exec_priv.h"

/* Below this many multiplications a product is not cut. */
#define SMALL 1000000.0
/* Pieces are not shorter, where there are more than two: each packs the other matrix again. */
#define PIECE 512u
#define MOST_PIECES 64u
#define MOST_PRODUCTS 8u

/* A power of two, so that two or four threads have the same number each. */
static size_t pieces(const struct en_mm *mm)
{
	const size_t side = mm->m > mm->n ? mm->m : mm->n;
	size_t count = 2;

	if ((double)mm->m * (double)mm->n * (double)mm->k < SMALL || side < 32)
		return 1;
	while (count < MOST_PIECES && side / (2 * count) >= PIECE)
		count *= 2;
	return count;
}

/* Piece 'i' of 'count': [first, end) of 'side', in multiples of 16. */
static size_t piece_end(size_t side, size_t count, size_t i)
{
	const size_t each = ((side + count - 1) / count + 15) / 16 * 16;

	return (i + 1) * each < side && i + 1 < count ? (i + 1) * each : side;
}

struct mm_run {
	struct en_exec *exec;
	const struct en_mm *mm;
	size_t first[MOST_PRODUCTS + 1];	/* job numbers of each product */
	size_t count;
};

static void finish(const struct en_exec *exec, const struct en_mm *mm, size_t row, size_t rows,
		   size_t col, size_t cols)
{
	for (size_t r = row; r < row + rows; r++) {
		float *c = mm->c + r * mm->ldc + col;

		if (mm->bias)
			kn_add(c, c, mm->bias + col, cols, KN_F32);
		if (mm->round)
			kn_round(c, cols, exec->type);
	}
}

static void mm_job(void *arg, size_t job, uint32_t thread)
{
	const struct mm_run *run = arg;
	const struct en_mm *mm;
	size_t at = 0, count, side, first, end;
	size_t row = 0, rows, col = 0, cols;
	bool by_rows;

	(void)thread;
	while (job >= run->first[at + 1])
		at++;
	mm = &run->mm[at];
	job -= run->first[at];
	count = run->first[at + 1] - run->first[at];
	by_rows = mm->m >= mm->n;
	side = by_rows ? mm->m : mm->n;
	first = job ? piece_end(side, count, job - 1) : 0;
	end = piece_end(side, count, job);
	if (first >= end)
		return;
	rows = mm->m;
	cols = mm->n;
	if (by_rows) {
		row = first;
		rows = end - first;
	} else {
		col = first;
		cols = end - first;
	}
	(run->exec->type == KN_BF16 ? kn_gemm_bf16 : kn_gemm)(
		mm->flags, rows, cols, mm->k,
		mm->a + (mm->flags & KN_GEMM_TA ? row : row * mm->lda), mm->lda,
		mm->b + (mm->flags & KN_GEMM_TB ? col * mm->ldb : col), mm->ldb,
		mm->c + row * mm->ldc + col, mm->ldc);
	if (mm->bias || (mm->round && run->exec->type != KN_F32))
		finish(run->exec, mm, row, rows, col, cols);
}

void en_mm_run(struct en_exec *exec, const struct en_mm *mm, size_t count)
{
	struct mm_run run = { .exec = exec, .mm = mm, .count = count };

	for (size_t i = 0; i < count; i++)
		run.first[i + 1] = run.first[i] + pieces(&mm[i]);
	en_pool_run(exec->pool, run.first[count], mm_job, &run);
}

struct en_mm en_mm_forward(const float *x, const float *w, const float *bias, float *y, size_t n,
			   size_t in, size_t out)
{
	return (struct en_mm){ .flags = KN_GEMM_TB, .m = n, .n = out, .k = in, .a = x, .lda = in,
			       .b = w, .ldb = in, .c = y, .ldc = out, .bias = bias, .round = true };
}

struct en_mm en_mm_input(const float *dy, const float *w, float *dx, size_t n, size_t in,
			 size_t out, bool add)
{
	return (struct en_mm){ .flags = add ? KN_GEMM_ADD : 0, .m = n, .n = in, .k = out, .a = dy,
			       .lda = out, .b = w, .ldb = in, .c = dx, .ldc = in, .round = true };
}

struct en_mm en_mm_weight(const float *dy, const float *x, float *dw, size_t n, size_t in,
			  size_t out, unsigned flags)
{
	return (struct en_mm){ .flags = KN_GEMM_TA | (flags & EN_ADD ? KN_GEMM_ADD : 0), .m = out,
			       .n = in, .k = n, .a = dy, .lda = out, .b = x, .ldb = in, .c = dw,
			       .ldc = in, .round = !(flags & EN_ADD) };
}

/* ---------------------------------------------------------------- rows */

struct rows_run {
	struct en_exec *exec;
	size_t n;
	en_rows_fn fn;
	void *arg;
};

static void rows_job(void *arg, size_t job, uint32_t thread)
{
	const struct rows_run *run = arg;
	const size_t first = job * EN_ROWS;
	const size_t count = run->n - first < EN_ROWS ? run->n - first : EN_ROWS;

	(void)thread;
	run->fn(run->exec, run->arg, first, count, job);
}

void en_rows_run(struct en_exec *exec, size_t n, en_rows_fn fn, void *arg)
{
	struct rows_run run = { exec, n, fn, arg };

	en_pool_run(exec->pool, en_row_jobs(n), rows_job, &run);
}

void en_partial_join(struct en_exec *exec, size_t jobs, size_t width, size_t at, size_t count,
		     float *grad, unsigned flags)
{
	if (!(flags & EN_ADD))
		memset(grad, 0, count * sizeof(*grad));
	for (size_t j = 0; j < jobs; j++)
		kn_add(grad, grad, exec->partial + j * width + at, count, KN_F32);
	if (!(flags & EN_ADD))
		kn_round(grad, count, exec->type);
}

/* ---------------------------------------------------------------- widening */

#define WIDEN 65536u

struct widen_run {
	float *to;
	const char *from;
	enum kn_type type;
	size_t n;
};

static void widen_job(void *arg, size_t job, uint32_t thread)
{
	const struct widen_run *run = arg;
	const size_t first = job * WIDEN, left = run->n - first;

	(void)thread;
	kn_cast(run->to + first, KN_F32, run->from + first * kn_type_size(run->type), run->type,
		left < WIDEN ? left : WIDEN, NULL);
}

const float *en_widen(struct en_exec *exec, const void *params, size_t numel, size_t at)
{
	struct widen_run run = { exec->wide ? exec->wide + at : NULL, params, exec->type, numel };

	if (exec->type == KN_F32)
		return params;
	en_pool_run(exec->pool, (numel + WIDEN - 1) / WIDEN, widen_job, &run);
	return run.to;
}
