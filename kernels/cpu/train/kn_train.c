/*
 * kn_train.c -- the functions of kn_train.h that go to the set in use, and the small ones.
 *
 * The set follows the one that kn_cpu.c chose for kn.h, so kn_cpu_mask() rules both.
 */
#include "kernels/include/kn_train.h"

#include <string.h>

#include "kernels/cpu/kn_ops.h"
#include "kernels/cpu/train/kn_tops.h"

const struct kn_tops *kn_tops_get(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	const unsigned has = kn_ops_get()->needs;

	if (has & KN_CPU_AVX512)
		return &kn_tops_16;
	if (has & KN_CPU_AVX2)
		return &kn_tops_8;
#endif
	return &kn_tops_4;
}

void kn_round(float *y, size_t n, enum kn_type type)
{
	if (type != KN_F32)
		kn_tops_get()->round(y, n, type);
}

void kn_add(float *y, const float *a, const float *b, size_t n, enum kn_type type)
{
	kn_tops_get()->add(y, a, b, n, type);
}

void kn_scale(float *y, const float *x, float s, size_t n)
{
	kn_tops_get()->scale(y, x, s, n);
}

void kn_add_bias(float *y, const float *b, size_t rows, size_t n, enum kn_type type)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t r = 0; r < rows; r++)
		ops->add(y + r * n, y + r * n, b, n, type);
}

void kn_sum_rows(float *sum, const float *x, size_t rows, size_t n)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t r = 0; r < rows; r++)
		ops->add(sum, sum, x + r * n, n, KN_F32);
}

void kn_rmsnorm(float *y, float *rstd, const float *x, const float *w, size_t rows, size_t n,
		float eps, enum kn_type type)
{
	kn_tops_get()->rmsnorm(y, rstd, x, w, rows, n, eps, type);
}

void kn_rmsnorm_back(float *dx, float *dw, const float *dy, const float *x, const float *rstd,
		     const float *w, const float *add, size_t rows, size_t n, enum kn_type type)
{
	kn_tops_get()->rmsnorm_back(dx, dw, dy, x, rstd, w, add, rows, n, type);
}

void kn_rope(float *x, const float *cos, const float *sin, size_t rows, size_t first,
	     size_t period, size_t heads, size_t d, float sign, enum kn_type type)
{
	const struct kn_tops *ops = kn_tops_get();
	const size_t half = d / 2;

	for (size_t r = 0; r < rows; r++) {
		const size_t at = (first + r) % period * half;

		for (size_t a = 0; a < heads; a++, x += d)
			ops->rope(x, x + half, cos + at, sin + at, half, sign, type);
	}
}

void kn_swiglu(float *y, const float *g, const float *u, size_t n, enum kn_type type)
{
	kn_tops_get()->swiglu(y, g, u, n, type);
}

void kn_swiglu_back(float *dg, float *du, const float *dy, const float *g, const float *u,
		    size_t n, enum kn_type type)
{
	kn_tops_get()->swiglu_back(dg, du, dy, g, u, n, type);
}

void kn_embed(float *y, const float *table, const int32_t *ids, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++)
		memcpy(y + r * n, table + (size_t)ids[r] * n, n * sizeof(*y));
}

void kn_embed_back(float *dtable, const float *dy, const int32_t *ids, size_t rows, size_t n,
		   size_t first, size_t count)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t r = 0; r < rows; r++) {
		float *to = dtable + (size_t)ids[r] * n + first;

		ops->add(to, to, dy + r * n + first, count, KN_F32);
	}
}

void kn_xent(float *logits, float *loss, const int32_t *target, size_t rows, size_t n,
	     const float *factor, enum kn_type type)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t r = 0; r < rows; r++, logits += n) {
		if (target[r] >= 0) {
			loss[r] = ops->xent(logits, (size_t)target[r], n, factor, type);
			continue;
		}
		loss[r] = 0;
		if (factor)
			memset(logits, 0, n * sizeof(*logits));
	}
}

/* As much as stays in the innermost cache between the update and the copy. */
#define ADAM_BLOCK 1024u

void kn_adam(const struct kn_adam *how, float *p, float *m, float *v, const float *grad, size_t n,
	     void *copy, enum kn_type copy_type)
{
	const struct kn_tops *ops = kn_tops_get();
	char *to = copy;

	if (!copy) {
		ops->adam(how, p, m, v, grad, n);
		return;
	}
	for (size_t i = 0; i < n; i += ADAM_BLOCK) {
		const size_t count = n - i < ADAM_BLOCK ? n - i : ADAM_BLOCK;

		ops->adam(how, p + i, m + i, v + i, grad + i, count);
		kn_cast(to + i * kn_type_size(copy_type), copy_type, p + i, KN_F32, count, NULL);
	}
}

double kn_power(double beta, uint64_t step)
{
	double y = 1;

	for (; step; step >>= 1, beta *= beta)
		if (step & 1)
			y *= beta;
	return y;
}

void kn_sumsq(double *out, const float *x, size_t n, size_t chunk)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t i = 0; i < n; i += chunk)
		*out++ = ops->sumsq(x + i, n - i < chunk ? n - i : chunk);
}

double kn_tree_sum(double *v, size_t n)
{
	if (!n)
		return 0;
	for (; n > 1; n = (n + 1) / 2) {
		for (size_t i = 0; i < n / 2; i++)
			v[i] = v[2 * i] + v[2 * i + 1];
		if (n & 1)
			v[n / 2] = v[n - 1];
	}
	return v[0];
}

int kn_all_finite(const float *x, size_t n)
{
	return kn_tops_get()->all_finite(x, n);
}
