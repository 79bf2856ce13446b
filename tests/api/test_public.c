/*
 * The library as a stranger uses it: public headers and the shared library only. If this
 * fails, a program that follows the contract comments of ckpt.h reads past an array, gets
 * other numbers than the file holds, or cannot tell a wrong call from a damaged file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt.h>

static struct ckpt *ck;
static struct ckpt_info info;

static int open_step(void **state)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES");
	char path[1024];
	const char *paths[] = { path };

	(void)state;
	if (!fixtures)
		return -1;
	snprintf(path, sizeof(path), "%s/deepspeed/ds0.19.8-z2-bf16-w2/ckpt", fixtures);
	if (ckpt_open(paths, 1, NULL, &ck, NULL))
		return -1;
	ckpt_info_get(ck, &info);
	return 0;
}

static int close_step(void **state)
{
	(void)state;
	ckpt_close(ck);
	ckpt_close(NULL);
	return 0;
}

static void every_code_has_a_name_of_its_own(void **state)
{
	static const int codes[] = { 0, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23, 24,
				     30, 31, 32, 40, 41, 42 };
	const size_t n = sizeof(codes) / sizeof(codes[0]);

	(void)state;
	for (size_t i = 0; i < n; i++) {
		const char *name = ckpt_code_name((enum ckpt_code)codes[i]);

		assert_string_not_equal(name, "CKPT_E_?");
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(name, ckpt_code_name((enum ckpt_code)codes[k]));
	}
	assert_string_equal(ckpt_code_name((enum ckpt_code)99), "CKPT_E_?");
	assert_string_equal(ckpt_version(), CKPT_VERSION_STRING);
}

static void every_type_is_found_by_its_own_name(void **state)
{
	(void)state;
	for (int d = CKPT_BOOL; d <= CKPT_U64; d++) {
		const char *name = ckpt_dtype_name((enum ckpt_dtype)d);

		assert_int_equal(ckpt_dtype_parse(name), d);
		assert_true(ckpt_dtype_bits((enum ckpt_dtype)d) > 0);
	}
	assert_int_equal(ckpt_dtype_parse("bf16"), CKPT_BF16);
	assert_int_equal(ckpt_dtype_parse("no type"), 0);
	assert_string_equal(ckpt_dtype_torch_name(CKPT_BF16), "bfloat16");
}

static void a_number_past_the_end_is_a_wrong_call(void **state)
{
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info s;
	struct ckpt_extent_info e;
	struct ckpt_finding f;
	struct ckpt_file_info file;
	const char *key, *value;
	uint64_t number = 77;

	(void)state;
	assert_int_equal(ckpt_tensor_get(ck, info.ntensors, &tensor, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_finding_get(ck, info.nfindings, &f, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_file_get(ck, info.nfiles, &file, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_fact_get(ck, 1u << 20, &key, &value, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_tensor_get(ck, 0, &tensor, NULL), 0);
	assert_int_equal(ckpt_state_get(ck, 0, tensor.nstates, &s, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_state_get(ck, info.ntensors, 0, &s, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_state_get(ck, 0, 0, &s, NULL), 0);
	assert_int_equal(ckpt_extent_get(ck, 0, 0, s.nextents, &e, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_tensor_find(ck, "no such tensor", &number, NULL), -CKPT_E_USAGE);
	assert_int_equal(number, 77);
}

static void every_tensor_is_found_by_its_name(void **state)
{
	struct ckpt_tensor_info tensor;
	uint64_t number;

	(void)state;
	assert_true(info.ntensors > 0);
	for (uint64_t i = 0; i < info.ntensors; i++) {
		assert_int_equal(ckpt_tensor_get(ck, i, &tensor, NULL), 0);
		assert_int_equal(ckpt_tensor_find(ck, tensor.name, &number, NULL), 0);
		assert_int_equal(number, i);
	}
}

static void every_state_is_found_by_its_name(void **state)
{
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info s;
	uint32_t number;

	(void)state;
	for (uint64_t i = 0; i < info.ntensors; i++) {
		assert_int_equal(ckpt_tensor_get(ck, i, &tensor, NULL), 0);
		for (uint32_t k = 0; k < tensor.nstates; k++) {
			assert_int_equal(ckpt_state_get(ck, i, k, &s, NULL), 0);
			number = 77;
			assert_int_equal(ckpt_state_find(ck, i, s.name, &number, NULL), 0);
			assert_int_equal(number, k);
			if (!strcmp(s.name, "weight")) {
				assert_int_equal(ckpt_state_find(ck, i, NULL, &number, NULL), 0);
				assert_int_equal(number, k);
			}
		}
	}
}

/* A message without the tensor's name, or without what it has, sends the user to the manual. */
static void what_is_wrong_with_a_state_is_said(void **state)
{
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info s;
	struct ckpt_err err = { 0 };
	uint32_t number = 77;
	uint64_t t;

	(void)state;
	assert_int_equal(ckpt_tensor_find(ck, "blocks.0.down.weight", &t, NULL), 0);
	assert_int_equal(ckpt_state_find(ck, t, "exp_av", &number, &err), -CKPT_E_USAGE);
	assert_string_equal(err.where, "blocks.0.down.weight");
	assert_non_null(strstr(err.msg, "no state exp_av; it has"));
	assert_non_null(strstr(err.msg, "exp_avg"));
	assert_non_null(strstr(err.msg, "master"));
	assert_int_equal(number, 77);
	memset(&err, 0, sizeof(err));
	assert_int_equal(ckpt_state_get(ck, t, 44, &s, &err), -CKPT_E_USAGE);
	assert_string_equal(err.where, "blocks.0.down.weight");
	assert_string_equal(err.msg, "state 44 does not exist: there are 4, counted from 0");
	assert_int_equal(ckpt_state_find(ck, info.ntensors, "weight", &number, NULL),
			 -CKPT_E_USAGE);
	for (t = 0; t < info.ntensors; t++) {
		assert_int_equal(ckpt_tensor_get(ck, t, &tensor, NULL), 0);
		if (tensor.role == CKPT_ROLE_ALIAS)
			break;
	}
	assert_true(t < info.ntensors);
	memset(&err, 0, sizeof(err));
	assert_int_equal(ckpt_state_find(ck, t, "weight", &number, &err), -CKPT_E_USAGE);
	assert_non_null(strstr(err.msg, "second name of"));
}

