/*
 * test_cuda_fp8.c -- numbers of 8 bits on a GPU: largest numbers and copies bit for bit by the law
 * of kn_fp8.h, products next to sums in double; with --bench a table of speeds for Qwen3-8B.
 *
 * Exits 77 where there is no GPU, or none that has such products.
 */
#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_fp8.h"

#include "tests/gpu/td_device.h"

#define GUARD 64u

static struct kn_cu_gemm *gemm;

static void fail(const char *what, size_t rows, size_t n, int a, int b)
{
	td_failed++;
	printf("FAIL %s: %zu x %zu, %d %d\n", what, rows, n, a, b);
}

/* ---------------------------------------------------------------- copies */

enum special { PLAIN, ZEROS, TINY, HUGE_ONES, AN_INF, A_NAN, SPECIALS };

/* x as 'type' at x_dev (with its rows 'ld' apart), and as fp32. */
static float *make(void *x_dev, enum kn_type type, size_t count, enum special how, uint64_t stream)
{
	float *f = td_host(count * sizeof(*f));
	void *t = td_host(td_bytes(count, type));

	kn_random_normal(f, count, 5, stream, 0, 0,
			 how == TINY ? 1e-7 : how == HUGE_ONES ? 3e4 : 1);
	for (size_t i = 0; i < count && how == ZEROS; i++)
		f[i] = i & 1 ? -0.f : 0.f;
	if (how == AN_INF)
		f[count / 2] = -INFINITY;
	if (how == A_NAN)
		f[count / 3] = NAN;
	kn_cast(t, type, f, KN_F32, count, NULL);
	kn_cast(f, KN_F32, t, type, count, NULL);
	TD_CU(cudaMemcpy(x_dev, t, td_bytes(count, type), cudaMemcpyHostToDevice));
	free(t);
	return f;
}

static void check_copy(const float *x, size_t ld, size_t rows, size_t n, enum kn_fp8 to,
		       const struct kn_cu_fp8_scale *s, const void *y, const void *yt, int special)
{
	uint8_t *got = td_raw(y, rows * n + GUARD), *turned = td_raw(yt, rows * n + GUARD);
	struct kn_cu_fp8_scale is;
	float most = 0, by;
	size_t wrong = 0;

	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < n; i++) {
			const float a = fabsf(x[r * ld + i]);

			most = isnan(a) || a > most ? a : most;
		}
	by = kn_fp8_scale(most, to);
	TD_CU(cudaMemcpy(&is, s, sizeof(is), cudaMemcpyDeviceToHost));
	if (isnan(most) ? !isnan(is.amax) || !isnan(is.inverse) :
			  is.amax != most || is.inverse != 1 / by)
		fail("scale", rows, n, (int)to, special);
	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < n; i++) {
			const uint8_t want = kn_fp8_from(x[r * ld + i] * by, to);

			wrong += got[r * n + i] != want || turned[i * rows + r] != want;
		}
	for (size_t i = 0; i < GUARD; i++)
		wrong += got[rows * n + i] != 0xff || turned[rows * n + i] != 0xff;
	if (wrong)
		fail("copies", rows, n, (int)to, special);
	free(got);
	free(turned);
}

static void one_copy(enum kn_type type, enum kn_fp8 to, size_t rows, size_t n, size_t ld,
		     size_t skew, enum special how, uint64_t stream)
{
	struct kn_cu_fp8_scale *s = td_alloc(sizeof(*s));
	uint8_t *x = td_alloc(td_bytes(rows * ld, type) + 16);
	void *y = td_alloc(rows * n + GUARD), *yt = td_alloc(rows * n + GUARD);
	float *f;

	x += skew * kn_type_size(type);
	f = make(x, type, rows * ld, how, stream);
	TD_CU(cudaMemset(s, 0, sizeof(*s)));
	TD_CU(kn_cu_fp8_amax(s, x, type, ld, rows, n, NULL));
	if (stream & 1) {	/* both at once, or one by one */
		TD_CU(kn_cu_fp8_cast(y, yt, s, to, x, type, ld, rows, n, NULL));
	} else {
		TD_CU(kn_cu_fp8_cast(y, NULL, s, to, x, type, ld, rows, n, NULL));
		TD_CU(kn_cu_fp8_cast(NULL, yt, s, to, x, type, ld, rows, n, NULL));
	}
	check_copy(f, ld, rows, n, to, s, y, yt, (int)how);
	free(f);
	TD_CU(cudaFree(s));
	TD_CU(cudaFree(x - skew * kn_type_size(type)));
	TD_CU(cudaFree(y));
	TD_CU(cudaFree(yt));
}

