/*
 * test_cuda_gemm.c -- matrix products on a GPU against the law, their bits, their choices as text;
 * with --bench a table of speeds for the shapes of Qwen3-8B.
 *
 * Exits 77 where there is no GPU.
 */
#include "kernels/include/kn_cuda_gemm.h"

#include "tests/gpu/td_device.h"
#include "tests/ref/kn_ref_train.h"

static struct kn_cu_gemm *gemm;

static void run(struct kn_cu_gemm *g, const struct kn_cu_mm *mm, float alpha, const void *a,
		const void *b, const void *c, void *d)
{
	const int rc = kn_cu_gemm_run(g, mm, alpha, a, b, c, d, NULL);

	if (!rc)
		return;
	printf("FAIL: kn_cu_gemm_run: %d, %s\n", rc, kn_cu_gemm_why(g));
	td_failed++;
	if (rc > 0) /* nothing will work from here */
		exit(1);
}

/* A rounding to 'out', and fp32 sums that tensor cores cut off, not round, at each step. */
static double allowed(const struct kn_cu_mm *mm, double value)
{
	const double unit = mm->out == KN_BF16 ? 0x1p-8 : mm->out == KN_F16 ? 0x1p-10 : 0x1p-22;

	return fabs(value) * unit + 1e-6 * (double)mm->k + 0x1p-24;
}

struct operands {
	size_t na, nb, nd;
	void *a, *b, *c, *d;
	double *ha, *hb, *hc;
};

static void operands_init(struct operands *o, const struct kn_cu_mm *mm, size_t ldc, uint64_t at)
{
	o->na = (mm->flags & KN_GEMM_TA ? mm->k : mm->m) * mm->lda;
	o->nb = (mm->flags & KN_GEMM_TB ? mm->n : mm->k) * mm->ldb;
	o->nd = mm->m * mm->ldd;
	o->a = td_alloc(td_bytes(o->na, mm->type));
	o->b = td_alloc(td_bytes(o->nb, mm->type));
	o->c = td_alloc(td_bytes(mm->m * ldc, mm->out));
	o->d = td_alloc(td_bytes(o->nd, mm->out));
	o->ha = td_random(o->a, mm->type, o->na, 3 * at, 1);
	o->hb = td_random(o->b, mm->type, o->nb, 3 * at + 1, 1);
	o->hc = td_random(o->c, mm->out, mm->m * ldc, 3 * at + 2, 1);
}

static void operands_release(struct operands *o)
{
	TD_CU(cudaFree(o->a));
	TD_CU(cudaFree(o->b));
	TD_CU(cudaFree(o->c));
	TD_CU(cudaFree(o->d));
	free(o->ha);
	free(o->hb);
	free(o->hc);
}

/* Largest error in units of what is allowed; bytes between rows must still be 0xff. */
static double worst_of(const struct kn_cu_mm *mm, float alpha, const struct operands *o, size_t ldc,
		       const void *d)
{
	double *want = td_host(mm->m * mm->n * sizeof(*want)), *got = td_fetch(d, mm->out, o->nd);
	double worst = 0;

	kn_ref_gemm(mm->flags & (KN_GEMM_TA | KN_GEMM_TB), mm->m, mm->n, mm->k, o->ha, mm->lda,
		    o->hb, mm->ldb, want, mm->n);
	for (size_t i = 0; i < mm->m; i++) {
		for (size_t j = 0; j < mm->ldd; j++) {
			const double x = got[i * mm->ldd + j];
			double w, e;

			if (j >= mm->n) {
				if (!isnan(x) && d == o->d)
					worst = INFINITY;
				continue;
			}
			w = alpha * want[i * mm->n + j];
			w += mm->flags & KN_GEMM_ADD ? o->hc[i * ldc + j] : 0;
			e = fabs(x - w) / allowed(mm, w);
			worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
		}
	}
	free(want);
	free(got);
	return worst;
}

