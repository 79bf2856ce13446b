/*
 * test_cuda_attn.c -- attention on a GPU against the law, both ways against each other, and twice
 * for equal bits, of rows that are one document and of packed ones; with --bench a table of speeds.
 *
 * Exits 77 where there is no GPU.
 */
#include "kernels/include/kn_cuda_attn.h"

#include "tests/gpu/td_device.h"
#include "tests/ref/kn_ref_train.h"

enum { Q, K, V, O, DO, DQ, DK, DV, TENSORS };

/* One shape, its tensors on the device, and what the law makes of the inputs. */
struct setup {
	struct kn_cu_attn_shape s;
	size_t ld[TENSORS], heads[TENSORS], bytes[TENSORS];
	char *at[TENSORS]; /* v, dv lie inside buffers of their own */
	void *base[TENSORS];
	float *lse;
	double *in[TENSORS];  /* of q, k, v, do: rows ld apart */
	double *law[TENSORS]; /* of o, dq, dk, dv: rows close together */
	double *law_lse;
	int alone;       /* documents of one token */
	int32_t *starts; /* of s.starts, on the host; NULL: rows are one document */
};

static int is_input(int i)
{
	return i == Q || i == K || i == V || i == DO;
}

static void setup_init(struct setup *x, size_t b, size_t t, size_t heads, size_t kv, size_t d,
		       enum kn_type type, uint64_t seed)
{
	const size_t all = (heads + 2 * kv) * d, e = kn_type_size(type);
	const size_t ld[TENSORS] = {heads * d, kv * d,        all,         heads * d,
				    heads * d, heads * d + 8, kv * d + 16, all};

	memset(x, 0, sizeof(*x));
	for (int i = 0; i < TENSORS; i++) {
		const size_t skip = i == V || i == DV ? (heads + kv) * d : 0;

		x->ld[i] = ld[i];
		x->heads[i] = i == K || i == V || i == DK || i == DV ? kv : heads;
		x->bytes[i] = b * t * ld[i] * e;
		x->base[i] = td_alloc(x->bytes[i]);
		x->at[i] = (char *)x->base[i] + skip * e;
		if (is_input(i))
			x->in[i] = td_random(x->base[i], type, b * t * ld[i],
					     4 * seed + (uint64_t)i, 1);
	}
	x->lse = td_alloc(b * heads * t * sizeof(float));
	x->s = (struct kn_cu_attn_shape){
		.b = b,
		.t = t,
		.heads = heads,
		.kv = kv,
		.d = d,
		.ldq = ld[Q],
		.ldk = ld[K],
		.ldv = ld[V],
		.ldo = ld[O],
		.lddo = ld[DO],
		.lddq = ld[DQ],
		.lddk = ld[DK],
		.lddv = ld[DV],
		.scale = (float)(1 / sqrt((double)d)),
		.type = type,
	};
}

/* Documents of 1 to 2 'mean' - 1 tokens, cut by the end of the row; mean 0: a row is one. */
static void setup_pack(struct setup *x, size_t mean)
{
	const size_t n = x->s.b * x->s.t, bytes = n * sizeof(*x->starts);
	uint64_t seed = 12345;
	void *at;

	if (!mean)
		return;
	at = td_alloc(bytes);
	x->starts = td_host(bytes);
	for (size_t i = 0, begin = 0, left = 0; i < n; i++, left--) {
		if (!left || i % x->s.t == 0) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			left = 1 + (size_t)(seed >> 33) % (2 * mean - 1);
			begin = i % x->s.t;
		}
		x->starts[i] = (int32_t)begin;
	}
	TD_CU(cudaMemcpy(at, x->starts, bytes, cudaMemcpyHostToDevice));
	x->s.starts = at;
	x->alone = mean == 1;
}

static size_t start_of(const struct setup *x, size_t r, size_t i)
{
	return x->starts ? (size_t)x->starts[r * x->s.t + i] : 0;
}

/* The end of the document that token i of row r is in. */
static size_t end_of(const struct setup *x, size_t r, size_t i)
{
	const size_t begin = start_of(x, r, i);

	while (i < x->s.t && start_of(x, r, i) == begin)
		i++;
	return i;
}

