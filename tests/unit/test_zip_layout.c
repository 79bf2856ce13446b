/*
 * The archive that torch would write, byte for byte, and checksums made of pieces. If this is
 * wrong, torch loads other numbers under mmap, or unzip and Python call our files damaged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/zip/ck_zip.h"
#include "libckpt/zip/ck_zip_layout.h"
#include "tests/lib/fixture/t_sha256.h"
#include "tests/lib/fs/t_dir.h"

#define ID "0000000000000000000000000000000000000000"

/* The pickle of {w: float32 (2,), e: float32 (0,)} with storages 0 and 1. */
static const char golden_pickle[] =
	"800263636f6c6c656374696f6e730a4f726465726564446963740a71002952710128580100000077710263746f"
	"7263682e5f7574696c730a5f72656275696c645f74656e736f725f76320a71032828580700000073746f726167"
	"65710463746f7263680a466c6f617453746f726167650a71055801000000307106580300000063707571074b02"
	"747108514b004b028571094b0185710a8968002952710b74710c52710d580100000065710e6803282868046805"
	"580100000031710f68074b00747110514b004b00857111680a89680029527112747113527114752e";

static size_t unhex(const char *s, uint8_t *out)
{
	size_t n = 0;

	for (; s[0] && s[1]; s += 2) {
		unsigned v = 0;

		sscanf(s, "%2x", &v);
		out[n++] = (uint8_t)v;
	}
	return n;
}

/* A whole archive of records whose content is at hand. */
static void write_all(struct ck_buf *buf, const char *prefix, struct ck_zip_rec *rec,
		      const void *const *content, uint64_t n)
{
	struct ck_zip_ends ends;

	assert_int_equal(ck_zip_layout(prefix, CK_ZIP_ALIGN, rec, n, &ends, NULL), 0);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(buf->len, rec[i].header);
		rec[i].crc = ck_zip_crc32(0, content[i], (size_t)rec[i].bytes);
		assert_int_equal(ck_zip_put_local(buf, prefix, &rec[i], NULL), 0);
		assert_int_equal(buf->len, rec[i].data);
		assert_int_equal(ck_buf_add(buf, content[i], (size_t)rec[i].bytes, NULL), 0);
		assert_int_equal(ck_zip_put_descriptor(buf, &rec[i], NULL), 0);
		assert_int_equal(buf->len, rec[i].end);
	}
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(buf->len, rec[i].central);
		assert_int_equal(ck_zip_put_central(buf, prefix, &rec[i], NULL), 0);
	}
	assert_int_equal(ck_zip_put_end(buf, &ends, NULL), 0);
	assert_int_equal(buf->len, ends.bytes);
}

static void the_golden_file_comes_out_byte_for_byte(void **state)
{
	static const uint8_t w[8] = { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 };
	static const uint64_t data[8] = { 64, 384, 512, 576, 640, 768, 832, 960 };
	uint8_t pickle[300];
	struct ck_zip_rec rec[8] = {
		{ .name = "data.pkl", .bytes = unhex(golden_pickle, pickle) },
		{ .name = ".format_version", .bytes = 1 },
		{ .name = ".storage_alignment", .bytes = 2 },
		{ .name = "byteorder", .bytes = 6 },
		{ .name = "data/0", .bytes = 8 },
		{ .name = "data/1", .bytes = 0 },
		{ .name = "version", .bytes = 2 },
		{ .name = ".data/serialization_id", .bytes = 40 },
	};
	const void *const content[8] = { pickle, "1", "64", "little", w, "", "3\n", ID };
	struct ck_buf buf = CK_BUF_INIT(10000);
	char hash[65];

	(void)state;
	assert_int_equal(rec[0].bytes, 220);
	write_all(&buf, "m", rec, content, 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(rec[i].data, data[i]);
	assert_int_equal(buf.len, 1589);
	t_sha256_of(buf.p, buf.len, hash);
	assert_string_equal(hash,
			    "5aa77aab53dd43bf47afc633d76cb3c7d3c5d44b22e6f80daccccffbd223914f");
	ck_buf_release(&buf);
}

/* ---- beyond 4 GiB: sparse files whose every header is known ---- */

static void make_sparse(const char *recipe, const char *path)
{
	size_t n = 0;
	char *text = (char *)t_file_read(recipe, &n);
	cJSON *json = cJSON_Parse(text), *seg;
	FILE *f = fopen(path, "wb");
	uint8_t *bytes = t_alloc(n);

	assert_non_null(json);
	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f),
				   (off_t)cJSON_GetObjectItem(json, "size")->valuedouble), 0);
	cJSON_ArrayForEach(seg, cJSON_GetObjectItem(json, "segments")) {
		const size_t k = unhex(cJSON_GetArrayItem(seg, 1)->valuestring, bytes);

		assert_int_equal(fseeko(f, (off_t)cJSON_GetArrayItem(seg, 0)->valuedouble,
					SEEK_SET), 0);
		assert_int_equal(fwrite(bytes, 1, k, f), k);
	}
	fclose(f);
	free(bytes);
	cJSON_Delete(json);
	free(text);
}

