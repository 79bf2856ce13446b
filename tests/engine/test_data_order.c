/*
 * Which rows a unit takes.
 *
 * If this is wrong, some rows are seen twice an epoch and others never, or a run that resumes at
 * another world size learns from what it has learnt already; the loss looks fine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/en_samples.h"
#include "tests/engine/te_data.h"
#include "tests/engine/te_sched.h"
#include "tests/lib/fs/t_dir.h"

static struct en_samples samples(uint64_t n, struct en_samples_opts opts)
{
	struct en_samples s;
	struct ckpt_err err = { 0 };

	if (en_samples_init(&s, n, &opts, &err))
		fail_msg("%s", err.msg);
	return s;
}

/* A list of rows, or of lists of rows, is what it should be. */
static void same_rows(const cJSON *want, const uint64_t *row, uint64_t n, const char *what)
{
	if ((uint64_t)cJSON_GetArraySize(want) != n)
		fail_msg("%s: %llu rows, theirs has %d", what, (unsigned long long)n,
			 cJSON_GetArraySize(want));
	for (uint64_t i = 0; i < n; i++)
		if (row[i] != (uint64_t)cJSON_GetArrayItem(want, (int)i)->valueint)
			fail_msg("%s: row %llu at %llu, theirs has %d", what,
				 (unsigned long long)row[i], (unsigned long long)i,
				 cJSON_GetArrayItem(want, (int)i)->valueint);
}

static void lists_are_those_of_distributed_sampler(void **state)
{
	cJSON *doc = te_sched_json("sched/sampler.json");
	const cJSON *e;
	int lists = 0;

	(void)state;
	cJSON_ArrayForEach(e, te_get(doc, "distributed_sampler")) {
		const uint32_t world = (uint32_t)te_num(e, "world");
		const uint64_t epoch = (uint64_t)te_num(e, "epoch");
		const struct en_samples_opts opts = {
			.order = cJSON_IsTrue(te_get(e, "shuffle")) ? EN_ORDER_TORCH :
				 EN_ORDER_SEQUENTIAL,
			.last = cJSON_IsTrue(te_get(e, "drop_last")) ? EN_LAST_DROP : EN_LAST_FILL,
			.sampler = EN_SAMPLER_RANKS,
			.seed = (uint64_t)te_num(e, "seed"),
			.micro = 1, .accumulation = 1, .world = world,
		};
		struct en_samples s = samples((uint64_t)te_num(e, "n"), opts);
		const uint64_t steps = te_samples_steps(&s);
		const cJSON *permutation = te_get(e, "permutation");

		for (uint32_t r = 0; r < world; r++) {
			uint64_t row[64], n = 0, got;

			assert_true(steps <= 64);
			for (uint64_t k = 0; k < steps; k++, n += got)
				assert_int_equal(en_samples_unit(&s, epoch * s.span + k * world, r,
								 &row[n], &got, NULL), 0);
			same_rows(cJSON_GetArrayItem(te_get(e, "ranks"), (int)r), row, n,
				  "DistributedSampler");
			lists++;
		}
		if (cJSON_IsArray(permutation)) {
			uint64_t row[64];

			for (uint64_t k = 0; k < s.order.n; k++)
				assert_int_equal(en_order_at(&s.order, epoch, k, &row[k], NULL), 0);
			same_rows(permutation, row, s.order.n, "randperm");
		}
		en_samples_release(&s);
	}
	assert_true(lists > 100);
	cJSON_Delete(doc);
}

