/*
 * kn_cu_attn_cudnn.c -- attention as a graph of cuDNN's operations, from which cuDNN makes one
 * fused kernel each way.
 *
 * cuDNN knows attention by its pattern: which operations follow one another, which tensors are
 * "virtual" (never in memory) and of which type they are decide whether an engine is found.  The
 * pattern is the one that NVIDIA's open cudnn-frontend emits (its node
 * scaled_dot_product_flash_attention.h, release 1.23); nothing here may be put in another order.
 *
 * Forward, for S and P of [b, heads, t, t]:
 *	S = Q K'; S scale; -inf where row < column; m = max over columns; e = exp(S - m);
 *	l = sum of e; lse = m + log l; P = e / l; O = P V
 * Backward:
 *	D = sum over d of dO O; S as above; P = exp(masked(S - lse)); dV = P' dO;
 *	dS = (dO V' - D) P scale; dK = dS' Q; dQ = dS K
 * with dK and dV summed over the query heads that share a key/value head.
 *
 * Packed rows: before the causal mask -inf where the column is left of the row's document.
 *
 * dQ.  Blocks of columns each give a part of dQ.  Either they are added into an fp32 buffer in
 * the order in which blocks end, or ("fixed") cuDNN keeps dS in its workspace, 2 bytes an element
 * of [b, heads, t, t], and multiplies it by K at the end.  To bound that, the fixed way runs over
 * parts of the batch, and of the key/value heads if one row of the batch is too large.
 */
#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define KN_CU_HAS_CUDNN 1
#endif
#endif

#include <stdio.h>

#include "kernels/cuda/kn_cu_attn_impl.h"

#ifdef KN_CU_HAS_CUDNN

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/kn_cu_cudnn.h"

/* dS of one part; what is above is cut. */
#define MOST_DS ((size_t)1 << 30)
/* The first release whose dQ buffer needs no zeros from us and whose mask is -inf, 9.11. */
#define OLDEST 91100u
/* Up to 9.15 the backward pass was wrong for t that is no multiple of 128. */
#define ANY_T 91600u

enum id {
	ID_Q = 1,
	ID_K,
	ID_V,
	ID_O,
	ID_LSE,
	ID_DO,
	ID_DQ,
	ID_DK,
	ID_DV,
	ID_DOTS,
	ID_DQ32,
	ID_SCALE,
	ID_MASK,
	ID_ONE,
	ID_STARTS,
};

struct kn_cu_sdpa {
	const struct kn_cu_dnn_api *api;
	cudnnHandle_t handle;
	struct kn_cu_attn_shape s;
	size_t rows, kv; /* of a part of the backward pass */
	int fixed;
	struct kn_cu_dnn_plan forward, back;
	size_t dots, dq32; /* bytes in front of cuDNN's own workspace, backward */
	float scale, mask, one;
};

/* ---------------------------------------------------------------- shapes */

/* Tokens of 'heads' heads, 'ld' apart, of a batch whose rows are s->t tokens apart. */
static struct kn_cu_dnn_shape tokens(const struct kn_cu_attn_shape *s, size_t heads, size_t ld)
{
	return (struct kn_cu_dnn_shape){
		{(int64_t)s->b, (int64_t)heads, (int64_t)s->t, (int64_t)s->d},
		{(int64_t)(s->t * ld), (int64_t)s->d, (int64_t)ld, 1},
	};
}

static struct kn_cu_dnn_shape turned(struct kn_cu_dnn_shape x)
{
	const int64_t dim = x.dim[2], stride = x.stride[2];

	x.dim[2] = x.dim[3];
	x.dim[3] = dim;
	x.stride[2] = x.stride[3];
	x.stride[3] = stride;
	return x;
}

/* [b, heads, rows, cols], close together */
static struct kn_cu_dnn_shape dense(const struct kn_cu_attn_shape *s, size_t rows, size_t cols)
{
	return (struct kn_cu_dnn_shape){
		{(int64_t)s->b, (int64_t)s->heads, (int64_t)rows, (int64_t)cols},
		{(int64_t)(s->heads * rows * cols), (int64_t)(rows * cols), (int64_t)cols, 1},
	};
}

