/*
 * The archive inside .pt. If this is wrong, a damaged or doctored archive is read as if it
 * were sound: other bytes become weights, or memory beyond a buffer is read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"

static struct ckpt_limits limits;

/* An archive of three entries, the last one packed. */
static struct t_zip *sample(void)
{
	struct t_zip *z = t_alloc(sizeof(*z));
	uint8_t zeros[5000] = { 0 };

	memset(z, 0, sizeof(*z));
	t_zip_add(z, "m/data.pkl", "hello", 5);
	t_zip_add(z, "m/data/0", "01234567", 8);
	t_zip_deflate(z, "m/data/1", zeros, sizeof(zeros));
	t_zip_end(z);
	return z;
}

static void sample_free(struct t_zip *z)
{
	free(z->p);
	free(z);
}

static uint32_t content;	/* CRC-32 of all that read_all read */

/* Open, read all entries, close; the first failure. */
static int read_all(const uint8_t *p, size_t n, struct ckpt_err *err)
{
	struct ck_src *src;
	struct ck_zip *zip;
	int rc;

	memset(err, 0, sizeof(*err));
	content = 0;
	assert_int_equal(ck_src_mem(p, n, "mem.pt", &src, NULL), 0);
	rc = ck_zip_open(src, &limits, &zip, err);
	if (!rc) {
		for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++) {
			uint8_t *data = NULL;

			rc = ck_zip_read(zip, ck_zip_entry_get(zip, i), 1 << 20, &data, err);
			if (!rc)
				content = ck_zip_crc32(content, data,
						       ck_zip_entry_get(zip, i)->bytes);
			ck_free(data);
		}
		ck_zip_close(zip);
	}
	ck_src_close(src);
	assert_true(!rc == !err->code && (!rc || err->msg[0]));
	return rc;
}

static int check(struct t_zip *z, const char *in_message)
{
	struct ckpt_err err;
	const int rc = read_all(z->p, z->n, &err);

	if (in_message && !strstr(err.msg, in_message))
		fail_msg("'%s' is not in '%s'", in_message, err.msg);
	sample_free(z);
	return rc;
}

static void entries_come_back_with_their_bytes(void **state)
{
	struct t_zip *z = sample();
	struct ck_src *src;
	struct ck_zip *zip;
	const struct ck_zip_entry *e;
	uint64_t off;
	uint8_t *data;

	(void)state;
	assert_int_equal(ck_src_mem(z->p, z->n, "mem.pt", &src, NULL), 0);
	assert_int_equal(ck_zip_open(src, &limits, &zip, NULL), 0);
	assert_int_equal(ck_zip_count(zip), 3);
	e = ck_zip_entry_find(zip, "m/data/0");
	assert_non_null(e);
	assert_int_equal(ck_zip_data_offset(zip, e, &off, NULL), 0);
	assert_int_equal(off, z->entry[1].data);
	assert_int_equal(ck_zip_read(zip, e, 8, &data, NULL), 0);
	assert_memory_equal(data, "01234567", 9);
	ck_free(data);
	assert_int_equal(ck_zip_read(zip, e, 7, &data, NULL), -CKPT_E_LIMIT);
	e = ck_zip_entry_find(zip, "m/data/1");
	assert_int_equal(e->method, 8);
	assert_int_equal(ck_zip_read(zip, e, 5000, &data, NULL), 0);
	for (int i = 0; i < 5000; i++)
		assert_int_equal(data[i], 0);
	ck_free(data);
	assert_null(ck_zip_entry_find(zip, "m/DATA/0"));
	assert_null(ck_zip_entry_find(zip, "m/data"));
	ck_zip_close(zip);
	ck_src_close(src);
	sample_free(z);
}

static void every_cut_of_the_file_is_refused(void **state)
{
	struct t_zip *z = sample();
	struct ckpt_err err;

	(void)state;
	for (size_t n = 0; n < z->n; n++)
		assert_int_not_equal(read_all(z->p, n, &err), 0);
	assert_int_equal(read_all(z->p, z->n, &err), 0);
	sample_free(z);
}

