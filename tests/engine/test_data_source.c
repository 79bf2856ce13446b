/*
 * Rows of tokens from files.
 *
 * If this is wrong, a model learns from tokens that are shifted, of half their size, or padding; or
 * a bad line kills a run after a day.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_data.h"
#include "tests/engine/te_sched.h"
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fs/t_dir.h"

static void row_is(struct en_source *src, uint64_t row, uint32_t n, const int32_t *ids,
		   const int32_t *labels)
{
	struct en_source_info info;
	int32_t got[64], label[64];
	struct ckpt_err err = { 0 };

	en_source_info_get(src, &info);
	assert_int_equal(info.tokens, n);
	if (en_source_row(src, row, got, label, NULL, &err))
		fail_msg("row %llu: %s", (unsigned long long)row, err.msg);
	for (uint32_t i = 0; i < n; i++)
		if (got[i] != ids[i] || label[i] != (labels ? labels : ids)[i])
			fail_msg("row %llu, %u: %d and %d, not %d and %d", (unsigned long long)row,
				 i, got[i], label[i], ids[i], (labels ? labels : ids)[i]);
}

#define IDS(...) (const int32_t[]){ __VA_ARGS__ }

static void token_files_are_cut_into_rows(void **state)
{
	uint16_t t16[23];
	uint32_t t32[23];
	char *path;
	struct en_source *src;
	struct en_source_info info;

	(void)state;
	for (uint32_t i = 0; i < 23; i++) {
		t16[i] = (uint16_t)(i * 7 + 1);
		t32[i] = i + 70000;
	}
	path = te_put("t.bin", t16, sizeof(t16));
	src = te_source(path, (struct en_source_opts){ .vocab = 200, .tokens = 5 });
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 4);
	assert_int_equal(info.unused, 3);
	assert_false(info.has_labels);
	row_is(src, 3, 5, IDS(106, 113, 120, 127, 134), NULL);
	assert_int_equal(te_source_check(src, NULL), 0);
	en_source_close(src);
	/* The last token of a row is the first of the next. */
	src = te_source(path,
			(struct en_source_opts){ .vocab = 200, .tokens = 5, .overlap = true });
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 5);
	assert_int_equal(info.unused, 2);
	row_is(src, 1, 5, IDS(29, 36, 43, 50, 57), NULL);
	row_is(src, 4, 5, IDS(113, 120, 127, 134, 141), NULL);
	en_source_close(src);
	src = te_source(path, (struct en_source_opts){ .vocab = 200, .tokens = 23 });
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 1);
	en_source_close(src);
	free(path);
	path = te_put("t.u32", t32, sizeof(t32));
	src = te_source(path, (struct en_source_opts){ .vocab = 128256, .tokens = 4 });
	row_is(src, 2, 4, IDS(70008, 70009, 70010, 70011), NULL);
	en_source_close(src);
	free(path);
}

/* As write_datafile() of llm.c: 256 words, then tokens. */
static void headers_of_llm_c_are_read(void **state)
{
	uint8_t f[1024 + 40] = { 0 };
	struct en_source *src;
	struct ckpt_err err = { 0 };
	char *path;
	const struct en_source_opts opts = { .vocab = 200000, .tokens = 5 };

	(void)state;
	ck_put_le32(f, 20240801);
	ck_put_le32(f + 4, 7);
	ck_put_le32(f + 8, 10);
	for (uint32_t i = 0; i < 10; i++)
		ck_put_le32(f + 1024 + 4 * (size_t)i, 100000 + i);
	path = te_put("llama.bin", f, sizeof(f));
	src = te_source(path, opts);
	row_is(src, 1, 5, IDS(100005, 100006, 100007, 100008, 100009), NULL);
	en_source_close(src);
	src = NULL;
	assert_int_equal(en_source_open(&src, path,
					&(struct en_source_opts){
						.kind = EN_SOURCE_U16, .vocab = 9, .tokens = 5 },
					&err),
			 -CKPT_E_MISMATCH);
	ck_put_le32(f + 8, 11);
	free(te_put("llama.bin", f, sizeof(f)));
	memset(&err, 0, sizeof(err));
	assert_int_equal(en_source_open(&src, path, &opts, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "11 tokens"));
	ck_put_le32(f + 4, 8);
	free(te_put("llama.bin", f, sizeof(f)));
	assert_int_equal(en_source_open(&src, path, &opts, NULL), -CKPT_E_UNSUPPORTED);
	assert_null(src);
	free(path);
}

