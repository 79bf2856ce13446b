/*
 * kn_train.h -- kernels of training on a CPU: rows of fp32 in, rows of fp32 out.
 *
 * Like kn.h: no allocation, no files, no failure; buffers need no alignment, counts are elements,
 * 0 is fine.  Every function is the work of one thread; callers cut rows into blocks and run
 * blocks side by side.  A matrix is row-major, 'ld' the distance of its rows in elements.
 *
 * 16-bit computation.  'type' is KN_F32, KN_BF16 or KN_F16: numbers are kept as fp32 always, and
 * with a 16-bit type each operation named in a formula as R() rounds its result to the nearest
 * number of that type (ties to even; too large becomes infinite).  With KN_F32 R() does nothing.
 *
 * Exactness.  tests/ref has each law in double.  Variants for wide CPUs give the same bits
 * as the narrow one under every feature mask (sums run in 16 lanes, joined as a tree; products and
 * sums are never fused), but kn_gemm() by OpenBLAS and kn_gemm_bf16(), whose bits are those of the
 * library and of the CPU.  What a call computes depends on its arguments alone.
 */
#ifndef KN_TRAIN_H
#define KN_TRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn.h"

/* ---------------------------------------------------------------- matrices */

#define KN_GEMM_TA 1u	/* A is stored [k, m] */
#define KN_GEMM_TB 2u	/* B is stored [n, k] */
#define KN_GEMM_ADD 4u	/* C += AB instead of C = AB */

/* C [m, n] = A [m, k] B [k, n].  C overlaps neither.  k 0: C = 0, or stays with KN_GEMM_ADD. */
void kn_gemm(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
	     const float *b, size_t ldb, float *c, size_t ldc);

/* "openblas" or "own": whose loops kn_gemm() runs.  With OpenBLAS, always on one thread a call. */
const char *kn_gemm_name(void);

/*
 * The same for A and B whose elements are all numbers of bf16.  Where OpenBLAS is built in and the
 * CPU multiplies bf16 numbers, it does: products are exact as ever, sums are fp32 in another order,
 * and what is subnormal, of A, B and sums, counts as 0.  Else it is kn_gemm().
 */
void kn_gemm_bf16(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		  const float *b, size_t ldb, float *c, size_t ldc);
/* "avx512_bf16", or kn_gemm_name(). */
const char *kn_gemm_bf16_name(void);

/* The own loops, whichever kn_gemm() runs. */
void kn_gemm_own(unsigned flags, size_t m, size_t n, size_t k, const float *a, size_t lda,
		 const float *b, size_t ldb, float *c, size_t ldc);

/* ---------------------------------------------------------------- rows */

/* y[i] = R(y[i]) */
void kn_round(float *y, size_t n, enum kn_type type);
/* y[i] = R(a[i] + b[i]); y may be a or b. */
void kn_add(float *y, const float *a, const float *b, size_t n, enum kn_type type);
/* y[i] = s x[i]; y may be x. */
void kn_scale(float *y, const float *x, float s, size_t n);
/* y [rows, n] = R(y + b) with b [n] in every row. */
void kn_add_bias(float *y, const float *b, size_t rows, size_t n, enum kn_type type);
/* sum[i] += x[0,i] + x[1,i] + ..., row after row. */
void kn_sum_rows(float *sum, const float *x, size_t rows, size_t n);

/*
 * rstd[r] = 1 / sqrt(mean(x[r]^2) + eps);  y[r,i] = R(w[i] R(x[r,i] rstd[r])).
 * x, y [rows, n]; y may be x.
 */
void kn_rmsnorm(float *y, float *rstd, const float *x, const float *w, size_t rows, size_t n,
		float eps, enum kn_type type);

/*
 * With t = R(x rstd), e = R(dy w):
 *	dx[r,i] = R(rstd[r] (e[i] - x[r,i] rstd[r] mean(e x rstd)))
 *	dw[i] += dy[r,i] t[r,i], row after row, not rounded
 * 'add' (may be NULL, may be dx): dx = R(add + the above).  dx may be dy.
 */
void kn_rmsnorm_back(float *dx, float *dw, const float *dy, const float *x, const float *rstd,
		     const float *w, const float *add, size_t rows, size_t n, enum kn_type type);

/*
 * Half-split rotation in place: x [rows, heads, d], cos and sin [*, d/2], row r takes row
 * (first + r) % period of them.  With m = d/2, k < m:
 *	x[k] = R(R(x[k] cos) - R(x[k+m] sin));  x[k+m] = R(R(x[k+m] cos) + R(x[k] sin))
 * sign -1 turns back (the gradient), 1 is the rotation.
 */
void kn_rope(float *x, const float *cos, const float *sin, size_t rows, size_t first,
	     size_t period, size_t heads, size_t d, float sign, enum kn_type type);

/* y = R(R(g / (1 + exp(-g))) u) */
void kn_swiglu(float *y, const float *g, const float *u, size_t n, enum kn_type type);
/* With s = 1 / (1 + exp(-g)): du = R(dy R(g s)), dg = R(R(dy u) s (1 + g (1 - s))); may be g, u. */
void kn_swiglu_back(float *dg, float *du, const float *dy, const float *g, const float *u,
		    size_t n, enum kn_type type);

/* y[r] = table[ids[r]], y [rows, n].  Ids are the caller's to check. */
void kn_embed(float *y, const float *table, const int32_t *ids, size_t rows, size_t n);
/* table[ids[r], i] += dy[r, i] for columns first..first+count of n, row after row. */
void kn_embed_back(float *dtable, const float *dy, const int32_t *ids, size_t rows, size_t n,
		   size_t first, size_t count);

/* ---------------------------------------------------------------- attention */

