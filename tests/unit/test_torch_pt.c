/*
 * torch files: where each tensor's elements lie, and what is refused. If this is wrong,
 * weights come out permuted or cut, or a file made for it makes the program read beyond a
 * storage. test_torch_names.c has what the tensors are called.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"

static void open_one(struct t_pt *o, int offset, int d0, int d1, int s0, int s1)
{
	struct t_pkl b = { 0 };

	T_PKL_PUT(&b, "\x80\x02}");
	t_pt_str(&b, "w");
	t_pt_tensor(&b, "0", 24, offset, d0, d1, s0, s1);
	T_PKL_PUT(&b, "s.");
	t_pt_open(o, &b, NULL);
}

/* ---------------------------------------------------------------------- extents */

static void a_contiguous_tensor_is_one_run(void **state)
{
	const struct ck_extent *e;
	struct t_pt o;

	(void)state;
	open_one(&o, 3, 4, 5, 5, 1);
	assert_int_equal(o.rc, 0);
	e = t_pt_extent(&o, "w");
	assert_int_equal(e->runs, 1);
	assert_int_equal(e->count, 20);
	assert_int_equal(e->off, o.zip.entry[2].data + 12);
	assert_int_equal(e->flags, 0);
	assert_int_equal(e->dtype, CKPT_F32);
	t_pt_close(&o);
}

static void a_slice_of_columns_is_runs(void **state)
{
	const struct ck_extent *e;
	struct t_pt o;

	(void)state;
	open_one(&o, 2, 4, 3, 6, 1);
	e = t_pt_extent(&o, "w");
	assert_int_equal(e->runs, 4);
	assert_int_equal(e->count, 3);
	assert_int_equal(e->src_stride, 24);
	assert_int_equal(e->off, o.zip.entry[2].data + 8);
	assert_int_equal(e->flags, 0);
	t_pt_close(&o);
}

static void a_transposed_tensor_is_gathered(void **state)
{
	const struct ck_extent *e;
	struct t_pt o;

	(void)state;
	open_one(&o, 0, 4, 6, 1, 4);
	e = t_pt_extent(&o, "w");
	assert_int_equal(e->flags, CKPT_EXTENT_GATHER);
	assert_int_equal(o.ix.view[e->view].ndim, 2);
	assert_int_equal(o.ix.view[e->view].stride[1], 4);
	t_pt_close(&o);
}

static void dimensions_of_size_1_do_not_matter(void **state)
{
	struct t_pt o;

	(void)state;
	open_one(&o, 0, 1, 24, 7, 1);
	assert_int_equal(t_pt_extent(&o, "w")->flags, 0);
	t_pt_close(&o);
	open_one(&o, 0, 24, 1, 1, 99);
	assert_int_equal(t_pt_extent(&o, "w")->flags, 0);
	t_pt_close(&o);
}

static const struct ck_tensor_ref *ref_of(const struct t_pt *o)
{
	return ck_val_tensor(ck_val_get(o->pt->doc.root, "w"));
}

static void ranges_of_a_tensor_lie_where_they_should(void **state)
{
	struct ck_extent e;
	struct t_pt o;
	uint64_t base;

	(void)state;
	open_one(&o, 1, 4, 5, 5, 1);
	base = o.zip.entry[2].data + 4;
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 7, 6, 100, 0, 3, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 28);
	assert_int_equal(e.count, 6);
	assert_int_equal(e.first, 100);
	assert_int_equal(e.rank, 3);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 15, 6, 0, 0, 0, &o.ix, &e, NULL),
			 -CKPT_E_USAGE);
	t_pt_close(&o);
	open_one(&o, 0, 4, 3, 6, 1);
	base = o.zip.entry[2].data;
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 4, 2, 0, 0, 0, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 28);	/* row 1, column 1 */
	assert_int_equal(e.runs, 1);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 3, 6, 0, 0, 0, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 24);
	assert_int_equal(e.runs, 2);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 2, 2, 0, 0, 0, &o.ix, &e, NULL),
			 -CKPT_E_UNSUPPORTED);
	t_pt_close(&o);
}

static void elements_beyond_the_storage_are_refused(void **state)
{
	static const int bad[][5] = {
		{ 5, 4, 5, 5, 1 }, { 0, 5, 5, 5, 1 }, { 0, 4, 6, 7, 1 }, { 24, 1, 1, 1, 1 },
		{ -1, 1, 1, 1, 1 }, { 0, -1, 1, 1, 1 }, { 0, 2, 2, -1, 1 },
	};
	struct t_pt o;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		open_one(&o, bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4]);
		assert_int_equal(o.rc, -CKPT_E_CORRUPT);
		assert_true(strstr(o.err.where, "m.pt!m/data.pkl") != NULL);
		t_pt_close(&o);
	}
	open_one(&o, 4, 4, 5, 5, 1);	/* the last element is the storage's last */
	assert_int_equal(o.rc, 0);
	t_pt_close(&o);
}