/* The state of that name, or -1. */
static int64_t state_named(uint64_t tensor, const char *name)
{
	uint32_t number;

	return ckpt_state_find(ck, tensor, name, &number, NULL) ? -1 : (int64_t)number;
}

static void what_is_read_is_what_lies_at_the_extents_byte(void **state)
{
	struct ckpt_extent_info e;
	float got[8], want[8];
	uint64_t tensor;
	int64_t s;
	size_t n;
	FILE *file;

	(void)state;
	assert_int_equal(ckpt_tensor_find(ck, "blocks.0.down.weight", &tensor, NULL), 0);
	s = state_named(tensor, "master");
	assert_true(s >= 0);
	assert_int_equal(ckpt_extent_get(ck, tensor, (uint32_t)s, 0, &e, NULL), 0);
	assert_int_equal(e.dtype, CKPT_F32);
	assert_int_equal(e.flags, 0);
	n = e.count < 8 ? (size_t)e.count : 8;
	file = fopen(e.path, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)e.offset, SEEK_SET), 0);
	assert_int_equal(fread(want, sizeof(float), n, file), n);
	fclose(file);
	assert_int_equal(ckpt_read(ck, tensor, (uint32_t)s, e.first, n, 0, got, sizeof(got), NULL),
			 0);
	assert_memory_equal(got, want, n * sizeof(float));
}

static void a_range_or_buffer_that_does_not_fit_is_a_wrong_call(void **state)
{
	struct ckpt_tensor_info t;
	struct ckpt_err err = { 0 };
	float buf[4];

	(void)state;
	assert_int_equal(ckpt_tensor_get(ck, 0, &t, NULL), 0);
	assert_int_equal(ckpt_read(ck, 0, 0, t.numel, 1, CKPT_F32, buf, sizeof(buf), &err),
			 -CKPT_E_USAGE);
	assert_true(err.msg[0]);
	assert_int_equal(ckpt_read(ck, 0, 0, UINT64_MAX, 2, CKPT_F32, buf, sizeof(buf), NULL),
			 -CKPT_E_USAGE);
	assert_int_equal(ckpt_read(ck, 0, 0, 0, 1, CKPT_F32, buf, 1, NULL), -CKPT_E_USAGE);
}

static void a_finding_that_does_not_exist_cannot_be_made_a_warning(void **state)
{
	const char *names[] = { "RANK_FILE_MISING", NULL };
	const struct ckpt_open_opts opts = { .size = sizeof(opts), .as_warning = names };
	const char *paths[] = { info.path };
	struct ckpt_err err = { 0 };
	struct ckpt *other = NULL;

	(void)state;
	assert_int_equal(ckpt_open(paths, 1, &opts, &other, &err), -CKPT_E_USAGE);
	assert_null(other);
	assert_non_null(strstr(err.msg, "RANK_FILE_MISING"));
}

static void hyper_parameters_are_among_the_facts(void **state)
{
	const char *key, *value;
	int lr = 0;

	(void)state;
	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++)
		if (!strcmp(key, "group.0.lr"))
			lr += !strcmp(value, "0.01");
	assert_int_equal(lr, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_has_a_name_of_its_own),
		cmocka_unit_test(every_type_is_found_by_its_own_name),
		cmocka_unit_test(a_number_past_the_end_is_a_wrong_call),
		cmocka_unit_test(every_tensor_is_found_by_its_name),
		cmocka_unit_test(every_state_is_found_by_its_name),
		cmocka_unit_test(what_is_wrong_with_a_state_is_said),
		cmocka_unit_test(what_is_read_is_what_lies_at_the_extents_byte),
		cmocka_unit_test(a_range_or_buffer_that_does_not_fit_is_a_wrong_call),
		cmocka_unit_test(a_finding_that_does_not_exist_cannot_be_made_a_warning),
		cmocka_unit_test(hyper_parameters_are_among_the_facts),
	};

	return cmocka_run_group_tests(tests, open_step, close_step);
}