/* lse: the distance between rows of the batch is that of the whole tensor's heads. */
static struct kn_cu_dnn_shape per_row(const struct kn_cu_attn_shape *s, size_t all_heads)
{
	struct kn_cu_dnn_shape x = dense(s, s->t, 1);

	x.stride[0] = (int64_t)(all_heads * s->t);
	return x;
}

static cudnnDataType_t dnn_type(enum kn_type type)
{
	return type == KN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* ---------------------------------------------------------------- graphs */

static const struct kn_cu_dnn_shape one_number = {{1, 1, 1, 1}, {1, 1, 1, 1}};

static kn_cu_dnn_t memory(struct kn_cu_dnn_graph *g, enum id id, cudnnDataType_t type,
			  struct kn_cu_dnn_shape x)
{
	return kn_cu_dnn_tensor(g, KN_CU_DNN_MEMORY, id, type, &x);
}

static kn_cu_dnn_t inside(struct kn_cu_dnn_graph *g, cudnnDataType_t type, struct kn_cu_dnn_shape x)
{
	return kn_cu_dnn_tensor(g, KN_CU_DNN_INSIDE, 0, type, &x);
}

static kn_cu_dnn_t scalar(struct kn_cu_dnn_graph *g, enum id id)
{
	return kn_cu_dnn_tensor(g, KN_CU_DNN_SCALAR, id, CUDNN_DATA_FLOAT, &one_number);
}

/* y = mode(x, b), inside */
static kn_cu_dnn_t point(struct kn_cu_dnn_graph *g, cudnnPointwiseMode_t mode, kn_cu_dnn_t x,
			 kn_cu_dnn_t b, cudnnDataType_t type, struct kn_cu_dnn_shape shape)
{
	kn_cu_dnn_t y = inside(g, type, shape);

	kn_cu_dnn_point(g, mode, x, b, NULL, y);
	return y;
}

/* -inf if the column is right of the row */
static kn_cu_dnn_t causal(struct kn_cu_dnn_graph *g, kn_cu_dnn_t x, struct kn_cu_dnn_shape shape)
{
	kn_cu_dnn_t row = inside(g, CUDNN_DATA_INT32, shape);
	kn_cu_dnn_t col = inside(g, CUDNN_DATA_INT32, shape);
	kn_cu_dnn_t seen, y;

	kn_cu_dnn_index(g, 2, x, row);
	kn_cu_dnn_index(g, 3, x, col);
	seen = point(g, CUDNN_POINTWISE_CMP_GE, row, col, CUDNN_DATA_BOOLEAN, shape);
	y = inside(g, CUDNN_DATA_FLOAT, shape);
	kn_cu_dnn_point(g, CUDNN_POINTWISE_BINARY_SELECT, x, scalar(g, ID_MASK), seen, y);
	return y;
}

/* Packed rows: -inf if the column is before the document of the row as well. */
static kn_cu_dnn_t masked(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s,
			  kn_cu_dnn_t x, struct kn_cu_dnn_shape shape)
{
	const struct kn_cu_dnn_shape begin = {{(int64_t)s->b, 1, (int64_t)s->t, 1},
					      {(int64_t)s->t, (int64_t)s->t, 1, 1}};
	kn_cu_dnn_t col, seen, y;

	if (!s->starts)
		return causal(g, x, shape);
	col = inside(g, CUDNN_DATA_INT32, shape);
	kn_cu_dnn_index(g, 3, x, col);
	seen = point(g, CUDNN_POINTWISE_CMP_GE, col,
		     memory(g, ID_STARTS, CUDNN_DATA_INT32, begin), CUDNN_DATA_BOOLEAN, shape);
	y = inside(g, CUDNN_DATA_FLOAT, shape);
	kn_cu_dnn_point(g, CUDNN_POINTWISE_BINARY_SELECT, x, scalar(g, ID_MASK), seen, y);
	return causal(g, y, shape);
}

static void forward_graph(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s)
{
	const cudnnDataType_t type = dnn_type(s->type), f32 = CUDNN_DATA_FLOAT;
	const struct kn_cu_dnn_shape square = dense(s, s->t, s->t), row = dense(s, s->t, 1);
	kn_cu_dnn_t x, e, max, sum, y;

	x = inside(g, f32, square);
	kn_cu_dnn_matmul(g, memory(g, ID_Q, type, tokens(s, s->heads, s->ldq)),
			 memory(g, ID_K, type, turned(tokens(s, s->kv, s->ldk))), x);
	x = point(g, CUDNN_POINTWISE_MUL, x, scalar(g, ID_SCALE), f32, square);
	x = masked(g, s, x, square);
	max = inside(g, f32, row);
	kn_cu_dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, max);
	x = point(g, CUDNN_POINTWISE_SUB, x, max, f32, square);
	e = point(g, CUDNN_POINTWISE_EXP, x, NULL, f32, square);
	sum = inside(g, f32, row);
	kn_cu_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
	y = point(g, CUDNN_POINTWISE_LOG, sum, NULL, f32, row);
	kn_cu_dnn_point(g, CUDNN_POINTWISE_ADD, max, y, NULL,
			memory(g, ID_LSE, f32, per_row(s, s->heads)));
	x = point(g, CUDNN_POINTWISE_DIV, e, sum, type, square);
	kn_cu_dnn_matmul(g, x, memory(g, ID_V, type, tokens(s, s->kv, s->ldv)),
			 memory(g, ID_O, type, tokens(s, s->heads, s->ldo)));
}