static void lines_become_rows(void **state)
{
	static const char text[] =
		"{\"input_ids\": [1, 2, 3], \"text\": \"a\\nb\"}\n"
		"\n"
		"[4, 5]\r\n"
		"{\"labels\": [-100, 7, -100, 9], \"input_ids\": [6, 7, 8, 9], \"other\": {\"x\": "
		"[1]}}\n"
		"{\"input_ids\": [1, 2, 0, 0], \"attention_mask\": [1, 1, 0, 0]}\n"
		"{\"input_ids\": [3], \"position_ids\": [0], \"labels\": null}";
	char *path = te_put("t.jsonl", text, sizeof(text) - 1);
	struct en_source *src =
		te_source(path, (struct en_source_opts){ .vocab = 10, .pad_id = 3 });
	struct en_source_info info;

	(void)state;
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 5);
	assert_int_equal(info.tokens, 4);
	assert_int_equal(info.padded, 4);
	assert_true(info.has_labels);
	row_is(src, 0, 4, IDS(1, 2, 3, 3), IDS(1, 2, 3, -100));
	row_is(src, 1, 4, IDS(4, 5, 3, 3), IDS(4, 5, -100, -100));
	row_is(src, 2, 4, IDS(6, 7, 8, 9), IDS(-100, 7, -100, 9));
	row_is(src, 3, 4, IDS(1, 2, 3, 3), IDS(1, 2, -100, -100));
	row_is(src, 4, 4, IDS(3, 3, 3, 3), IDS(3, -100, -100, -100));
	en_source_close(src);
	/* Longer rows than the longest, and shorter ones that cut. */
	src = te_source(path, (struct en_source_opts){ .vocab = 10, .tokens = 6 });
	row_is(src, 2, 6, IDS(6, 7, 8, 9, 0, 0), IDS(-100, 7, -100, 9, -100, -100));
	en_source_close(src);
	src = te_source(path, (struct en_source_opts){ .vocab = 10, .tokens = 3, .cut = true });
	en_source_info_get(src, &info);
	assert_int_equal(info.cut, 1);
	row_is(src, 2, 3, IDS(6, 7, 8), IDS(-100, 7, -100));
	en_source_close(src);
	free(path);
}

static void packed_lines_follow_each_other(void **state)
{
	static const char text[] =
		"[1,2,3]\n{\"input_ids\":[4,5],\"labels\":[-100,5]}\n[6]\n[7,8,9,10]\n";
	char *path = te_put("p.jsonl", text, sizeof(text) - 1);
	struct en_source_opts opts = { .vocab = 11, .tokens = 3, .pack = true };
	struct en_source *src = te_source(path, opts);
	struct en_source_info info;

	(void)state;
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 3);
	assert_int_equal(info.unused, 1);
	assert_int_equal(info.padded, 0);
	row_is(src, 0, 3, IDS(1, 2, 3), NULL);
	row_is(src, 1, 3, IDS(4, 5, 6), IDS(-100, 5, 6));
	row_is(src, 2, 3, IDS(7, 8, 9), NULL);
	en_source_close(src);
	opts.overlap = true;
	opts.tokens = 6;
	src = te_source(path, opts);
	row_is(src, 0, 6, IDS(1, 2, 3, 4, 5, 6), IDS(1, 2, 3, -100, 5, 6));
	en_source_close(src);
	opts.tokens = 4;
	src = te_source(path, opts);
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 3);
	row_is(src, 1, 4, IDS(4, 5, 6, 7), IDS(-100, 5, 6, 7));
	row_is(src, 2, 4, IDS(7, 8, 9, 10), NULL);
	en_source_close(src);
	free(path);
}

/* Longer than the window that a file is read in. */
static void long_lines_and_many_are_read(void **state)
{
	const size_t rows = 3000, big = 400000;
	char *text = t_alloc(rows * 16 + big * 2 + 16), *p = text, *path;
	struct en_source *src;
	struct en_source_info info;
	int32_t *row = t_alloc(2 * big * sizeof(*row));

	(void)state;
	for (size_t i = 0; i < rows; i++)
		p += snprintf(p, 16, "[%zu,%zu]\n", i % 97, i % 89);
	*p++ = '[';
	for (size_t i = 0; i < big; i++) {
		*p++ = (char)('0' + i % 10);
		*p++ = ',';
	}
	memcpy(p - 1, "]\n", 2);
	p++;
	path = te_put("long.jsonl", text, (size_t)(p - text));
	src = te_source(path, (struct en_source_opts){ .vocab = 97 });
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, rows + 1);
	assert_int_equal(info.tokens, big);
	assert_int_equal(en_source_row(src, rows, row, row + big, NULL, NULL), 0);
	for (size_t i = 0; i < big; i++)
		assert_int_equal(row[i], i % 10);
	assert_int_equal(en_source_row(src, 2990, row, row + big, NULL, NULL), 0);
	assert_int_equal(row[0], 2990 % 97);
	assert_int_equal(row[1], 2990 % 89);
	en_source_close(src);
	free(path);
	free(text);
	free(row);
}