static void setup_release(struct setup *x)
{
	for (int i = 0; i < TENSORS; i++) {
		TD_CU(cudaFree(x->base[i]));
		free(x->in[i]);
		free(x->law[i]);
	}
	TD_CU(cudaFree(x->lse));
	free(x->law_lse);
	TD_CU(cudaFree((void *)(uintptr_t)x->s.starts));
	free(x->starts);
}

/* Of tensor i: n columns from 'col' of row r's token 0, close together. */
static double *slice(const struct setup *x, int i, size_t r, size_t col, size_t n)
{
	const size_t skip = i == V ? (x->s.heads + x->s.kv) * x->s.d : 0;
	double *to = td_host(x->s.t * n * sizeof(*to));

	for (size_t j = 0; j < x->s.t; j++)
		memcpy(to + j * n, x->in[i] + (r * x->s.t + j) * x->ld[i] + skip + col,
		       n * sizeof(*to));
	return to;
}

static void spread(const struct setup *x, int i, size_t r, size_t col, size_t n, const double *from)
{
	const size_t width = x->heads[i] * x->s.d;

	for (size_t j = 0; j < x->s.t; j++)
		memcpy(x->law[i] + (r * x->s.t + j) * width + col, from + j * n, n * sizeof(*from));
}

static void law_lse(const struct setup *x, size_t r, size_t h, const double *q, const double *k)
{
	const size_t d = x->s.d, g = x->s.heads / x->s.kv;

	for (size_t i = 0; i < x->s.t; i++) {
		for (size_t a = 0; a < g; a++) {
			double sum = 0;

			for (size_t j = start_of(x, r, i); j <= i; j++) {
				double dot = 0;

				for (size_t c = 0; c < d; c++)
					dot += q[(i * g + a) * d + c] * k[j * d + c];
				sum += exp(dot * x->s.scale);
			}
			x->law_lse[(r * x->s.heads + h * g + a) * x->s.t + i] = log(sum);
		}
	}
}

/* The law of all heads, document after document, in double on the host. */
static void law(struct setup *x)
{
	const size_t d = x->s.d, g = x->s.heads / x->s.kv, t = x->s.t;

	for (int i = 0; i < TENSORS; i++)
		if (!is_input(i))
			x->law[i] = td_host(x->s.b * t * x->heads[i] * d * sizeof(double));
	x->law_lse = td_host(x->s.b * x->s.heads * t * sizeof(double));
	for (size_t r = 0; r < x->s.b; r++) {
		for (size_t h = 0; h < x->s.kv; h++) {
			double *q = slice(x, Q, r, h * g * d, g * d), *k = slice(x, K, r, h * d, d);
			double *v = slice(x, V, r, h * d, d),
			       *go = slice(x, DO, r, h * g * d, g * d);
			double *o = td_host(t * g * d * 8), *dq = td_host(t * g * d * 8);
			double *dk = td_host(t * d * 8), *dv = td_host(t * d * 8);

			for (size_t i = 0, n; i < t; i += n) {
				const size_t at = i * g * d, kv = i * d;

				n = end_of(x, r, i) - i;
				kn_ref_attn(o + at, q + at, k + kv, v + kv, n, g, d, x->s.scale);
				kn_ref_attn_back(dq + at, dk + kv, dv + kv, go + at, q + at,
						 k + kv, v + kv, n, g, d, x->s.scale);
			}
			law_lse(x, r, h, q, k);
			spread(x, O, r, h * g * d, g * d, o);
			spread(x, DQ, r, h * g * d, g * d, dq);
			spread(x, DK, r, h * d, d, dk);
			spread(x, DV, r, h * d, d, dv);
			free(q), free(k), free(v), free(go), free(o), free(dq), free(dk), free(dv);
		}
	}
}

struct gap {
	double most, rms, of; /* largest error, root mean square of it and of what it should be */
	size_t torn;          /* elements between rows that were written */
};