static void lists_are_those_of_accelerate(void **state)
{
	cJSON *doc = te_sched_json("sched/sampler.json");
	const cJSON *e;
	int cases = 0;

	(void)state;
	cJSON_ArrayForEach(e, te_get(doc, "batch_sampler_shard")) {
		const uint32_t world = (uint32_t)te_num(e, "world");
		const bool even = cJSON_IsTrue(te_get(e, "even_batches"));
		const struct en_samples_opts opts = {
			.last = cJSON_IsTrue(te_get(e, "drop_last")) ? EN_LAST_DROP :
				even ? EN_LAST_FILL : EN_LAST_SHORT,
			.micro = (uint64_t)te_num(e, "batch"), .accumulation = 1, .world = world,
		};
		struct en_samples s = samples((uint64_t)te_num(e, "n"), opts);

		for (uint32_t r = 0; r < world; r++) {
			const cJSON *batches = cJSON_GetArrayItem(te_get(e, "ranks"), (int)r);
			int there = 0;

			for (uint64_t k = 0; k < te_samples_steps(&s); k++) {
				uint64_t row[64], n;

				assert_int_equal(en_samples_unit(&s, k * s.batch, r, row, &n, NULL),
						 0);
				if (n)
					same_rows(cJSON_GetArrayItem(batches, there++), row, n,
						  "BatchSamplerShard");
			}
			assert_int_equal(there, cJSON_GetArraySize(batches));
		}
		en_samples_release(&s);
		cases++;
	}
	assert_int_equal(cases, 16);
	cJSON_Delete(doc);
}

/* DistributedSampler with batches: rank r's batch j is its list's j-th piece. */
static void batches_of_ranks_are_pieces_of_their_lists(void **state)
{
	const struct en_samples_opts one = { .order = EN_ORDER_TORCH, .last = EN_LAST_DROP,
					     .sampler = EN_SAMPLER_RANKS, .seed = 3, .micro = 1,
					     .accumulation = 1, .world = 3 };
	const struct en_samples_opts many = { .order = EN_ORDER_TORCH, .last = EN_LAST_DROP,
					      .sampler = EN_SAMPLER_RANKS, .seed = 3, .micro = 2,
					      .accumulation = 5, .world = 3 };
	struct en_samples a = samples(120, one), b = samples(120, many);

	(void)state;
	for (uint64_t unit = 0; unit < 15; unit++) {
		const uint64_t r = unit % 3, m = unit / 3;
		uint64_t row[2], want, n;

		assert_int_equal(en_samples_unit(&b, 30, unit, row, &n, NULL), 0);
		for (uint64_t i = 0; i < 2; i++) {
			assert_int_equal(
				en_samples_unit(&a, (10 + m * 2 + i) * 3, r, &want, &n, NULL), 0);
			assert_int_equal(row[i], want);
		}
	}
	en_samples_release(&a);
	en_samples_release(&b);
}

/* Every order of every small n is a permutation, and epochs differ. */
static void every_epoch_has_every_row_once(void **state)
{
	(void)state;
	for (int kind = EN_ORDER_SEQUENTIAL; kind <= EN_ORDER_TORCH; kind++)
		for (uint64_t n = 1; n < 400; n += n < 70 ? 1 : 37)
			for (uint64_t epoch = 0; epoch < 3; epoch++) {
				struct en_order o;
				uint8_t seen[400] = { 0 };

				assert_int_equal(
					en_order_init(&o, (enum en_order_kind)kind, n, 9, NULL), 0);
				for (uint64_t k = 0; k < n; k++) {
					uint64_t row = n;

					assert_int_equal(en_order_at(&o, epoch, k, &row, NULL), 0);
					assert_true(row < n);
					assert_int_equal(seen[row]++, 0);
				}
				en_order_release(&o);
			}
}

static void large_orders_are_permutations_too(void **state)
{
	const uint64_t n = 1000003;
	uint8_t *seen = t_alloc(n);
	struct en_order o;
	uint64_t row, moved = 0;

	(void)state;
	memset(seen, 0, n);
	assert_int_equal(en_order_init(&o, EN_ORDER_SHUFFLED, n, 1, NULL), 0);
	for (uint64_t k = 0; k < n; k++) {
		assert_int_equal(en_order_at(&o, 5, k, &row, NULL), 0);
		assert_true(row < n);
		assert_int_equal(seen[row]++, 0);
		moved += row != k;
	}
	/* One fixed point is what a random permutation has. */
	assert_true(moved > n - 20);
	en_order_release(&o);
	/* At the end of what is possible, without a list. */
	assert_int_equal(en_order_init(&o, EN_ORDER_SHUFFLED, (uint64_t)1 << 62, 1, NULL), 0);
	assert_int_equal(en_order_at(&o, UINT64_MAX, ((uint64_t)1 << 62) - 1, &row, NULL), 0);
	assert_true(row < (uint64_t)1 << 62);
	free(seen);
}

