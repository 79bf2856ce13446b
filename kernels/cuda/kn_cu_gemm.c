/*
 * kn_cu_gemm.c -- matrix products by cuBLASLt, with a list of shapes and what was chosen for each.
 *
 * cuBLASLt thinks in columns.  A row-major [r, c] matrix is the column-major [c, r] one in the
 * same memory, so D = op(A) op(B) is asked for as D' = op(B)' op(A)': our B is its first factor,
 * our A its second, and m and n change places.  Stored as op() wants it, a factor of ours needs
 * no transposition there either; KN_GEMM_TA and KN_GEMM_TB each ask for one.
 *
 * Only algorithms are allowed that add the parts of a product cut along k in fp32 in workspace:
 * not those that add into D, one part after the other, and not those that round parts to D's type.
 */
#include "kernels/include/kn_cuda_gemm.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/kn_cu_gemm_impl.h"
#include "kernels/include/kn_cuda_fp8.h"

#define MOST_TRIES 32u

/* ---------------------------------------------------------------- errors */

int kn_cu_gemm_fail(struct kn_cu_gemm *g, const char *what, const char *text)
{
	snprintf(g->why, sizeof(g->why), "%s: %s", what, text);
	return KN_CU_GEMM_LIB;
}

static int fail_blas(struct kn_cu_gemm *g, const char *what, cublasStatus_t rc)
{
	return kn_cu_gemm_fail(g, what, cublasLtGetStatusString(rc));
}

int kn_cu_gemm_fail_shape(struct kn_cu_gemm *g, const struct kn_cu_gemm_key *k, cublasStatus_t rc)
{
	snprintf(g->why, sizeof(g->why),
		 "cuBLASLt has no algorithm for m %" PRIu64 " n %" PRIu64 " k %" PRIu64
		 " type %" PRIu32 " -> %" PRIu32 " flags %" PRIu32
		 " with %zu bytes of workspace: %s",
		 k->m, k->n, k->k, k->type, k->out, k->flags, g->bytes,
		 cublasLtGetStatusString(rc));
	return KN_CU_GEMM_LIB;
}

static int fail_cuda(struct kn_cu_gemm *g, const char *what, cudaError_t rc)
{
	snprintf(g->why, sizeof(g->why), "%s: %s", what, cudaGetErrorString(rc));
	return (int)rc;
}

const char *kn_cu_gemm_why(const struct kn_cu_gemm *g)
{
	return g->why;
}

/* ---------------------------------------------------------------- shapes */

int kn_cu_gemm_type(enum kn_type type)
{
	return type == KN_F32 || type == KN_BF16 || type == KN_F16;
}

static cudaDataType_t cuda_type(uint32_t type)
{
	return type == KN_F32 ? CUDA_R_32F : type == KN_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Of A or B. */
static cudaDataType_t factor_type(const struct kn_cu_gemm_key *key, uint32_t e5m2)
{
	if (key->flags & KN_GEMM8)
		return key->flags & e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
	return cuda_type(key->type);
}

static size_t type_bytes(enum kn_type type)
{
	return type == KN_F32 ? 4 : 2;
}

/* The largest power of two up to 16 that divides all addresses. */
static uint32_t alignment(const void *a, const void *b, const void *c, const void *d)
{
	const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | 16;

	return (uint32_t)(all & -all);
}

static int mm_check(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, const void *c, const void *d)
{
	const int add = !!(mm->flags & KN_GEMM_ADD);

	if (!kn_cu_gemm_type(mm->type) || (mm->out != mm->type && mm->out != KN_F32))
		return kn_cu_gemm_fail(g, "kn_cu_gemm", "incompatible types");
	if (mm->lda < (mm->flags & KN_GEMM_TA ? mm->m : mm->k) ||
	    mm->ldb < (mm->flags & KN_GEMM_TB ? mm->k : mm->n) || mm->ldd < mm->n ||
	    (add && mm->ldc < mm->n))
		return kn_cu_gemm_fail(g, "kn_cu_gemm",
				       "the row stride is less than the row length");
	if (add && (!c || (c == d && mm->ldc != mm->ldd)))
		return kn_cu_gemm_fail(g, "kn_cu_gemm", "C is missing, or D has different rows");
	if (add && c == d && mm->out != KN_F32)
		return kn_cu_gemm_fail(g, "kn_cu_gemm", "C is D, and not fp32");
	return 0;
}

static void key_init(struct kn_cu_gemm_key *key, const struct kn_cu_mm *mm, uint32_t align)
{
	const int add = !!(mm->flags & KN_GEMM_ADD);

	*key = (struct kn_cu_gemm_key){
		.m = mm->m,
		.n = mm->n,
		.k = mm->k,
		.lda = mm->lda,
		.ldb = mm->ldb,
		.ldc = add ? mm->ldc : mm->ldd,
		.ldd = mm->ldd,
		.flags = mm->flags & (KN_GEMM_TA | KN_GEMM_TB | KN_GEMM_ADD | KN_CU_GEMM_TF32),
		.type = mm->type,
		.out = mm->out,
		.align = align,
	};
	if (mm->type != KN_F32)
		key->flags &= ~KN_CU_GEMM_TF32;
}

static struct kn_cu_gemm_plan *plan_find(const struct kn_cu_gemm *g,
					 const struct kn_cu_gemm_key *key)
{
	for (size_t i = 0; i < g->count; i++)
		if (!memcmp(&g->plan[i].key, key, sizeof(*key)))
			return &g->plan[i];
	return NULL;
}

/* ---------------------------------------------------------------- descriptors */

void kn_cu_gemm_plan_release(struct kn_cu_gemm_plan *p)
{
	if (p->desc)
		cublasLtMatmulDescDestroy(p->desc);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->c)
		cublasLtMatrixLayoutDestroy(p->c);
	if (p->d)
		cublasLtMatrixLayoutDestroy(p->d);
	memset(p, 0, sizeof(*p));
}