static void tensors_of_a_reference_run_are_read(void **state)
{
	char *path = te_sched_path("model/train/data.safetensors");
	const struct en_source_opts opts = { .vocab = 251, .labels_name = "labels_masked" };
	struct en_source *src = te_source(path, opts);
	struct en_source_info info;
	const struct t_st_tensor *ids, *labels;
	struct t_st st;

	(void)state;
	assert_int_equal(t_st_open(&st, path), 0);
	ids = t_st_find(&st, "input_ids");
	labels = t_st_find(&st, "labels_masked");
	en_source_info_get(src, &info);
	assert_int_equal(info.rows, 160);
	assert_int_equal(info.tokens, 33);
	assert_true(info.has_labels);
	for (uint64_t r = 0; r < 160; r++) {
		int32_t row[2][33];

		assert_int_equal(en_source_row(src, r, row[0], row[1], NULL, NULL), 0);
		assert_memory_equal(row[0], ids->data + r * 132, 132);
		assert_memory_equal(row[1], labels->data + r * 132, 132);
	}
	en_source_close(src);
	/* Without labels of that name the ids are the labels. */
	src = te_source(path, (struct en_source_opts){ .vocab = 251 });
	row_is(src, 9, 33, (const int32_t *)(const void *)(ids->data + 9 * 132), NULL);
	en_source_close(src);
	t_st_close(&st);
	free(path);
}

static void made_up_rows_are_the_same_every_time(void **state)
{
	const struct en_source_opts opts = { .kind = EN_SOURCE_SYNTHETIC, .vocab = 10, .tokens = 50,
					     .rows = 1000, .seed = 3 };
	struct en_source_opts other = opts;
	struct en_source *a = te_source(NULL, opts), *b;
	struct en_source_info ia, ib;
	int32_t x[50], y[50], z[50];
	unsigned count[10] = { 0 };

	(void)state;
	other.seed = 4;
	b = te_source(NULL, other);
	for (uint64_t r = 0; r < 1000; r++) {
		assert_int_equal(en_source_row(a, r, x, y, NULL, NULL), 0);
		assert_memory_equal(x, y, sizeof(x));
		for (int i = 0; i < 50; i++)
			count[x[i]]++;
	}
	assert_int_equal(en_source_row(b, 999, z, y, NULL, NULL), 0);
	assert_memory_not_equal(x, z, sizeof(x));
	assert_int_equal(en_source_row(a, 1000, x, y, NULL, NULL), -CKPT_E_USAGE);
	for (int i = 0; i < 10; i++)
		assert_in_range(count[i], 4600, 5400);	/* 5000, +-67 */
	en_source_info_get(a, &ia);
	en_source_info_get(b, &ib);
	assert_string_not_equal(ia.fingerprint, ib.fingerprint);
	en_source_close(a);
	en_source_close(b);
}