/* Each of the 6 orders of 3 rows, and each first row of 10, comes as often as it should. */
static void shuffled_orders_are_spread_evenly(void **state)
{
	unsigned count[27] = { 0 }, first[10] = { 0 };

	(void)state;
	for (uint64_t seed = 0; seed < 6000; seed++) {
		struct en_order o;
		uint64_t row, code = 0;

		assert_int_equal(en_order_init(&o, EN_ORDER_SHUFFLED, 3, seed, NULL), 0);
		for (uint64_t k = 0; k < 3; k++) {
			assert_int_equal(en_order_at(&o, seed % 7, k, &row, NULL), 0);
			code = code * 3 + row;
		}
		count[code]++;
		assert_int_equal(en_order_init(&o, EN_ORDER_SHUFFLED, 10, seed, NULL), 0);
		assert_int_equal(en_order_at(&o, 0, 0, &row, NULL), 0);
		first[row]++;
	}
	for (int i = 0; i < 27; i++)
		if (count[i])
			assert_in_range(count[i], 850, 1150);	/* 1000, +-29 */
	for (int i = 0; i < 10; i++)
		assert_in_range(first[i], 480, 720);	/* 600, +-23 */
}

/* Whatever the world, a step has the same rows in the same order of units. */
static void the_world_does_not_change_a_step(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 4, 8 };

	(void)state;
	for (uint64_t start = 0; start < 300; start += 40) {
		uint64_t want[16], n;

		for (size_t w = 0; w < 4; w++) {
			const struct en_samples_opts opts = {
				.order = EN_ORDER_SHUFFLED, .seed = 77, .micro = 2,
				.accumulation = 8 / worlds[w], .world = worlds[w],
			};
			struct en_samples s = samples(101, opts);

			for (uint64_t unit = 0; unit < 8; unit++) {
				uint64_t row[2];

				assert_int_equal(en_samples_unit(&s, start, unit, row, &n, NULL),
						 0);
				assert_int_equal(n, 2);
				if (!w)
					memcpy(&want[2 * unit], row, sizeof(row));
				assert_memory_equal(&want[2 * unit], row, sizeof(row));
			}
			en_samples_release(&s);
		}
	}
}

/*
 * A run that changes world, micro-batch and batch in its midst: in every epoch every row once, by
 * the flowing tail.
 */
static void no_row_is_seen_twice_or_never_over_changes_of_the_world(void **state)
{
	static const struct {
		uint64_t micro, accumulation;
		uint32_t world;
		uint64_t steps;
	} leg[] = {
		{ 2, 1, 4, 9 },
		{ 1, 3, 7, 5 },
		{ 4, 2, 1, 6 },
		{ 3, 1, 3, 20 },
	};
	const uint64_t n = 53;
	uint8_t seen[16][53] = { { 0 } };
	uint64_t consumed = 0;

	(void)state;
	for (size_t l = 0; l < 4; l++) {
		const struct en_samples_opts opts = {
			.order = EN_ORDER_SHUFFLED, .seed = 5, .micro = leg[l].micro,
			.accumulation = leg[l].accumulation, .world = leg[l].world,
			.sampler = l & 1 ? EN_SAMPLER_RANKS : EN_SAMPLER_UNITS,
		};
		struct en_samples s = samples(n, opts);

		for (uint64_t step = 0; step < leg[l].steps; step++) {
			uint64_t got = 0;

			for (uint64_t u = 0; u < leg[l].accumulation * leg[l].world; u++) {
				uint64_t row[4], many;

				assert_int_equal(en_samples_unit(&s, consumed, u, row, &many, NULL),
						 0);
				/* Of two epochs in one step, the first one's rest comes first. */
				for (uint64_t i = 0; i < many; i++, got++)
					for (uint64_t e = consumed / n; ; e++) {
						assert_true(e <= (consumed + s.batch) / n);
						if (!seen[e][row[i]]) {
							seen[e][row[i]] = 1;
							break;
						}
					}
			}
			assert_int_equal(got, s.batch);
			consumed += s.batch;
		}
		en_samples_release(&s);
	}
	for (uint64_t e = 0; e < consumed / n; e++)
		for (uint64_t i = 0; i < n; i++)
			assert_int_equal(seen[e][i], 1);
}