/* Scales: any place of the device will do until there is a product. */
static cublasStatus_t desc_new8(cublasLtMatmulDesc_t desc, uint32_t flags, const void *scale)
{
	const int8_t fast = !!(flags & KN_CU_FP8_FAST);
	cublasStatus_t rc = cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
							   &fast, sizeof(fast));

	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
						    &scale, sizeof(scale));
	return rc ? rc : cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
							&scale, sizeof(scale));
}

static cublasStatus_t desc_new(cublasLtMatmulDesc_t *out, const struct kn_cu_gemm_key *key,
			       const void *scale)
{
	const cublasComputeType_t comp =
		key->flags & KN_CU_GEMM_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
	/* Ours is the other way round, see the top. */
	const cublasOperation_t first = key->flags & KN_GEMM_TB ? CUBLAS_OP_T : CUBLAS_OP_N;
	const cublasOperation_t second = key->flags & KN_GEMM_TA ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasStatus_t rc = cublasLtMatmulDescCreate(out, comp, CUDA_R_32F);

	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSA, &first,
						    sizeof(first));
	if (!rc)
		rc = cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSB, &second,
						    sizeof(second));
	return rc || !(key->flags & KN_GEMM8) ? rc : desc_new8(*out, key->flags, scale);
}

/* Row-major [rows, cols] as it is stored. */
static cublasStatus_t layout_new(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
				 uint64_t cols, uint64_t ld)
{
	return cublasLtMatrixLayoutCreate(out, type, cols, rows, (int64_t)ld);
}

int kn_cu_gemm_plan_init(struct kn_cu_gemm *g, struct kn_cu_gemm_plan *p,
			 const struct kn_cu_gemm_key *k)
{
	const int ta = !!(k->flags & KN_GEMM_TA), tb = !!(k->flags & KN_GEMM_TB);
	cublasStatus_t rc;

	memset(p, 0, sizeof(*p));
	p->key = *k;
	rc = desc_new(&p->desc, k, g->work);
	if (!rc)
		rc = layout_new(&p->a, factor_type(k, KN_GEMM8_A_E5M2), ta ? k->k : k->m,
				ta ? k->m : k->k, k->lda);
	if (!rc)
		rc = layout_new(&p->b, factor_type(k, KN_GEMM8_B_E5M2), tb ? k->n : k->k,
				tb ? k->k : k->n, k->ldb);
	if (!rc)
		rc = layout_new(&p->c, cuda_type(k->out), k->m, k->n, k->ldc);
	if (!rc)
		rc = layout_new(&p->d, cuda_type(k->out), k->m, k->n, k->ldd);
	if (!rc)
		return 0;
	kn_cu_gemm_plan_release(p);
	return fail_blas(g, "describing matrices to cuBLASLt", rc);
}