static void expect_at(struct ck_src *src, uint64_t off, const struct ck_buf *buf, const char *what)
{
	uint8_t *p = t_alloc(buf->len + 1);

	assert_int_equal(ck_src_read(src, off, p, buf->len, NULL), 0);
	if (memcmp(p, buf->p, buf->len))
		fail_msg("%s at %llu differs", what, (unsigned long long)off);
	free(p);
}

static void check_record(struct ck_src *src, const char *prefix, const struct ck_zip_rec *rec)
{
	struct ck_buf buf = CK_BUF_INIT(100000);

	assert_int_equal(ck_zip_put_local(&buf, prefix, rec, NULL), 0);
	expect_at(src, rec->header, &buf, "a local header");
	buf.len = 0;
	if (rec->bytes) {
		assert_int_equal(ck_zip_put_descriptor(&buf, rec, NULL), 0);
		expect_at(src, rec->data + rec->bytes, &buf, "a descriptor");
		buf.len = 0;
	}
	assert_int_equal(ck_zip_put_central(&buf, prefix, rec, NULL), 0);
	expect_at(src, rec->central, &buf, "an entry");
	ck_buf_release(&buf);
}

static void compare_with(const char *recipe)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/big.pt", dir);
	struct ck_fdpool *pool = ck_fdpool_new(2);
	struct ck_buf buf = CK_BUF_INIT(1000);
	struct ck_zip_rec rec[32];
	struct ck_zip_ends ends;
	struct ckpt_limits limits;
	struct ck_src *src = NULL;
	struct ck_zip *zip = NULL;
	char prefix[64];
	uint64_t n;

	make_sparse(recipe, path);
	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, path, &src, NULL), 0);
	assert_int_equal(ck_zip_open(src, &limits, &zip, NULL), 0);
	n = ck_zip_count(zip);
	assert_true(n && n <= 32);
	memset(rec, 0, sizeof(rec));
	for (uint64_t i = 0; i < n; i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);

		snprintf(prefix, sizeof(prefix), "%.*s", (int)strcspn(e->name, "/"), e->name);
		rec[i].name = strchr(e->name, '/') + 1;
		rec[i].bytes = e->bytes;
		rec[i].crc = e->crc;
	}
	assert_int_equal(ck_zip_layout(prefix, CK_ZIP_ALIGN, rec, n, &ends, NULL), 0);
	assert_int_equal(ends.bytes, ck_src_size(src));
	for (uint64_t i = 0; i < n; i++)
		check_record(src, prefix, &rec[i]);
	assert_int_equal(ck_zip_put_end(&buf, &ends, NULL), 0);
	expect_at(src, ends.dir + ends.dir_bytes, &buf, "the end");
	ck_buf_release(&buf);
	ck_zip_close(zip);
	ck_src_close(src);
	ck_fdpool_free(pool);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

static void archives_beyond_4_gib_have_torchs_headers(void **state)
{
	static const char *const names[] = { "below-ffffffff", "exact-ffffffff", "over-4gib",
					     "two-big" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *recipe = t_fmt("%s/formats/big/%s.json", getenv("ZCKPT_FIXTURES"), names[i]);

		compare_with(recipe);
		free(recipe);
	}
}

static void an_archive_that_cannot_be_is_refused(void **state)
{
	struct ck_zip_rec rec[2] = { { .name = "a", .bytes = INT64_MAX - 200 },
				     { .name = "b", .bytes = 200 } };
	struct ck_zip_ends ends;

	(void)state;
	assert_int_equal(ck_zip_layout("p", 64, rec, 2, &ends, NULL), -CKPT_E_LIMIT);
	rec[0].bytes = UINT64_MAX;
	assert_int_equal(ck_zip_layout("p", 64, rec, 1, &ends, NULL), -CKPT_E_LIMIT);
	rec[0].bytes = 1;
	assert_int_equal(ck_zip_layout("p", 48, rec, 1, &ends, NULL), -CKPT_E_USAGE);
	assert_int_equal(ck_zip_layout("", 64, rec, 1, &ends, NULL), -CKPT_E_USAGE);
	assert_int_equal(ck_zip_layout("p", 64, rec, 1, &ends, NULL), 0);
}