/* The gradient of K or V: left' right, summed over the heads of a group. */
static void grouped(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s, kn_cu_dnn_t left,
		    kn_cu_dnn_t right, enum id id, size_t ld)
{
	const cudnnDataType_t type = dnn_type(s->type);
	struct kn_cu_dnn_shape across = dense(s, s->t, s->t);
	kn_cu_dnn_t turned_left, all, out = memory(g, id, type, tokens(s, s->kv, ld));

	across.stride[2] = 1;
	across.stride[3] = (int64_t)s->t;
	turned_left = inside(g, type, across);
	kn_cu_dnn_reshape(g, left, turned_left);
	if (s->heads == s->kv) {
		kn_cu_dnn_matmul(g, turned_left, right, out);
		return;
	}
	all = inside(g, type, dense(s, s->t, s->d));
	kn_cu_dnn_matmul(g, turned_left, right, all);
	kn_cu_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, all, out);
}

/* D = sum of dO O, in memory since two kernels need it */
static kn_cu_dnn_t dots(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s,
			kn_cu_dnn_t dout)
{
	const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
	struct kn_cu_dnn_shape wide = dense(s, s->t, s->d);
	kn_cu_dnn_t x, sum, out;

	wide.stride[2] = (int64_t)(s->heads * s->d);
	x = point(g, CUDNN_POINTWISE_MUL, dout,
		  memory(g, ID_O, dnn_type(s->type), tokens(s, s->heads, s->ldo)), f32, wide);
	sum = inside(g, f32, dense(s, s->t, 1));
	kn_cu_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, x, sum);
	out = memory(g, ID_DOTS, f32, dense(s, s->t, 1));
	kn_cu_dnn_point(g, CUDNN_POINTWISE_MUL, sum, scalar(g, ID_ONE), NULL, out);
	return out;
}

static void dq_graph(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s, int fixed,
		     kn_cu_dnn_t ds, kn_cu_dnn_t k)
{
	const cudnnDataType_t type = dnn_type(s->type), f32 = CUDNN_DATA_FLOAT;
	kn_cu_dnn_t dq = memory(g, ID_DQ, type, tokens(s, s->heads, s->lddq)), sum;
	kn_cu_dnn_t back = inside(g, f32, tokens(s, s->kv, s->ldk));

	kn_cu_dnn_reshape(g, k, back);
	if (fixed) {
		kn_cu_dnn_matmul(g, ds, back, dq);
		return;
	}
	sum = memory(g, ID_DQ32, f32, dense(s, s->t, s->d));
	kn_cu_dnn_matmul(g, ds, back, sum);
	kn_cu_dnn_point(g, CUDNN_POINTWISE_IDENTITY, sum, NULL, NULL, dq);
}

