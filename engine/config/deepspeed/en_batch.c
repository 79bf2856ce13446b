/*
 * en_batch.c -- the three batch sizes, as DeepSpeed derives and asserts them (runtime/config.py,
 * _set_batch_related_parameters and _batch_assertion); see en_deepspeed_priv.h.
 */
#include <inttypes.h>
#include <stdio.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

enum which { TRAIN, MICRO, ACC };

static const char *const names[] = {
	"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
};

#define MAX_BATCH ((int64_t)1 << 31)	/* so that products fit */

struct batch {
	int64_t v[3];
	bool has[3];
	int64_t world;
};

/* As Python's //, for a divisor above 0. */
static int64_t over(int64_t a, int64_t b)
{
	return b > 0 ? a / b : 0;
}

static void set(struct en_resolve *ev, struct batch *b, enum which w, int64_t v, const char *why)
{
	b->v[w] = v;
	b->has[w] = true;
	en_derive(ev, EN_B_TOP, names[w],
		  (struct en_value){ .type = EN_INT, .i = v, .f = (double)v }, why);
}

/* False if it is not said enough. */
static bool derive(struct en_resolve *ev, struct batch *b)
{
	const int64_t *v = b->v;

	if (b->has[TRAIN] && b->has[MICRO] && b->has[ACC])
		return true;
	if (b->has[TRAIN] && b->has[MICRO]) {
		set(ev, b, ACC, over(over(v[TRAIN], v[MICRO]), b->world),
		    "train batch / micro-batch / ranks, rounded down");
	} else if (b->has[TRAIN] && b->has[ACC]) {
		set(ev, b, MICRO, over(over(v[TRAIN], b->world), v[ACC]),
		    "train batch / ranks / accumulation, rounded down");
	} else if (b->has[MICRO] && b->has[ACC]) {
		set(ev, b, TRAIN, v[MICRO] * v[ACC] * b->world,
		    "micro-batch x accumulation x ranks");
	} else if (b->has[TRAIN]) {
		set(ev, b, ACC, 1, "not given");
		set(ev, b, MICRO, over(v[TRAIN], b->world), "train batch / ranks, rounded down");
	} else if (b->has[MICRO]) {
		set(ev, b, TRAIN, v[MICRO] * b->world, "micro-batch x ranks");
		set(ev, b, ACC, 1, "not given");
	} else {
		return false;
	}
	return true;
}

static void too_few(struct en_resolve *ev, const struct batch *b, enum which w)
{
	const struct en_node *v = en_given(ev, EN_B_TOP, names[w]);

	if (v && v->at.from != EN_FROM_DERIVED)
		en_refuse(ev, true, CKPT_E_MISMATCH, names[w], v, "must be above 0");
	else
		en_refuse(ev, true, CKPT_E_MISMATCH, names[w], NULL,
			  "it becomes %" PRId64 " with train_batch_size %" PRId64 " on %" PRId64
			  " ranks; must be above 0",
			  b->v[w], b->v[TRAIN], b->world);
}

/* What would fit, near to what is said. */
static void advice(const struct batch *b, char *out, size_t n)
{
	const int64_t unit = b->v[MICRO] * b->v[ACC] * b->world;
	const int64_t each = b->v[MICRO] * b->world;

	if (b->v[TRAIN] % each == 0)
		snprintf(out, n, "gradient_accumulation_steps %" PRId64 " or train_batch_size %"
			 PRId64 " would fit", b->v[TRAIN] / each, unit);
	else
		snprintf(out, n, "train_batch_size %" PRId64 " would fit", unit);
}

static void check(struct en_resolve *ev, const struct batch *b)
{
	const int64_t unit = b->v[MICRO] * b->v[ACC] * b->world;
	const struct en_node *v = en_given(ev, EN_B_TOP, names[TRAIN]);
	char fits[128];

	for (int w = TRAIN; w <= ACC; w++)
		if (b->v[w] <= 0) {
			too_few(ev, b, (enum which)w);
			return;
		}
	if (b->v[TRAIN] == unit)
		return;
	advice(b, fits, sizeof(fits));
	en_refuse(ev, true, CKPT_E_MISMATCH, names[TRAIN], v,
		  "train_batch_size is not micro-batch x accumulation x ranks: %" PRId64 " != %"
		  PRId64 " * %" PRId64 " * %" PRId64 "; %s", b->v[TRAIN], b->v[MICRO], b->v[ACC],
		  b->world, fits);
}

void en_batch(struct en_resolve *ev)
{
	struct batch b = { .world = ev->facts->world };

	for (int w = TRAIN; w <= ACC; w++) {
		const size_t k = en_key_number(EN_B_TOP, names[w]);

		if (en_config_verdict(ev->cfg, names[w]) &&
		    en_config_verdict(ev->cfg, names[w])->ruling == EN_REFUSED)
			return;		/* said already */
		b.has[w] = ev->given[k].v && ev->value[k].type == EN_INT;
		b.v[w] = b.has[w] ? ev->value[k].i : 0;
		if (b.v[w] > MAX_BATCH || b.v[w] < -MAX_BATCH) {
			en_refuse(ev, false, CKPT_E_MISMATCH, names[w], ev->given[k].v,
				  "a batch is at most 2^31 samples");
			return;
		}
	}
	if (b.has[MICRO] && b.has[ACC] && (b.v[MICRO] > 1 << 20 || b.v[ACC] > 1 << 20)) {
		en_refuse(ev, false, CKPT_E_MISMATCH, names[MICRO],
			  en_given(ev, EN_B_TOP, names[MICRO]),
			  "micro-batch and accumulation are at most 2^20");
		return;
	}
	if (derive(ev, &b))
		check(ev, &b);
	else
		en_refuse(ev, true, CKPT_E_MISMATCH, names[TRAIN], NULL,
			  "missing; give train_batch_size or train_micro_batch_size_per_gpu, or "
			  "\"auto\" and an option");
}
