/*
 * What parts saw of a source, joined from their records (ck_source_sums.h).  If this fails, a
 * damaged source gets into a result because each part saw only some of the damage's surroundings,
 * or a record that lacks something is taken for a whole one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "libckpt/commit/ck_result_sums.h"
#include "libckpt/commit/ck_source_sums.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/fs/t_dir.h"

#define PARTS 2
#define BYTES 10000

/* Two parts, whose notes are added before the check. */
struct scene {
	char *dir, *dst;
	struct ck_commit c;
	struct ck_record *rec[PARTS];
	uint8_t bytes[BYTES];
	struct ckpt_err err;
};

static struct scene *open_scene(void)
{
	struct scene *s = calloc(1, sizeof(*s));

	s->dir = t_dir_new();
	s->dst = t_fmt("%s/out", s->dir);
	assert_int_equal(ck_commit_init(&s->c, s->dst, true, NULL), 0);
	t_dir_make(s->c.partial);
	for (uint32_t i = 0; i < PARTS; i++) {
		const struct ck_record_head head = {
			.flags = CK_RECORD_DIR, .part = i, .nparts = PARTS, .nunits = 4,
			.plan = { 1, 2 }, .fingerprint = { 3, 4 },
		};
		char *path = ck_commit_record_path(&s->c, i);

		assert_int_equal(ck_record_open(path, &head, &s->rec[i], NULL), 0);
		assert_int_equal(ck_record_note(s->rec[i], i, head.plan, NULL), 0);
		free(path);
	}
	for (int i = 0; i < BYTES; i++)
		s->bytes[i] = (uint8_t)(i * 7 + i / 256);
	return s;
}

static void close_scene(struct scene *s)
{
	for (uint32_t i = 0; i < PARTS; i++)
		ck_record_close(s->rec[i]);
	ck_commit_release(&s->c);
	t_dir_end(s->dir);
	free(s->dst);
	free(s);
}

static void add(struct scene *s, uint32_t part, enum ck_record_kind kind, uint64_t sum,
		uint64_t off, uint64_t bytes, uint32_t crc)
{
	const struct ck_record_sum it = {
		.sum = sum, .off = off, .bytes = bytes, .crc = crc, .kind = (uint8_t)kind,
	};

	assert_int_equal(ck_record_sum(s->rec[part], &it, NULL), 0);
}

static void add_text(struct scene *s, uint64_t sum, const char *shape, int code)
{
	char text[160] = { 0 };
	const int n = snprintf(text, sizeof(text), "%s%c%d%cNAME%cplace%cclause", shape, 0, code, 0,
			       0, 0) + 1;

	for (int k = 0; k < (n + 15) / 16; k++) {
		uint64_t half[2];

		memcpy(half, text + 16 * k, 16);
		add(s, 0, CK_RECORD_TEXT, sum, half[0], half[1], (uint32_t)k);
	}
}

static void add_crc(struct scene *s, uint32_t part, uint64_t off, uint64_t n)
{
	add(s, part, CK_RECORD_READ_CRC, 0, off, n, ck_zip_crc32(0, s->bytes + off, n));
}

static void want_crc(struct scene *s, int code)
{
	add(s, 0, CK_RECORD_WANT_CRC, 0, BYTES, 0, ck_zip_crc32(0, s->bytes, BYTES));
	add_text(s, 0, "", code);
}

static void add_sum(struct scene *s, uint32_t part, uint64_t first, uint64_t blocks)
{
	const uint64_t at = first * CK_DIGEST_BLOCK, most = blocks * CK_DIGEST_BLOCK;
	const struct ck_hash128 sum = ck_digest_blocks(
		s->bytes + at, most < BYTES - at ? most : BYTES - at, first);

	add(s, part, CK_RECORD_READ_SUM, 1, sum.lo, sum.hi, (uint32_t)blocks);
}

static void want_sum(struct scene *s, const char *shape)
{
	const uint64_t dim[2] = { 25, 100 };
	struct ck_hash128 sum = ck_digest_blocks(s->bytes, BYTES, 0);

	if (*shape)
		sum = ck_digest_close("F32", dim, 2, sum);
	add(s, 0, CK_RECORD_WANT_SUM, 1, sum.lo, sum.hi, 3);
	add_text(s, 1, shape, CKPT_E_MISMATCH);
}

static int check(struct scene *s)
{
	memset(&s->err, 0, sizeof(s->err));
	return ck_source_sums_check(&s->c, PARTS, &s->err);
}

static void what_all_parts_saw_is_joined(void **state)
{
	static const char *const shape[] = { "", "F32 25 100" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct scene *s = open_scene();

		assert_int_equal(check(s), 0);
		add_crc(s, 1, 6000, 4000);
		add_crc(s, 0, 0, 4000);
		add_crc(s, 1, 4000, 1);
		add_crc(s, 0, 4001, 1999);
		want_crc(s, CKPT_E_CORRUPT);
		add_sum(s, 0, 0, 1);
		add_sum(s, 1, 1, 1);
		add_sum(s, 0, 2, 1);
		want_sum(s, shape[i]);
		assert_int_equal(check(s), 0);
		assert_int_equal(check(s), 0);
		close_scene(s);
	}
}