/* 's' is one part; lse is cut out of one of 'all_heads'. */
static void back_graph(struct kn_cu_dnn_graph *g, const struct kn_cu_attn_shape *s, int fixed,
		       size_t all_heads)
{
	const cudnnDataType_t type = dnn_type(s->type), f32 = CUDNN_DATA_FLOAT;
	const struct kn_cu_dnn_shape square = dense(s, s->t, s->t);
	kn_cu_dnn_t dout = memory(g, ID_DO, type, tokens(s, s->heads, s->lddo));
	kn_cu_dnn_t q = memory(g, ID_Q, type, tokens(s, s->heads, s->ldq));
	kn_cu_dnn_t k = memory(g, ID_K, type, turned(tokens(s, s->kv, s->ldk)));
	kn_cu_dnn_t scale = scalar(g, ID_SCALE), d, x, p;

	d = dots(g, s, dout);
	x = inside(g, f32, square);
	kn_cu_dnn_matmul(g, q, k, x);
	x = point(g, CUDNN_POINTWISE_MUL, x, scale, f32, square);
	x = point(g, CUDNN_POINTWISE_SUB, x, memory(g, ID_LSE, f32, per_row(s, all_heads)), f32,
		  square);
	x = masked(g, s, x, square);
	p = point(g, CUDNN_POINTWISE_EXP, x, NULL, f32, square);
	grouped(g, s, p, dout, ID_DV, s->lddv);
	x = inside(g, f32, square);
	kn_cu_dnn_matmul(g, dout, memory(g, ID_V, type, turned(tokens(s, s->kv, s->ldv))), x);
	x = point(g, CUDNN_POINTWISE_SUB, x, d, f32, square);
	x = point(g, CUDNN_POINTWISE_MUL, x, p, f32, square);
	x = point(g, CUDNN_POINTWISE_MUL, x, scale, f32, square);
	grouped(g, s, x, q, ID_DK, s->lddk);
	dq_graph(g, s, fixed, x, k);
}

/* ---------------------------------------------------------------- plans */

static int no(char *why, size_t size, const char *text)
{
	if (why && size)
		snprintf(why, size, "%s", text);
	return KN_CU_ATTN_LIB;
}

static int check_lds(const struct kn_cu_attn_shape *s, int back)
{
	size_t all = s->ldq | s->ldk | s->ldv | s->ldo;

	if (back)
		all |= s->lddq | s->lddk | s->lddv | s->lddo;
	return all % 8 ? -1 : 0;
}

/* What this file asks of a shape; cuDNN itself may ask for more. */
static int check(const struct kn_cu_dnn_api *api, const struct kn_cu_attn_shape *s, unsigned flags,
		 char *why, size_t size)
{
	const int back = !(flags & KN_CU_ATTN_NO_BACK);
	int device, major;
	cudaError_t rc = cudaGetDevice(&device);

	if (!rc)
		rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
	if (rc)
		return no(why, size, cudaGetErrorString(rc));
	if (api->version < OLDEST)
		return no(why, size, "this cuDNN is older than 9.11");
	if (s->type != KN_BF16 && s->type != KN_F16)
		return no(why, size, "cuDNN's attention is for bf16 and fp16");
	if (s->d % 8 || s->d > 128 || check_lds(s, back))
		return no(why, size, "cuDNN's attention needs d up to 128 and rows in steps of 8");
	if (s->t < 2)
		return no(why, size, "cuDNN has no attention of a single token");
	if (back && s->t % 128 && api->version < ANY_T)
		return no(why, size, "cuDNN before 9.16 needs rows of a multiple of 128 tokens");
	if (major < 8)
		return no(why, size, "cuDNN's attention needs a GPU of compute capability 8.0");
	if (back && (flags & KN_CU_ATTN_FIXED) && major > 9)
		return no(why, size,
			  "cuDNN's backward pass with fixed bits is not used on GPUs after Hopper");
	return 0;
}

/* The largest divisor of n up to 'most', at least 1. */
static size_t part_of(size_t n, size_t most)
{
	size_t p = most < n ? most : n;

	while (p > 1 && n % p)
		p--;
	return p ? p : 1;
}