static void copies(void)
{
	static const size_t sizes[][2] = {
		{1, 1}, {7, 3}, {8, 8}, {16, 16}, {17, 129}, {128, 128}, {130, 264}, {256, 4096},
		{1000, 1000}, {3000, 6144},
	};
	static const enum kn_type types[] = {KN_F32, KN_BF16, KN_F16};
	uint64_t at = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t t = 0; t < 3; t++)
			for (int how = 0; how < SPECIALS; how++) {
				const size_t rows = sizes[i][0], n = sizes[i][1];
				const enum kn_fp8 to = at & 2 ? KN_E5M2 : KN_E4M3;

				if (rows * n > 100000 && how != PLAIN)
					continue;
				one_copy(types[t], to, rows, n, n, 0, (enum special)how, at);
				one_copy(types[t], to, rows, n, n + 8, 0, (enum special)how,
					 at + 1);
				one_copy(types[t], to, rows, n, n + 5, 1, (enum special)how,
					 at + 2);
				at += 3;
			}
}

/* All bytes are what their numbers round to; the largest are cut off. */
static void law(void)
{
	for (int to = KN_E4M3; to <= KN_E5M2; to++)
		for (unsigned b = 0; b < 256; b++) {
			const float x = kn_fp8_wide((uint8_t)b, (enum kn_fp8)to);

			if (isfinite(x) && kn_fp8_from(x, (enum kn_fp8)to) != b)
				fail("law", b, 0, to, 0);
		}
	if (kn_fp8_from(1e9f, KN_E4M3) != 0x7e || kn_fp8_from(-1e9f, KN_E5M2) != 0xfb ||
	    kn_fp8_from(NAN, KN_E4M3) != 0x7f)
		fail("law: ends", 0, 0, 0, 0);
}

/* What a kernel noted of what it made is what there is in it. */
static void same_amax(const char *what, const struct kn_cu_fp8_scale *s, const void *made,
		      size_t rows, size_t n, enum kn_type type)
{
	struct kn_cu_fp8_scale *t = td_alloc(sizeof(*t)), a, b;

	TD_CU(cudaMemset(t, 0, sizeof(*t)));
	TD_CU(kn_cu_fp8_amax(t, made, type, n, rows, n, NULL));
	TD_CU(cudaMemcpy(&a, s, sizeof(a), cudaMemcpyDeviceToHost));
	TD_CU(cudaMemcpy(&b, t, sizeof(b), cudaMemcpyDeviceToHost));
	if (!(a.amax > 0) || a.amax != b.amax)
		fail(what, rows, n, (int)type, 0);
	TD_CU(cudaFree(t));
}

static void noted(size_t rows, size_t n, enum kn_type type)
{
	struct kn_cu_fp8_scale *s = td_alloc(4 * sizeof(*s));
	const size_t bytes = td_bytes(rows * n, type);
	void *x = td_alloc(bytes), *dy = td_alloc(bytes), *y = td_alloc(bytes);
	void *w = td_alloc(n * 4);
	void *gu = td_alloc(2 * bytes), *dgu = td_alloc(2 * bytes), *dw = td_alloc(n * 4);
	void *work = td_alloc(kn_cu_rmsnorm_back_work(rows, n) + 16);
	float *rstd = td_alloc(rows * sizeof(*rstd));

	free(td_random(x, type, rows * n, 1, 1));
	free(td_random(dy, type, rows * n, 2, 0.01));
	free(td_random(gu, type, 2 * rows * n, 3, 2));
	free(td_random(w, type, n, 4, 1));
	TD_CU(cudaMemset(s, 0, 4 * sizeof(*s)));
	TD_CU(kn_cu_rmsnorm_amax(y, rstd, x, w, rows, n, 1e-6f, type, &s[0], NULL));
	same_amax("norm", &s[0], y, rows, n, type);
	TD_CU(kn_cu_rmsnorm_back_amax(y, dw, KN_F32, dy, x, rstd, w, n & 1 ? NULL : x, rows, n,
				      type, 0, work, &s[1], NULL));
	same_amax("norm, back", &s[1], y, rows, n, type);
	TD_CU(kn_cu_swiglu_amax(y, gu, rows, n, type, &s[2], NULL));
	same_amax("swiglu", &s[2], y, rows, n, type);
	TD_CU(kn_cu_swiglu_back_amax(dgu, y, dy, gu, rows, n, type, &s[3], NULL));
	same_amax("swiglu, back", &s[3], dgu, rows, 2 * n, type);
	TD_CU(cudaFree(s));
	TD_CU(cudaFree(x));
	TD_CU(cudaFree(dy));
	TD_CU(cudaFree(y));
	TD_CU(cudaFree(w));
	TD_CU(cudaFree(gu));
	TD_CU(cudaFree(dgu));
	TD_CU(cudaFree(dw));
	TD_CU(cudaFree(work));
	TD_CU(cudaFree(rstd));
}

