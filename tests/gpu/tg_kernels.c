/* tg_kernels.c -- tests of embedding, activation, loss, optimizer and element-wise kernels. */
#include "tests/gpu/tg_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"
#include "tests/gpu/tg_gpu.h"
#include "tests/ref/kn_ref_train.h"

static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
static const char *const type_names[] = { "f32", "bf16", "f16" };

static size_t bytes_of(size_t n, enum kn_type type)
{
	return n * kn_type_size(type);
}

static size_t shift_of(unsigned i)
{
	return i & 1 ? i / 2 % 7 + 1 : 0;
}

/* ---------------------------------------------------------------- embedding */

/* What the list says, and that it says all. */
static void check_list(const int32_t *ids, size_t rows, const int32_t *id, const int32_t *begin,
		       const int32_t *at, size_t nid)
{
	size_t bad = 0;

	for (size_t u = 0; u < nid; u++) {
		bad += u && id[u] <= id[u - 1];
		bad += begin[u] >= begin[u + 1];
		for (int32_t j = begin[u]; j < begin[u + 1]; j++)
			bad += ids[at[j]] != id[u] || (j > begin[u] && at[j] <= at[j - 1]);
	}
	tg_check(!bad && begin[0] == 0 && begin[nid] == (int32_t)rows, "the list is wrong");
}

static void one_embed(unsigned i, size_t rows, size_t vocab, size_t n)
{
	const int t = (int)(i % 3), g = (int)(i / 2 % 3);
	const enum kn_type type = types[t], gt = types[g];
	const unsigned flags = i / 3 & 1 ? KN_CU_ADD : 0;
	const size_t shift = shift_of(i / 2);
	struct tg_array table = tg_random(vocab * n, 1, type), dy = tg_random(rows * n, 1, type);
	struct tg_array old = tg_random(vocab * n, 1, gt);
	int32_t *ids = tg_alloc(rows * 4), *id = tg_alloc(rows * 4), *at = tg_alloc(rows * 4);
	int32_t *begin = tg_alloc((rows + 1) * 4);
	uint64_t *work = tg_alloc(rows * 8);
	char *want = tg_alloc(bytes_of(rows * n, type));
	double *sum = tg_alloc(vocab * n * sizeof(*sum));
	size_t nid;

	tg_case("%zu rows of %zu from %zu, %s, gradient %s%s, off by %zu", rows, n, vocab,
		type_names[t], type_names[g], flags ? " added" : "", shift);
	/* half of all rows are one token */
	for (size_t r = 0; r < rows; r++)
		ids[r] = (int32_t)(tg_below(2) ? vocab / 2 : tg_below(vocab));
	nid = kn_cu_embed_list(ids, rows, id, begin, at, work);
	check_list(ids, rows, id, begin, at, nid);
	for (int turn = 0; turn < 2; turn++) {
		void *y, *d;

		tg_reset();
		y = tg_room(bytes_of(rows * n, type), shift * kn_type_size(type));
		TG(kn_cu_embed(y, tg_up(&table, shift), tg_put(ids, rows * 4, 0), rows, n, type,
			       NULL));
		tg_out(turn, 0, y, bytes_of(rows * n, type));
		d = tg_up(&old, shift);
		TG(kn_cu_embed_back(d, gt, tg_up(&dy, shift), tg_put(id, nid * 4, 0),
				    tg_put(begin, (nid + 1) * 4, 0), tg_put(at, rows * 4, 0), nid,
				    n, type, flags, NULL));
		tg_out(turn, 1, d, bytes_of(old.n, gt));
	}
	memcpy(sum, old.d, old.n * sizeof(*sum));
	for (size_t u = 0; u < nid; u++)
		for (size_t k = 0; k < n && !flags; k++)
			sum[(size_t)id[u] * n + k] = 0;
	for (size_t r = 0; r < rows; r++) {
		const size_t from = (size_t)ids[r] * n;

		memcpy(want + bytes_of(r * n, type), (char *)table.raw + bytes_of(from, type),
		       bytes_of(n, type));
		for (size_t k = 0; k < n; k++)
			sum[from + k] += dy.d[r * n + k];
	}
	tg_equal(0, "y", want, bytes_of(rows * n, type));
	tg_near(1, "dtable", sum, old.n, gt, gt, gt == KN_F32 ? 8 : 0.6, 1);
	tg_free(&table);
	tg_free(&dy);
	tg_free(&old);
	free(ids);
	free(id);
	free(at);
	free(begin);
	free(work);
	free(want);
	free(sum);
}

