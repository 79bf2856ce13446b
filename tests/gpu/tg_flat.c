/* tg_flat.c -- tests of kernels with the CPU's bits: Adam, casts, sums of arrays. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn_cuda.h"
#include "kernels/include/kn_cuda_random.h"
#include "tests/gpu/tg_gpu.h"
#include "tests/gpu/tg_kernels.h"

static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
static const char *const type_names[] = { "f32", "bf16", "f16" };

static size_t bytes_of(size_t n, enum kn_type type)
{
	return n * kn_type_size(type);
}

/* ---------------------------------------------------------------- Adam */

struct adam {
	struct kn_adam how;
	size_t n, shift;
	enum kn_type copy_type;
	int copies;
	struct tg_array p, m, v, grad;
};

/* Steps on the device; the CPU goes along in p, m, v and must have the same bits. */
static void adam_turn(const struct adam *a, int turn)
{
	float *p, *m, *v;
	void *grad, *copy;

	tg_reset();
	p = tg_up(&a->p, a->shift);
	m = tg_up(&a->m, a->shift);
	v = tg_up(&a->v, a->shift);
	grad = tg_up(&a->grad, a->shift);
	copy = a->copies ? tg_room(bytes_of(a->n, a->copy_type),
				   a->shift * kn_type_size(a->copy_type)) : NULL;
	for (int step = 0; step < 3; step++) {
		struct kn_adam how = a->how;

		how.step += (uint64_t)step;
		TG(kn_cu_adam(&how, p, m, v, grad, a->grad.type, a->n, copy, a->copy_type, NULL));
	}
	tg_out(turn, 0, p, a->n * 4);
	tg_out(turn, 1, m, a->n * 4);
	tg_out(turn, 2, v, a->n * 4);
	if (a->copies)
		tg_out(turn, 3, copy, bytes_of(a->n, a->copy_type));
}

static void one_adam(unsigned i, size_t n)
{
	struct adam a = { .n = n, .shift = i / 4 % 3, .copies = i % 5 != 0,
			  .copy_type = types[i / 3 % 3] };
	const int g = (int)(i / 2 % 3);
	void *copy = tg_alloc(bytes_of(n, a.copy_type));

	a.how = (struct kn_adam){ .rule = (enum kn_adam_rule)(1 + i % 3), .decoupled = i / 3 & 1,
				  .bias_correction = i / 6 % 4 != 0, .step = i % 4 ? i % 4 : 1000,
				  .lr = 1e-3 * (1 + i % 7), .beta1 = 0.9, .beta2 = 0.95,
				  .eps = 1e-8, .decay = i % 2 ? 0.1 : 0,
				  .grad_scale = i % 3 ? 1 : 0.37f };
	tg_case("rule %d, decoupled %d, correction %d, gradient %s, copy %s, %zu elements, off by "
		"%zu", (int)a.how.rule, a.how.decoupled, a.how.bias_correction, type_names[g],
		a.copies ? type_names[i / 3 % 3] : "none", n, a.shift);
	a.p = tg_random(n, 0.02, KN_F32);
	a.m = tg_random(n, 1e-3, KN_F32);
	a.v = tg_random(n, 1e-3, KN_F32);
	a.grad = tg_random(n, i % 4 == 3 ? 1e-20 : 1e-2, types[g]);
	for (size_t k = 0; k < n; k++)
		a.v.f[k] *= a.v.f[k];
	/* what goes wrong goes wrong alike, up to which NaN it is, which copies must show */
	if (n > 100 && i % 6 == 5) {
		a.grad.f[5] = INFINITY;
		a.p.f[7] = 3e38f;
		a.p.f[8] = NAN;
		a.grad.f[9] = 0;
		a.m.f[9] = a.v.f[9] = 0;
	}
	tg_settle(&a.p);
	tg_settle(&a.v);
	tg_settle(&a.m);
	tg_settle(&a.grad);
	adam_turn(&a, 0);
	adam_turn(&a, 1);
	for (int step = 0; step < 3; step++) {
		struct kn_adam how = a.how;

		how.step += (uint64_t)step;
		kn_adam(&how, a.p.f, a.m.f, a.v.f, a.grad.f, n, copy, a.copy_type);
	}
	for (int s = 0; s < 3; s++) {
		float *cpu = s == 0 ? a.p.f : s == 1 ? a.m.f : a.v.f;
		const float *gpu = tg_bits(s);

		for (size_t k = 0; k < n; k++)
			if (isnan(cpu[k]) && isnan(gpu[k]))
				cpu[k] = gpu[k];
		tg_equal(s, s == 0 ? "p" : s == 1 ? "m" : "v", cpu, n * 4);
	}
	/* the CPU's copy of a NaN has that NaN's payload, so it is made of what is there */
	kn_cast(copy, a.copy_type, tg_bits(0), KN_F32, n, NULL);
	if (a.copies)
		tg_equal(3, "copy", copy, bytes_of(n, a.copy_type));
	tg_free(&a.p);
	tg_free(&a.m);
	tg_free(&a.v);
	tg_free(&a.grad);
	free(copy);
}

