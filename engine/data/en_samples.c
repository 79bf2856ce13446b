/* en_samples.c -- see en_samples.h. */
#include "engine/data/en_samples.h"

#include <string.h>

#include "libckpt/base/ck_err.h"

#define WHERE "data order"
#define MAX_SAMPLES ((uint64_t)1 << 62)

const char *en_last_name(enum en_last_batch last)
{
	static const char *const name[] = { "?", "flow", "drop", "fill", "short" };

	return name[(size_t)last < CK_ARRAY_LEN(name) ? last : 0];
}

static int set_batch(struct en_samples *s, struct ckpt_err *err)
{
	const struct en_samples_opts *o = &s->opts;

	if (!o->micro || !o->accumulation || !o->world)
		return ck_fail(
			err, CKPT_E_USAGE, WHERE, CKPT_NO_OFFSET,
			"invalid batch: micro-batch of %llu rows, accumulation %llu, %u ranks",
			(unsigned long long)o->micro, (unsigned long long)o->accumulation,
			o->world);
	if (ck_mul_over(o->micro, o->accumulation, &s->batch) ||
	    ck_mul_over(s->batch, o->world, &s->batch) || s->batch > MAX_SAMPLES / 4)
		return ck_fail(err, CKPT_E_LIMIT, WHERE, CKPT_NO_OFFSET,
			       "a batch of %llu x %llu x %u rows exceeds 2^60",
			       (unsigned long long)o->micro, (unsigned long long)o->accumulation,
			       o->world);
	return 0;
}

static int set_span(struct en_samples *s, uint64_t n, struct ckpt_err *err)
{
	const uint64_t whole = n / s->batch, part = n % s->batch != 0;

	s->span = n;
	if (s->opts.last == EN_LAST_DROP)
		s->span = whole * s->batch;
	else if (s->opts.last != EN_LAST_FLOW && ck_mul_over(whole + part, s->batch, &s->span))
		s->span = UINT64_MAX;
	if (!s->span)
		return ck_fail(
			err, CKPT_E_USAGE, WHERE, CKPT_NO_OFFSET,
			"%llu rows are fewer than a batch of %llu, and --tail drop leaves none",
			(unsigned long long)n, (unsigned long long)s->batch);
	if (s->span > MAX_SAMPLES)
		return ck_fail(err, CKPT_E_LIMIT, WHERE, CKPT_NO_OFFSET,
			       "the epoch exceeds 2^62 samples");
	return 0;
}

int en_samples_init(struct en_samples *s, uint64_t n, const struct en_samples_opts *opts,
		    struct ckpt_err *err)
{
	struct en_samples now = { .opts = *opts };
	int rc;

	if (!now.opts.order)
		now.opts.order = EN_ORDER_SEQUENTIAL;
	if (!now.opts.last)
		now.opts.last = EN_LAST_FLOW;
	if (!now.opts.sampler)
		now.opts.sampler = EN_SAMPLER_UNITS;
	rc = en_order_init(&now.order, now.opts.order, n, opts->seed, err);
	if (!rc)
		rc = set_batch(&now, err);
	if (!rc)
		rc = set_span(&now, n, err);
	if (rc)
		en_order_release(&now.order);
	else
		*s = now;
	return rc;
}

void en_samples_release(struct en_samples *s)
{
	en_order_release(&s->order);
	memset(s, 0, sizeof(*s));
}

/* Where sample 'g' is: epoch, and place in the order of the epoch (below s->span). */
static void place_of(const struct en_samples *s, uint64_t g, uint64_t *epoch_out,
		     uint64_t *place_out)
{
	*epoch_out = g / s->span;
	*place_out = g % s->span;
}

static int check_place(const struct en_samples *s, uint64_t start, uint64_t unit,
		       struct ckpt_err *err)
{
	if (unit >= s->opts.accumulation * s->opts.world)
		return ck_fail(
			err, CKPT_E_USAGE, WHERE, CKPT_NO_OFFSET,
			"micro-batch %llu is out of range: a step has %llu micro-steps on %u ranks",
			(unsigned long long)unit, (unsigned long long)s->opts.accumulation,
			s->opts.world);
	if (start > MAX_SAMPLES)
		return ck_fail(err, CKPT_E_LIMIT, WHERE, CKPT_NO_OFFSET,
			       "%llu samples consumed exceeds 2^62", (unsigned long long)start);
	if (s->opts.last != EN_LAST_FLOW && start % s->batch)
		return ck_fail(err, CKPT_E_USAGE, WHERE, CKPT_NO_OFFSET,
			       "%llu samples consumed is not a multiple of the batch of %llu, "
			       "which --tail %s requires",
			       (unsigned long long)start, (unsigned long long)s->batch,
			       en_last_name(s->opts.last));
	return 0;
}

/* Sample i of a unit, counted from the beginning of the step. */
static uint64_t offset_in_step(const struct en_samples *s, uint64_t unit, uint64_t i)
{
	const struct en_samples_opts *o = &s->opts;

	if (o->sampler == EN_SAMPLER_UNITS)
		return unit * o->micro + i;
	return (unit / o->world * o->micro + i) * o->world + unit % o->world;
}

int en_samples_unit(struct en_samples *s, uint64_t start, uint64_t unit, uint64_t *row,
		    uint64_t *n_out, struct ckpt_err *err)
{
	uint64_t n = 0;
	int rc = check_place(s, start, unit, err);

	for (uint64_t i = 0; !rc && i < s->opts.micro; i++) {
		uint64_t epoch, place;

		place_of(s, start + offset_in_step(s, unit, i), &epoch, &place);
		if (place >= s->order.n && s->opts.last == EN_LAST_SHORT)
			continue;
		rc = en_order_at(&s->order, epoch, place % s->order.n, &row[n], err);
		n++;
	}
	if (!rc)
		*n_out = n;
	return rc;
}