/* Whatever one byte becomes, the contents are right or the archive is refused. */
static void no_changed_byte_gives_other_content(void **state)
{
	struct t_zip *z = sample();
	struct ckpt_err err;
	uint32_t right;

	(void)state;
	assert_int_equal(read_all(z->p, z->n, &err), 0);
	right = content;
	for (size_t i = 0; i < z->n; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			z->p[i] ^= (uint8_t)(1u << bit);
			if (!read_all(z->p, z->n, &err))
				assert_int_equal(content, right);
			z->p[i] ^= (uint8_t)(1u << bit);
		}
	for (size_t i = 0; i < 8; i++) {
		z->p[z->entry[1].data + i] ^= 1;
		assert_int_equal(read_all(z->p, z->n, &err), -CKPT_E_CORRUPT);
		z->p[z->entry[1].data + i] ^= 1;
	}
	sample_free(z);
}

static void a_wrong_checksum_is_found(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put32(z->p + z->entry[0].central + 16, 1);
	t_put32(z->p + z->entry[0].header + 14, 1);
	assert_int_equal(check(z, "CRC-32"), -CKPT_E_CORRUPT);
}

static void a_checksum_of_zero_counts_as_not_computed(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put32(z->p + z->entry[0].central + 16, 0);
	t_put32(z->p + z->entry[0].header + 14, 0);
	assert_int_equal(check(z, NULL), 0);
}

static void names_that_differ_by_case_only_are_refused(void **state)
{
	struct t_zip *z = t_alloc(sizeof(*z));

	(void)state;
	memset(z, 0, sizeof(*z));
	t_zip_add(z, "m/data.pkl", "a", 1);
	t_zip_add(z, "m/DATA.pkl", "b", 1);
	t_zip_end(z);
	assert_int_equal(check(z, "two entries"), -CKPT_E_CORRUPT);
}

static void entries_that_share_bytes_are_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put32(z->p + z->entry[1].central + 42, (uint32_t)z->entry[0].header + 10);
	assert_int_equal(check(z, "overlaps"), -CKPT_E_CORRUPT);
}

static void a_local_extra_field_that_reaches_into_the_next_entry_is_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put16(z->p + z->entry[0].header + 28, 40);
	assert_int_equal(check(z, "overlaps"), -CKPT_E_CORRUPT);
}

static void a_local_name_that_differs_is_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	z->p[z->entry[1].header + 30] = 'x';
	assert_int_equal(check(z, "another name"), -CKPT_E_CORRUPT);
}

static void a_local_method_that_differs_is_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	z->p[z->entry[1].header + 8] = 8;
	assert_int_equal(check(z, "disagree"), -CKPT_E_CORRUPT);
}

static void encrypted_patched_and_masked_entries_are_refused(void **state)
{
	static const unsigned flags[] = { 0x0001, 0x0020, 0x2000 };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct t_zip *z = sample();

		t_put16(z->p + z->entry[1].central + 8, flags[i]);
		assert_int_equal(check(z, "entry"), -CKPT_E_UNSUPPORTED);
		z = sample();
		t_put16(z->p + z->entry[1].header + 6, flags[i]);
		assert_int_equal(check(z, "entry"), -CKPT_E_UNSUPPORTED);
	}
}

static void a_second_end_record_in_the_comment_is_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	z->p = t_grow(z->p, z->n + 22);
	memset(z->p + z->n, 0, 22);
	memcpy(z->p + z->n, "PK\5\6", 4);
	t_put16(z->p + z->end + 20, 22);
	z->n += 22;
	assert_int_equal(check(z, "two end records"), -CKPT_E_CORRUPT);
}

static void chance_bytes_that_look_like_an_end_record_are_passed_over(void **state)
{
	static const uint8_t noise[30] = "PK\5\6\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa";
	struct t_zip *z = t_alloc(sizeof(*z));

	(void)state;
	memset(z, 0, sizeof(*z));
	t_zip_add(z, "m/data.pkl", "a", 1);
	t_zip_add(z, "m/data/0", noise, sizeof(noise));
	t_zip_end(z);
	assert_int_equal(check(z, NULL), 0);
}

static void bytes_behind_the_end_are_noted(void **state)
{
	struct t_zip *z = sample();
	struct ck_src *src;
	struct ck_zip *zip;

	(void)state;
	z->p = t_grow(z->p, z->n + 10);
	memset(z->p + z->n, 'x', 10);
	assert_int_equal(ck_src_mem(z->p, z->n + 10, "mem.pt", &src, NULL), 0);
	assert_int_equal(ck_zip_open(src, &limits, &zip, NULL), 0);
	assert_int_equal(ck_zip_notes(zip), CK_ZIP_NOTE_JUNK);
	ck_zip_close(zip);
	ck_src_close(src);
	sample_free(z);
}