static void cut(struct kn_cu_sdpa *p)
{
	const size_t t = (p->s.t + 63) / 64 * 64;
	const size_t one = p->s.heads / p->s.kv * t * t * 2; /* of a key/value head */

	p->rows = p->s.b;
	p->kv = p->s.kv;
	if (!p->fixed || one * p->s.kv * p->s.b <= MOST_DS)
		return;
	p->rows = part_of(p->s.b, MOST_DS / (one * p->s.kv));
	if (one * p->s.kv > MOST_DS)
		p->kv = part_of(p->s.kv, MOST_DS / one);
}

static size_t round_up(size_t n)
{
	return (n + 255) / 256 * 256;
}

static int plan_back(struct kn_cu_sdpa *p, char *why, size_t size)
{
	struct kn_cu_attn_shape part = p->s;
	struct kn_cu_dnn_graph g;

	cut(p);
	part.b = p->rows;
	part.kv = p->kv;
	part.heads = p->s.heads / p->s.kv * p->kv;
	kn_cu_dnn_begin(&g, p->api);
	back_graph(&g, &part, p->fixed, p->s.heads);
	if (kn_cu_dnn_plan(&g, p->handle, p->fixed, &p->back, why, size))
		return KN_CU_ATTN_LIB;
	p->dots = round_up(part.b * part.heads * part.t * sizeof(float));
	p->dq32 = p->fixed ? 0 : round_up(part.b * part.heads * part.t * part.d * sizeof(float));
	return 0;
}

int kn_cu_sdpa_new(struct kn_cu_sdpa **out, const struct kn_cu_attn_shape *s, unsigned flags,
		   char *why, size_t size)
{
	const char *reason;
	const struct kn_cu_dnn_api *api = kn_cu_dnn_load(&reason);
	struct kn_cu_dnn_graph g;
	struct kn_cu_sdpa *p;
	cudnnStatus_t st;
	int rc;

	if (!api)
		return no(why, size, reason);
	rc = check(api, s, flags, why, size);
	if (rc)
		return rc;
	p = calloc(1, sizeof(*p));
	if (!p)
		return no(why, size, "no memory for a plan");
	p->api = api;
	p->s = *s;
	p->fixed = !!(flags & KN_CU_ATTN_FIXED);
	p->scale = s->scale;
	p->mask = -INFINITY;
	p->one = 1;
	st = api->handle_new(&p->handle);
	rc = st ? no(why, size, api->error_string(st)) : 0;
	if (!rc) {
		kn_cu_dnn_begin(&g, api);
		forward_graph(&g, s);
		rc = kn_cu_dnn_plan(&g, p->handle, 1, &p->forward, why, size);
	}
	if (!rc && !(flags & KN_CU_ATTN_NO_BACK))
		rc = plan_back(p, why, size);
	if (rc) {
		kn_cu_sdpa_free(p);
		return KN_CU_ATTN_LIB;
	}
	*out = p;
	return 0;
}

void kn_cu_sdpa_free(struct kn_cu_sdpa *p)
{
	if (!p)
		return;
	kn_cu_dnn_plan_release(p->api, &p->back);
	kn_cu_dnn_plan_release(p->api, &p->forward);
	if (p->handle)
		p->api->handle_free(p->handle);
	free(p);
}

size_t kn_cu_sdpa_work(const struct kn_cu_sdpa *p)
{
	const size_t back = p->back.plan ? p->dots + p->dq32 + p->back.work : 0;

	return back > p->forward.work ? back : p->forward.work;
}

size_t kn_cu_sdpa_version(const struct kn_cu_sdpa *p)
{
	return p->api->version;
}

/* ---------------------------------------------------------------- running */

struct pack {
	int64_t id[KN_CU_DNN_IDS];
	void *at[KN_CU_DNN_IDS];
	size_t n;
};

/* cuDNN's pointers are all to what may be written; inputs are only read. */
static void put(struct pack *p, enum id id, const void *at, size_t bytes)
{
	p->id[p->n] = id;
	p->at[p->n++] = (char *)(uintptr_t)at + bytes;
}

static int result(cudnnStatus_t rc)
{
	return rc ? KN_CU_ATTN_LIB : 0;
}