static void embeddings(void)
{
	static const size_t ns[] = { 1, 3, 8, 12, 40, 64, 100, 256, 264, 1000, 1024, 4096 };
	static const size_t rows[] = { 1, 2, 9, 64, 333 };

	tg_begin("embed, embed_back");
	for (unsigned i = 0; i < 60; i++)
		one_embed(i, rows[i % 5], 1 + i * 7 % 50, ns[i % 12]);
	one_embed(1, 3000, 300, 72);
	one_embed(6, 3000, 1, 17);
}

/* ---------------------------------------------------------------- activation */

static void one_swiglu(unsigned i, size_t rows, size_t n)
{
	const int t = (int)(i % 3), place = (int)(i / 3 % 4);
	const enum kn_type type = types[t];
	const size_t shift = shift_of(i), all = rows * n;
	struct tg_array gu = tg_random(2 * all, i % 5 ? 2 : 20, type), dy = tg_random(all, 1, type);
	double *want = tg_alloc(all * sizeof(*want)), *back = tg_alloc(2 * all * sizeof(*back));
	const double loose = type == KN_F32 ? 16 : 2;

	tg_case("%zu x %zu %s, off by %zu, place %d", rows, n, type_names[t], shift, place);
	for (int turn = 0; turn < 2; turn++) {
		void *in, *y, *d, *dgu, *again;

		tg_reset();
		in = tg_up(&gu, shift);
		d = tg_up(&dy, shift);
		y = tg_room(bytes_of(all, type), shift * kn_type_size(type));
		dgu = place & 1 ? in : tg_room(bytes_of(2 * all, type), shift * kn_type_size(type));
		again = place & 2 ? d : tg_room(bytes_of(all, type), 0);
		TG(kn_cu_swiglu(y, in, rows, n, type, NULL));
		tg_out(turn, 0, y, bytes_of(all, type));
		TG(kn_cu_swiglu_back(dgu, again, d, in, rows, n, type, NULL));
		tg_out(turn, 1, dgu, bytes_of(2 * all, type));
		tg_out(turn, 2, again, bytes_of(all, type));
		in = tg_up(&gu, 0);
		d = tg_up(&dy, 0);
		dgu = tg_room(bytes_of(2 * all, type), 0);
		TG(kn_cu_swiglu_back(dgu, NULL, d, in, rows, n, type, NULL));
		tg_out(turn, 3, dgu, bytes_of(2 * all, type));
	}
	for (size_t r = 0; r < rows; r++) {
		const double *g = gu.d + r * 2 * n;

		kn_ref_swiglu(want + r * n, g, g + n, n);
		kn_ref_swiglu_back(back + r * 2 * n, back + r * 2 * n + n, dy.d + r * n, g, g + n,
				   n);
	}
	tg_near(0, "y", want, all, type, type, loose, 1e-2);
	tg_near(1, "dgu", back, 2 * all, type, type, loose, 1e-2);
	tg_equal(2, "the second y", tg_bits(0), bytes_of(all, type));
	tg_equal(3, "dgu without y", tg_bits(1), bytes_of(2 * all, type));
	tg_free(&gu);
	tg_free(&dy);
	free(want);
	free(back);
}

static void activations(void)
{
	static const size_t ns[] = { 1, 3, 8, 20, 64, 255, 256, 1000, 2048, 2056, 4096, 12288 };

	tg_begin("swiglu");
	for (unsigned i = 0; i < 72; i++)
		one_swiglu(i, i % 12 > 8 ? 3 : 1 + i * 5 % 40, ns[i % 12]);
}

/* ---------------------------------------------------------------- loss */

static void fill_targets(int32_t *target, size_t rows, size_t n)
{
	for (size_t r = 0; r < rows; r++)
		target[r] = r % 5 == 3 ? -100 : r % 7 == 0 ? (int32_t)n - 1 :
			    r % 7 == 1 ? 0 : (int32_t)tg_below(n);
}

