/*
 * State dicts for torch. If this is wrong, torch.load refuses the file, gives other numbers under
 * mmap, or unties what the model ties; or a run in parts leaves checksums that do not hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/tensor/ck_val_new.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

#define MIB ((uint64_t)1 << 20)

static char *dir;	/* fresh for each test */
static char *src, *pt, *partial;
static struct ckpt_convert_opts opts;
static struct ckpt_run_opts run;

/* 36 MiB and small change: records of several units, of one byte, of none. */
static const struct t_part large[] = {
	{ .name = "a", .dtype = "BF16", .rows = 3 * MIB, .cols = 2 },
	{ .name = "b", .dtype = "F32", .rows = 2 * MIB + 3 },
	{ .name = "c", .dtype = "BF16", .rows = 1 },
	{ .name = "n", .dtype = "F32", .rows = 0, .cols = 0 },
	{ .name = "u", .dtype = "U8", .rows = 1 },
	{ .name = "d", .dtype = "F32", .rows = MIB },
	{ .name = NULL },
};

/* One of every type that safetensors and torch both have. */
static const struct t_part types[] = {
	{ .name = "0", .dtype = "BOOL", .rows = 3 },	 { .name = "1", .dtype = "U8", .rows = 3 },
	{ .name = "2", .dtype = "I8", .rows = 3 },	 { .name = "3", .dtype = "I16", .rows = 3 },
	{ .name = "4", .dtype = "U16", .rows = 3 },	 { .name = "5", .dtype = "F16", .rows = 3 },
	{ .name = "6", .dtype = "BF16", .rows = 3 },	 { .name = "7", .dtype = "I32", .rows = 3 },
	{ .name = "8", .dtype = "U32", .rows = 3 },	 { .name = "9", .dtype = "F32", .rows = 3 },
	{ .name = "A", .dtype = "F64", .rows = 3 },	 { .name = "B", .dtype = "I64", .rows = 3 },
	{ .name = "C", .dtype = "U64", .rows = 3 },
	{ .name = "D", .dtype = "F8_E5M2", .rows = 3 },
	{ .name = "E", .dtype = "F8_E4M3", .rows = 3, .cols = 2 },
	{ .name = NULL },
};

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	src = t_fmt("%s/in.safetensors", dir);
	pt = t_fmt("%s/out.pt", dir);
	partial = t_fmt("%s.zckpt-partial", pt);
	opts = (struct ckpt_convert_opts){ .size = sizeof(opts), .run = &run, .dtype = CKPT_KEEP };
	run = (struct ckpt_run_opts){ .size = sizeof(run) };
	return 0;
}

static int end(void **state)
{
	(void)state;
	t_dir_remove(dir);
	free(partial);
	free(pt);
	free(src);
	free(dir);
	return 0;
}

/* Every record is aligned, has a checksum in the directory, and it holds. */
static void check_archive(const char *path)
{
	struct ck_fdpool *pool = ck_fdpool_new(2);
	struct ck_src *s = NULL;
	struct ck_zip *zip = NULL;
	struct ckpt_limits limits;
	uint64_t off;

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, path, &s, NULL), 0);
	assert_int_equal(ck_zip_open(s, &limits, &zip, NULL), 0);
	for (uint64_t i = 0; i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);
		uint8_t *p = NULL, d[16];

		assert_int_equal(ck_zip_data_offset(zip, e, &off, NULL), 0);
		assert_int_equal(off % 64, 0);
		assert_int_equal(ck_zip_read(zip, e, UINT64_MAX, &p, NULL), 0);
		assert_int_equal(e->crc, ck_zip_crc32(0, p, e->bytes));
		ck_free(p);
		if (!e->bytes)
			continue;
		assert_int_equal(ck_src_read(s, off + e->bytes, d, sizeof(d), NULL), 0);
		assert_int_equal(ck_le32(d), 0x08074b50);
		assert_int_equal(ck_le32(d + 4), e->crc);
		assert_int_equal(ck_le32(d + 8), e->bytes);
	}
	ck_zip_close(zip);
	ck_src_close(s);
	ck_fdpool_free(pool);
}