static struct gap gap_of(const struct setup *x, int i, const double *want)
{
	const size_t width = x->heads[i] * x->s.d, rows = x->s.b * x->s.t;
	const size_t skip = i == DV ? (x->s.heads + x->s.kv) * x->s.d : 0;
	double *got = td_fetch(x->base[i], x->s.type, rows * x->ld[i]);
	struct gap gap = {0};

	for (size_t r = 0; r < rows; r++) {
		for (size_t c = 0; c < x->ld[i]; c++) {
			const double y = got[r * x->ld[i] + c];
			double w, e;

			if (c < skip || c >= skip + width) {
				gap.torn += !isnan(y);
				continue;
			}
			w = want[r * width + c - skip];
			e = fabs(y - w);
			gap.most = e <= gap.most ? gap.most : isnan(e) ? INFINITY : e;
			gap.rms += e * e;
			gap.of += w * w;
		}
	}
	free(got);
	gap.rms = sqrt(gap.rms / (double)(rows * width));
	gap.of = sqrt(gap.of / (double)(rows * width));
	return gap;
}

/* What rounding of inputs of products and of results makes of normal numbers. */
static double allowed_rms(enum kn_type type)
{
	return type == KN_F32 ? 2e-6 : type == KN_F16 ? 1.5e-3 : 1e-2;
}

/* A single token's dq and dk are differences of equal sums: nothing but their rounding. */
static int gap_bad(const struct setup *x, struct gap gap)
{
	const double of = fmax(gap.of, x->s.t > 1 && !x->alone ? 0.1 : 1);

	return gap.torn || !(gap.rms <= allowed_rms(x->s.type) * of) ||
	       !(gap.most <= 60 * allowed_rms(x->s.type) * of);
}

static double lse_gap(const struct setup *x)
{
	const size_t n = x->s.b * x->s.heads * x->s.t;
	double *got = td_fetch(x->lse, KN_F32, n), most = 0;

	for (size_t i = 0; i < n; i++) {
		const double e = fabs(got[i] - x->law_lse[i]);

		most = e <= most ? most : isnan(e) ? INFINITY : e;
	}
	free(got);
	return most;
}

static void clear(const struct setup *x)
{
	for (int i = 0; i < TENSORS; i++)
		if (!is_input(i))
			TD_CU(cudaMemset(x->base[i], 0xff, x->bytes[i]));
	TD_CU(cudaMemset(x->lse, 0xff, x->s.b * x->s.heads * x->s.t * sizeof(float)));
}

/* cuDNN may refuse one shape and do the next; after an error of CUDA nothing works. */
static void result(int rc, const char *what)
{
	if (!rc)
		return;
	printf("FAIL: %s: %d, %s\n", what, rc, kn_cu_attn_text(rc));
	td_failed++;
	if (rc > 0)
		exit(1);
}

static void forward(const struct kn_cu_attn *a, const struct setup *x, void *work)
{
	result(kn_cu_attn_forward(a, x->at[O], x->lse, x->at[Q], x->at[K], x->at[V], work, NULL),
	       "kn_cu_attn_forward");
}

static void back(const struct kn_cu_attn *a, const struct setup *x, void *work)
{
	result(kn_cu_attn_back(a, x->at[DQ], x->at[DK], x->at[DV], x->at[DO], x->at[Q], x->at[K],
			       x->at[V], x->at[O], x->lse, work, NULL),
	       "kn_cu_attn_back");
}

/* Runs both directions twice and returns how many of o, lse, dq, dk, dv differ. */
static int twice(const struct kn_cu_attn *a, const struct setup *x, void *work)
{
	static const int of[] = {O, DQ, DK, DV};
	const size_t lse_bytes = x->s.b * x->s.heads * x->s.t * sizeof(float);
	void *first[TENSORS] = {NULL}, *lse, *again;
	int differ = 0;

	for (int run = 0; run < 2; run++) {
		clear(x);
		forward(a, x, work);
		back(a, x, work);
		for (int i = 0; i < 4; i++) {
			again = td_raw(x->base[of[i]], x->bytes[of[i]]);
			if (run) {
				differ += !!memcmp(first[i], again, x->bytes[of[i]]);
				free(first[i]);
				free(again);
			} else {
				first[i] = again;
			}
		}
		again = td_raw(x->lse, lse_bytes);
		if (run) {
			differ += !!memcmp(lse, again, lse_bytes);
			free(lse);
			free(again);
		} else {
			lse = again;
		}
	}
	return differ;
}

