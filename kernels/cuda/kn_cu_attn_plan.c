/* kn_cu_attn_plan.c -- which way attention goes, and the calls that lead there. */
#include "kernels/include/kn_cuda_attn.h"

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/kn_cu_attn_impl.h"

struct kn_cu_attn {
	struct kn_cu_attn_shape s;
	unsigned flags;
	struct kn_cu_sdpa *sdpa; /* NULL: own kernels */
	size_t work;
	char name[32];
};

static void say(char *why, size_t size, const char *text)
{
	if (why && size)
		snprintf(why, size, "%s", text);
}

static void name_cudnn(struct kn_cu_attn *a)
{
	const size_t v = kn_cu_sdpa_version(a->sdpa);

	snprintf(a->name, sizeof(a->name), "cudnn %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

/* What neither way can do; NULL if there is nothing. */
static const char *refuse(const struct kn_cu_attn_shape *s, unsigned flags)
{
	const size_t q = s->heads * s->d, k = s->kv * s->d;

	if (s->type != KN_F32 && s->type != KN_BF16 && s->type != KN_F16)
		return "attention is for fp32, bf16 and fp16";
	if (!s->d || s->d % 2 || s->d > KN_CU_ATTN_MAX_D)
		return "attention is for an even size of a head up to 256";
	if (!s->kv || !s->heads || s->heads % s->kv)
		return "the number of heads must be a multiple of the key/value heads";
	if (s->ldq < q || s->ldk < k || s->ldv < k || s->ldo < q)
		return "token stride of attention is less than the heads' length";
	if (!(flags & KN_CU_ATTN_NO_BACK) &&
	    (s->lddq < q || s->lddk < k || s->lddv < k || s->lddo < q))
		return "token stride of attention's gradients is less than the heads' length";
	if (s->b && s->t && s->heads > (size_t)INT_MAX / s->b / s->t)
		return "attention over more than 2^31 queries at once";
	return NULL;
}

int kn_cu_attn_new(struct kn_cu_attn **a_out, const struct kn_cu_attn_shape *shape,
		   enum kn_cu_attn_way way, unsigned flags, char *why, size_t size)
{
	const char *no = refuse(shape, flags);
	struct kn_cu_attn *a;
	int rc = KN_CU_ATTN_LIB;

	say(why, size, no ? no : "");
	if (no)
		return KN_CU_ATTN_LIB;
	a = calloc(1, sizeof(*a));
	if (!a)
		return (int)cudaErrorMemoryAllocation;
	a->s = *shape;
	a->flags = flags;
	if (way != KN_CU_ATTN_OWN)
		rc = kn_cu_sdpa_new(&a->sdpa, shape, flags, why, size);
	if (!rc) {
		a->work = kn_cu_sdpa_work(a->sdpa);
		name_cudnn(a);
	} else if (way != KN_CU_ATTN_CUDNN) {
		a->work = kn_cu_attn_own_work(shape, flags);
		snprintf(a->name, sizeof(a->name), "own");
		rc = 0;
	}
	if (rc)
		free(a);
	else
		*a_out = a;
	return rc;
}

void kn_cu_attn_free(struct kn_cu_attn *a)
{
	if (!a)
		return;
	kn_cu_sdpa_free(a->sdpa);
	free(a);
}

size_t kn_cu_attn_work(const struct kn_cu_attn *a)
{
	return a->work;
}

const char *kn_cu_attn_name(const struct kn_cu_attn *a)
{
	return a->name;
}

int kn_cu_attn_forward(const struct kn_cu_attn *a, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream)
{
	if (!a->s.b || !a->s.t)
		return 0;
	if (!a->sdpa)
		return kn_cu_attn_own_forward(&a->s, o, lse, q, k, v, stream);
	if (!lse)
		return (int)cudaErrorInvalidValue;
	return kn_cu_sdpa_forward(a->sdpa, o, lse, q, k, v, work, stream);
}

int kn_cu_attn_back(const struct kn_cu_attn *a, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream)
{
	if (a->flags & KN_CU_ATTN_NO_BACK)
		return (int)cudaErrorInvalidValue;
	if (!a->s.b || !a->s.t)
		return 0;
	return a->sdpa ? kn_cu_sdpa_back(a->sdpa, dq, dk, dv, dout, q, k, v, o, lse, work, stream)
		       : kn_cu_attn_own_back(&a->s, dq, dk, dv, dout, q, k, v, o, lse, work,
					     stream);
}

const char *kn_cu_attn_text(int rc)
{
	return rc == KN_CU_ATTN_LIB ? "cuDNN could not run attention"
				    : cudaGetErrorString((cudaError_t)rc);
}