/* Rows of each way of the norms: in registers once and twice, and too long for them. */
static void noted_all(void)
{
	static const size_t sizes[][2] = {
		{1, 8}, {5, 33}, {300, 1000}, {64, 4096}, {70, 6144}, {3, 20000}, {257, 12288},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		noted(sizes[i][0], sizes[i][1], KN_F32);
		noted(sizes[i][0], sizes[i][1], KN_BF16);
		noted(sizes[i][0], sizes[i][1], KN_F16);
	}
}

/* ---------------------------------------------------------------- products */

struct side {
	uint8_t *dev;
	struct kn_cu_fp8_scale *s;
	float *x;	/* what the bytes mean, scale undone */
};

static struct side side(size_t rows, size_t k, enum kn_fp8 to, double std, uint64_t stream)
{
	void *x = td_alloc(2 * rows * k);
	struct side o = {td_alloc(rows * k), td_alloc(sizeof(*o.s)), NULL};
	struct kn_cu_fp8_scale s;
	uint8_t *raw;

	free(td_random(x, KN_BF16, rows * k, stream, std));
	TD_CU(cudaMemset(o.s, 0, sizeof(*o.s)));
	TD_CU(kn_cu_fp8_amax(o.s, x, KN_BF16, k, rows, k, NULL));
	TD_CU(kn_cu_fp8_cast(o.dev, NULL, o.s, to, x, KN_BF16, k, rows, k, NULL));
	TD_CU(cudaMemcpy(&s, o.s, sizeof(s), cudaMemcpyDeviceToHost));
	raw = td_raw(o.dev, rows * k);
	o.x = td_host(rows * k * sizeof(*o.x));
	for (size_t i = 0; i < rows * k; i++)
		o.x[i] = kn_fp8_wide(raw[i], to) * s.inverse;
	free(raw);
	TD_CU(cudaFree(x));
	return o;
}

static void side_free(struct side *o)
{
	TD_CU(cudaFree(o->dev));
	TD_CU(cudaFree(o->s));
	free(o->x);
}

/* Sums in tensor cores keep fewer bits than fp32, with KN_CU_FP8_FAST fewer again. */
static double product_error(const struct kn_cu_mm8 *mm, const struct side *a, const struct side *b,
			    const double *c, const double *d)
{
	const double unit = mm->out == KN_BF16 ? 0x1p-8 : mm->out == KN_F16 ? 0x1p-10 : 0x1p-22;
	const double lost = mm->flags & KN_CU_FP8_FAST ? 0x1p-9 : 0x1p-10;
	double worst = 0;

	for (size_t i = 0; i < mm->m; i++)
		for (size_t j = 0; j < mm->n; j++) {
			double sum = c ? c[i * mm->ldc + j] : 0, size = 0, e;

			for (size_t l = 0; l < mm->k; l++) {
				const double p = (double)a->x[i * mm->k + l] * b->x[j * mm->k + l];

				sum += p;
				size += fabs(p);
			}
			e = fabs(d[i * mm->ldd + j] - sum) /
			    (unit * (fabs(sum) + (c ? fabs(c[i * mm->ldc + j]) : 0)) + lost * size +
			     0x1p-24);
			worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
		}
	return worst;
}