static void adam(void)
{
	static const size_t ns[] = { 1, 7, 8, 9, 1000, 4099 };

	tg_begin("adam");
	for (unsigned i = 0; i < 216; i++)
		one_adam(i, ns[i / 2 % 6]);
}

/* ---------------------------------------------------------------- casts */

/* All 16-bit patterns, or fp32: the neighbourhood of each 16-bit number's upper half, and any. */
static struct tg_array patterns(enum kn_type type)
{
	struct tg_array a = tg_zeros(type == KN_F32 ? 65536 * 9 : 65536, type);

	for (size_t i = 0; i < a.n; i++) {
		static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x0fff,
						0x1000 };
		const uint32_t high = (uint32_t)(i / 9) << 16;
		const uint32_t u = i % 9 == 8 ? (uint32_t)tg_rand() : high | low[i % 9 % 8];

		if (type == KN_F32)
			((uint32_t *)a.raw)[i] = u;
		else
			((uint16_t *)a.raw)[i] = (uint16_t)i;
	}
	return a;
}

static void casts(void)
{
	tg_begin("cast");
	for (unsigned i = 0; i < 18; i++) {
		const enum kn_type from = types[i % 3], to = types[i / 3 % 3];
		struct tg_array a = patterns(from);
		const size_t n = a.n - i % 7, shift = i > 8 ? 3 : 0;
		void *want = tg_alloc(bytes_of(n, to));

		tg_case("%s to %s, %zu patterns, off by %zu", type_names[i % 3],
			type_names[i / 3 % 3], n, shift);
		kn_cast(want, to, a.raw, from, n, NULL);
		for (int turn = 0; turn < 2; turn++) {
			void *src, *dst;

			tg_reset();
			src = tg_up(&a, shift);
			dst = kn_type_size(from) == kn_type_size(to) && i % 2 ? src :
				tg_room(bytes_of(n, to), shift * kn_type_size(to));
			TG(kn_cu_cast(dst, to, src, from, n, NULL));
			tg_out(turn, 0, dst, bytes_of(n, to));
		}
		tg_equal(0, "the CPU's cast", want, bytes_of(n, to));
		tg_free(&a);
		free(want);
	}
}

/* ---------------------------------------------------------------- add, scale, fill */

static void one_flat(unsigned i, size_t n)
{
	const int y = (int)(i % 3), x = (int)(i / 3 % 3);
	const size_t shift = i / 2 & 1 ? i % 8 : 0;
	struct tg_array a = tg_random(n, 1, types[y]), b = tg_random(n, 1, types[x]);
	struct tg_array sum = tg_zeros(n, types[y]), times = tg_zeros(n, types[y]);
	struct tg_array full = tg_zeros(n, types[y]);

	tg_case("%zu %s and %s, off by %zu", n, type_names[y], type_names[x], shift);
	for (size_t k = 0; k < n; k++) {
		sum.f[k] = a.f[k] + b.f[k];
		times.f[k] = a.f[k] * 0.37f;
		full.f[k] = 1.2345f;
	}
	tg_settle(&sum);
	tg_settle(&times);
	tg_settle(&full);
	for (int turn = 0; turn < 2; turn++) {
		void *p;

		tg_reset();
		p = tg_up(&a, shift);
		TG(kn_cu_add(p, types[y], tg_up(&b, shift), types[x], n, NULL));
		tg_out(turn, 0, p, bytes_of(n, types[y]));
		p = tg_up(&a, shift);
		TG(kn_cu_scale(p, types[y], 0.37f, n, NULL));
		tg_out(turn, 1, p, bytes_of(n, types[y]));
		TG(kn_cu_fill(p, types[y], 1.2345f, n, NULL));
		tg_out(turn, 2, p, bytes_of(n, types[y]));
	}
	tg_equal(0, "the sum", sum.raw, bytes_of(n, types[y]));
	tg_equal(1, "the product", times.raw, bytes_of(n, types[y]));
	tg_equal(2, "the filled array", full.raw, bytes_of(n, types[y]));
	tg_free(&a);
	tg_free(&b);
	tg_free(&sum);
	tg_free(&times);
	tg_free(&full);
}

/* ---------------------------------------------------------------- pieces */

/* As en_comm.h says: pairs of neighbours, then pairs of those; an odd last one goes up. */
static float tree_of(float *v, size_t n)
{
	for (; n > 1; n = (n + 1) / 2)
		for (size_t k = 0; k < (n + 1) / 2; k++)
			v[k] = 2 * k + 1 < n ? v[2 * k] + v[2 * k + 1] : v[2 * k];
	return v[0];
}

