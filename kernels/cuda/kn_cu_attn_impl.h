/* kn_cu_attn_impl.h -- the two implementations of kn_cuda_attn.h. */
#ifndef KN_CU_ATTN_IMPL_H
#define KN_CU_ATTN_IMPL_H

#include <stddef.h>

#include "kernels/include/kn_cuda_attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Own kernels, kn_cu_attn.cu: any shape that kn_cu_attn_new() takes. */
size_t kn_cu_attn_own_work(const struct kn_cu_attn_shape *s, unsigned flags);
int kn_cu_attn_own_forward(const struct kn_cu_attn_shape *s, void *o, float *lse, const void *q,
			   const void *k, const void *v, struct CUstream_st *stream);
int kn_cu_attn_own_back(const struct kn_cu_attn_shape *s, void *dq, void *dk, void *dv,
			const void *dout, const void *q, const void *k, const void *v,
			const void *o, const float *lse, void *work, struct CUstream_st *stream);

/* cuDNN.  Returns 0 or KN_CU_ATTN_LIB with 'why'. */
struct kn_cu_sdpa;

int kn_cu_sdpa_new(struct kn_cu_sdpa **out, const struct kn_cu_attn_shape *s, unsigned flags,
		   char *why, size_t size);
void kn_cu_sdpa_free(struct kn_cu_sdpa *p);
size_t kn_cu_sdpa_work(const struct kn_cu_sdpa *p);
size_t kn_cu_sdpa_version(const struct kn_cu_sdpa *p);
int kn_cu_sdpa_forward(const struct kn_cu_sdpa *p, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream);
int kn_cu_sdpa_back(const struct kn_cu_sdpa *p, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