/* Back to safetensors, it is what it was made of. */
static void check_way_back(void)
{
	char *there = t_fmt("%s/there.safetensors", dir), *back = t_fmt("%s/back.safetensors", dir);
	struct t_st a, b;

	opts.nparts = opts.part = opts.flags = 0;
	t_convert(src, there, &opts, 0, NULL, NULL);
	t_convert(pt, back, &opts, 0, NULL, NULL);
	t_convert_result(&a, dir, "there.safetensors");
	t_convert_result(&b, dir, "back.safetensors");
	assert_int_equal(a.n_tensors, b.n_tensors);
	for (size_t i = 0; i < a.n_tensors; i++) {
		const struct t_st_tensor *x = &a.tensors[i], *y = t_st_find(&b, x->name);

		assert_non_null(y);
		assert_string_equal(x->dtype, y->dtype);
		assert_int_equal(x->ndim, y->ndim);
		assert_memory_equal(x->shape, y->shape, (size_t)x->ndim * sizeof(x->shape[0]));
		assert_int_equal(x->nbytes, y->nbytes);
		assert_memory_equal(x->data, y->data, x->nbytes);
	}
	t_st_close(&a);
	t_st_close(&b);
	free(there);
	free(back);
}

static void every_type_goes_there_and_back(void **state)
{
	(void)state;
	t_convert_source(src, types);
	t_convert(src, pt, &opts, 0, NULL, NULL);
	check_archive(pt);
	check_way_back();
}

static void threads_do_not_change_a_byte_and_checksums_hold(void **state)
{
	char *other = t_fmt("%s/other/out.pt", dir), *folder = t_fmt("%s/other", dir);

	(void)state;
	t_dir_make(folder);
	t_convert_source(src, large);
	run.threads = 1;
	t_convert(src, pt, &opts, 0, NULL, NULL);
	check_archive(pt);
	run.threads = 5;
	t_convert(src, other, &opts, 0, NULL, NULL);
	t_convert_same_files(pt, other);
	check_way_back();
	free(other);
	free(folder);
}

static void parts_are_joined_by_the_commit(void **state)
{
	char *folder = t_fmt("%s/whole", dir), *whole = t_fmt("%s/whole/out.pt", dir);
	struct ckpt_err err = { 0 };

	(void)state;
	t_dir_make(folder);
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	opts.nparts = 3;
	for (opts.part = 0; opts.part < 3; opts.part++)
		t_convert(src, pt, &opts, 0, NULL, NULL);
	assert_false(t_exists(pt));
	if (ckpt_commit(pt, 0, CKPT_SYNC_DATA, &err))
		fail_msg("%s", err.msg);
	t_convert_same_files(pt, whole);
	assert_false(t_exists(partial));
	free(folder);
	free(whole);
}

/* A part that was started again finds its units, and leaves its pieces once more. */
static void a_part_that_ran_twice_is_counted_once(void **state)
{
	char *folder = t_fmt("%s/whole", dir), *whole = t_fmt("%s/whole/out.pt", dir);

	(void)state;
	t_dir_make(folder);
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	opts.nparts = 2;
	for (int i = 0; i < 4; i++) {
		opts.part = i % 2;
		t_convert(src, pt, &opts, 0, NULL, NULL);
	}
	assert_int_equal(ckpt_commit(pt, 0, CKPT_SYNC_DATA, NULL), 0);
	t_convert_same_files(pt, whole);
	free(folder);
	free(whole);
}