static const struct {
	const char *name;
	enum kn_cu_attn_way way;
	unsigned flags;
} ways[] = {
	{"own", KN_CU_ATTN_OWN, 0},
	{"cudnn", KN_CU_ATTN_CUDNN, 0},
	{"cudnn fixed", KN_CU_ATTN_CUDNN, KN_CU_ATTN_FIXED},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static int refusals; /* of cuDNN, where it should have taken the shape */

static void one_way(const struct setup *x, size_t w)
{
	static const char *const names[] = {"o", "dq", "dk", "dv"};
	static const int of[] = {O, DQ, DK, DV};
	const int fixed = ways[w].way == KN_CU_ATTN_OWN || ways[w].flags & KN_CU_ATTN_FIXED;
	struct kn_cu_attn *a;
	char why[400] = "";
	double lse;
	void *work;
	int bad, differ;

	if (kn_cu_attn_new(&a, &x->s, ways[w].way, ways[w].flags, why, sizeof(why))) {
		const int due = ways[w].way == KN_CU_ATTN_OWN ||
				(x->s.type != KN_F32 && x->s.t > 1 && x->s.d % 8 == 0);

		if (due) {
			printf("b %zu t %zu heads %zu/%zu d %zu: %s refused: %s\n", x->s.b, x->s.t,
			       x->s.heads, x->s.kv, x->s.d, ways[w].name, why);
			td_failed += ways[w].way == KN_CU_ATTN_OWN;
			refusals++;
		}
		return;
	}
	work = td_alloc(kn_cu_attn_work(a));
	differ = twice(a, x, work);
	lse = lse_gap(x);
	bad = (fixed && differ) || !(lse <= 1e-4);
	printf("%-11s type %d b %zu t %3zu heads %2zu/%zu d %3zu lse %.1e", kn_cu_attn_name(a),
	       x->s.type, x->s.b, x->s.t, x->s.heads, x->s.kv, x->s.d, lse);
	for (int i = 0; i < 4; i++) {
		const struct gap gap = gap_of(x, of[i], x->law[of[i]]);

		bad += gap_bad(x, gap);
		printf(" %s %.1e/%.1e", names[i], gap.rms, gap.of);
		if (gap.torn)
			printf(" (%zu outside)", gap.torn);
	}
	printf(" differ %d%s%s\n", differ, fixed ? "" : " (may)", bad ? " FAIL" : "");
	td_failed += !!bad;
	TD_CU(cudaFree(work));
	kn_cu_attn_free(a);
}

/* 'mean' tokens of a document; 0: rows are one document */
static void one(size_t b, size_t t, size_t heads, size_t kv, size_t d, enum kn_type type,
		uint64_t seed, size_t mean)
{
	struct setup x;

	setup_init(&x, b, t, heads, kv, d, type, seed);
	setup_pack(&x, mean);
	law(&x);
	for (size_t w = 0; w < WAYS; w++)
		one_way(&x, w);
	setup_release(&x);
}

static void small_shapes(void)
{
	static const size_t ts[] = {1, 7, 64, 257}, groups[] = {1, 4, 8};
	static const enum kn_type types[] = {KN_F32, KN_BF16, KN_F16};
	uint64_t seed = 1;

	for (int t = 0; t < 4; t++)
		for (int g = 0; g < 3; g++)
			for (int type = 0; type < 3; type++, seed++)
				one(1 + seed % 3, ts[t], groups[g] * (1 + seed % 2), 1 + seed % 2,
				    seed / 3 % 2 ? 64 : 128, types[type], seed, 0);
	one(2, 33, 3, 3, 6, KN_F32, 100, 0);
	one(1, 70, 4, 2, 24, KN_BF16, 101, 0);
	one(1, 65, 2, 1, 96, KN_F16, 102, 0);
	one(2, 50, 2, 1, 200, KN_F32, 103, 0);
	one(1, 40, 2, 2, 256, KN_BF16, 104, 0);
	one(1, 384, 4, 2, 128, KN_BF16, 105, 0);
}

/* Documents of one token, of a few, about as long as a tile, and longer than a row. */
static void packed_shapes(void)
{
	static const size_t ts[] = {7, 128, 257}, means[] = {1, 5, 60, 200};
	static const enum kn_type types[] = {KN_F32, KN_BF16, KN_F16};
	uint64_t seed = 200;

	printf("# packed rows\n");
	for (int t = 0; t < 3; t++)
		for (int m = 0; m < 4; m++)
			for (int type = 0; type < 3; type++, seed++)
				one(1 + seed % 3, ts[t], 4 * (1 + seed % 2), 1 + seed % 2,
				    seed / 3 % 2 ? 64 : 128, types[type], seed, means[m]);
	one(2, 50, 3, 1, 200, KN_F32, 300, 20);
	one(1, 384, 4, 2, 128, KN_BF16, 302, 100);
}

/* ---------------------------------------------------------------- larger: one way by the other */

static double *fetch(const struct setup *x, int i)
{
	const size_t width = x->heads[i] * x->s.d, rows = x->s.b * x->s.t;
	const size_t skip = i == DV ? (x->s.heads + x->s.kv) * x->s.d : 0;
	double *all = td_fetch(x->base[i], x->s.type, rows * x->ld[i]);
	double *to = td_host(rows * width * sizeof(*to));

	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * width, all + r * x->ld[i] + skip, width * sizeof(*to));
	free(all);
	return to;
}