static void a_stub_before_the_archive_is_no_archive(void **state)
{
	struct t_zip *z = sample();
	struct ckpt_err err;

	(void)state;
	memmove(z->p + 1, z->p, z->n - 1);
	assert_int_equal(read_all(z->p, z->n, &err), -CKPT_E_FORMAT);
	sample_free(z);
}

static void counts_and_offsets_that_lie_are_refused(void **state)
{
	static const struct {
		size_t at;	/* in the end record */
		unsigned width;
		uint32_t value;
	} lies[] = {
		{ 8, 2, 2 }, { 8, 2, 4 }, { 8, 2, 0xffff }, { 12, 4, 0 }, { 12, 4, 1u << 30 },
		{ 16, 4, 0 }, { 16, 4, 0xffffffff }, { 4, 2, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct t_zip *z = sample();
		uint8_t *p = z->p + z->end + lies[i].at;

		if (lies[i].width == 2)
			t_put16(p, lies[i].value);
		else
			t_put32(p, lies[i].value);
		if (lies[i].at == 8)
			t_put16(p + 2, lies[i].value);
		assert_int_not_equal(check(z, NULL), 0);
	}
}

static void sizes_that_differ_in_a_stored_entry_are_refused(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put32(z->p + z->entry[1].central + 24, 9);
	assert_int_equal(check(z, "two sizes"), -CKPT_E_CORRUPT);
}

static void a_deflate_stream_must_give_exactly_its_size(void **state)
{
	(void)state;
	for (int delta = -1; delta <= 1; delta += 2) {
		struct t_zip *z = sample();

		t_put32(z->p + z->entry[2].central + 24, (uint32_t)(5000 + delta));
		t_put32(z->p + z->entry[2].header + 22, (uint32_t)(5000 + delta));
		assert_int_equal(check(z, "deflate"), -CKPT_E_CORRUPT);
	}
}

static void a_ratio_beyond_deflates_own_is_refused_before_memory_is_taken(void **state)
{
	struct t_zip *z = sample();

	(void)state;
	t_put32(z->p + z->entry[2].central + 24, 0xfffffffe);
	t_put32(z->p + z->entry[2].header + 22, 0xfffffffe);
	assert_int_equal(check(z, "the limit inflate_ratio is 1032"), -CKPT_E_LIMIT);
}

static void limits_on_the_directory_hold(void **state)
{
	struct ckpt_limits tight = limits;
	struct t_zip *z = sample();
	struct ck_src *src;
	struct ck_zip *zip;

	(void)state;
	tight.zip_entries = 2;
	assert_int_equal(ck_src_mem(z->p, z->n, "mem.pt", &src, NULL), 0);
	assert_int_equal(ck_zip_open(src, &tight, &zip, NULL), -CKPT_E_LIMIT);
	ck_src_close(src);
	sample_free(z);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_come_back_with_their_bytes),
		cmocka_unit_test(every_cut_of_the_file_is_refused),
		cmocka_unit_test(no_changed_byte_gives_other_content),
		cmocka_unit_test(a_wrong_checksum_is_found),
		cmocka_unit_test(a_checksum_of_zero_counts_as_not_computed),
		cmocka_unit_test(names_that_differ_by_case_only_are_refused),
		cmocka_unit_test(entries_that_share_bytes_are_refused),
		cmocka_unit_test(a_local_extra_field_that_reaches_into_the_next_entry_is_refused),
		cmocka_unit_test(a_local_name_that_differs_is_refused),
		cmocka_unit_test(a_local_method_that_differs_is_refused),
		cmocka_unit_test(encrypted_patched_and_masked_entries_are_refused),
		cmocka_unit_test(a_second_end_record_in_the_comment_is_refused),
		cmocka_unit_test(chance_bytes_that_look_like_an_end_record_are_passed_over),
		cmocka_unit_test(bytes_behind_the_end_are_noted),
		cmocka_unit_test(a_stub_before_the_archive_is_no_archive),
		cmocka_unit_test(counts_and_offsets_that_lie_are_refused),
		cmocka_unit_test(sizes_that_differ_in_a_stored_entry_are_refused),
		cmocka_unit_test(a_deflate_stream_must_give_exactly_its_size),
		cmocka_unit_test(a_ratio_beyond_deflates_own_is_refused_before_memory_is_taken),
		cmocka_unit_test(limits_on_the_directory_hold),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