static uint32_t combine(uint32_t a, uint32_t b, uint64_t b_bytes)
{
	struct ck_crc_shift shift = { 0 };

	return ck_crc_append(a, b, b_bytes, &shift);
}

/* ---- checksums of pieces ---- */

static void pieces_give_the_checksum_of_the_whole(void **state)
{
	uint8_t p[5000];
	struct ck_crc_piece piece[100];
	uint32_t crc = 1, seed = 7;

	(void)state;
	assert_int_equal(ck_zip_crc32(0, "123456789", 9), 0xcbf43926u);
	assert_int_equal(combine(ck_zip_crc32(0, "1234", 4), ck_zip_crc32(0, "56789", 5), 5),
			 0xcbf43926u);
	for (size_t i = 0; i < sizeof(p); i++)
		p[i] = (uint8_t)((seed = seed * 1103515245u + 12345u) >> 16);
	for (int round = 0; round < 50; round++) {
		uint64_t n = 0, at = 0;

		while (at < sizeof(p)) {
			uint64_t k = (seed = seed * 1103515245u + 12345u) >> 16 & 511;

			k = k > sizeof(p) - at || n == 99 ? sizeof(p) - at : k;
			piece[n++] = (struct ck_crc_piece){ at, k, 3, ck_zip_crc32(0, p + at, k) };
			at += k;
		}
		assert_int_equal(ck_crc_join(piece, n, sizeof(p), &crc, NULL), 0);
		assert_int_equal(crc, ck_zip_crc32(0, p, sizeof(p)));
	}
}

static void pieces_with_a_gap_or_an_overlap_are_refused(void **state)
{
	struct ck_crc_piece piece[3] = { { 0, 10, 0, 1 }, { 10, 10, 0, 2 }, { 20, 10, 0, 3 } };
	uint32_t crc = 9;

	(void)state;
	assert_int_equal(ck_crc_join(piece, 3, 30, &crc, NULL), 0);
	assert_int_equal(ck_crc_join(piece, 3, 31, &crc, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_crc_join(piece, 3, 29, &crc, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_crc_join(piece, 2, 30, &crc, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_crc_join(piece + 1, 2, 20, &crc, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_crc_join(piece, 0, 1, &crc, NULL), -CKPT_E_CORRUPT);
	piece[1].off = 9;
	assert_int_equal(ck_crc_join(piece, 3, 30, &crc, NULL), -CKPT_E_CORRUPT);
	assert_int_equal(ck_crc_join(piece, 0, 0, &crc, NULL), 0);
	assert_int_equal(crc, 0);
}

/* The checksum of 5 GiB of zeros, made of pieces that are powers of two and some more. */
static void lengths_beyond_32_bits_count_in_full(void **state)
{
	static const uint8_t zeros[1 << 16];
	uint32_t gib = ck_zip_crc32(0, zeros, sizeof(zeros)), sum = 0;
	uint64_t n = sizeof(zeros);
	uint32_t all = 0;

	(void)state;
	for (; n < (uint64_t)1 << 30; n *= 2)
		gib = combine(gib, gib, n);
	for (int i = 0; i < 5; i++)
		sum = combine(sum, gib, n);
	for (int i = 0; i < 5 * (1 << 14); i++)
		all = ck_zip_crc32(all, zeros, sizeof(zeros));
	assert_int_equal(sum, all);
	assert_int_equal(combine(ck_zip_crc32(0, "x", 1), all, 5 * n),
			 combine(combine(ck_zip_crc32(0, "x", 1), gib, n),
					combine(combine(gib, gib, n),
						       combine(gib, gib, n), 2 * n), 4 * n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_golden_file_comes_out_byte_for_byte),
		cmocka_unit_test(archives_beyond_4_gib_have_torchs_headers),
		cmocka_unit_test(an_archive_that_cannot_be_is_refused),
		cmocka_unit_test(pieces_give_the_checksum_of_the_whole),
		cmocka_unit_test(pieces_with_a_gap_or_an_overlap_are_refused),
		cmocka_unit_test(lengths_beyond_32_bits_count_in_full),
	};

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