enum where { NEW, OTHER, SAME }; /* where C is */

static void one(struct kn_cu_mm mm, enum where where, float alpha, size_t skew, uint64_t at)
{
	const size_t ldc = where == SAME ? mm.ldd : mm.n + 8;
	struct operands o;
	double worst;
	void *d, *first, *second;

	mm.flags |= where == NEW ? 0 : KN_GEMM_ADD;
	mm.ldc = ldc;
	operands_init(&o, &mm, ldc, at);
	d = where == SAME ? o.c : o.d;
	if (skew) { /* addresses that are a multiple of nothing but the element */
		const size_t e = kn_type_size(mm.type);

		void *a = td_alloc(o.na * e + e);

		TD_CU(cudaMemcpy((char *)a + e, o.a, o.na * e, cudaMemcpyDeviceToDevice));
		run(gemm, &mm, alpha, (char *)a + e, o.b, where == NEW ? NULL : o.c, d);
		TD_CU(cudaFree(a));
	} else {
		run(gemm, &mm, alpha, o.a, o.b, where == NEW ? NULL : o.c, d);
	}
	first = td_raw(d, td_bytes(o.nd, mm.out));
	worst = worst_of(&mm, alpha, &o, ldc, d);
	if (where != SAME && !skew) {
		TD_CU(cudaMemset(d, 0xff, td_bytes(o.nd, mm.out)));
		run(gemm, &mm, alpha, o.a, o.b, where == NEW ? NULL : o.c, d);
		second = td_raw(d, td_bytes(o.nd, mm.out));
		if (memcmp(first, second, td_bytes(o.nd, mm.out)))
			worst = INFINITY;
		free(second);
	}
	if (!(worst <= 1)) {
		td_failed++;
		printf("FAIL m %zu n %zu k %zu type %d out %d flags %u C %d skew %zu: %.3g\n", mm.m,
		       mm.n, mm.k, mm.type, mm.out, mm.flags, where, skew, worst);
	}
	free(first);
	operands_release(&o);
}

static void random_shapes(int count)
{
	static const size_t size[] = {1, 7, 8, 16, 64, 130, 257};
	static const enum kn_type types[] = {KN_F32, KN_BF16, KN_F16};
	static const unsigned layouts[] = {KN_GEMM_TB, 0, KN_GEMM_TA, KN_GEMM_TA | KN_GEMM_TB};
	const int before = td_failed;
	uint64_t seed = 5;

	for (int i = 0; i < count; i++) {
		struct kn_cu_mm mm = {
			.m = size[td_pick(&seed, 7)],
			.n = size[td_pick(&seed, 7)],
			.k = size[td_pick(&seed, 7)],
			.flags = layouts[i % 4],
			.type = types[i / 4 % 3],
		};
		const size_t pad = td_pick(&seed, 3) * 8;

		mm.out = td_pick(&seed, 2) ? mm.type : KN_F32;
		mm.lda = (mm.flags & KN_GEMM_TA ? mm.m : mm.k) + pad;
		mm.ldb = (mm.flags & KN_GEMM_TB ? mm.k : mm.n) + pad;
		mm.ldd = mm.n + pad;
		one(mm, (enum where)td_pick(&seed, mm.out == KN_F32 ? 3 : 2),
		    i % 5 ? 1.f : 0.25f, i % 7 == 6, (uint64_t)i);
	}
	printf("%d products of random shapes, %d failed; %zu shapes kept\n", count,
	       td_failed - before, kn_cu_gemm_count(gemm));
}