/* Everything a user may hand over by mistake, and the words that say what it is. */
static void wrong_files_are_named_with_row_and_cause(void **state)
{
#define T(s) s, sizeof(s) - 1
	static const struct {
		const char *name, *text;
		size_t n;
		struct en_source_opts opts;
		enum ckpt_code code;
		const char *words;
	} bad[] = {
		{ "a.bin", T(""), { .vocab = 9, .tokens = 2 }, CKPT_E_TRUNCATED, "empty" },
		{ "a.bin",
		  T("abc"),
		  { .vocab = 9, .tokens = 2 },
		  CKPT_E_TRUNCATED,
		  "3 bytes are not a multiple of the token size, 2" },
		{ "a.u32",
		  T("abcdef"),
		  { .vocab = 9, .tokens = 2 },
		  CKPT_E_TRUNCATED,
		  "the token size, 4" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9, .tokens = 3 },
		  CKPT_E_TRUNCATED,
		  "2 tokens are fewer than one row of 3" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 2, .tokens = 2 },
		  CKPT_E_MISMATCH,
		  "row 0, position 1: the token is 2, outside the model's vocabulary of 2 (0 "
		  "to 1)" },
		{ "a.u32",
		  T("\1\0\2\0\1\0\2\377"),
		  { .vocab = 200000, .tokens = 2 },
		  CKPT_E_MISMATCH,
		  "token is 4278321153" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 70000, .tokens = 2 },
		  CKPT_E_USAGE,
		  "give --data-kind u16 or u32" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9 },
		  CKPT_E_USAGE,
		  "give the tokens in a row" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9, .tokens = 1 },
		  CKPT_E_USAGE,
		  "2 to 16777216" },
		{ "a.bin", T("\1\0\2\0"), { .tokens = 2 }, CKPT_E_USAGE, "vocabulary" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9, .tokens = 2, .pad_id = 9 },
		  CKPT_E_USAGE,
		  "--pad-id" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9, .tokens = 2, .pack = true },
		  CKPT_E_USAGE,
		  "for JSON lines only" },
		{ "a.txt",
		  T("words"),
		  { .vocab = 9, .tokens = 2 },
		  CKPT_E_USAGE,
		  "unknown suffix" },
		{ "a.jsonl", T(""), { .vocab = 9 }, CKPT_E_TRUNCATED, "empty" },
		{ "a.jsonl",
		  T("\n \n\t\r\n"),
		  { .vocab = 9 },
		  CKPT_E_TRUNCATED,
		  "blank lines only" },
		{ "a.jsonl", T("[1]\n[1,\n2]\n"), { .vocab = 9 }, CKPT_E_CORRUPT, "line 2, byte" },
		{ "a.jsonl",
		  T("[1]\n\n[1,x]\n"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "line 3, byte 3" },
		{ "a.jsonl", T("[1]\n\"a\""), { .vocab = 9 }, CKPT_E_CORRUPT, "neither a list" },
		{ "a.jsonl", T("[]"), { .vocab = 9 }, CKPT_E_CORRUPT, "line 1: no tokens" },
		{ "a.jsonl", T("{\"ids\":[1]}"), { .vocab = 9 }, CKPT_E_CORRUPT, "no input_ids" },
		{ "a.jsonl", T("{\"input_ids\":3}"), { .vocab = 9 }, CKPT_E_CORRUPT, "not a list" },
		{ "a.jsonl",
		  T("[1]\n[1,2.0]"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "line 2, position 1: the list has 2.0" },
		{ "a.jsonl", T("[[1],2]"), { .vocab = 9 }, CKPT_E_CORRUPT, "position 0" },
		{ "a.jsonl",
		  T("[1]\n[8,9]"),
		  { .vocab = 9 },
		  CKPT_E_MISMATCH,
		  "line 2, position 1: the token is 9" },
		{ "a.jsonl", T("[-1]"), { .vocab = 9 }, CKPT_E_MISMATCH, "token is" },
		{ "a.jsonl", T("[99999999999]"), { .vocab = 9 }, CKPT_E_MISMATCH, "99999999999" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"labels\":[1]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "1 values in labels, 2 in input_ids" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1],\"labels\":[-1]}"),
		  { .vocab = 9 },
		  CKPT_E_MISMATCH,
		  "label is -1" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1],\"input_ids\":[2]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "line 1" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"attention_mask\":[0,1]}"),
		  { .vocab = 9 },
		  CKPT_E_UNSUPPORTED,
		  "padding is allowed at the end" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"attention_mask\":[0,0]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "leaves no token" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"attention_mask\":[1,3]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "line 1, position 1: attention_mask has 3; expected 1 for text" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"attention_mask\":[2,2]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "position 0: attention_mask has 2" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2,3],\"attention_mask\":[1,1,2],"
		    "\"position_ids\":[0,0,1]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "position 1: position_ids has 0; attention_mask has a document's beginning" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2,3],\"cu_seqlens\":[0,2]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "cu_seqlens ends at 2, input_ids has 3" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2,3],\"cu_seqlens\":[0,2,2,3]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "value 2 of cu_seqlens" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2,3],\"cu_seqlens\":[0,4]}"),
		  { .vocab = 9 },
		  CKPT_E_CORRUPT,
		  "value 1 of cu_seqlens" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2,3],\"position_ids\":[0,0,2]}"),
		  { .vocab = 9 },
		  CKPT_E_UNSUPPORTED,
		  "position 2: position_ids has 2; expected 0" },
		{ "a.jsonl",
		  T("[1,2]\n{\"input_ids\":[1,2],\"position_ids\":[0,0]}"),
		  { .vocab = 9, .tokens = 2, .pack = true },
		  CKPT_E_UNSUPPORTED,
		  "line 2 holds 2 documents" },
		{ "a.jsonl",
		  T("[1]"),
		  { .vocab = 9, .pack_documents = true },
		  CKPT_E_USAGE,
		  "give the tokens in a row" },
		{ "a.jsonl",
		  T("[1]"),
		  { .vocab = 9, .tokens = 4, .pack = true, .pack_documents = true },
		  CKPT_E_USAGE,
		  "one of the two" },
		{ "a.bin",
		  T("\1\0\2\0"),
		  { .vocab = 9, .tokens = 2, .pack_documents = true },
		  CKPT_E_USAGE,
		  "--pack-documents is for JSON lines only" },
		{ "a.jsonl",
		  T("{\"input_ids\":[1,2],\"position_ids\":[1,2]}"),
		  { .vocab = 9 },
		  CKPT_E_UNSUPPORTED,
		  "position_ids" },
		{ "a.jsonl",
		  T("[1]\n[1,2,3]"),
		  { .vocab = 9, .tokens = 2 },
		  CKPT_E_MISMATCH,
		  "line 2 has 3 tokens, a row has 2" },
		{ "a.jsonl",
		  T("[1]\n[1,2,3]"),
		  { .vocab = 9, .tokens = 9, .pack = true },
		  CKPT_E_TRUNCATED,
		  "4 tokens are fewer than one row of 9" },
		{ "a.jsonl",
		  T("[1]"),
		  { .vocab = 9, .pack = true },
		  CKPT_E_USAGE,
		  "give the tokens in a row" },
		{ "a.jsonl", T("[1]"), { .vocab = 9, .overlap = true }, CKPT_E_USAGE, "overlap" },
		{ "a.safetensors", T("nonsense"), { .vocab = 9 }, 0, "" },
	};