static void one_xent(unsigned i, size_t rows, size_t n)
{
	const int t = (int)(i % 3);
	const enum kn_type type = types[t];
	const size_t shift = shift_of(i);
	const float factor = i & 4 ? 1.0f / 37 : 64;
	struct tg_array l = tg_random(rows * n, i % 4 == 3 ? 12 : 2, type);
	int32_t *target = tg_alloc(rows * 4);
	double *loss = tg_alloc(rows * sizeof(*loss)), *d = tg_alloc(l.n * sizeof(*d));

	tg_case("%zu x %zu %s, off by %zu, factor %g", rows, n, type_names[t], shift,
		(double)factor);
	fill_targets(target, rows, n);
	/* some logits are no choice at all, and a row is all but one */
	for (size_t k = 0; n > 3 && k < l.n; k += 3 + k % 11)
		l.f[k] = k % n == 0 || (int32_t)(k % n) == target[k / n] ? l.f[k] : -INFINITY;
	tg_settle(&l);
	for (int turn = 0; turn < 2; turn++) {
		void *x, *y, *to, *only;

		tg_reset();
		x = tg_up(&l, shift);
		y = tg_put(target, rows * 4, 0);
		to = tg_room(rows * 4, 0);
		only = tg_room(rows * 4, 0);
		TG(kn_cu_xent(x, only, y, rows, n, NULL, type, NULL));
		tg_out(turn, 3, x, bytes_of(l.n, type));
		TG(kn_cu_xent(x, to, y, rows, n, &factor, type, NULL));
		tg_out(turn, 0, to, rows * 4);
		tg_out(turn, 1, x, bytes_of(l.n, type));
		tg_out(turn, 2, only, rows * 4);
	}
	kn_ref_xent(d, loss, l.d, target, rows, n, (double)factor);
	tg_near(0, "loss", loss, rows, KN_F32, KN_F32, 20, 10);
	tg_near(1, "dlogits", d, l.n, type, type, type == KN_F32 ? 40 : 0.6, (double)factor * 1e-3);
	tg_equal(2, "the loss without a gradient", tg_bits(0), rows * 4);
	tg_equal(3, "logits without a gradient", l.raw, bytes_of(l.n, type));
	tg_free(&l);
	free(target);
	free(loss);
	free(d);
}

/* What must not come out as a number. */
static void bad_losses(int t)
{
	const enum kn_type type = types[t];
	const float put[] = { NAN, INFINITY, 0, 0, -INFINITY }, factor = 1;
	const int32_t target[] = { 3, 3, 77, INT32_MAX, 3 };
	struct tg_array l = tg_random(5 * 77, 1, type);
	float *loss, *d = tg_alloc(77 * 4);

	tg_case("NaN, infinity, targets beyond the end, %s", type_names[t]);
	for (size_t r = 0; r < 5; r++)
		for (size_t k = 0; k < 77; k++)
			l.f[r * 77 + k] = k == 50 || r == 4 ? put[r] : l.f[r * 77 + k];
	tg_settle(&l);
	for (int turn = 0; turn < 2; turn++) {
		void *x, *to;

		tg_reset();
		x = tg_up(&l, 0);
		to = tg_room(5 * 4, 0);
		TG(kn_cu_xent(x, to, tg_put(target, sizeof(target), 0), 5, 77, &factor, type,
			      NULL));
		tg_out(turn, 0, to, 5 * 4);
		tg_out(turn, 1, x, bytes_of(5 * 77, type));
	}
	loss = (float *)(uintptr_t)tg_bits(0);
	for (size_t r = 0; r < 5; r++) {
		size_t nan = 0;

		kn_cast(d, KN_F32, (const char *)tg_bits(1) + bytes_of(r * 77, type), type, 77,
			NULL);
		for (size_t k = 0; k < 77; k++)
			nan += isnan(d[k]);
		tg_check(isnan(loss[r]), "the loss of row %zu is %g", r, (double)loss[r]);
		tg_check(nan == 77, "row %zu has %zu NaN of 77 as its gradient", r, nan);
	}
	tg_free(&l);
	free(d);
}

static void losses(void)
{
	static const size_t ns[] = { 1, 2, 7, 8, 31, 128, 1000, 1024, 4097, 8192, 32776, 65544 };

	tg_begin("xent");
	for (unsigned i = 0; i < 72; i++)
		one_xent(i, i % 12 > 8 ? 2 : 1 + i * 3 % 23, ns[i % 12]);
	one_xent(4, 9, 151936);
	one_xent(1, 3, 128257);
	for (int t = 0; t < 3; t++)
		bad_losses(t);
}

/* ---------------------------------------------------------------- sums */