static void one_product(struct kn_cu_mm8 mm, uint64_t at)
{
	struct side a = side(mm.m, mm.k, mm.a, 1, 10 * at);
	struct side b = side(mm.n, mm.k, mm.b, 0.02, 10 * at + 1);
	const size_t bytes = td_bytes(mm.m * mm.ldd, mm.out);
	void *d = td_alloc(bytes), *c = td_alloc(td_bytes(mm.m * mm.ldc, mm.out));
	double *hc = td_random(c, mm.out, mm.m * mm.ldc, 10 * at + 2, 1), *got;
	const bool add = mm.flags & KN_GEMM_ADD;
	void *first, *second;
	double worst;
	int rc = kn_cu_gemm_run8(gemm, &mm, a.dev, a.s, b.dev, b.s, add ? c : NULL, d, NULL);

	if (rc) {
		printf("FAIL kn_cu_gemm_run8: %d, %s\n", rc, kn_cu_gemm_why(gemm));
		td_failed++;
		if (rc > 0)
			exit(1);
	}
	got = td_fetch(d, mm.out, mm.m * mm.ldd);
	first = td_raw(d, bytes);
	worst = product_error(&mm, &a, &b, add ? hc : NULL, got);
	TD_CU(cudaMemset(d, 0xff, bytes));
	kn_cu_gemm_run8(gemm, &mm, a.dev, a.s, b.dev, b.s, add ? c : NULL, d, NULL);
	second = td_raw(d, bytes);
	if (!(worst <= 1) || memcmp(first, second, bytes)) {
		td_failed++;
		printf("FAIL product m %zu n %zu k %zu flags %u types %d %d -> %d: %.3g\n", mm.m,
		       mm.n, mm.k, mm.flags, mm.a, mm.b, mm.out, worst);
	}
	free(first);
	free(second);
	free(got);
	free(hc);
	TD_CU(cudaFree(c));
	TD_CU(cudaFree(d));
	side_free(&a);
	side_free(&b);
}

static void products(void)
{
	static const size_t sizes[][3] = {
		{16, 16, 16}, {1, 16, 32}, {33, 48, 64}, {128, 256, 128}, {100, 160, 512},
		{264, 96, 1024},
	};
	static const enum kn_type outs[] = {KN_BF16, KN_F16, KN_F32};
	uint64_t at = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned how = 0; how < 12; how++) {
			struct kn_cu_mm8 mm = {
				.flags = (how & 1 ? KN_GEMM_ADD : 0) |
					 (how & 2 ? KN_CU_FP8_FAST : 0),
				.m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2],
				.a = how & 4 ? KN_E5M2 : KN_E4M3, .b = KN_E4M3,
				.out = outs[how / 4],
			};

			mm.ldc = mm.n + (how & 1 ? 16 : 0);
			mm.ldd = mm.n + (i & 1 ? 16 : 0);
			one_product(mm, at++);
		}
}

/* Shapes that products of 8-bit numbers do not have. */
static void refused(void)
{
	struct kn_cu_mm8 mm = {.m = 32, .n = 32, .k = 32, .ldd = 32, .a = KN_E4M3, .b = KN_E4M3,
			       .out = KN_BF16};
	uint8_t *d = td_alloc(1 << 16);

	if (!kn_cu_gemm_fits8(&mm, NULL, d) || kn_cu_gemm_fits8(&mm, NULL, d + 2))
		fail("fits", 32, 32, 0, 0);
	mm.n = 24;
	if (kn_cu_gemm_fits8(&mm, NULL, d))
		fail("fits", 32, 24, 0, 0);
	mm.n = 32;
	mm.k = 8;
	if (kn_cu_gemm_fits8(&mm, NULL, d))
		fail("fits", 32, 32, 8, 0);
	mm.k = 32;
	mm.a = mm.b = KN_E5M2;
	if (kn_cu_gemm_run8(gemm, &mm, d, (struct kn_cu_fp8_scale *)d, d,
			    (struct kn_cu_fp8_scale *)d, NULL, d, NULL) != KN_CU_GEMM_LIB)
		fail("two of E5M2", 32, 32, 0, 0);
	TD_CU(cudaFree(d));
}