/* 23 rows in batches of 6, four tails. */
static void tails_are_as_they_say(void **state)
{
	static const uint64_t spans[] = { 0, 23, 18, 24, 24 };

	(void)state;
	for (int tail = EN_LAST_FLOW; tail <= EN_LAST_SHORT; tail++) {
		const struct en_samples_opts opts = { .last = (enum en_last_batch)tail, .micro = 3,
						      .accumulation = 1, .world = 2 };
		struct en_samples s = samples(23, opts);
		uint64_t row[3], n;

		assert_int_equal(s.span, spans[tail]);
		assert_int_equal(te_samples_steps(&s), tail == EN_LAST_DROP ? 3 : 4);
		assert_int_equal(en_samples_unit(&s, 18, 1, row, &n, NULL), 0);
		assert_int_equal(n, tail == EN_LAST_SHORT ? 2 : 3);
		assert_int_equal(row[0], tail == EN_LAST_DROP ? 3 : 21);
		if (n == 3)
			assert_int_equal(row[2], tail == EN_LAST_DROP ? 5 : 0);
		assert_int_equal(en_samples_unit(&s, 17, 1, row, &n, NULL),
				 tail == EN_LAST_FLOW ? 0 : -CKPT_E_USAGE);
		en_samples_release(&s);
	}
}

static void what_cannot_be_is_refused(void **state)
{
	static const struct {
		uint64_t n;
		struct en_samples_opts opts;
		enum ckpt_code code;
	} bad[] = {
		{ 0, { .micro = 1, .accumulation = 1, .world = 1 }, CKPT_E_USAGE },
		{ 5, { .micro = 0, .accumulation = 1, .world = 1 }, CKPT_E_USAGE },
		{ 5, { .micro = 1, .accumulation = 0, .world = 1 }, CKPT_E_USAGE },
		{ 5, { .micro = 1, .accumulation = 1, .world = 0 }, CKPT_E_USAGE },
		{ 5,
		  { .micro = 6, .accumulation = 1, .world = 1, .last = EN_LAST_DROP },
		  CKPT_E_USAGE },
		{ 5, { .micro = UINT64_MAX, .accumulation = 2, .world = 1 }, CKPT_E_LIMIT },
		{ 5, { .micro = (uint64_t)1 << 60, .accumulation = 1, .world = 2 }, CKPT_E_LIMIT },
		{ UINT64_MAX, { .micro = 1, .accumulation = 1, .world = 1 }, CKPT_E_LIMIT },
		{ (uint64_t)1 << 32,
		  { .micro = 1, .accumulation = 1, .world = 1, .order = EN_ORDER_TORCH },
		  CKPT_E_LIMIT },
	};
	const struct en_samples_opts good = { .micro = 2, .accumulation = 2, .world = 2 };
	struct en_samples s;
	struct ckpt_err err;
	uint64_t row[2], n = 77;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		memset(&err, 0, sizeof(err));
		if (en_samples_init(&s, bad[i].n, &bad[i].opts, &err) != -(int)bad[i].code)
			fail_msg("case %zu: code %d, '%s'", i, err.code, err.msg);
		assert_true(err.msg[0] != 0);
	}
	s = samples(5, good);
	assert_int_equal(en_samples_unit(&s, 0, 4, row, &n, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_samples_unit(&s, UINT64_MAX - 1, 3, row, &n, NULL), -CKPT_E_LIMIT);
	assert_int_equal(n, 77);
	/* Fewer rows than a batch: the flowing tail takes them again. */
	assert_int_equal(en_samples_unit(&s, 0, 3, row, &n, NULL), 0);
	assert_int_equal(row[1], 2);
	en_samples_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_those_of_distributed_sampler),
		cmocka_unit_test(lists_are_those_of_accelerate),
		cmocka_unit_test(batches_of_ranks_are_pieces_of_their_lists),
		cmocka_unit_test(every_epoch_has_every_row_once),
		cmocka_unit_test(large_orders_are_permutations_too),
		cmocka_unit_test(shuffled_orders_are_spread_evenly),
		cmocka_unit_test(the_world_does_not_change_a_step),
		cmocka_unit_test(no_row_is_seen_twice_or_never_over_changes_of_the_world),
		cmocka_unit_test(tails_are_as_they_say),
		cmocka_unit_test(what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
