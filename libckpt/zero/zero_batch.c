/* zero_batch.c -- batch sizes by world size; ckpt_zero.h says what DeepSpeed makes of them. */
#include "libckpt/include/ckpt_zero.h"

static int in_domain(const struct ckpt_zero_batch *b, uint32_t world)
{
	return world && world <= CKPT_ZERO_MAX_WORLD && b->train <= CKPT_ZERO_MAX_BATCH &&
	       b->micro <= CKPT_ZERO_MAX_BATCH && b->accumulation <= CKPT_ZERO_MAX_BATCH;
}

int ckpt_zero_batch_fill(struct ckpt_zero_batch *batch, uint32_t world)
{
	struct ckpt_zero_batch b = *batch;
	uint64_t each;

	if (!in_domain(&b, world) || (!b.train && !b.micro))
		return -1;
	if (!b.train) {
		if (!b.accumulation)
			b.accumulation = 1;
		if (b.micro > CKPT_ZERO_MAX_BATCH / world / b.accumulation)
			return -1;
		b.train = b.micro * b.accumulation * world;
	} else if (b.micro && !b.accumulation) {
		b.accumulation = b.train / b.micro / world;
	} else if (!b.micro) {
		if (!b.accumulation)
			b.accumulation = 1;
		b.micro = b.train / world / b.accumulation;
	}
	*batch = b;
	each = b.train / world;
	return b.train % world || !b.micro || each % b.micro || each / b.micro != b.accumulation;
}

/* The largest divisor of 'n' that is not above 'max'; both are at least 1. */
static uint64_t divisor(uint64_t n, uint64_t max)
{
	uint64_t best = 1;

	if (n <= max)
		return n;
	for (uint64_t d = 1; d * d <= n; d++) {
		if (n % d)
			continue;
		if (d <= max && d > best)
			best = d;
		if (n / d <= max && n / d > best)
			best = n / d;
	}
	return best;
}

int ckpt_zero_batch_keep(const struct ckpt_zero_batch *batch, uint32_t world,
			 struct ckpt_zero_batch *out)
{
	uint64_t each, rest;

	if (!in_domain(batch, world) || !batch->train || !batch->micro)
		return -1;
	each = batch->train / world;
	rest = batch->train % world;
	if (!each || rest > world - rest)
		each++;
	out->train = each * world;
	out->micro = divisor(each, batch->micro);
	out->accumulation = each / out->micro;
	return rest != 0;
}