/* Query rows that are worked on at once. */
#define KN_ATTN_ROWS 64u

/*
 * One key/value head of one sample.  q, o [t, group, d] with rows 'ldq' apart, k, v [t, d] with
 * rows 'ldk' apart: query head a of the group is columns a d .. a d + d - 1.
 *	s[a,i,j] = R(dot(q[i,a], k[j]) scale), j <= i;  p = R(softmax over j);  o[i,a] = R(sum p v)
 * 'stat' [group, t, 2] keeps the row's maximum and 1 / sum for the way back; heads of it are
 * 2 'lds' floats apart (0: 2 t), so that a document of a longer row is called like a row.
 */
struct kn_attn {
	size_t t, group, d;
	size_t ldq, ldk, lds;
	float scale;
	enum kn_type type;
};

/* Floats of 'work' for either way. */
size_t kn_attn_work(const struct kn_attn *shape);

void kn_attn(const struct kn_attn *shape, float *o, float *stat, const float *q, const float *k,
	     const float *v, float *work);

/*
 * The last t - from rows of it: q and o begin at row 'from', k and v at row 0 as there.  What is
 * left when k and v of earlier rows were kept.
 */
void kn_attn_from(const struct kn_attn *shape, size_t from, float *o, const float *q,
		  const float *k, const float *v, float *work);

/*
 * dq (like q), dk, dv (like k) are written from go, the gradient of o; 'stat' as kn_attn() left
 * it.  dp = R(go v), ds = R(R(p (dp - sum(p dp))) scale); dq, dk, dv are rounded once, as sums.
 */
void kn_attn_back(const struct kn_attn *shape, float *dq, float *dk, float *dv, const float *go,
		  const float *stat, const float *q, const float *k, const float *v, float *work);

/* ---------------------------------------------------------------- loss */

/*
 * Cross-entropy of 'rows' rows of 'n' logits.  target[r] below 0 counts as nothing.
 *	loss[r] = log(sum(exp(l[r]))) - l[r, target[r]], or 0
 * With 'factor' not NULL the logits become their gradient of factor * (sum of the losses):
 *	l[r,i] = R((softmax(l[r])[i] - (i == target[r])) * factor), or 0
 */
void kn_xent(float *logits, float *loss, const int32_t *target, size_t rows, size_t n,
	     const float *factor, enum kn_type type);

/* ---------------------------------------------------------------- optimizer */

/* Whose order of operations.  In exact arithmetic all are the same update. */
enum kn_adam_rule {
	KN_ADAM_TORCH = 1,	/* torch.optim.AdamW and Adam */
	KN_ADAM_FUSED = 2,	/* DeepSpeed's FusedAdam */
	KN_ADAM_CPU = 3,	/* DeepSpeed's DeepSpeedCPUAdam */
};

struct kn_adam {
	enum kn_adam_rule rule;
	int decoupled;		/* 1: AdamW; 0: decay is added to the gradient */
	int bias_correction;
	uint64_t step;		/* of this update, from 1 */
	double lr, beta1, beta2, eps, decay;
	float grad_scale;	/* the gradient is grad * grad_scale (1: as it is) */
};

/*
 * One update of 'n' elements: 'p' (master), 'm', 'v' in fp32, in place.  'copy' (may be NULL)
 * gets the new p as 'copy_type', in the same pass.
 */
void kn_adam(const struct kn_adam *how, float *p, float *m, float *v, const float *grad, size_t n,
	     void *copy, enum kn_type copy_type);

/*
 * Sums of squares of consecutive chunks of 'chunk' elements (the last may be shorter), in double,
 * into out[0 .. ceil(n / chunk)).  A chunk's sum depends on its elements alone, so ranks that cut
 * at multiples of 'chunk' find the same sums.
 */
void kn_sumsq(double *out, const float *x, size_t n, size_t chunk);

/* Sum over a binary tree of pairs (0+1, 2+3, ...); 'v' is used up.  0 elements: 0. */
double kn_tree_sum(double *v, size_t n);

/* 1 if no element is infinite or NaN. */
int kn_all_finite(const float *x, size_t n);

/* ---------------------------------------------------------------- randomness */

/*
 * Normal numbers by counter: element 'first' + i of stream (seed, stream) is a function of these
 * alone (Philox 4x32-10, then the inverse of the normal distribution in double), with the same bits
 * on every machine.  out[i] = (float)(mean + std z).
 */
void kn_random_normal(float *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first,
		      double mean, double std);
/* The same in 64 random bits each. */
void kn_random_bits(uint64_t *out, size_t n, uint64_t seed, uint64_t stream, uint64_t first);

/*
 * Dropout by counter: whether element k of position t of sample s is dropped is a function of these
 * and the seed alone.  Philox of the counter (k / 8, t, s) gives 8 numbers of 16 bits, the low half
 * of each word first; element k is dropped where number k % 8 is below 'below'.  What remains is
 * multiplied by 2^16 / (2^16 - below).
 */
struct kn_dropout {
	uint64_t seed;
	uint64_t sample;	/* of row 0; row i is position i % tokens of sample + i / tokens */
	uint32_t tokens;
	uint32_t below;		/* 2^16 times the probability, below 2^16 */
};
/* 2^16 p, rounded; at most 2^16 - 1. */
uint32_t kn_dropout_below(double p);
/*
 * Rows first..first + rows of 'n' elements, to which the pointers point: out = add + what remains
 * of x, rounded to the type.  'add' may be NULL (zeros); out may be x or add.
 */
void kn_dropout(float *out, const float *x, const float *add, size_t first, size_t rows, size_t n,
		const struct kn_dropout *d, enum kn_type type);

/* Natural logarithm with the same bits on every machine, within 2 units of the last place. */
double kn_log(double x);

#endif
