/*
 * Batch sizes by world size. If this is wrong, a resharded run is told a micro-batch that changes
 * its global batch, and with it the learning curve and the place in the data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libckpt/include/ckpt_zero.h"

static void fills(uint64_t train, uint64_t micro, uint64_t acc, uint32_t world, int rc,
		  uint64_t train_out, uint64_t micro_out, uint64_t acc_out)
{
	struct ckpt_zero_batch b = { train, micro, acc };

	assert_int_equal(ckpt_zero_batch_fill(&b, world), rc);
	assert_int_equal(b.train, train_out);
	assert_int_equal(b.micro, micro_out);
	assert_int_equal(b.accumulation, acc_out);
}

/* Each was tried with DeepSpeedConfig of 0.19.8: the values it had, or its assertion. */
static void what_is_missing_is_filled_in_as_deepspeed_does(void **state)
{
	(void)state;
	fills(32, 4, 1, 8, 0, 32, 4, 1);
	fills(32, 4, 0, 4, 0, 32, 4, 2);
	fills(32, 0, 2, 4, 0, 32, 4, 2);
	fills(0, 4, 2, 4, 0, 32, 4, 2);
	fills(32, 0, 0, 4, 0, 32, 8, 1);
	fills(0, 4, 0, 3, 0, 12, 4, 1);
	fills(32, 4, 1, 4, 1, 32, 4, 1);
	fills(32, 4, 0, 3, 1, 32, 4, 2);
	fills(33, 0, 0, 4, 1, 33, 8, 1);
	fills(2, 4, 0, 1, 1, 2, 4, 0);
	fills(2, 0, 0, 4, 1, 2, 0, 1);
}

static void what_is_outside_is_refused(void **state)
{
	const uint64_t big = CKPT_ZERO_MAX_BATCH;
	struct ckpt_zero_batch out;

	(void)state;
	fills(0, 0, 2, 4, -1, 0, 0, 2);
	fills(32, 4, 1, 0, -1, 32, 4, 1);
	fills(32, 4, 1, CKPT_ZERO_MAX_WORLD + 1, -1, 32, 4, 1);
	fills(0, big, big, 1, -1, 0, big, big);
	fills(0, big, 1, 1, 0, big, big, 1);
	fills(big + 1, 1, 1, 1, -1, big + 1, 1, 1);
	assert_int_equal(ckpt_zero_batch_keep(&(struct ckpt_zero_batch){ 0, 4, 1 }, 4, &out), -1);
	assert_int_equal(ckpt_zero_batch_keep(&(struct ckpt_zero_batch){ 4, 0, 1 }, 4, &out), -1);
	assert_int_equal(ckpt_zero_batch_keep(&(struct ckpt_zero_batch){ 4, 4, 1 }, 0, &out), -1);
	assert_int_equal(ckpt_zero_batch_keep(&(struct ckpt_zero_batch){ big, big, 1 }, 1, &out),
			 0);
	assert_int_equal(out.micro, big);
}

/* Against a search through all of them. */
static void the_batch_is_kept_wherever_it_can_be(void **state)
{
	(void)state;
	for (uint64_t train = 1; train <= 130; train++)
		for (uint64_t micro = 1; micro <= 20; micro++)
			for (uint32_t world = 1; world <= 17; world++) {
				const struct ckpt_zero_batch b = { train, micro, 0 };
				struct ckpt_zero_batch out, filled;
				uint64_t best = 0, near = 0;
				const int rc = ckpt_zero_batch_keep(&b, world, &out);

				for (uint64_t n = world; n <= 2 * train + world; n += world)
					if (!near || (n > train ? n - train : train - n) <
						     (near > train ? near - train : train - near))
						near = n;
				for (uint64_t m = 1; m <= micro; m++)
					if (near % (m * world) == 0)
						best = m;
				assert_int_equal(rc, train % world != 0);
				assert_int_equal(out.train, near);
				assert_int_equal(out.micro, best);
				filled = out;
				assert_int_equal(ckpt_zero_batch_fill(&filled, world), 0);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_missing_is_filled_in_as_deepspeed_does),
		cmocka_unit_test(what_is_outside_is_refused),
		cmocka_unit_test(the_batch_is_kept_wherever_it_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