/* A tensor with an infinity or a NaN makes every sum NaN, so that the step is known to be lost. */
static void not_finite(float what)
{
	const size_t n = 64;
	struct kn_cu_mm8 mm = {.m = n, .n = n, .k = n, .ldd = n, .a = KN_E5M2, .b = KN_E4M3,
			       .out = KN_BF16};
	struct side a = side(n, n, KN_E5M2, 1, 1), b = side(n, n, KN_E4M3, 1, 2);
	float *f = td_host(n * n * sizeof(*f));
	float *x = td_alloc(n * n * sizeof(*x));
	void *d = td_alloc(2 * n * n);
	double *got;

	for (size_t i = 0; i < n * n; i++)
		f[i] = i == 77 ? what : 1;
	TD_CU(cudaMemcpy(x, f, n * n * sizeof(*f), cudaMemcpyHostToDevice));
	TD_CU(cudaMemset(d, 0, 2 * n * n));
	TD_CU(cudaMemset(a.s, 0, sizeof(*a.s)));
	TD_CU(kn_cu_fp8_amax(a.s, x, KN_F32, n, n, n, NULL));
	TD_CU(kn_cu_fp8_cast(a.dev, NULL, a.s, KN_E5M2, x, KN_F32, n, n, n, NULL));
	TD_CU(kn_cu_gemm_run8(gemm, &mm, a.dev, a.s, b.dev, b.s, NULL, d, NULL));
	got = td_fetch(d, KN_BF16, n * n);
	for (size_t i = 0; i < n * n; i++)
		if (isfinite(got[i])) {
			fail("not finite", i / n, i % n, isnan(what), 0);
			break;
		}
	free(got);
	free(f);
	TD_CU(cudaFree(x));
	TD_CU(cudaFree(d));
	side_free(&a);
	side_free(&b);
}

/* ---------------------------------------------------------------- speed */

struct job {
	struct kn_cu_mm8 mm;
	struct kn_cu_mm wide;
	struct kn_cu_fp8_scale *s;
	void *x, *y, *yt, *a, *b, *d;
	size_t rows, n;
};

static void job_amax(void *arg)
{
	const struct job *j = arg;

	TD_CU(kn_cu_fp8_amax(j->s, j->x, KN_BF16, j->n, j->rows, j->n, NULL));
}

static void job_cast(void *arg)
{
	const struct job *j = arg;

	TD_CU(kn_cu_fp8_cast(j->y, j->yt, j->s, KN_E4M3, j->x, KN_BF16, j->n, j->rows, j->n, NULL));
}

static void job_mm8(void *arg)
{
	const struct job *j = arg;
	const int rc = kn_cu_gemm_run8(gemm, &j->mm, j->a, j->s, j->b, j->s, NULL, j->d, NULL);

	if (rc) {
		printf("FAIL %s\n", kn_cu_gemm_why(gemm));
		exit(1);
	}
}

static void job_mm(void *arg)
{
	const struct job *j = arg;

	TD_CU(kn_cu_gemm_run(gemm, &j->wide, 1, j->x, j->y, NULL, j->d, NULL));
}

static void bench_copies(size_t rows, size_t n)
{
	struct job j = {.rows = rows, .n = n, .s = td_alloc(sizeof(*j.s)),
			.x = td_alloc(2 * rows * n)};
	void *y = td_alloc(rows * n), *yt = td_alloc(rows * n);
	const double gb = (double)rows * (double)n * 1e-9;
	double amax, one, turned, both;

	free(td_random(j.x, KN_BF16, rows * n, 3, 1));
	amax = td_time(job_amax, &j, 30);
	j.y = y;
	one = td_time(job_cast, &j, 30);
	j.yt = yt;
	both = td_time(job_cast, &j, 30);
	j.y = NULL;
	turned = td_time(job_cast, &j, 30);
	printf("%8zu %6zu %9.1f %7.0f %9.1f %7.0f %9.1f %7.0f %9.1f %7.0f\n", rows, n, amax * 1e6,
	       2 * gb / amax, one * 1e6, 3 * gb / one, turned * 1e6, 3 * gb / turned, both * 1e6,
	       4 * gb / both);
	TD_CU(cudaFree(j.s));
	TD_CU(cudaFree(j.x));
	TD_CU(cudaFree(y));
	TD_CU(cudaFree(yt));
}