static void a_lost_piece_stops_the_commit(void **state)
{
	char *rec = t_fmt("%s/part-00001.rec", partial);
	struct ckpt_err err = { 0 };
	uint8_t *p;
	size_t n;

	(void)state;
	t_convert_source(src, large);
	opts.nparts = 2;
	for (opts.part = 0; opts.part < 2; opts.part++)
		t_convert(src, pt, &opts, 0, NULL, NULL);
	p = t_file_read(rec, &n);
	assert_non_null(p);
	/* the end entry in place of the last piece */
	assert_int_equal(ck_le32(p + n - 80 + 12), 2);
	memcpy(p + n - 80, p + n - 40, 40);
	t_file_write(rec, p, n - 40);
	assert_int_equal(ckpt_commit(pt, 0, CKPT_SYNC_NONE, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "checksum"));
	assert_false(t_exists(pt));
	free(p);
	free(rec);
}

static void a_killed_run_goes_on_to_the_same_file(void **state)
{
	char *folder = t_fmt("%s/whole", dir), *whole = t_fmt("%s/whole/out.pt", dir);

	(void)state;
	t_dir_make(folder);
	t_convert_source(src, large);
	t_convert(src, whole, &opts, 0, NULL, NULL);
	for (uint64_t at = MIB; at < 24 * MIB; at += 7 * MIB) {
		struct ckpt_report report = { 0 };

		t_convert_killed(src, pt, &opts, at);
		t_convert(src, pt, &opts, 0, &report, NULL);
		assert_true(report.resumed_bytes > 0);
		ckpt_report_free(&report);
		t_convert_same_files(pt, whole);
		t_dir_remove(pt);
	}
	free(folder);
	free(whole);
}

/* ---- true aliasing ---- */

static struct ck_pt *open_pt(struct ck_fdpool *pool, struct ck_src **s)
{
	struct ckpt_limits limits;
	struct ck_pt *p = NULL;

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, pt, s, NULL), 0);
	assert_int_equal(ck_pt_open(*s, &limits, 0, NULL, &p, NULL), 0);
	return p;
}

static void tied_names_share_one_storage(void **state)
{
	char *tied = t_fmt("%s/formats/torch/v2.6/tied.pt", getenv("ZCKPT_FIXTURES"));
	uint64_t shared[3];

	(void)state;
	for (int mode = 0; mode < 3; mode++) {
		struct ckpt_select sel = { .size = sizeof(sel), .tied = (enum ckpt_tied)mode };
		/* of its own: to one pool a file is one thing */
		struct ck_fdpool *pool = ck_fdpool_new(4);
		struct ck_val *const *item = NULL;
		struct ck_src *s = NULL;
		struct ck_pt *p;
		uint64_t n = 0;

		opts.select = &sel;
		t_convert(tied, pt, &opts, 0, NULL, NULL);
		check_archive(pt);
		p = open_pt(pool, &s);
		assert_true(ck_val_pairs(p->doc.root, &item, &n));
		shared[mode] = n - p->nstorages;
		assert_true(n >= 1);
		ck_pt_close(p);
		ck_src_close(s);
		ck_fdpool_free(pool);
		t_dir_remove(pt);
	}
	assert_true(shared[CKPT_TIED_ALIAS] > 0);
	assert_int_equal(shared[CKPT_TIED_DUP], 0);
	assert_int_equal(shared[CKPT_TIED_DROP], 0);
	free(tied);
}

/* ---- any tree ---- */

static int plan_of(struct ck_val *root, struct ck_pt_part *part, uint64_t n, struct ck_plan *plan)
{
	const struct ck_pt_want want = {
		.name = "x.pt", .root = root, .storage = part, .nstorages = n,
	};
	struct ckpt_err err = { 0 };
	int rc = ck_pt_plan_file(&want, plan, &err);

	assert_int_equal(-rc, (int)err.code);
	return rc;
}