/* Own forward and backward; then cuDNN's backward from the own lse, and all of cuDNN. */
static void against(size_t b, size_t t, size_t heads, size_t kv, size_t d, enum kn_type type,
		    unsigned flags, size_t mean)
{
	static const char *const names[] = {"o", "dq", "dk", "dv"};
	static const int of[] = {O, DQ, DK, DV};
	struct kn_cu_attn *own, *dnn;
	struct setup x;
	double *want[4];
	char why[400];
	void *work;
	size_t bytes;

	setup_init(&x, b, t, heads, kv, d, type, 50);
	setup_pack(&x, mean);
	TD_CU(kn_cu_attn_new(&own, &x.s, KN_CU_ATTN_OWN, 0, why, sizeof(why)));
	if (kn_cu_attn_new(&dnn, &x.s, KN_CU_ATTN_CUDNN, flags, why, sizeof(why))) {
		printf("larger: cuDNN refused: %s\n", why);
		kn_cu_attn_free(own);
		setup_release(&x);
		refusals++;
		return;
	}
	bytes = kn_cu_attn_work(own) > kn_cu_attn_work(dnn) ? kn_cu_attn_work(own)
							    : kn_cu_attn_work(dnn);
	work = td_alloc(bytes);
	clear(&x);
	forward(own, &x, work);
	back(own, &x, work);
	for (int i = 0; i < 4; i++)
		want[i] = fetch(&x, of[i]);
	for (int mixed = 1; mixed >= 0; mixed--) {
		int bad = 0;

		if (!mixed) {
			clear(&x);
			forward(dnn, &x, work);
		}
		back(dnn, &x, work);
		printf("%s by own%s%s: b %zu t %zu heads %zu/%zu d %zu type %d, %zu MiB",
		       mixed ? "backward" : "all", flags ? ", fixed" : "", mean ? ", packed" : "",
		       b, t, heads, kv, d, type, kn_cu_attn_work(dnn) >> 20);
		for (int i = mixed ? 1 : 0; i < 4; i++) {
			const struct gap gap = gap_of(&x, of[i], want[i]);

			bad += gap_bad(&x, gap);
			printf(" %s %.1e/%.1e most %.1e", names[i], gap.rms, gap.of, gap.most);
		}
		printf("%s\n", bad ? " FAIL" : "");
		td_failed += !!bad;
	}
	if (flags && twice(dnn, &x, work)) {
		printf("FAIL: cuDNN's fixed way gives other bits each time\n");
		td_failed++;
	}
	for (int i = 0; i < 4; i++)
		free(want[i]);
	TD_CU(cudaFree(work));
	kn_cu_attn_free(own);
	kn_cu_attn_free(dnn);
	setup_release(&x);
}