static void sums(void)
{
	static const size_t ns[] = { 0, 1, 2, 3, 31, 32, 33, 1000, 1023, 1024, 1025, 2047, 2048,
				     2049, 5001, 65537, 1048576, 1048577, 1100003 };

	tg_begin("sum");
	for (unsigned i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		struct tg_array x = tg_random(ns[i], 1, KN_F32);
		const double old = i & 1 ? 17.25 : 0;
		double want = old, size = 1;

		tg_case("%zu numbers%s", ns[i], i & 1 ? " added" : "");
		for (int turn = 0; turn < 2; turn++) {
			double *out;

			tg_reset();
			out = tg_put(&old, sizeof(old), 0);
			TG(kn_cu_sum_f32(out, tg_up(&x, i % 3), x.n, i & 1 ? KN_CU_ADD : 0, NULL));
			tg_out(turn, 0, out, sizeof(*out));
			out = tg_put(&old, sizeof(old), 0);
			TG(kn_cu_sum_f64(out, tg_put(x.d, x.n * 8, 0), x.n, i & 1 ? KN_CU_ADD : 0,
					 NULL));
			tg_out(turn, 1, out, sizeof(*out));
		}
		for (size_t k = 0; k < x.n; k++) {
			want += x.d[k];
			size += fabs(x.d[k]);
		}
		tg_check(fabs(*(const double *)tg_bits(0) - want) <= size * 1e-14,
			 "%.17g is not %.17g", *(const double *)tg_bits(0), want);
		tg_equal(1, "the sum of doubles", tg_bits(0), sizeof(want));
		tg_free(&x);
	}
}

static void tree_sums(void)
{
	static const size_t ns[] = { 0, 1, 2, 3, 5, 6, 7, 1000, 1023, 1024, 1025, 1026, 2047, 2049,
				     5001, 65537, 1048575, 1048576, 1048577, 1049601, 1100003 };

	tg_begin("tree_sum");
	for (unsigned i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		double *v = tg_alloc(ns[i] * 8), want;

		tg_case("%zu numbers", ns[i]);
		/* of all sizes, so that the order shows */
		for (size_t k = 0; k < ns[i]; k++)
			v[k] = ldexp((double)(tg_rand() >> 11) - 0x1p52, (int)tg_below(40) - 60);
		for (int turn = 0; turn < 2; turn++) {
			double *out;

			tg_reset();
			out = tg_room(8, 0);
			TG(kn_cu_tree_sum(out, tg_put(v, ns[i] * 8, 0), ns[i],
					  tg_room(kn_cu_tree_sum_work(ns[i]) * 8, 0), NULL));
			tg_out(turn, 0, out, 8);
		}
		want = kn_tree_sum(v, ns[i]);
		tg_equal(0, "the CPU's sum", &want, 8);
		free(v);
	}
}

static void squares(void)
{
	static const size_t ns[] = { 1, 15, 16, 17, 4095, 4096, 4097, 8192, 40000, 65536, 300001 };
	static const size_t chunks[] = { 4096, 16, 1024, 4112 };

	tg_begin("sumsq, not_finite");
	for (unsigned i = 0; i < 11 * 12; i++) {
		const size_t n = ns[i % 11], chunk = chunks[i / 11 % 4];
		const size_t count = (n + chunk - 1) / chunk;
		struct tg_array x = tg_random(n, i % 5 ? 1 : 1e4, types[i / 33 % 3]);
		double *want = tg_alloc(count * 8);
		const uint32_t none = 0, want_flag = i % 4 == 1;
		const float bad[] = { NAN, INFINITY, -INFINITY };

		tg_case("%zu %s in chunks of %zu", n, type_names[i / 33 % 3], chunk);
		if (want_flag)
			x.f[tg_below(n)] = bad[i / 4 % 3];
		tg_settle(&x);
		for (int turn = 0; turn < 2; turn++) {
			double *out;
			uint32_t *flag;
			void *v;

			tg_reset();
			v = tg_up(&x, shift_of(i / 2));
			out = tg_room(count * 8, 0);
			flag = tg_put(&none, 4, 0);
			TG(kn_cu_sumsq(out, v, x.type, n, chunk, NULL));
			TG(kn_cu_not_finite(flag, v, x.type, n, NULL));
			tg_out(turn, 0, out, count * 8);
			tg_out(turn, 1, flag, 4);
		}
		kn_sumsq(want, x.f, n, chunk);
		if (!want_flag)
			tg_equal(0, "the CPU's sums", want, count * 8);
		tg_equal(1, "the flag", &want_flag, 4);
		tg_free(&x);
		free(want);
	}
}

void tg_test_more_kernels(void)
{
	embeddings();
	activations();
	losses();
	sums();
	tree_sums();
	squares();
	tg_test_flat_kernels();
}