int kn_cu_sdpa_forward(const struct kn_cu_sdpa *p, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream)
{
	struct pack at = {.n = 0};

	put(&at, ID_Q, q, 0);
	put(&at, ID_K, k, 0);
	put(&at, ID_V, v, 0);
	put(&at, ID_O, o, 0);
	put(&at, ID_LSE, lse, 0);
	put(&at, ID_SCALE, &p->scale, 0);
	put(&at, ID_MASK, &p->mask, 0);
	if (p->s.starts)
		put(&at, ID_STARTS, p->s.starts, 0);
	return result(
		kn_cu_dnn_run(p->api, p->handle, &p->forward, at.id, at.at, at.n, work, stream));
}

int kn_cu_sdpa_back(const struct kn_cu_sdpa *p, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream)
{
	const struct kn_cu_attn_shape *s = &p->s;
	const size_t group = s->heads / s->kv, parts = s->kv / p->kv;
	cudnnStatus_t rc = CUDNN_STATUS_SUCCESS;

	for (size_t i = 0; i < s->b / p->rows * parts && !rc; i++) {
		const size_t token = i / parts * p->rows * s->t, kv = i % parts * p->kv;
		const size_t h = 2 * kv * group * s->d, g = 2 * kv * s->d;
		struct pack at = {.n = 0};

		put(&at, ID_Q, q, 2 * token * s->ldq + h);
		put(&at, ID_K, k, 2 * token * s->ldk + g);
		put(&at, ID_V, v, 2 * token * s->ldv + g);
		put(&at, ID_O, o, 2 * token * s->ldo + h);
		put(&at, ID_LSE, lse, (token * s->heads + kv * group * s->t) * sizeof(*lse));
		put(&at, ID_DO, dout, 2 * token * s->lddo + h);
		put(&at, ID_DQ, dq, 2 * token * s->lddq + h);
		put(&at, ID_DK, dk, 2 * token * s->lddk + g);
		put(&at, ID_DV, dv, 2 * token * s->lddv + g);
		put(&at, ID_DOTS, work, 0);
		if (!p->fixed)
			put(&at, ID_DQ32, work, p->dots);
		put(&at, ID_SCALE, &p->scale, 0);
		put(&at, ID_MASK, &p->mask, 0);
		put(&at, ID_ONE, &p->one, 0);
		if (s->starts)
			put(&at, ID_STARTS, s->starts, token * sizeof(*s->starts));
		rc = kn_cu_dnn_run(p->api, p->handle, &p->back, at.id, at.at, at.n,
				   (char *)work + p->dots + p->dq32, stream);
	}
	return result(rc);
}

#else

int kn_cu_sdpa_new(struct kn_cu_sdpa **out, const struct kn_cu_attn_shape *s, unsigned flags,
		   char *why, size_t size)
{
	(void)out;
	(void)s;
	(void)flags;
	if (why && size)
		snprintf(why, size, "built without cuDNN");
	return KN_CU_ATTN_LIB;
}

void kn_cu_sdpa_free(struct kn_cu_sdpa *p)
{
	(void)p;
}

size_t kn_cu_sdpa_work(const struct kn_cu_sdpa *p)
{
	(void)p;
	return 0;
}

size_t kn_cu_sdpa_version(const struct kn_cu_sdpa *p)
{
	(void)p;
	return 0;
}

int kn_cu_sdpa_forward(const struct kn_cu_sdpa *p, void *o, float *lse, const void *q,
		       const void *k, const void *v, void *work, struct CUstream_st *stream)
{
	(void)p, (void)o, (void)lse, (void)q, (void)k, (void)v, (void)work, (void)stream;
	return KN_CU_ATTN_LIB;
}

int kn_cu_sdpa_back(const struct kn_cu_sdpa *p, void *dq, void *dk, void *dv, const void *dout,
		    const void *q, const void *k, const void *v, const void *o, const float *lse,
		    void *work, struct CUstream_st *stream)
{
	(void)p, (void)dq, (void)dk, (void)dv, (void)dout, (void)q, (void)k, (void)v, (void)o;
	(void)lse, (void)work, (void)stream;
	return KN_CU_ATTN_LIB;
}

#endif