static cublasStatus_t pref_fill(cublasLtMatmulPreference_t pref, uint64_t bytes, uint32_t align)
{
	static const cublasLtMatmulPreferenceAttributes_t of[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
	};
	const uint32_t reductions =
		CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	cublasStatus_t rc = cublasLtMatmulPreferenceSetAttribute(
		pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));

	if (!rc)
		rc = cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
			sizeof(reductions));
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]) && !rc; i++)
		rc = cublasLtMatmulPreferenceSetAttribute(pref, of[i], &align, sizeof(align));
	return rc;
}

/* The best 'most' algorithms by cuBLASLt's estimate, that fit; at least one, or failure. */
static int heuristic(struct kn_cu_gemm *g, const struct kn_cu_gemm_plan *p, unsigned most,
		     cublasLtMatmulHeuristicResult_t *found, int *count_out)
{
	cublasLtMatmulPreference_t pref = NULL;
	cublasStatus_t rc = cublasLtMatmulPreferenceCreate(&pref);
	int got = 0, kept = 0;

	if (!rc)
		rc = pref_fill(pref, g->bytes, p->key.align);
	if (!rc)
		rc = cublasLtMatmulAlgoGetHeuristic(g->lt, p->desc, p->b, p->a, p->c, p->d, pref,
						    (int)most, found, &got);
	if (pref)
		cublasLtMatmulPreferenceDestroy(pref);
	for (int i = 0; i < got && !rc; i++)
		if (!found[i].state && found[i].workspaceSize <= g->bytes)
			found[kept++] = found[i];
	if (rc || !kept)
		return kn_cu_gemm_fail_shape(g, &p->key, rc ? rc : CUBLAS_STATUS_NOT_SUPPORTED);
	*count_out = kept;
	return 0;
}

/* ---------------------------------------------------------------- the list */

/* Takes *p over on success, in the place of an older plan of this key. */
int kn_cu_gemm_plan_keep(struct kn_cu_gemm *g, struct kn_cu_gemm_plan *p,
			 struct kn_cu_gemm_plan **kept_out)
{
	struct kn_cu_gemm_plan *at = plan_find(g, &p->key);

	if (at) {
		kn_cu_gemm_plan_release(at);
	} else {
		if (g->count == g->room) {
			const size_t room = g->room ? 2 * g->room : 32;
			struct kn_cu_gemm_plan *more = realloc(g->plan, room * sizeof(*more));

			if (!more)
				return kn_cu_gemm_fail(g, "kn_cu_gemm",
						       "no memory for another shape");
			g->plan = more;
			g->room = room;
		}
		at = &g->plan[g->count++];
	}
	*at = *p;
	memset(p, 0, sizeof(*p));
	*kept_out = at;
	return 0;
}

static int plan_choose(struct kn_cu_gemm *g, const struct kn_cu_gemm_key *key,
		       struct kn_cu_gemm_plan **plan_out)
{
	cublasLtMatmulHeuristicResult_t found[1];
	struct kn_cu_gemm_plan p;
	int n, rc = kn_cu_gemm_plan_init(g, &p, key);

	if (rc)
		return rc;
	rc = heuristic(g, &p, 1, found, &n);
	if (!rc) {
		p.algo = found[0].algo;
		rc = kn_cu_gemm_plan_keep(g, &p, plan_out);
	}
	kn_cu_gemm_plan_release(&p);
	return rc;
}

int kn_cu_gemm_plan_for(struct kn_cu_gemm *g, const struct kn_cu_gemm_key *key,
			struct kn_cu_gemm_plan **plan_out)
{
	struct kn_cu_gemm_plan *p = plan_find(g, key);

	if (!p)
		return plan_choose(g, key, plan_out);
	*plan_out = p;
	return 0;
}

size_t kn_cu_gemm_count(const struct kn_cu_gemm *g)
{
	return g->count;
}

/* ---------------------------------------------------------------- handles */

static cudaError_t head_fill(struct kn_cu_gemm *g)
{
	struct cudaDeviceProp prop;
	int device;
	cudaError_t rc = cudaGetDevice(&device);

	if (!rc)
		rc = cudaGetDeviceProperties(&prop, device);
	if (!rc)
		snprintf(g->head, sizeof(g->head), "gemm 1, cublasLt %zu, sm_%d%d, %d SMs, %.64s",
			 cublasLtGetVersion(), prop.major, prop.minor, prop.multiProcessorCount,
			 prop.name);
	return rc;
}

