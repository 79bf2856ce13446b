/* te_numbers.c -- see te_numbers.h. */
#include "tests/engine/te_numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

const unsigned te_masks[] = { 0, KN_CPU_AVX2, KN_CPU_AVX2 | KN_CPU_F16C, KN_CPU_ALL };
const size_t te_nmasks = sizeof(te_masks) / sizeof(te_masks[0]);

struct te_array te_zeros(size_t n)
{
	struct te_array a = { .n = n, .f = t_alloc(n * sizeof(float)),
			      .d = t_alloc(n * sizeof(double)) };

	memset(a.f, 0, n * sizeof(float));
	memset(a.d, 0, n * sizeof(double));
	return a;
}

struct te_array te_random(size_t n, double scale, enum kn_type type, uint64_t *seed)
{
	struct te_array a = te_zeros(n);

	kn_random_normal(a.f, n, ++*seed, 0, 0, 0, scale);
	kn_round(a.f, n, type);
	for (size_t i = 0; i < n; i++)
		a.d[i] = (double)a.f[i];
	return a;
}

struct te_array te_copy(const struct te_array *from)
{
	struct te_array a = te_zeros(from->n);

	memcpy(a.f, from->f, a.n * sizeof(float));
	memcpy(a.d, from->d, a.n * sizeof(double));
	return a;
}

void te_free(struct te_array *a)
{
	free(a->f);
	free(a->d);
	*a = (struct te_array){ 0 };
}

double te_error(const struct te_array *a, double floor)
{
	double most = 0, size = floor;

	for (size_t i = 0; i < a->n; i++) {
		const double e = fabs((double)a->f[i] - a->d[i]);

		if (!(e <= most))
			most = e;
		if (fabs(a->d[i]) > size)
			size = fabs(a->d[i]);
	}
	return most / size;
}

double te_unit(enum kn_type type)
{
	return type == KN_BF16 ? 0x1p-7 : type == KN_F16 ? 0x1p-10 : 0x1p-23;
}

double te_dot(const double *a, const double *b, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}
