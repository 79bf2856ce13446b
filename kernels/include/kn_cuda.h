/*
 * kn_cuda.h -- kernels of training on a GPU: all but matrix products and attention.
 *
 * Pointers are to device memory unless marked "host".  Every call is asynchronous on
 * 'stream' (a cudaStream_t; NULL: the default stream), may be captured into a graph, allocates
 * nothing and returns 0 or the number of a cudaError_t: that of the launch, or
 * cudaErrorInvalidValue for a type that is none of the three or an odd d.  Counts are elements, 0
 * of them is fine, and every size works; fast are pointers to multiples of 16 bytes with rows of
 * a multiple of 8 elements.  Ids and targets are the caller's to check.
 *
 * Types.  'type' (KN_F32, KN_BF16, KN_F16) is that of activations and weights, 'grad_type' that of
 * gradients of weights; both may be any of the three.  Inside, numbers are fp32; R() rounds to
 * 'type' where a formula has it, as in kn_train.h, whose laws these kernels keep.
 *
 * Gradients of weights are written, or with KN_CU_ADD added to what is there: the sum is made in
 * fp32 and rounded to 'grad_type' once.
 *
 * Bits.  The same arguments give the same bits: no sum's order depends on when threads run, or on
 * the device.  They differ from the CPU's bits, except where the comment says so.
 */
#ifndef KN_CUDA_H
#define KN_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t is a pointer to it. */
struct CUstream_st;

#define KN_CU_ADD 1u	/* add to the output instead of overwriting it */

/* ---------------------------------------------------------------- embedding */

/* y[r] = table[ids[r]], y [rows, n]. */
int kn_cu_embed(void *y, const void *table, const int32_t *ids, size_t rows, size_t n,
		enum kn_type type, struct CUstream_st *stream);

/*
 * Which rows belong to which id, for kn_cu_embed_back().  All pointers are host memory: ids
 * [rows] in, id [rows], begin [rows + 1], at [rows] out, work [rows] is used up.  Returns how
 * many ids there are: id[u] rises with u, and its rows are at[begin[u]] .. at[begin[u + 1] - 1],
 * rising.  rows below 2^31.
 */
size_t kn_cu_embed_list(const int32_t *ids, size_t rows, int32_t *id, int32_t *begin, int32_t *at,
			uint64_t *work);

/*
 * dtable[id[u]] = or += the sum of dy's rows of id[u], for u in 0 .. nid - 1 as
 * kn_cu_embed_list() made them.  Rows of ids that do not occur stay as they are.
 */
int kn_cu_embed_back(void *dtable, enum kn_type grad_type, const void *dy, const int32_t *id,
		     const int32_t *begin, const int32_t *at, size_t nid, size_t n,
		     enum kn_type type, unsigned flags, struct CUstream_st *stream);

/* ---------------------------------------------------------------- norm */

/*
 * rstd[r] = 1 / sqrt(mean(x[r]^2) + eps);  y[r,i] = R(w[i] R(x[r,i] rstd[r])).
 * x, y [rows, n], y may be x; w [n]; rstd [rows] may be NULL.
 */
int kn_cu_rmsnorm(void *y, float *rstd, const void *x, const void *w, size_t rows, size_t n,
		  float eps, enum kn_type type, struct CUstream_st *stream);

/* Bytes of 'work' for kn_cu_rmsnorm_back(); at a multiple of 16. */
size_t kn_cu_rmsnorm_back_work(size_t rows, size_t n);

/*
 * As kn_rmsnorm_back(): with t = R(x rstd), e = R(dy w)
 *	dx[r,i] = R(rstd[r] (e[i] - x[r,i] rstd[r] mean(e x rstd))), or R(add[r,i] + that)
 *	dw[i] = or += sum over r of dy[r,i] t[r,i]
 * 'add' may be NULL; dx may be dy, or add; neither may overlap otherwise.
 */
int kn_cu_rmsnorm_back(void *dx, void *dw, enum kn_type grad_type, const void *dy, const void *x,
		       const float *rstd, const void *w, const void *add, size_t rows, size_t n,
		       enum kn_type type, unsigned flags, void *work, struct CUstream_st *stream);

/* ---------------------------------------------------------------- heads */

/*
 * What is between the projection and attention.  Row r of qkv [rows, ld] has 'heads' query heads,
 * 'kv_heads' key heads, then the value heads, of d elements each; it is at position r % tokens,
 * less starts[r] where rows hold documents.
 */
struct kn_cu_qk {
	size_t rows, tokens;
	size_t heads, kv_heads, d;	/* d is even */
	size_t ld;			/* of qkv and dqkv, from (heads + 2 kv_heads) d on */
	size_t ldq, ldk;		/* of q' and k' and their gradients: heads d, kv_heads d */
	float eps;
	enum kn_type type;
	const int32_t *starts;		/* [rows] on the device, or NULL */
};

/*
 * q' = rope(norm(q; wq)) and k' = rope(norm(k; wk)) from qkv; wq, wk [d], both NULL: without
 * norms.  cos, sin [tokens, d/2] are fp32, filled by en_rope_fill() and uploaded.  The steps and
 * their rounding are those of kn_rmsnorm() over each head and kn_rope().
 */
int kn_cu_qk(const struct kn_cu_qk *shape, void *q, void *k, const void *qkv, const void *wq,
	     const void *wk, const float *cos, const float *sin, struct CUstream_st *stream);

/* Bytes of 'work' for kn_cu_qk_back() with norms; at a multiple of 16. */
size_t kn_cu_qk_back_work(const struct kn_cu_qk *shape);