static int plan_tensor(uint8_t dtype, uint64_t offset, uint64_t size, uint64_t room)
{
	static const uint8_t zeros[64];
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_plan plan = CK_PLAN_INIT;
	const uint64_t one = 1;
	const struct ck_tensor_ref ref = {
		.dtype = dtype, .ndim = 1, .shape = &size, .stride = &one, .offset = offset,
	};
	const struct ck_pt_piece piece[2] = {
		{ .kind = CK_SEG_ZERO, .count = room / 2 },
		{ .kind = CK_SEG_LITERAL, .count = room - room / 2, .text = zeros },
	};
	struct ck_pt_part part = { .dtype = CKPT_F32, .piece = piece, .npieces = 2 };
	int rc = plan_of(ck_val_new_tensor(&arena, &ref), &part, 1, &plan);

	if (!rc) {
		assert_int_equal(plan.ncrcs, room > 0);
		assert_int_equal(plan.nfiles, 1);
		assert_int_equal(plan.file[0].bytes, ck_plan_bytes(&plan));
	}
	ck_plan_release(&plan);
	ck_arena_release(&arena);
	return rc;
}

static void a_tensor_beyond_its_storage_is_not_written(void **state)
{
	(void)state;
	assert_int_equal(plan_tensor(CKPT_F32, 0, 4, 16), 0);
	assert_int_equal(plan_tensor(CKPT_F32, 2, 2, 16), 0);
	assert_int_equal(plan_tensor(CKPT_F32, 0, 0, 0), 0);
	assert_int_equal(plan_tensor(CKPT_F32, 0, 5, 16), -CKPT_E_USAGE);
	assert_int_equal(plan_tensor(CKPT_F32, 3, 2, 16), -CKPT_E_USAGE);
	assert_int_equal(plan_tensor(CKPT_I64, 0, 2, 16), -CKPT_E_USAGE);
	assert_int_equal(plan_tensor(CKPT_QI8, 0, 2, 16), -CKPT_E_UNSUPPORTED);
	assert_int_equal(plan_tensor(CKPT_F6_E2M3, 0, 2, 16), -CKPT_E_UNSUPPORTED);
}

static void storages_are_numbered_by_their_first_mention(void **state)
{
	const uint64_t size = 1;
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_pt_piece piece[3];
	struct ck_pt_part part[3];
	struct ck_val *list = ck_val_new_list(&arena);
	static const uint32_t order[] = { 2, 0, 2 };	/* 1 is never mentioned */

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		piece[i] = (struct ck_pt_piece){ .kind = CK_SEG_ZERO, .count = 4 * (i + 1) };
		part[i] = (struct ck_pt_part){ CKPT_F32, &piece[i], 1 };
	}
	for (int i = 0; i < 3; i++) {
		const struct ck_tensor_ref ref = { .dtype = CKPT_F32, .ndim = 1, .shape = &size,
						   .stride = &size, .storage = order[i] };

		ck_val_list_add(&arena, list, ck_val_new_tensor(&arena, &ref));
	}
	assert_int_equal(plan_of(list, part, 3, &plan), 0);
	assert_int_equal(plan.ncrcs, 2);
	assert_int_equal(plan.crc[0].bytes, 12);
	assert_int_equal(plan.crc[1].bytes, 4);
	assert_int_equal(plan.crc[0].begin % 64, 0);
	assert_int_equal(plan.crc[1].begin, plan.crc[0].begin + 128);
	assert_int_equal(plan.crc[0].nfills, 2);
	ck_plan_release(&plan);
	ck_arena_release(&arena);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_type_goes_there_and_back),
		T(threads_do_not_change_a_byte_and_checksums_hold),
		T(parts_are_joined_by_the_commit),
		T(a_part_that_ran_twice_is_counted_once),
		T(a_lost_piece_stops_the_commit),
		T(a_killed_run_goes_on_to_the_same_file),
		T(tied_names_share_one_storage),
		T(a_tensor_beyond_its_storage_is_not_written),
		T(storages_are_numbered_by_their_first_mention),
	};

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