/* TF32 only where it is asked for: the same product must be near fp32, and not be. */
static void tf32(void)
{
	struct kn_cu_mm mm = {.m = 256,
			      .n = 256,
			      .k = 1024,
			      .lda = 1024,
			      .ldb = 256,
			      .ldd = 256,
			      .type = KN_F32,
			      .out = KN_F32};
	double exact, rough;
	struct operands o;

	operands_init(&o, &mm, 256, 900);
	run(gemm, &mm, 1, o.a, o.b, NULL, o.d);
	exact = worst_of(&mm, 1, &o, 256, o.d);
	mm.flags = KN_CU_GEMM_TF32;
	run(gemm, &mm, 1, o.a, o.b, NULL, o.d);
	mm.flags = 0;
	rough = worst_of(&mm, 1, &o, 256, o.d);
	printf("fp32: error %.3g of what is allowed; with TF32 %.3g\n", exact, rough);
	if (!(exact <= 1) || !(rough > 1))
		td_failed++;
	operands_release(&o);
}

static void empty(void)
{
	struct kn_cu_mm mm = {.m = 3,
			      .n = 5,
			      .lda = 1,
			      .ldb = 5,
			      .ldc = 6,
			      .ldd = 7,
			      .type = KN_BF16,
			      .out = KN_F32};
	void *c = td_alloc(18 * 4), *d = td_alloc(21 * 4);
	double *hc = td_random(c, KN_F32, 18, 700, 1), *hd;
	int bad = 0;

	run(gemm, &mm, 1, c, c, NULL, d);
	hd = td_fetch(d, KN_F32, 21);
	for (size_t i = 0; i < 21; i++)
		bad += i % 7 < 5 ? hd[i] != 0 : !isnan(hd[i]);
	free(hd);
	mm.flags = KN_GEMM_ADD;
	run(gemm, &mm, 1, c, c, c, d);
	hd = td_fetch(d, KN_F32, 21);
	for (size_t i = 0; i < 21; i++)
		bad += i % 7 < 5 ? hd[i] != hc[i / 7 * 6 + i % 7] : !isnan(hd[i]);
	mm.m = 0;
	mm.k = 4;
	mm.lda = 4;
	run(gemm, &mm, 1, c, c, c, d);
	printf("products over nothing: %d wrong\n", bad);
	td_failed += !!bad;
	free(hc);
	free(hd);
	TD_CU(cudaFree(c));
	TD_CU(cudaFree(d));
}

/* Times some algorithms, hands the choice to another handle as text, and wants equal bits. */
static void choices(void *work)
{
	struct kn_cu_mm mm = {.flags = KN_GEMM_TB,
			      .m = 512,
			      .n = 384,
			      .k = 2048,
			      .lda = 2048,
			      .ldb = 2048,
			      .ldd = 384,
			      .type = KN_BF16,
			      .out = KN_BF16};
	const size_t bytes = td_bytes(512 * 384, KN_BF16);
	struct kn_cu_gemm *other;
	struct operands o;
	char *text;
	void *x, *y;
	size_t n;
	double s;

	operands_init(&o, &mm, 384, 800);
	TD_CU(kn_cu_gemm_tune(gemm, &mm, 8, o.a, o.b, NULL, o.d, NULL, &s));
	run(gemm, &mm, 1, o.a, o.b, NULL, o.d);
	x = td_raw(o.d, bytes);
	if (!(worst_of(&mm, 1, &o, 384, o.d) <= 1) || !(s > 0)) {
		printf("FAIL: a tuned product is wrong\n");
		td_failed++;
	}
	n = kn_cu_gemm_write(gemm, NULL, 0);
	text = td_host(n);
	if (kn_cu_gemm_write(gemm, text, n) != n || strlen(text) + 1 != n)
		td_failed++;
	TD_CU(kn_cu_gemm_new(&other, work, KN_CU_GEMM_WORK));
	TD_CU(kn_cu_gemm_read(other, text));
	if (kn_cu_gemm_write(other, NULL, 0) > n ||
	    kn_cu_gemm_count(other) != kn_cu_gemm_count(gemm)) {
		printf("FAIL: choices differ after reading\n");
		td_failed++;
	}
	TD_CU(cudaMemset(o.d, 0xff, bytes));
	run(other, &mm, 1, o.a, o.b, NULL, o.d);
	y = td_raw(o.d, bytes);
	if (memcmp(x, y, bytes) || kn_cu_gemm_count(other) != kn_cu_gemm_count(gemm)) {
		printf("FAIL: other bits by the same choice\n");
		td_failed++;
	}
	text[8] ^= 1; /* another version */
	if (!kn_cu_gemm_read(other, text)) {
		printf("FAIL: a foreign text was taken\n");
		td_failed++;
	}
	printf("choices: %zu bytes of text; refused: %s\n", n, kn_cu_gemm_why(other));
	text[n - 2] = 0;
	printf("last line: %s\n", strrchr(text, '\n') + 1);
	kn_cu_gemm_free(other);
	free(x);
	free(y);
	free(text);
	operands_release(&o);
}