static void bench_product(const char *name, size_t m, size_t n, size_t k, enum kn_fp8 first)
{
	struct job j = {
		.mm = {.m = m, .n = n, .k = k, .ldd = n, .a = first, .b = KN_E4M3, .out = KN_BF16},
		.wide = {.flags = KN_GEMM_TB, .m = m, .n = n, .k = k, .lda = k, .ldb = k, .ldd = n,
			 .type = KN_BF16, .out = KN_BF16},
		.x = td_alloc(2 * m * k), .y = td_alloc(2 * n * k), .d = td_alloc(2 * m * n),
		.a = td_alloc(m * k), .b = td_alloc(n * k), .s = td_alloc(sizeof(*j.s)),
	};
	const double tf = 2e-12 * (double)m * (double)n * (double)k;
	double wide, slow, fast;

	free(td_random(j.x, KN_BF16, m * k, 3, 1));
	free(td_random(j.y, KN_BF16, n * k, 4, 1));
	TD_CU(cudaMemset(j.s, 0, sizeof(*j.s)));
	TD_CU(kn_cu_fp8_amax(j.s, j.x, KN_BF16, k, m, k, NULL));
	TD_CU(kn_cu_fp8_amax(j.s, j.y, KN_BF16, k, n, k, NULL));
	TD_CU(kn_cu_fp8_cast(j.a, NULL, j.s, first, j.x, KN_BF16, k, m, k, NULL));
	TD_CU(kn_cu_fp8_cast(j.b, NULL, j.s, KN_E4M3, j.y, KN_BF16, k, n, k, NULL));
	td_time(job_mm, &j, 100);	/* heat */
	wide = td_time(job_mm, &j, 30);
	td_time(job_mm8, &j, 100);
	slow = td_time(job_mm8, &j, 30);
	j.mm.flags = KN_CU_FP8_FAST;
	td_time(job_mm8, &j, 100);
	fast = td_time(job_mm8, &j, 30);
	printf("%-14s %7zu %6zu %6zu %7.0f %9.0f %9.0f\n", name, m, n, k, tf / wide, tf / slow,
	       tf / fast);
	TD_CU(cudaFree(j.x));
	TD_CU(cudaFree(j.y));
	TD_CU(cudaFree(j.d));
	TD_CU(cudaFree(j.a));
	TD_CU(cudaFree(j.b));
	TD_CU(cudaFree(j.s));
}

static void bench(void)
{
	static const struct {
		const char *name;
		size_t out, in;
	} of[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate up", 24576, 4096},
		  {"down", 4096, 12288}};

	printf("\n# us and GB/s: largest number, copy, transposed copy, both\n"
	       "%8s %6s %9s %7s %9s %7s %9s %7s %9s %7s\n", "rows", "n", "amax", "GB/s", "copy",
	       "GB/s", "turned", "GB/s", "both", "GB/s");
	bench_copies(8192, 4096);
	bench_copies(8192, 12288);
	bench_copies(8192, 24576);
	printf("\n# TFLOP/s: bf16, 8 bits, 8 bits with fast sums\n%-14s %7s %6s %6s %7s %9s %9s\n",
	       "product", "m", "n", "k", "bf16", "fp8", "fp8 fast");
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char name[40];

		snprintf(name, sizeof(name), "%s: y", of[i].name);
		bench_product(name, 8192, of[i].out, of[i].in, KN_E4M3);
		snprintf(name, sizeof(name), "%s: dx", of[i].name);
		bench_product(name, 8192, of[i].in, of[i].out, KN_E5M2);
		snprintf(name, sizeof(name), "%s: dW", of[i].name);
		bench_product(name, of[i].out, of[i].in, 8192, KN_E5M2);
	}
}

int main(int argc, char **argv)
{
	struct cudaDeviceProp prop;
	void *work;

	td_begin();
	TD_CU(cudaGetDeviceProperties(&prop, 0));
	if (prop.major * 10 + prop.minor < 89) {
		printf("skipped: compute capability %d.%d has no products of 8-bit numbers\n",
		       prop.major, prop.minor);
		return 77;
	}
	work = td_alloc(KN_CU_GEMM_WORK);
	TD_CU(kn_cu_gemm_new(&gemm, work, KN_CU_GEMM_WORK));
	law();
	copies();
	noted_all();
	products();
	refused();
	not_finite(INFINITY);
	not_finite(NAN);
	if (argc > 1 && !strcmp(argv[1], "--bench"))
		bench();
	kn_cu_gemm_free(gemm);
	return td_end();
}
