/*
 * Units of a run, its state, and files that want to do harm.
 *
 * If this is wrong, a resumed run takes rows again that it has had, or a file from elsewhere
 * ends the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_data.h"
#include "tests/engine/te_sched.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"

static void units_have_rows_and_targets_of_the_reference_runs(void **state)
{
	char *path = te_sched_path("model/train/data.safetensors");
	struct en_source *src = te_source(path, (struct en_source_opts){
				.vocab = 251, .labels_name = "labels_masked" });
	const struct en_samples_opts opts = { .micro = 2, .accumulation = 2, .world = 2 };
	struct en_data d;
	int32_t ids[66], labels[66], want[66], want_labels[66];
	struct en_unit unit;

	(void)state;
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	for (uint64_t step = 0; step < 20; step++)
		for (uint64_t u = 0; u < 4; u++) {
			uint64_t counted = 0;

			assert_int_equal(en_data_rows(&d, 8 * step, u, ids, labels, NULL, &unit,
						      NULL), 0);
			assert_int_equal(unit.rows, 2);
			for (uint64_t i = 0; i < 2; i++) {
				assert_int_equal(unit.number[i], 8 * step + 2 * u + i);
				assert_int_equal(en_source_row(src, unit.number[i], want + 33 * i,
							       want_labels + 33 * i, NULL, NULL),
						 0);
				for (int t = 0; t + 1 < 33; t++)
					counted += want_labels[33 * i + (uint64_t)t + 1] != -100;
			}
			assert_memory_equal(ids, want, sizeof(ids));
			assert_memory_equal(labels, want_labels, sizeof(labels));
			assert_int_equal(unit.counted, counted);
		}
	en_data_release(&d);
	en_source_close(src);
	free(path);
}

static void held_out_rows_are_the_last_and_no_others(void **state)
{
	const struct en_source_opts made = { .kind = EN_SOURCE_SYNTHETIC, .vocab = 9, .tokens = 4,
					     .rows = 20 };
	struct en_source *src = te_source(NULL, made);
	const struct en_samples_opts train = { .order = EN_ORDER_SHUFFLED, .micro = 5,
					       .accumulation = 1, .world = 3 };
	const struct en_samples_opts eval = { .last = EN_LAST_SHORT, .micro = 4, .accumulation = 1,
					      .world = 2 };
	int32_t ids[20], labels[20];
	struct en_data a, b;
	struct en_unit unit;
	uint64_t n = 0;
	uint8_t seen[20] = { 0 };

	(void)state;
	assert_int_equal(en_data_split(20, 20, &n, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_data_split(20, 5, &n, NULL), 0);
	assert_int_equal(n, 15);
	assert_int_equal(en_data_init(&a, src, 0, n, &train, NULL), 0);
	assert_int_equal(en_data_init(&b, src, n, 0, &eval, NULL), 0);
	assert_int_equal(b.rows, 5);
	for (uint64_t u = 0; u < 3; u++) {
		assert_int_equal(en_data_rows(&a, 15, u, ids, labels, NULL, &unit, NULL), 0);
		for (uint64_t i = 0; i < unit.rows; i++)
			seen[unit.number[i]]++;
	}
	for (uint64_t u = 0; u < 2; u++) {
		assert_int_equal(en_data_rows(&b, 0, u, ids, labels, NULL, &unit, NULL), 0);
		assert_int_equal(unit.rows, u ? 1 : 4);
		assert_int_equal(unit.counted, unit.rows * 3);
		for (uint64_t i = 0; i < unit.rows; i++)
			seen[unit.number[i]]++;
	}
	for (int i = 0; i < 20; i++)
		assert_int_equal(seen[i], 1);
	en_data_release(&a);
	en_data_release(&b);
	assert_int_equal(en_data_init(&a, src, 20, 0, &train, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_data_init(&a, src, 5, 16, &train, NULL), -CKPT_E_USAGE);
	en_source_close(src);
}

static void a_state_is_taken_by_the_same_data_only(void **state)
{
	struct en_source_opts made = { .kind = EN_SOURCE_SYNTHETIC, .vocab = 9, .tokens = 4,
				       .rows = 20 };
	struct en_samples_opts opts = { .order = EN_ORDER_SHUFFLED,
					.seed = 18446744073709551615u,
					.last = EN_LAST_FLOW,
					.micro = 2,
					.accumulation = 2,
					.world = 3 };
	struct en_source *src = te_source(NULL, made), *other;
	struct ck_buf buf = CK_BUF_INIT(1000);
	struct ckpt_err err = { 0 };
	struct en_data d;
	uint64_t consumed = 0;

	(void)state;
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	assert_int_equal(en_data_state(&d, 36, &buf, NULL), 0);
	if (en_data_resume(&d, buf.p, buf.len, &consumed, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(consumed, 36);
	en_data_release(&d);
	/* Another world and batch: it flows on. */
	opts.world = 7;
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, NULL), 0);
	en_data_release(&d);
	consumed = 1;
	opts.seed = 1;
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "seed: 18446744073709551615 in the saved run"));
	en_data_release(&d);
	opts.seed = 18446744073709551615u;
	opts.last = EN_LAST_FILL;
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, NULL), -CKPT_E_MISMATCH);
	ck_buf_release(&buf);
	assert_int_equal(en_data_state(&d, 28, &buf, NULL), 0);
	en_data_release(&d);
	opts.world = 3;	/* the batch is another one, and it does not flow */
	assert_int_equal(en_data_init(&d, src, 0, 0, &opts, NULL), 0);
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, NULL), -CKPT_E_MISMATCH);
	en_data_release(&d);
	opts.world = 7;
	made.seed = 1;
	other = te_source(NULL, made);
	assert_int_equal(en_data_init(&d, other, 0, 0, &opts, NULL), 0);
	memset(&err, 0, sizeof(err));
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "--data is another file, or it changed"));
	en_data_release(&d);
	en_source_close(other);
	made.tokens = 5;	/* the length of a row is named, not the number of rows */
	made.rows = 16;
	other = te_source(NULL, made);
	assert_int_equal(en_data_init(&d, other, 0, 0, &opts, NULL), 0);
	memset(&err, 0, sizeof(err));
	assert_int_equal(en_data_resume(&d, buf.p, buf.len, &consumed, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "tokens of a row (--seq): 4 in the saved run, 5 now"));
	assert_int_equal(en_data_resume(&d, "{}", 2, &consumed, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(en_data_resume(&d, "[1]", 3, &consumed, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(en_data_resume(&d, "{", 1, &consumed, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(consumed, 1);
	en_data_release(&d);
	en_source_close(src);
	en_source_close(other);
	ck_buf_release(&buf);
}

/* ---- hostile ---- */

static uint64_t rng = 88172645463325252u;

static uint64_t next(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	return rng ^= rng << 17;
}

/* Whatever a file holds: rows in the vocabulary, or an error with a sentence. */
static void damaged_files_end_in_rows_or_a_sentence(void **state)
{
	static const char text[] =
		"{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, 2, 3, 4]}\n[5, 6]\n"
		"{\"input_ids\": [7, 8], \"attention_mask\": [1, 0], \"position_ids\": [0, 1]}\n";
	char *st = te_sched_path("model/train/data.safetensors");
	size_t n_st;
	uint8_t *bytes = t_file_read(st, &n_st);
	unsigned opened = 0, refused = 0;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		const bool is_st = round % 3 == 2;
		const size_t n = is_st ? 3000 : sizeof(text) - 1;
		const char *name = is_st ? "f.safetensors" : round & 1 ? "f.bin" : "f.jsonl";
		uint8_t *copy = t_alloc(n);
		struct en_source_opts opts = { .vocab = 40 +
							(uint32_t)(next() % 70000 * (round & 1)),
					       .tokens = 4,
					       .cut = next() & 1,
					       .pack = next() & 1 };
		struct en_source *src = NULL;
		struct ckpt_err err = { 0 };
		char *path;
		int rc;

		memcpy(copy, is_st ? bytes : (const uint8_t *)text, n);
		for (uint64_t k = next() % 6; k; k--)
			copy[next() % (is_st ? 400 : n)] =
				next() & 1 ? (uint8_t)next()
					   : (uint8_t)text[next() % (sizeof(text) - 1)];
		path = te_put(name, copy, next() & 3 ? n : next() % n);
		if (name[2] != 'j')
			opts.pack = false;
		if (is_st)
			opts.tokens = 33;
		rc = en_source_open(&src, path, &opts, &err);
		if (!rc) {
			opened++;
			rc = te_source_check(src, &err);
		}
		if (rc) {
			refused++;
			assert_true(err.msg[0] && err.where[0] && err.code);
		}
		en_source_close(src);
		free(path);
		free(copy);
	}
	assert_true(opened > 300 && refused > 300);
	free(bytes);
	free(st);
}

/* Every call to the system fails once: an error, nothing held. */
static void failing_calls_leave_nothing_behind(void **state)
{
	static const char text[] = "[1,2,3]\n{\"input_ids\":[4,5],\"labels\":[-100,5]}\n";
	static const enum t_fault_kind kinds[] = { T_FAULT_IO, T_FAULT_MEMORY };
	char *path[2] = { te_put("m.jsonl", text, sizeof(text) - 1),
			  te_put("m.bin", "\1\0\2\0\3\0\4\0", 8) };

	(void)state;
	t_fault_install();
	for (int f = 0; f < 2; f++)
		for (int k = 0; k < 2; k++)
			for (long n = 1; ; n++) {
				const struct en_source_opts opts = { .vocab = 9, .tokens = 3 };
				const struct en_samples_opts so = { .order = EN_ORDER_TORCH,
								    .micro = 1,
								    .accumulation = 1,
								    .world = 1 };
				struct en_source *src = NULL;
				struct en_data d = { 0 };
				struct ckpt_err err = { 0 };
				struct en_unit unit;
				int32_t row[6];
				int rc;

				t_fault_arm(kinds[k], n, false);
				rc = en_source_open(&src, path[f], &opts, &err);
				if (!rc)
					rc = en_data_init(&d, src, 0, 0, &so, &err);
				if (!rc)
					rc = en_data_rows(&d, 0, 0, row, row + 3, NULL, &unit,
							  &err);
				en_data_release(&d);
				en_source_close(src);
				assert_int_equal(t_fault_blocks(), 0);
				assert_int_equal(t_fault_fds(), 0);
				if (!t_fault_fired()) {
					assert_int_equal(rc, 0);
					break;
				}
				if (rc)
					assert_true(err.msg[0] != 0);
			}
	t_fault_arm(T_FAULT_IO, 0, false);
	t_fault_remove();
	free(path[0]);
	free(path[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_have_rows_and_targets_of_the_reference_runs),
		cmocka_unit_test(held_out_rows_are_the_last_and_no_others),
		cmocka_unit_test(a_state_is_taken_by_the_same_data_only),
		cmocka_unit_test(damaged_files_end_in_rows_or_a_sentence),
		cmocka_unit_test(failing_calls_leave_nothing_behind),
	};

	return cmocka_run_group_tests(tests, te_data_begin, te_data_end);
}