/* ---------------------------------------------------------------- speed */

struct job {
	struct kn_cu_mm mm;
	void *a, *b, *c, *d;
};

static void job_run(void *arg)
{
	const struct job *j = arg;

	run(gemm, &j->mm, 1, j->a, j->b, j->mm.flags & KN_GEMM_ADD ? j->d : NULL, j->d);
}

/* 64 elements by the law, of matrices that are too large for all. */
static double sample(const struct job *j)
{
	const struct kn_cu_mm *mm = &j->mm;
	double *a = td_host(mm->k * 8), *b = td_host(mm->k * 8), worst = 0;
	uint16_t *wide = td_host(mm->k * 2);
	const int ta = !!(mm->flags & KN_GEMM_TA), tb = !!(mm->flags & KN_GEMM_TB);
	uint64_t seed = 3;

	for (int r = 0; r < 64; r++) {
		const size_t i = td_pick(&seed, (uint32_t)mm->m),
			     l = td_pick(&seed, (uint32_t)mm->n);
		const size_t at[2] = {ta ? i : i * mm->lda, tb ? l * mm->ldb : l};
		const size_t step[2] = {ta ? mm->lda : 1, tb ? 1 : mm->ldb};
		double want = 0, *got, e;

		for (int f = 0; f < 2; f++) {
			TD_CU(cudaMemcpy2D(wide, 2, (char *)(f ? j->b : j->a) + 2 * at[f],
					   2 * step[f], 2, mm->k, cudaMemcpyDeviceToHost));
			kn_cast(f ? b : a, KN_F64, wide, mm->type, mm->k, NULL);
		}
		for (size_t c = 0; c < mm->k; c++)
			want += a[c] * b[c];
		got = td_fetch((char *)j->d + td_bytes(i * mm->ldd + l, mm->out), mm->out, 1);
		e = fabs(*got - want) / allowed(mm, want);
		worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
		free(got);
	}
	free(a);
	free(b);
	free(wide);
	return worst;
}

static void fill(void *device, size_t n)
{
	const size_t part = n < 1 << 22 ? n : 1 << 22;

	free(td_random(device, KN_BF16, part, 1, 1));
	for (size_t at = part; at < n; at += part)
		TD_CU(cudaMemcpy((char *)device + 2 * at, device,
				 2 * (n - at < part ? n - at : part), cudaMemcpyDeviceToDevice));
}