#undef T

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++) {
		char *path = te_put(bad[i].name, bad[i].text, bad[i].n);
		struct en_source *src = NULL;
		struct ckpt_err err = { 0 };
		int rc = en_source_open(&src, path, &bad[i].opts, &err);

		if (!rc)
			rc = te_source_check(src, &err);
		if (!rc || (bad[i].code && rc != -(int)bad[i].code) ||
		    !strstr(err.msg, bad[i].words))
			fail_msg("case %zu: %d '%s', not %d '%s'", i, -rc, err.msg, bad[i].code,
				 bad[i].words);
		assert_non_null(strstr(err.where, bad[i].name));
		en_source_close(src);
		free(path);
	}
	struct en_source *src = NULL;

	assert_int_equal(en_source_open(&src, "/nowhere/a.bin", &(struct en_source_opts){
				.vocab = 9, .tokens = 2 }, NULL), -CKPT_E_NOTFOUND);
	assert_null(src);
}

static void tokens_of_four_bytes_under_the_wrong_name_are_noticed(void **state)
{
	uint32_t t[64];
	char *path;
	struct en_source *src = NULL;
	struct ckpt_err err = { 0 };

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		t[i] = i + 1;
	path = te_put("w.bin", t, sizeof(t));
	assert_int_equal(en_source_open(&src, path, &(struct en_source_opts){
				.vocab = 100, .tokens = 8 }, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "tokens every second is 0"));
	free(path);
}

static void a_file_that_changes_is_noticed(void **state)
{
	char *path = te_put("c.jsonl", "[1,2]\n[3,4]\n", 12);
	struct en_source *src = te_source(path, (struct en_source_opts){ .vocab = 9 });
	int32_t row[4];
	struct ckpt_err err = { 0 };

	(void)state;
	free(te_put("c.jsonl", "[1,2]\n[3]  \n", 12));
	assert_int_equal(en_source_row(src, 0, row, row + 2, NULL, NULL), 0);
	assert_int_equal(en_source_row(src, 1, row, row + 2, NULL, &err), -CKPT_E_MISMATCH);
	assert_non_null(strstr(err.msg, "changed"));
	free(te_put("c.jsonl", "[1,2]\n", 6));
	assert_int_not_equal(en_source_row(src, 1, row, row + 2, NULL, NULL), 0);
	en_source_close(src);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(token_files_are_cut_into_rows),
		cmocka_unit_test(headers_of_llm_c_are_read),
		cmocka_unit_test(lines_become_rows),
		cmocka_unit_test(packed_lines_follow_each_other),
		cmocka_unit_test(long_lines_and_many_are_read),
		cmocka_unit_test(tensors_of_a_reference_run_are_read),
		cmocka_unit_test(made_up_rows_are_the_same_every_time),
		cmocka_unit_test(wrong_files_are_named_with_row_and_cause),
		cmocka_unit_test(tokens_of_four_bytes_under_the_wrong_name_are_noticed),
		cmocka_unit_test(a_file_that_changes_is_noticed),
	};

	return cmocka_run_group_tests(tests, te_data_begin, te_data_end);
}