/*
 * The way back: the heads of q and k of dqkv from dq, dk (gradients of q', k'), which may lie in
 * dqkv at the same place (ldq = ldk = ld).  The value heads of dqkv are not touched.  dwq, dwk [d]
 * are written or added to; without norms they, wq, wk, qkv and work are NULL.
 */
int kn_cu_qk_back(const struct kn_cu_qk *shape, void *dqkv, void *dwq, void *dwk,
		  enum kn_type grad_type, const void *dq, const void *dk, const void *qkv,
		  const void *wq, const void *wk, const float *cos, const float *sin,
		  unsigned flags, void *work, struct CUstream_st *stream);

/* ---------------------------------------------------------------- bias */

/* y [rows, n] with rows 'ld' apart: y = R(y + b), b [n] in every row. */
int kn_cu_add_bias(void *y, size_t ld, const void *b, size_t rows, size_t n, enum kn_type type,
		   struct CUstream_st *stream);

/* Bytes of 'work' for kn_cu_sum_rows(); at a multiple of 16. */
size_t kn_cu_sum_rows_work(size_t rows, size_t n);

/* sum[i] = or += x[0,i] + x[1,i] + ..., x [rows, n] with rows 'ld' apart. */
int kn_cu_sum_rows(void *sum, enum kn_type grad_type, const void *x, size_t ld, size_t rows,
		   size_t n, enum kn_type type, unsigned flags, void *work,
		   struct CUstream_st *stream);

/* ---------------------------------------------------------------- activation */

/* gu [rows, 2n] is g and u side by side: y [rows, n] = R(R(g / (1 + exp(-g))) u). */
int kn_cu_swiglu(void *y, const void *gu, size_t rows, size_t n, enum kn_type type,
		 struct CUstream_st *stream);

/*
 * dgu [rows, 2n] from dy [rows, n] as kn_swiglu_back(); it may be gu.  'y' (may be NULL, may be
 * dy) gets what kn_cu_swiglu() gave, bit for bit.
 */
int kn_cu_swiglu_back(void *dgu, void *y, const void *dy, const void *gu, size_t rows, size_t n,
		      enum kn_type type, struct CUstream_st *stream);

/* ---------------------------------------------------------------- loss */

/*
 * As kn_xent(): loss[r] = log(sum(exp(l[r]))) - l[r, target[r]], or 0 where the target is below
 * 0; NaN where it is n or more, or a logit is NaN or +infinite.  'factor' is host memory, read at
 * the call; with it (not NULL) the logits become R((softmax - onehot) factor), or 0.
 */
int kn_cu_xent(void *logits, float *loss, const int32_t *target, size_t rows, size_t n,
	       const float *factor, enum kn_type type, struct CUstream_st *stream);

/* *out = or += the sum of x, made in double; one block's work, for a few million numbers. */
int kn_cu_sum_f32(double *out, const float *x, size_t n, unsigned flags,
		  struct CUstream_st *stream);
int kn_cu_sum_f64(double *out, const double *x, size_t n, unsigned flags,
		  struct CUstream_st *stream);

/* ---------------------------------------------------------------- optimizer */

/*
 * As kn_adam(), and with its bits: one update of p (master), m, v in fp32, in place, by a gradient
 * of type 'grad_type'.  'copy' (may be NULL) gets the new p as 'copy_type'.  'how' is host memory.
 */
int kn_cu_adam(const struct kn_adam *how, float *p, float *m, float *v, const void *grad,
	       enum kn_type grad_type, size_t n, void *copy, enum kn_type copy_type,
	       struct CUstream_st *stream);

/*
 * As kn_sumsq(), and with its bits for the numbers in x: out[0 .. ceil(n / chunk)).  'chunk' is a
 * multiple of 16; 4096 is what ranks agree on.  Not finite: the sum is not either.
 */
int kn_cu_sumsq(double *out, const void *x, enum kn_type type, size_t n, size_t chunk,
		struct CUstream_st *stream);

/* Doubles of 'work' for kn_cu_tree_sum(). */
size_t kn_cu_tree_sum_work(size_t n);

/* *out = the bits of kn_tree_sum(v, n); 'v' is used up, 'out' is in neither v nor work. */
int kn_cu_tree_sum(double *out, double *v, size_t n, double *work, struct CUstream_st *stream);

/* *flag becomes 1 if an element is infinite or NaN, and stays as it is otherwise. */
int kn_cu_not_finite(uint32_t *flag, const void *x, enum kn_type type, size_t n,
		     struct CUstream_st *stream);

/* ---------------------------------------------------------------- element-wise */

/* Conversions with the bits of kn_cast(), NaN included.  dst is src, or does not overlap it; it
   may be src only if the types are of one size. */
int kn_cu_cast(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type, size_t n,
	       struct CUstream_st *stream);

/* y[i] = R(y[i] + x[i]), R() to y's type; x may be y. */
int kn_cu_add(void *y, enum kn_type y_type, const void *x, enum kn_type x_type, size_t n,
	      struct CUstream_st *stream);

/*
 * dst[i] = or += the sum over p of src[p * stride + i], 'pieces' of them (1 to 65,536), made in
 * fp32 as a tree of pairs in natural order, an odd last one going up as it is: the order in which
 * ranks are summed (en_comm.h).  dst overlaps nothing of src.
 */
int kn_cu_add_pieces(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type,
		     size_t pieces, size_t stride, size_t n, unsigned flags,
		     struct CUstream_st *stream);

/* y[i] = R(s y[i]) */
int kn_cu_scale(void *y, enum kn_type type, float s, size_t n, struct CUstream_st *stream);

/* y[i] = R(value) */
int kn_cu_fill(void *y, enum kn_type type, float value, size_t n, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