int kn_cu_gemm_new(struct kn_cu_gemm **g_out, void *work, size_t bytes)
{
	struct kn_cu_gemm *g = calloc(1, sizeof(*g));
	int rc = g ? (int)head_fill(g) : (int)cudaErrorMemoryAllocation;

	if (!rc && cublasLtCreate(&g->lt))
		rc = KN_CU_GEMM_LIB;
	if (rc) {
		free(g);
		return rc;
	}
	g->work = work;
	g->bytes = work ? bytes : 0;
	*g_out = g;
	return 0;
}

void kn_cu_gemm_free(struct kn_cu_gemm *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->count; i++)
		kn_cu_gemm_plan_release(&g->plan[i]);
	free(g->plan);
	cublasLtDestroy(g->lt);
	free(g);
}

/* ---------------------------------------------------------------- running */

cublasStatus_t kn_cu_gemm_launch(const struct kn_cu_gemm *g, const struct kn_cu_gemm_plan *p,
				 const cublasLtMatmulAlgo_t *algo, float alpha, const void *a,
				 const void *b, const void *c, void *d, cudaStream_t stream)
{
	const int add = !!(p->key.flags & KN_GEMM_ADD);
	const float beta = add ? 1.f : 0.f;

	return cublasLtMatmul(g->lt, p->desc, &alpha, b, p->b, a, p->a, &beta, add ? c : d, p->c, d,
			      p->d, algo, g->work, g->bytes, stream);
}

/* k is 0: D is C, or zero. */
static int run_empty(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, const void *c, void *d,
		     cudaStream_t stream)
{
	const size_t e = type_bytes(mm->out), width = mm->n * e;
	cudaError_t rc = cudaSuccess;

	if (!(mm->flags & KN_GEMM_ADD))
		rc = cudaMemset2DAsync(d, mm->ldd * e, 0, width, mm->m, stream);
	else if (c != d)
		rc = cudaMemcpy2DAsync(d, mm->ldd * e, c, mm->ldc * e, width, mm->m,
				       cudaMemcpyDeviceToDevice, stream);
	return rc ? fail_cuda(g, "a product with an inner dimension of 0", rc) : 0;
}

int kn_cu_gemm_run(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, float alpha, const void *a,
		   const void *b, const void *c, void *d, struct CUstream_st *stream)
{
	const int add = !!(mm->flags & KN_GEMM_ADD);
	struct kn_cu_gemm_plan *p;
	struct kn_cu_gemm_key key;
	cublasStatus_t st;
	int rc = mm_check(g, mm, c, d);

	if (rc || !mm->m || !mm->n)
		return rc;
	if (!mm->k)
		return run_empty(g, mm, c, d, stream);
	key_init(&key, mm, alignment(a, b, add ? c : d, d));
	rc = kn_cu_gemm_plan_for(g, &key, &p);
	if (rc)
		return rc;
	st = kn_cu_gemm_launch(g, p, &p->algo, alpha, a, b, c, d, stream);
	return st ? fail_blas(g, "cublasLtMatmul", st) : 0;
}

/* ---------------------------------------------------------------- timing */

/*
 * What counts is speed beside other work, at the clock that a busy GPU can hold: algorithms take
 * turns, and each turn is long enough to draw power.
 */
#define ROUNDS 5
#define TURN 0.02	/* seconds */
#define MOST_RUNS 200

struct operands {
	const void *a, *b, *c;
	void *d;
	cudaStream_t stream;
};

struct timer {
	cudaEvent_t begin, end;
};

static cudaError_t timer_init(struct timer *t)
{
	cudaError_t rc = cudaEventCreate(&t->begin);

	if (rc)
		return rc;
	rc = cudaEventCreate(&t->end);
	if (rc)
		cudaEventDestroy(t->begin);
	return rc;
}

