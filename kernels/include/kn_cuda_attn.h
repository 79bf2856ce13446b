/*
 * kn_cuda_attn.h -- causal attention on a GPU, forward and backward.
 *
 * For every row of tokens (b of them, t tokens each), query head h and token i, with the
 * key/value head g = h / (heads / kv):
 *	s[j] = scale dot(q[i, h], k[j, g])  for j <= i,  p = softmax(s),  o[i, h] = sum p[j] v[j, g]
 *	lse[b, h, i] = log(sum(exp(s)))	fp32, natural logarithm: what the way back needs
 *
 * Layout.  q, k, v, o and their gradients hold a token in a row: element c of head h of token i of
 * row r is at (r t + i) ld + h d + c, with an 'ld' of its own for each.  So v may lie inside a
 * buffer of q, k and v side by side while q and k were turned into buffers of their own.
 *
 * Two ways do it.  cuDNN: bf16 and fp16, d a multiple of 8 up to 128, loaded when it is first
 * asked for (the program needs no cuDNN to start).  Own kernels: fp32, bf16, fp16, any even d up
 * to 256, on the units for fp32: right everywhere, an order of magnitude slower.  Sums are fp32
 * in both; cuDNN rounds p and ds to the type of q before it multiplies them, the own kernels do
 * not.  An lse of one way serves the backward pass of the other.
 *
 * Packed rows.  With 'starts' a row holds documents: token i sees j from starts[i] on instead of
 * from 0.  The own kernels leave out tiles that no token sees; cuDNN computes and masks them.
 *
 * A plan belongs to one shape and one device, and is used by one thread at a time.  What it costs
 * is paid in kn_cu_attn_new() (cuDNN compiles: up to seconds); the other calls only launch and are
 * asynchronous.  The own kernels always give the same bits for the same inputs; cuDNN's forward
 * pass does, its backward pass with KN_CU_ATTN_FIXED only.  On Hopper that costs workspace, about
 * 1 GiB (or one key/value head's group of heads times t^2 times 2 bytes, where that is more); on
 * later GPUs cuDNN is not asked for it.
 *
 * Calls return 0, a cudaError_t above 0, or KN_CU_ATTN_LIB (cuDNN refused, or cannot do this
 * shape) with a sentence in 'why'.
 */
#ifndef KN_CUDA_ATTN_H
#define KN_CUDA_ATTN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_train.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* a cudaStream_t points to one */
struct kn_cu_attn;

#define KN_CU_ATTN_LIB (-1)
#define KN_CU_ATTN_MAX_D 256u

/* Flags. */
#define KN_CU_ATTN_FIXED 1u   /* cuDNN: a backward pass with the same bits each time */
#define KN_CU_ATTN_NO_BACK 2u /* there will be no backward pass */

enum kn_cu_attn_way {
	KN_CU_ATTN_ANY = 0, /* cuDNN where it takes the shape, else the own kernels */
	KN_CU_ATTN_OWN = 1,
	KN_CU_ATTN_CUDNN = 2, /* or fail */
};

struct kn_cu_attn_shape {
	size_t b, t;         /* rows, tokens of a row */
	size_t heads, kv, d; /* heads is a multiple of kv */
	size_t ldq, ldk, ldv, ldo;
	size_t lddq, lddk, lddv, lddo; /* of the gradients; not looked at with NO_BACK */
	float scale;                   /* 1 / sqrt(d) as a rule */
	enum kn_type type;             /* of all but lse */
	/* [b, t] on the device, read by each call: where in the row the document of a token
	 * begins (0 or more, rising, at most its own index); NULL: rows are one document. */
	const int32_t *starts;
};

/*
 * Plans for one shape on the current device.  'why' (of 'size' bytes, may be NULL) gets a sentence
 * on failure; with KN_CU_ATTN_ANY and success, why cuDNN was not taken, or an empty string.
 */
int kn_cu_attn_new(struct kn_cu_attn **a_out, const struct kn_cu_attn_shape *shape,
		   enum kn_cu_attn_way way, unsigned flags, char *why, size_t size);
void kn_cu_attn_free(struct kn_cu_attn *a);

/* Device bytes (aligned to 256) that either call needs as 'work'.  May be 0. */
size_t kn_cu_attn_work(const struct kn_cu_attn *a);

/* "own" or "cudnn 9.19.0", for a log. */
const char *kn_cu_attn_name(const struct kn_cu_attn *a);

/* lse [b, heads, t] may be NULL for the own kernels.  cuDNN wants 16-byte alignment of all. */
int kn_cu_attn_forward(const struct kn_cu_attn *a, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream);

/* dq, dk, dv are written, not added to.  They overlap nothing of the others. */
int kn_cu_attn_back(const struct kn_cu_attn *a, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream);

/* What a call that returned 'rc' ran into: a sentence of the library, else of CUDA. */
const char *kn_cu_attn_text(int rc);

#ifdef __cplusplus
}
#endif

#endif