static void one_pieces(unsigned i, size_t pieces, size_t n)
{
	const int y = (int)(i % 3), x = (int)(i / 3 % 3);
	const size_t shift = i / 2 & 1 ? i % 8 : 0, stride = n + (i & 4 ? 0 : 8 - n % 8 + i % 3);
	struct tg_array a = tg_random(pieces * stride, 1, types[x]), b = tg_random(n, 1, types[y]);
	struct tg_array sum = tg_zeros(n, types[y]), more = tg_zeros(n, types[y]);
	float *v = tg_alloc(pieces * sizeof(*v));

	tg_case("%zu pieces of %zu %s to %s, %zu apart, off by %zu", pieces, n, type_names[x],
		type_names[y], stride, shift);
	for (size_t k = 0; k < n; k++) {
		for (size_t q = 0; q < pieces; q++)
			v[q] = a.f[q * stride + k];
		sum.f[k] = tree_of(v, pieces);
		more.f[k] = b.f[k] + sum.f[k];
	}
	tg_settle(&sum);
	tg_settle(&more);
	for (int turn = 0; turn < 2; turn++) {
		const void *from;
		void *p;

		tg_reset();
		from = tg_up(&a, shift);
		p = tg_room(bytes_of(n, types[y]), shift * kn_type_size(types[y]));
		TG(kn_cu_add_pieces(p, types[y], from, types[x], pieces, stride, n, 0, NULL));
		tg_out(turn, 0, p, bytes_of(n, types[y]));
		p = tg_up(&b, shift);
		TG(kn_cu_add_pieces(p, types[y], from, types[x], pieces, stride, n, KN_CU_ADD,
				    NULL));
		tg_out(turn, 1, p, bytes_of(n, types[y]));
	}
	tg_equal(0, "the sum", sum.raw, bytes_of(n, types[y]));
	tg_equal(1, "the sum, added", more.raw, bytes_of(n, types[y]));
	tg_free(&a);
	tg_free(&b);
	tg_free(&sum);
	tg_free(&more);
	free(v);
}

static void pieces(void)
{
	static const size_t ns[] = { 1, 7, 8, 2049 };

	tg_begin("add_pieces");
	for (unsigned i = 0; i < 4 * 18; i++)
		one_pieces(i, i % 18 < 16 ? 1 + i % 18 : 1 + tg_below(300), ns[i / 18]);
}

/* ---------------------------------------------------------------- dropout */

static void one_dropout(unsigned i, size_t rows, size_t n)
{
	const enum kn_type type = types[i % 3];
	const size_t shift = i / 3 & 1 ? i % 8 : 0, all = rows * n;
	const struct kn_dropout d = { .seed = i, .sample = (1ull << 32) - 2, .tokens = 1 + i % 5,
				      .below = kn_dropout_below(0.05 * (1 + i % 19)) };
	struct tg_array x = tg_random(all, 1, type), add = tg_random(all, 1, type);
	struct tg_array one = tg_zeros(all, type), sum = tg_zeros(all, type);

	tg_case("%zu x %zu %s, %u of 65536, off by %zu", rows, n, type_names[i % 3], d.below,
		shift);
	kn_dropout(one.f, x.f, NULL, 0, rows, n, &d, type);
	kn_dropout(sum.f, x.f, add.f, 0, rows, n, &d, type);
	tg_settle(&one);
	tg_settle(&sum);
	for (int turn = 0; turn < 2; turn++) {
		void *from, *to;

		tg_reset();
		from = tg_up(&x, shift);
		to = tg_up(&add, shift);
		TG(kn_cu_dropout(to, from, to, rows, n, &d, type, NULL));
		TG(kn_cu_dropout(from, from, NULL, rows, n, &d, type, NULL));
		tg_out(turn, 0, from, bytes_of(all, type));
		tg_out(turn, 1, to, bytes_of(all, type));
	}
	tg_equal(0, "what is left", one.raw, bytes_of(all, type));
	tg_equal(1, "added", sum.raw, bytes_of(all, type));
	tg_free(&x);
	tg_free(&add);
	tg_free(&one);
	tg_free(&sum);
}

static void dropout(void)
{
	static const size_t ns[] = { 1, 7, 8, 96, 2048, 2056, 4099 };

	tg_begin("dropout");
	for (unsigned i = 0; i < 84; i++)
		one_dropout(i, 1 + i % 13, ns[i / 3 % 7]);
}

void tg_test_flat_kernels(void)
{
	static const size_t ns[] = { 0, 1, 7, 8, 9, 2047, 2048, 2049, 100003 };

	adam();
	casts();
	pieces();
	dropout();
	tg_begin("add, scale, fill");
	for (unsigned i = 0; i < 81; i++)
		one_flat(i, ns[i % 9 == i / 9 ? i % 9 : (i + i / 9) % 9]);
}
