/* en_sample.c -- see en_sample.h. */
#include "engine/model/en_sample.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/include/kn_train.h"

static int32_t likeliest(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
			best = i;
	return (int32_t)best;
}

static double log_sum(const float *logits, uint32_t n, double most)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += isnan(logits[i]) ? 0 : exp((double)logits[i] - most);
	return most + log(sum);
}

/* The likeliest first, equal ones by number. */
static int by_p(const void *a, const void *b)
{
	const struct en_sample_entry *x = a, *y = b;

	if (x->p != y->p)
		return x->p > y->p ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

/* How many of 'n' entries, sorted, reach 'top_p' of 'sum' together. */
static uint32_t reach(const struct en_sample_entry *e, uint32_t n, double top_p, double sum)
{
	double reached = 0;
	uint32_t i = 0;

	while (i < n && (!i || reached < top_p * sum))
		reached += e[i++].p;
	return i;
}

static double total(const struct en_sample_entry *e, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += e[i].p;
	return sum;
}

/* In [0, 1). */
static double random_part(uint64_t seed, uint64_t draw)
{
	uint64_t bits;

	kn_random_bits(&bits, 1, seed, 0, draw);
	return (double)(bits >> 11) * 0x1p-53;
}

static int32_t draw_one(const struct en_sample_how *how, const float *logits, uint32_t n,
			double most, uint64_t draw, struct en_sample_entry *e)
{
	uint32_t left = n;
	double at;

	for (uint32_t i = 0; i < n; i++)
		e[i] = (struct en_sample_entry){
			isnan(logits[i]) ? 0 :
			exp(((double)logits[i] - most) / how->temperature), (int32_t)i,
		};
	qsort(e, n, sizeof(*e), by_p);
	if (how->top_k && how->top_k < left)
		left = how->top_k;
	if (how->top_p < 1)
		left = reach(e, left, how->top_p, total(e, left));
	at = random_part(how->seed, draw) * total(e, left);
	for (uint32_t i = 0; i + 1 < left; i++) {
		if (at < e[i].p)
			return e[i].id;
		at -= e[i].p;
	}
	return e[left - 1].p > 0 ? e[left - 1].id : e[0].id;
}

int32_t en_sample(const struct en_sample_how *how, const float *logits, uint32_t n, uint64_t draw,
		  struct en_sample_entry *work, double *logprob_out)
{
	const int32_t best = likeliest(logits, n);
	const double most = (double)logits[best];
	const bool plain = how->temperature <= 0 || !isfinite(most);
	const int32_t id = plain ? best : draw_one(how, logits, n, most, draw, work);

	*logprob_out = (double)logits[id] - log_sum(logits, n, most);
	return id;
}