static void bench_one(const char *name, struct kn_cu_mm mm)
{
	struct job j = {.mm = mm};
	const size_t na = mm.m * mm.k, nb = mm.n * mm.k, nd = mm.m * mm.n;
	const double flop = 2.0 * (double)mm.m * (double)mm.n * (double)mm.k;
	double first, tuned, told = 0, worst;

	j.mm.lda = mm.flags & KN_GEMM_TA ? mm.m : mm.k;
	j.mm.ldb = mm.flags & KN_GEMM_TB ? mm.k : mm.n;
	j.mm.ldc = j.mm.ldd = mm.n;
	j.a = td_alloc(2 * na);
	j.b = td_alloc(2 * nb);
	j.c = td_alloc(td_bytes(nd, mm.out));
	j.d = td_alloc(td_bytes(nd, mm.out));
	fill(j.a, na);
	fill(j.b, nb);
	TD_CU(cudaMemset(j.c, 0, td_bytes(nd, mm.out)));
	TD_CU(cudaMemset(j.d, 0, td_bytes(nd, mm.out)));
	td_time(job_run, &j, 100);	/* heat: the clock of a busy GPU is what counts */
	first = td_time(job_run, &j, 30);
	TD_CU(kn_cu_gemm_tune(gemm, &j.mm, 8, j.a, j.b, mm.flags & KN_GEMM_ADD ? j.c : NULL, j.d,
			      NULL, &told));
	tuned = td_time(job_run, &j, 30);
	TD_CU(cudaMemset(j.d, 0, td_bytes(nd, mm.out)));
	job_run(&j);
	worst = sample(&j);
	td_failed += !(worst <= 1);
	printf("%-22s %7zu %7zu %6zu %4s %9.3f %7.0f %9.3f %7.0f %8.2f%s\n", name, mm.m, mm.n, mm.k,
	       mm.out == KN_F32 ? "f32" : "bf16", first * 1e3, flop / first * 1e-12, tuned * 1e3,
	       flop / tuned * 1e-12, worst, worst <= 1 ? "" : " FAIL");
	TD_CU(cudaFree(j.a));
	TD_CU(cudaFree(j.b));
	TD_CU(cudaFree(j.c));
	TD_CU(cudaFree(j.d));
}

static void bench(void)
{
	static const struct {
		const char *name;
		size_t n, out, in;
	} of[] = {
		{"qkv", 8192, 6144, 4096},      {"o", 8192, 4096, 4096},
		{"gate up", 8192, 24576, 4096}, {"down", 8192, 4096, 12288},
		{"head", 2048, 151936, 4096},
	};

	printf("\n# bf16, fp32 sums; ms and TFLOP/s by cuBLASLt's first choice, then the best of "
	       "8\n"
	       "# (random numbers; error of 64 elements in units of what is allowed)\n");
	printf("%-22s %7s %7s %6s %4s %9s %7s %9s %7s %8s\n", "product", "m", "n", "k", "out", "ms",
	       "TF/s", "tuned ms", "TF/s", "error");
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const size_t n = of[i].n, o = of[i].out, in = of[i].in;
		const struct kn_cu_mm y = {.flags = KN_GEMM_TB,
					   .m = n,
					   .n = o,
					   .k = in,
					   .type = KN_BF16,
					   .out = KN_BF16};
		const struct kn_cu_mm dx = {
			.m = n, .n = in, .k = o, .type = KN_BF16, .out = KN_BF16};
		struct kn_cu_mm dw = {.flags = KN_GEMM_TA,
				      .m = o,
				      .n = in,
				      .k = n,
				      .type = KN_BF16,
				      .out = KN_BF16};
		char name[64];

		snprintf(name, sizeof(name), "%s: y", of[i].name);
		bench_one(name, y);
		snprintf(name, sizeof(name), "%s: dx", of[i].name);
		bench_one(name, dx);
		snprintf(name, sizeof(name), "%s: dW", of[i].name);
		bench_one(name, dw);
		dw.out = KN_F32;
		dw.flags |= KN_GEMM_ADD;
		snprintf(name, sizeof(name), "%s: dW +=", of[i].name);
		bench_one(name, dw);
	}
}

int main(int argc, char **argv)
{
	void *work;

	td_begin();
	work = td_alloc(KN_CU_GEMM_WORK);
	TD_CU(kn_cu_gemm_new(&gemm, work, KN_CU_GEMM_WORK));
	random_shapes(240);
	tf32();
	empty();
	choices(work);
	if (argc > 1 && !strcmp(argv[1], "--bench"))
		bench();
	kn_cu_gemm_free(gemm);
	return td_end();
}