/* ---------------------------------------------------------------- speed */

struct job {
	const struct kn_cu_attn *a;
	const struct setup *x;
	void *work;
};

static void job_forward(void *arg)
{
	const struct job *j = arg;

	forward(j->a, j->x, j->work);
}

static void job_back(void *arg)
{
	const struct job *j = arg;

	back(j->a, j->x, j->work);
}

/*
 * Multiplications count below the diagonal only: half of 4 b heads t^2 d, and 2.5 times that; of
 * packed rows as if they were one document.
 */
static void bench_one(size_t b, size_t t, size_t heads, size_t kv, size_t d, enum kn_type type,
		      size_t mean)
{
	const double flop = 2.0 * (double)b * (double)heads * (double)t * (double)t * (double)d;
	struct setup x;

	setup_init(&x, b, t, heads, kv, d, type, 60);
	setup_pack(&x, mean);
	for (size_t w = 0; w < WAYS; w++) {
		struct kn_cu_attn *a;
		struct job j = {.x = &x};
		char why[400];
		double f, g;
		const int runs = ways[w].way == KN_CU_ATTN_OWN ? 2 : 10;

		if (kn_cu_attn_new(&a, &x.s, ways[w].way, ways[w].flags, why, sizeof(why)))
			continue;
		j.a = a;
		j.work = td_alloc(kn_cu_attn_work(a));
		f = td_time(job_forward, &j, runs);
		g = td_time(job_back, &j, runs);
		printf("%2zu %6zu %5zu %5zu %3zu %4zu %4d  %-13s%-7s ", b, t, mean, heads, kv, d,
		       type, kn_cu_attn_name(a), ways[w].flags ? "fixed" : "");
		printf("%9.3f %7.1f %9.3f %7.1f %8zu\n", f * 1e3, flop / f * 1e-12, g * 1e3,
		       2.5 * flop / g * 1e-12, kn_cu_attn_work(a) >> 20);
		TD_CU(cudaFree(j.work));
		kn_cu_attn_free(a);
	}
	setup_release(&x);
}

static void bench(void)
{
	printf("\n# causal attention; flop below the diagonal only; work in MiB\n");
	printf(" b      t  docs heads  kv    d type  %-20s %9s %7s %9s %7s %8s\n", "way",
	       "fwd ms", "TF/s", "bwd ms", "TF/s", "work");
	bench_one(2, 4096, 32, 8, 128, KN_BF16, 0);
	bench_one(2, 4096, 32, 8, 128, KN_BF16, 512);
	bench_one(1, 8192, 32, 8, 128, KN_BF16, 0);
	bench_one(4, 2048, 32, 8, 128, KN_BF16, 0);
	bench_one(2, 4096, 32, 8, 64, KN_BF16, 0);
	bench_one(2, 4096, 32, 8, 128, KN_F16, 0);
	bench_one(1, 1024, 32, 8, 128, KN_F32, 0);
}

int main(int argc, char **argv)
{
	td_begin();
	printf("# errors: root mean square / that of the right numbers\n");
	small_shapes();
	packed_shapes();
	against(2, 1024, 8, 2, 128, KN_BF16, 0, 0);
	against(2, 1024, 8, 2, 64, KN_F16, KN_CU_ATTN_FIXED, 0);
	against(1, 2000, 32, 8, 128, KN_BF16, KN_CU_ATTN_FIXED, 0);
	against(3, 4096, 32, 4, 128, KN_BF16, KN_CU_ATTN_FIXED, 0);
	against(2, 1024, 8, 2, 128, KN_BF16, 0, 200);
	against(3, 4096, 32, 4, 128, KN_BF16, KN_CU_ATTN_FIXED, 512);
	if (argc > 1 && !strcmp(argv[1], "--bench"))
		bench();
	printf("cuDNN refused %d shapes that it should take\n", refusals);
	return td_end();
}
