/* kn_cu_gemm_impl.h -- what kn_cu_gemm.c and kn_cu_gemm_text.c share. */
#ifndef KN_CU_GEMM_IMPL_H
#define KN_CU_GEMM_IMPL_H

#include <cublasLt.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/include/kn_cuda_gemm.h"

/* Of kn_cu_gemm_key.flags besides the caller's: A and B are of 8 bits, 'type' is that of D. */
#define KN_GEMM8 256u
#define KN_GEMM8_A_E5M2 512u
#define KN_GEMM8_B_E5M2 1024u

/* What an algorithm was chosen for.  Compared as bytes: no padding. */
struct kn_cu_gemm_key {
	uint64_t m, n, k, lda, ldb, ldc, ldd;
	uint32_t flags, type, out, align;
};

struct kn_cu_gemm_plan {
	struct kn_cu_gemm_key key;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, c, d; /* ours: a is cuBLASLt's second factor */
	cublasLtMatmulAlgo_t algo;
	double seconds; /* 0: not timed */
};

struct kn_cu_gemm {
	cublasLtHandle_t lt;
	void *work;
	size_t bytes;
	struct kn_cu_gemm_plan *plan;
	size_t count, room;
	char head[160]; /* the first line of a text: versions and device */
	char why[256];
};

/* Each says why in g->why and returns KN_CU_GEMM_LIB. */
int kn_cu_gemm_fail(struct kn_cu_gemm *g, const char *what, const char *text);
int kn_cu_gemm_fail_shape(struct kn_cu_gemm *g, const struct kn_cu_gemm_key *k, cublasStatus_t rc);

/* 1: one of the three types. */
int kn_cu_gemm_type(enum kn_type type);

/* A plan with descriptors and no algorithm. */
int kn_cu_gemm_plan_init(struct kn_cu_gemm *g, struct kn_cu_gemm_plan *p,
			 const struct kn_cu_gemm_key *k);
void kn_cu_gemm_plan_release(struct kn_cu_gemm_plan *p);

/* Takes *p over on success, in the place of an older plan of its key. */
int kn_cu_gemm_plan_keep(struct kn_cu_gemm *g, struct kn_cu_gemm_plan *p,
			 struct kn_cu_gemm_plan **kept_out);

/* The plan of a key, chosen where it is new. */
int kn_cu_gemm_plan_for(struct kn_cu_gemm *g, const struct kn_cu_gemm_key *key,
			struct kn_cu_gemm_plan **plan_out);
cublasStatus_t kn_cu_gemm_launch(const struct kn_cu_gemm *g, const struct kn_cu_gemm_plan *p,
				 const cublasLtMatmulAlgo_t *algo, float alpha, const void *a,
				 const void *b, const void *c, void *d, cudaStream_t stream);

#endif
