/*
 * Rows that hold several documents.
 *
 * If this is wrong, a token attends to another document, a model learns the first token of a
 * document from the last of another, or a document is lost, cut or read twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/en_fit.h"
#include "tests/engine/te_data.h"

/* "ids | labels | starts" of a row. */
static void expect_row(struct en_source *src, uint64_t row, const char *want)
{
	struct en_source_info info;
	struct ckpt_err err = { 0 };
	int32_t v[3][16];
	char text[512] = "";
	size_t at = 0;

	en_source_info_get(src, &info);
	assert_in_range(info.tokens, 1, 16);
	if (en_source_row(src, row, v[0], v[1], v[2], &err))
		fail_msg("row %llu: %s", (unsigned long long)row, err.msg);
	for (size_t k = 0; k < 3; k++)
		for (size_t i = 0; i < info.tokens; i++)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d",
					       i ? " " : k ? " | " : "", v[k][i]);
	assert_string_equal(text, want);
}

/* Documents of a row, said in each of the ways; padding is a document of its own. */
static void documents_of_a_row_are_told_apart(void **state)
{
	static const char *const line[] = {
		"{\"input_ids\":[1,2,3,4,5,0],\"position_ids\":[0,1,0,1,2,0]}",
		"{\"input_ids\":[1,2,3,4,5,0],\"attention_mask\":[1,1,2,2,2,3]}",
		"{\"input_ids\":[1,2,3,4,5,0],\"cu_seqlens\":[0,2,5,6]}",
	};
	static const char padded[] =
		"{\"input_ids\":[1,2,3,4,5,0],\"attention_mask\":[1,1,2,2,2,0]}\n"
		"{\"input_ids\":[1,2,3,4,5,0],\"attention_mask\":[1,1,1,1,1,0],"
		"\"position_ids\":[0,1,0,1,2,7]}\n"
		"{\"input_ids\":[6,7],\"labels\":[6,7]}\n"
		"{\"input_ids\":[6,7,8],\"labels\":[6,7,8],\"position_ids\":[0,1,0]}\n";
	const struct en_source_opts opts = { .vocab = 9, .tokens = 6 };
	struct en_source *src;
	char *path;

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(line); i++) {
		path = te_put("a.jsonl", line[i], strlen(line[i]));
		assert_int_equal(en_source_open(&src, path, &opts, NULL), 0);
		expect_row(src, 0, "1 2 3 4 5 0 | 1 2 -100 4 5 -100 | 0 0 2 2 2 5");
		en_source_close(src);
		free(path);
	}
	path = te_put("b.jsonl", padded, sizeof(padded) - 1);
	assert_int_equal(en_source_open(&src, path, &opts, NULL), 0);
	expect_row(src, 0, "1 2 3 4 5 0 | 1 2 -100 4 5 -100 | 0 0 2 2 2 5");
	expect_row(src, 1, "1 2 3 4 5 0 | 1 2 -100 4 5 -100 | 0 0 2 2 2 5");
	expect_row(src, 2, "6 7 0 0 0 0 | 6 7 -100 -100 -100 -100 | 0 0 2 2 2 2");
	/* labels that the data states are taken as they are */
	expect_row(src, 3, "6 7 8 0 0 0 | 6 7 8 -100 -100 -100 | 0 0 2 3 3 3");
	en_source_close(src);
	free(path);
}

/* Whole lines, first fit; the first label of each counts as nothing. */
static void documents_are_packed_whole(void **state)
{
	static const char text[] = "[1,1,1,1]\n[2,2,2]\n[3]\n"
				   "{\"input_ids\":[4,4],\"labels\":[7,8]}\n[5,5,5,5,5,5]\n[6]\n";
	struct en_source_opts opts = { .vocab = 9, .tokens = 5, .pack_documents = true };
	struct en_source *src;
	struct en_source_info info;
	struct ckpt_err err = { 0 };
	char *path = te_put("c.jsonl", text, sizeof(text) - 1);

	(void)state;
	assert_int_equal(en_source_open(&src, path, &opts, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "line 5 has 6 tokens, a row has 5"));
	opts.cut = true;
	assert_int_equal(en_source_open(&src, path, &opts, NULL), 0);
	en_source_info_get(src, &info);
	assert_true(info.packed);
	assert_int_equal(info.rows, 4);
	assert_int_equal(info.padded, 1);
	assert_int_equal(info.cut, 1);
	expect_row(src, 0, "1 1 1 1 3 | -100 1 1 1 -100 | 0 0 0 0 4");
	expect_row(src, 1, "2 2 2 4 4 | -100 2 2 -100 8 | 0 0 0 3 3");
	expect_row(src, 2, "5 5 5 5 5 | -100 5 5 5 5 | 0 0 0 0 0");
	expect_row(src, 3, "6 0 0 0 0 | -100 -100 -100 -100 -100 | 0 1 1 1 1");
	en_source_close(src);
	free(path);
}

/* Every document once, none cut apart, rows never too long, over many more rows than are open. */
static void many_documents_are_fitted(void **state)
{
	enum { N = 20000, ROW = 4096 };
	uint64_t *length = malloc(N * sizeof(*length)), sum = 0;
	unsigned char *seen = calloc(N, 1);
	struct en_fit fit;

	(void)state;
	for (uint64_t i = 0; i < N; i++)
		sum += length[i] = 1 + i * 2654435761u % 1021;
	assert_int_equal(en_fit_init(&fit, length, N, ROW, NULL), 0);
	for (uint64_t r = 0; r < fit.rows; r++) {
		uint64_t used = 0;

		for (uint64_t k = fit.first[r]; k < fit.first[r + 1]; k++) {
			assert_true(k == fit.first[r] || fit.member[k] > fit.member[k - 1]);
			assert_int_equal(seen[fit.member[k]]++, 0);
			used += length[fit.member[k]];
		}
		assert_in_range(used, 1, ROW);
	}
	assert_int_equal(fit.first[fit.rows], N);
	/* a mean of 511 in 4096: less than one token of 100 is padding */
	assert_true((double)sum > 0.99 * (double)fit.rows * ROW);
	en_fit_release(&fit);
	free(length);
	free(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documents_of_a_row_are_told_apart),
		cmocka_unit_test(documents_are_packed_whole),
		cmocka_unit_test(many_documents_are_fitted),
	};

	return cmocka_run_group_tests(tests, te_data_begin, te_data_end);
}