static void damage_is_named(void **state)
{
	(void)state;
	for (int crc = 0; crc < 2; crc++) {
		struct scene *s = open_scene();

		want_crc(s, CKPT_E_CORRUPT);
		want_sum(s, "");
		s->bytes[5000] ^= (uint8_t)(crc ? 1 : 0);
		add_crc(s, 0, 0, 4096);
		add_crc(s, 1, 4096, BYTES - 4096);
		s->bytes[5000] ^= 1;
		add_sum(s, 0, 0, 1);
		add_sum(s, 1, 1, 2);
		assert_int_equal(check(s), crc ? -CKPT_E_CORRUPT : -CKPT_E_MISMATCH);
		assert_string_equal(s->err.where, "place");
		assert_non_null(strstr(s->err.msg, "NAME: clause"));
		assert_non_null(strstr(s->err.msg, "--discard"));
		close_scene(s);
	}
}

/* The user made it a warning. */
static void a_warning_stops_nothing(void **state)
{
	struct scene *s = open_scene();

	(void)state;
	want_crc(s, 0);
	s->bytes[0] ^= 1;
	add_crc(s, 0, 0, 1000);
	add_crc(s, 1, 1000, BYTES - 1000);
	assert_int_equal(check(s), 0);
	close_scene(s);
}

/* What a part of another version leaves out. */
static void what_is_missing_is_refused(void **state)
{
	enum { HOLE, NO_END, TWICE, NO_TEXT, NO_WANT, NO_BLOCK, WAYS };

	(void)state;
	for (int way = 0; way < WAYS; way++) {
		struct scene *s = open_scene();

		if (way == NO_TEXT)
			add(s, 0, CK_RECORD_WANT_CRC, 0, BYTES, 0, 0);
		else if (way != NO_WANT)
			want_crc(s, CKPT_E_CORRUPT);
		add_crc(s, 0, 0, way == HOLE ? 999 : 1000);
		if (way == TWICE)
			add_crc(s, 1, 500, 500);
		add_crc(s, 1, 1000, way == NO_END ? 1 : BYTES - 1000);
		want_sum(s, "");
		add_sum(s, 0, 0, 1);
		add_sum(s, 1, 1, way == NO_BLOCK ? 1 : 2);
		assert_int_equal(check(s), -CKPT_E_INCOMPLETE);
		assert_non_null(strstr(s->err.msg, "the records of the parts lack"));
		close_scene(s);
	}
}

/* A process that takes the record over makes its notes again. */
static void notes_are_cut_when_a_record_is_taken_over(void **state)
{
	const struct ck_record_head head = {
		.flags = CK_RECORD_DIR, .part = 1, .nparts = PARTS, .nunits = 4,
		.plan = { 1, 2 }, .fingerprint = { 3, 4 },
	};
	struct scene *s = open_scene();
	char *path = ck_commit_record_path(&s->c, 1);
	struct ck_record_sum *sums = NULL;
	struct ck_hash128 hash;
	uint64_t n = 0;

	(void)state;
	add_crc(s, 1, 1000, BYTES - 1000);
	assert_int_equal(ck_record_end(s->rec[1], NULL), 0);
	assert_int_equal(ck_record_sums(path, &sums, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(sums[0].kind, CK_RECORD_READ_CRC);
	free(sums);
	ck_record_close(s->rec[1]);
	assert_int_equal(ck_record_open(path, &head, &s->rec[1], NULL), 0);
	assert_true(ck_record_find(s->rec[1], 1, &hash));
	assert_int_equal(ck_record_sums(path, &sums, &n, NULL), 0);
	assert_int_equal(n, 0);
	free(sums);
	free(path);
	close_scene(s);
}

/* Where a header's hash goes is compared with the file before memory is asked for it. */
static void a_header_is_no_longer_than_its_file(void **state)
{
	static const struct { uint64_t bytes, off; int rc; } cases[] = {
		{ 100, 68, 0 },
		{ 101, 0, -CKPT_E_CORRUPT },
		{ UINT64_C(1) << 62, 0, -CKPT_E_CORRUPT },
		{ 100, 69, -CKPT_E_CORRUPT },
		{ 31, 0, -CKPT_E_CORRUPT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scene *s = open_scene();
		char *path = t_fmt("%s/f", s->c.data);

		t_dir_make(s->c.data);
		t_file_write(path, s->bytes, 100);
		add(s, 0, CK_RECORD_HEAD, cases[i].bytes, cases[i].off, ck_hash64("f", 1), 0);
		assert_int_equal(ck_result_sums_fill(&s->c, PARTS, CKPT_SYNC_NONE, &s->err),
				 cases[i].rc);
		free(path);
		close_scene(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_all_parts_saw_is_joined),
		cmocka_unit_test(damage_is_named),
		cmocka_unit_test(a_warning_stops_nothing),
		cmocka_unit_test(what_is_missing_is_refused),
		cmocka_unit_test(notes_are_cut_when_a_record_is_taken_over),
		cmocka_unit_test(a_header_is_no_longer_than_its_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