/* Mean over 'runs', in seconds; '*st_out' is not 0 where the algorithm does not run. */
static cudaError_t time_turn(const struct kn_cu_gemm *g, const struct kn_cu_gemm_plan *p,
			     const cublasLtMatmulAlgo_t *algo, const struct operands *o,
			     const struct timer *t, unsigned runs, double *seconds_out,
			     cublasStatus_t *st_out)
{
	cudaError_t rc = cudaEventRecord(t->begin, o->stream);
	float ms = 0;

	*st_out = CUBLAS_STATUS_SUCCESS;
	for (unsigned i = 0; i < runs && !rc && !*st_out; i++)
		*st_out = kn_cu_gemm_launch(g, p, algo, 1, o->a, o->b, o->c, o->d, o->stream);
	if (!rc)
		rc = cudaEventRecord(t->end, o->stream);
	if (!rc)
		rc = cudaEventSynchronize(t->end);
	if (!rc)
		rc = cudaEventElapsedTime(&ms, t->begin, t->end);
	*seconds_out = ms * 1e-3 / runs;
	return rc;
}

/* sum[i]: of all turns of algorithm i, or infinite where it does not run. */
static cudaError_t time_turns(const struct kn_cu_gemm *g, const struct kn_cu_gemm_plan *p,
			      const cublasLtMatmulHeuristicResult_t *found, int count,
			      const struct operands *o, const struct timer *t, double *sum,
			      cublasStatus_t *last)
{
	unsigned runs = 1;
	cudaError_t rc = cudaSuccess;

	for (int round = -2; round < ROUNDS && !rc; round++)
		for (int i = 0; i < count && !rc; i++) {
			cublasStatus_t st;
			double s;

			if (round < 0 && i)	/* to warm up, and to see how long it takes */
				break;
			if (isinf(sum[i]))
				continue;
			rc = time_turn(g, p, &found[i].algo, o, t, runs, &s, &st);
			if (st) {
				*last = st;
				sum[i] = INFINITY;
			} else if (round >= 0) {
				sum[i] += s;
			} else if (!rc) {
				runs = s > 0 && TURN / s < MOST_RUNS ? (unsigned)(TURN / s) + 1 :
				       MOST_RUNS;
			}
		}
	return rc;
}

static int time_all(struct kn_cu_gemm *g, struct kn_cu_gemm_plan *p,
		    const cublasLtMatmulHeuristicResult_t *found, int count,
		    const struct operands *o)
{
	cublasStatus_t last = CUBLAS_STATUS_NOT_SUPPORTED;
	double sum[MOST_TRIES] = { 0 };
	struct timer t;
	cudaError_t rc = timer_init(&t);
	int best = 0;

	if (rc)
		return fail_cuda(g, "timing matrix products", rc);
	rc = time_turns(g, p, found, count, o, &t, sum, &last);
	cudaEventDestroy(t.begin);
	cudaEventDestroy(t.end);
	if (rc)
		return fail_cuda(g, "timing matrix products", rc);
	for (int i = 1; i < count; i++)
		if (sum[i] < sum[best])
			best = i;
	if (isinf(sum[best]))
		return kn_cu_gemm_fail_shape(g, &p->key, last);
	p->seconds = sum[best] / ROUNDS;
	p->algo = found[best].algo;
	return 0;
}

int kn_cu_gemm_tune(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, unsigned tries, const void *a,
		    const void *b, const void *c, void *d, struct CUstream_st *stream,
		    double *seconds_out)
{
	const struct operands o = { a, b, c, d, stream };
	cublasLtMatmulHeuristicResult_t found[MOST_TRIES];
	const int add = !!(mm->flags & KN_GEMM_ADD);
	struct kn_cu_gemm_plan p, *kept;
	struct kn_cu_gemm_key key;
	int n, rc = mm_check(g, mm, c, d);

	if (!rc && add && c == d)
		rc = kn_cu_gemm_fail(g, "kn_cu_gemm_tune", "C is D");
	if (rc || !mm->m || !mm->n || !mm->k)
		return rc;
	key_init(&key, mm, alignment(a, b, add ? c : d, d));
	rc = kn_cu_gemm_plan_init(g, &p, &key);
	if (rc)
		return rc;
	tries = tries < 1 ? 1 : tries > MOST_TRIES ? MOST_TRIES : tries;
	rc = heuristic(g, &p, tries, found, &n);
	if (!rc)
		rc = time_all(g, &p, found, n, &o);
	if (!rc)
		rc = kn_cu_gemm_plan_keep(g, &p, &kept);
	if (!rc && seconds_out)
		*seconds_out = kept->seconds;
	kn_cu_gemm_plan_release(&p);
	return rc;
}