static void big_endian_and_packed_storages_are_marked(void **state)
{
	struct t_pkl b = { 0 };
	const struct ck_extent *e;
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "\x80\x02](");
	t_pt_tensor(&b, "1", 6, 0, 1, 3, 3, 1);
	t_pt_tensor(&b, "1", 6, 3, 1, 3, 3, 1);
	t_pt_tensor(&b, "0", 24, 0, 1, 3, 3, 1);
	T_PKL_PUT(&b, "e.");
	t_pt_open(&o, &b, "big");
	assert_int_equal(o.rc, 0);
	e = t_pt_extent(&o, "1");
	assert_int_equal(e->flags, CKPT_EXTENT_DEFLATED | CKPT_EXTENT_SWAPPED);
	assert_int_equal(e->off, 12);
	assert_int_equal(e->member, t_pt_extent(&o, "0")->member);
	assert_int_equal(o.ix.nmembers, 1);
	assert_int_equal(o.ix.member[0].bytes, 24);
	assert_int_equal(o.ix.member[0].off, o.zip.entry[4].data);
	assert_int_equal(t_pt_extent(&o, "2")->flags, CKPT_EXTENT_SWAPPED);
	t_pt_close(&o);
}

/* ----------------------------------------------------------------------- damage */

static void items_put_into_a_tensor_are_refused(void **state)
{
	struct t_pkl b = { 0 };
	struct t_pt o;

	(void)state;
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	t_pt_str(&b, "k");
	T_PKL_PUT(&b, "Ns.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_CORRUPT);
	t_pt_close(&o);
}

static void two_mentions_of_a_storage_must_agree(void **state)
{
	struct t_pkl b = { 0 };
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "](");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	t_pt_tensor(&b, "0", 23, 0, 1, 6, 6, 1);
	T_PKL_PUT(&b, "e.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_CORRUPT);
	assert_non_null(strstr(o.err.msg, "23"));
	t_pt_close(&o);
}

static void a_hostile_call_in_an_archive_is_refused_with_its_name(void **state)
{
	struct t_pkl b = { 0 };
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "cposix\nsystem\nX\x04\0\0\0true\x85R.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_UNSAFE);
	assert_non_null(strstr(o.err.msg, "posix.system"));
	t_pt_close(&o);
}

/* ----------------------------------------------------------------------- legacy */

#define MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." "\x80\x02M\xe9\x03."

/* A stream whose object pickle is larger than the first window of the reader. */
static void a_legacy_stream_with_a_long_pickle_is_read(void **state)
{
	const size_t text = 3u << 20;
	struct t_pkl head = { 0 }, tail = { 0 };
	uint8_t *p = t_alloc(text + 8192), count[8] = { 3 };
	const float data[3] = { 1, 2, 3 };
	struct t_pt o;
	size_t n;

	(void)state;
	T_PKL_PUT(&head, MAGIC "\x80\x02}.\x80\x02}(X\x01\0\0\0aX");
	t_pkl_put(&head, "\x00\x00\x30\x00", 4);
	memcpy(p, head.p, head.n);
	memset(p + head.n, 'x', text);
	t_pt_str(&tail, "w");
	T_PKL_PUT(&tail, "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storage"
		  "ctorch\nFloatStorage\nX\x02\0\0\0"
		  "99X\x03\0\0\0cpuK\x03NtQK\x01K\x02\x85K\x01\x85\x89NtRu.");
	T_PKL_PUT(&tail, "\x80\x02]X\x02\0\0\0" "99a.");
	t_pkl_put(&tail, count, 8);
	t_pkl_put(&tail, data, sizeof(data));
	memcpy(p + head.n + text, tail.p, tail.n);
	n = head.n + text + tail.n;
	free(head.p);
	free(tail.p);
	assert_true(ck_pt_probe(p, 512));
	t_pt_open_bytes(&o, p, n);
	if (o.rc)
		fail_msg("%s", o.err.msg);
	assert_true(o.pt->legacy);
	assert_int_equal(t_pt_extent(&o, "w")->off, n - 8);
	t_pt_close(&o);
	/* One byte less, and the storage is not whole. */
	t_pt_open_bytes(&o, p, n - 1);
	assert_int_equal(o.rc, -CKPT_E_TRUNCATED);
	t_pt_close(&o);
	free(p);
}

static void other_files_are_named_for_what_they_are(void **state)
{
	uint8_t tar[512] = "sys_info";
	struct t_zip zip = { 0 };
	struct t_pt o;

	(void)state;
	memcpy(tar + 257, "ustar", 5);
	t_pt_open_bytes(&o, tar, sizeof(tar));
	assert_int_equal(o.rc, -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(o.err.msg, "tar"));
	t_pt_close(&o);
	t_pt_open_bytes(&o, "\x80\x02}.", 4);
	assert_int_equal(o.rc, -CKPT_E_FORMAT);
	t_pt_close(&o);
	assert_false(ck_pt_probe((const uint8_t *)"\x80\x02}.", 4));
	t_zip_add(&zip, "m/data.pkl", "N.", 2);
	t_zip_add(&zip, "m/constants.pkl", "N.", 2);
	t_zip_end(&zip);
	t_pt_open_bytes(&o, zip.p, zip.n);
	assert_int_equal(o.rc, -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(o.err.msg, "TorchScript"));
	t_pt_close(&o);
	free(zip.p);
}

/* ----------------------------------------------------------------------- memory */

static long until_failure, held;

static void *failing_realloc(void *p, size_t n)
{
	void *q;

	if (until_failure-- == 0)
		return NULL;
	q = realloc(p, n);
	held += q && !p;
	return q;
}

static void counting_free(void *p)
{
	held -= p != NULL;
	free(p);
}

static int open_and_index(const struct t_pt *o, struct ckpt_err *err)
{
	struct ck_src *src = NULL, *again = NULL;
	struct ck_pt *pt = NULL;
	struct ck_index ix;
	uint32_t source;
	int rc = ck_src_mem(o->zip.p, o->zip.n, "m.pt", &src, err);

	if (!rc)
		rc = ck_pt_open(src, &o->limits, 0, NULL, &pt, err);
	if (!rc) {
		memset(&ix, 0, sizeof(ix));
		rc = ck_index_init(&ix, o->limits.memory_bytes, err);
		if (!rc)
			rc = ck_src_mem(o->zip.p, o->zip.n, "m.pt", &again, err);
		if (!rc)
			rc = ck_index_add_source(&ix, "m.pt", again, -1, &source, err);
		if (!rc)
			rc = ck_pt_index(pt, source, &o->limits, &ix, NULL, err);
		ck_index_release(&ix);
	}
	ck_pt_close(pt);
	ck_src_close(src);
	return rc;
}

static void running_out_of_memory_anywhere_is_an_error_and_leaks_nothing(void **state)
{
	const struct ck_sys old = ck_sys;
	struct t_pkl b = { 0 };
	struct t_pt o;
	long n;

	(void)state;
	T_PKL_PUT(&b, "\x80\x02}(");
	t_pt_str(&b, "a");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 1, 4);
	t_pt_str(&b, "b");
	t_pt_tensor(&b, "1", 6, 0, 1, 6, 6, 1);
	T_PKL_PUT(&b, "u.");
	t_pt_open(&o, &b, "little");
	assert_int_equal(o.rc, 0);
	ck_sys.realloc = failing_realloc;
	ck_sys.free = counting_free;
	for (n = 0; n < 10000; n++) {
		struct ckpt_err err = { 0 };
		int rc;

		until_failure = n;
		held = 0;
		rc = open_and_index(&o, &err);
		if (held)
			fail_msg("%ld blocks left after failure of allocation %ld", held, n);
		if (!rc)
			break;
		if (rc != -CKPT_E_NOMEM && rc != -CKPT_E_LIMIT)
			fail_msg("allocation %ld: %s", n, err.msg);
	}
	ck_sys = old;
	assert_in_range(n, 20, 9999);
	t_pt_close(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_contiguous_tensor_is_one_run),
		cmocka_unit_test(a_slice_of_columns_is_runs),
		cmocka_unit_test(a_transposed_tensor_is_gathered),
		cmocka_unit_test(dimensions_of_size_1_do_not_matter),
		cmocka_unit_test(ranges_of_a_tensor_lie_where_they_should),
		cmocka_unit_test(elements_beyond_the_storage_are_refused),
		cmocka_unit_test(big_endian_and_packed_storages_are_marked),
		cmocka_unit_test(items_put_into_a_tensor_are_refused),
		cmocka_unit_test(two_mentions_of_a_storage_must_agree),
		cmocka_unit_test(a_hostile_call_in_an_archive_is_refused_with_its_name),
		cmocka_unit_test(a_legacy_stream_with_a_long_pickle_is_read),
		cmocka_unit_test(other_files_are_named_for_what_they_are),
		cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
