/*
 * test_pack.c -- what goes into a pack comes out of it: whole, by ranges, from any thread.
 *
 * If this fails, a packed step is lost, or a damaged one is taken for whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/archive/t_pack.h"
#include "tests/lib/fs/t_dir.h"

#define MIB ((uint64_t)1 << 20)
#define L50 "abcdefghijklmnopqrstuvwxyz-0123456789-ABCDEFGHIJKL"

/* Sizes around blocks and frames, names that need more than a plain header. */
static const struct t_pack_file odd[] = {
	{ "step/empty", 0 },
	{ "step/one", 1 },
	{ "step/block-", 511 },
	{ "step/block", 512 },
	{ "step/block+", 513 },
	{ "step/frame", CK_PACK_FRAME },
	{ "step/frame+", CK_PACK_FRAME + 1 },
	{ "step/empty again", 0 },
	{ "step/" L50 "/" L50 "/" L50 ".pt", 700 },
	{ "step/h\xc3\xa4\xe6\x97\xa5\xf0\x9f\x99\x82 [0] 'q' \"d\" \\ $x *", 77 },
	{ "step/-rf", 5 },
	{ "step/large", 5 * CK_PACK_FRAME + 123 },
	{ "latest", 4 },
	{ "zz-empty", 0 },
};
#define NODD (sizeof(odd) / sizeof(odd[0]))

/* Two frames, the second of which begins inside a file: small enough to try every byte. */
static const struct t_pack_file small[] = {
	{ "step/a", 700 }, { "step/b/c", 0 }, { "step/b/d", 1200 }, { "latest", 4 },
};

struct reader {
	struct ck_pack *pack;
	const struct t_pack *t;
	unsigned seed;
	int bad;
};

static void *read_ranges(void *arg)
{
	struct reader *r = arg;
	const struct ck_pack_index *ix = ck_pack_index(r->pack);
	uint8_t *p = malloc(6 * MIB);
	unsigned seed = r->seed;

	for (int k = 0; p && !r->bad && k < 60; k++) {
		const size_t i = (size_t)rand_r(&seed) % r->t->n;
		const uint64_t n = r->t->file[i].bytes;
		const uint64_t from = n ? (uint64_t)rand_r(&seed) % n : 0;
		uint64_t len = n ? (uint64_t)rand_r(&seed) % (n - from + 1) : 0;

		len = len > 6 * MIB ? 6 * MIB : k % 2 && len > 100 ? 100 : len;
		r->bad = ck_pack_read(r->pack, ix->entry[i].at + from, p, len, NULL) != 0;
		for (uint64_t b = 0; !r->bad && b < len; b += b > 64 && b + 64 < len ? 61 : 1)
			r->bad = p[b] != t_pack_byte(i, from + b);
	}
	free(p);
	return NULL;
}

static void read_by_threads(const struct t_pack *t)
{
	struct ck_fdpool *pool = ck_fdpool_new(0);
	struct reader r[4];
	struct ckpt_limits limits;
	struct ck_pack *pack = NULL;
	struct ck_src *src = NULL;
	struct ckpt_err err = { 0 };
	pthread_t thread[4];

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, t->pack, &src, &err), 0);
	assert_int_equal(ck_pack_open(src, &limits, &pack, &err), 0);
	assert_non_null(pack);
	assert_int_equal(ck_pack_index(pack)->n, t->n);
	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct reader){ pack, t, 77 + i, 0 };
		assert_int_equal(pthread_create(&thread[i], NULL, read_ranges, &r[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(r[i].bad, 0);
	}
	ck_pack_close(pack);
	ck_src_close(src);
	ck_fdpool_free(pool);
}

static void what_is_packed_comes_out(void **state)
{
	struct ckpt_err err = { 0 };
	struct t_pack t;

	(void)state;
	t_pack_open(&t, odd, NODD);
	for (uint32_t threads = 1; threads <= 5; threads += 2) {
		const struct ckpt_run_opts run = t_pack_run(threads);

		if (t_pack_make(&t, &run, threads == 5 ? 4 : 1, -1, &err))
			fail_msg("%s: %s", err.where, err.msg);
		if (t_pack_unpack(&t, t.pack, &run, 0, &err))
			fail_msg("%s: %s", err.where, err.msg);
		assert_true(t_pack_is_out(&t));
		t_dir_remove(t.out);
		t_pack_nothing_else(&t, true);
	}
	read_by_threads(&t);
	t_pack_close(&t);
}

static void the_bytes_depend_on_nothing_else(void **state)
{
	const struct ckpt_run_opts one = t_pack_run(1), four = t_pack_run(4);
	struct ckpt_err err = { 0 };
	uint8_t *a, *b, *c;
	size_t n, m, k;
	struct t_pack t;
	char *path;
	int fd;

	(void)state;
	t_pack_open(&t, odd, NODD);
	path = t_fmt("%s/stream", t.dir);
	assert_int_equal(t_pack_make(&t, &one, 1, -1, &err), 0);
	a = t_file_read(t.pack, &n);
	assert_int_equal(t_pack_make(&t, &four, 1, -1, &err), 0);
	b = t_file_read(t.pack, &m);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(t_pack_make(&t, &four, 1, fd, &err), 0);
	close(fd);
	c = t_file_read(path, &k);
	assert_true(a && b && c && n == m && n == k);
	assert_memory_equal(a, b, n);
	assert_memory_equal(a, c, n);
	free(a);
	free(b);
	free(c);
	free(path);
	t_pack_close(&t);
}

/* Bytes of the two frames at the end, of the last alone. */
static size_t tail_of(const uint8_t *p, size_t n, bool both)
{
	const size_t count = ck_le32(p + n - 9), table = 8 + count * 8 + 9;

	return table + (both ? ck_le32(p + n - 9 - 8) : 0);
}

/* Without its index it is a .tar.zst like any other; cut inside it, no reader of zstd takes it. */
static void without_the_index_it_is_a_tar(void **state)
{
	const struct ckpt_run_opts run = t_pack_run(2);
	struct ckpt_err err = { 0 };
	struct t_pack t;
	uint8_t *p;
	size_t n;

	(void)state;
	t_pack_open(&t, odd, NODD);
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), 0);
	p = t_file_read(t.pack, &n);
	for (int both = 0; both < 2; both++) {
		t_file_write(t.pack, p, n - tail_of(p, n, both));
		if (t_pack_unpack(&t, t.pack, &run, 0, &err))
			fail_msg("%s: %s", err.where, err.msg);
		assert_true(t_pack_is_out(&t));
		t_dir_remove(t.out);
	}
	t_file_write(t.pack, p, n - 1);
	assert_int_equal(t_pack_unpack(&t, t.pack, &run, 0, &err), -CKPT_E_CORRUPT);
	t_pack_nothing_else(&t, true);
	free(p);
	t_pack_close(&t);
}

/* Wrong bytes never; an error, or, where the byte says nothing, the files. */
static void try_damaged(const struct t_pack *t, const uint8_t *p, size_t n, size_t *whole)
{
	const struct ckpt_run_opts run = t_pack_run(1);
	struct ckpt_err err = { 0 };

	t_file_write(t->pack, p, n);
	if (!t_pack_unpack(t, t->pack, &run, 0, &err)) {
		assert_true(t_pack_is_out(t));
		++*whole;
	} else {
		assert_true(err.code && err.msg[0]);
	}
	t_dir_remove(t->out);
	t_pack_nothing_else(t, true);
}

static void every_byte_of_a_pack_counts(void **state)
{
	const struct ckpt_run_opts run = t_pack_run(1);
	size_t n, cut_whole = 0, flip_whole = 0;
	const unsigned seed = (unsigned)getpid();
	const size_t step = getenv("ZCKPT_LONG") ? 1 : 8;
	struct ckpt_err err = { 0 };
	struct t_pack t;
	uint8_t *p;

	(void)state;
	t_pack_open(&t, small, 4);
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), 0);
	p = t_file_read(t.pack, &n);
	for (size_t i = seed % step; i < n; i += step) {
		p[i] ^= (uint8_t)(1u << (i + seed) % 8);
		try_damaged(&t, p, n, &flip_whole);
		p[i] ^= (uint8_t)(1u << (i + seed) % 8);
	}
	for (size_t i = seed % step; i < n; i += step)
		try_damaged(&t, p, i, &cut_whole);
	print_message("seed %u, every %zu of %zu bytes: %zu flips and %zu cuts leave the files "
		      "whole\n", seed, step, n, flip_whole, cut_whole);
	/* the frames at the end may be cut off, and other magic numbers are skipped by zstd */
	assert_in_range(flip_whole, 0, 40);
	assert_in_range(cut_whole, step == 1 ? 2 : 0, 2);
	free(p);
	t_pack_close(&t);
}

/* ---- trailers ---- */

struct opened {
	struct ck_fdpool *pool;
	struct ck_src *src;
	struct ck_pack *pack;
};

static void open_pack(struct opened *o, const char *path)
{
	struct ckpt_limits limits;
	struct ckpt_err err = { 0 };

	ck_limits_fill(NULL, &limits);
	o->pool = ck_fdpool_new(0);
	if (ck_src_open(o->pool, path, &o->src, &err) ||
	    ck_pack_open(o->src, &limits, &o->pack, &err) || !o->pack)
		fail_msg("%s: %s", path, err.msg);
}

static void close_pack(struct opened *o)
{
	ck_pack_close(o->pack);
	ck_src_close(o->src);
	ck_fdpool_free(o->pool);
}

/* A frame with blocks of literals and of sequences. */
static const struct t_pack_file mixed[] = { { "step/a", 9000 }, { "step/b", 40000 } };

/* Also of those that decode to the same bytes: before trailers there were some. */
static void no_flip_in_a_frame_is_taken(void **state)
{
	const struct ckpt_run_opts run = t_pack_run(1);
	uint8_t *content = t_alloc(CK_PACK_FRAME), byte, flipped;
	struct ckpt_err err = { 0 };
	unsigned long taken = 0;
	struct opened o;
	struct t_pack t;
	int fd;

	(void)state;
	t_pack_open(&t, mixed, 2);
	assert_int_equal(t_pack_make(&t, &run, 3, -1, &err), 0);
	fd = open(t.pack, O_RDWR);
	open_pack(&o, t.pack);
	assert_int_equal(ck_pack_frame(o.pack, 0, content, &err), 0);
	for (uint32_t bit = 0; bit < 8 * ck_pack_index(o.pack)->frame[0].bytes; bit++) {
		assert_int_equal(pread(fd, &byte, 1, bit / 8), 1);
		flipped = (uint8_t)(byte ^ 1u << bit % 8);
		assert_int_equal(pwrite(fd, &flipped, 1, bit / 8), 1);
		memset(&err, 0, sizeof(err));
		if (!ck_pack_frame(o.pack, 0, content, &err))
			taken++;
		else
			assert_int_equal(err.code, CKPT_E_CORRUPT);
		assert_int_equal(pwrite(fd, &byte, 1, bit / 8), 1);
	}
	assert_int_equal(taken, 0);
	assert_int_equal(ck_pack_frame(o.pack, 0, content, &err), 0);
	close_pack(&o);
	close(fd);
	free(content);
	t_pack_close(&t);
}

/* As versions before trailers wrote it: the frames closer together, and another index. */
static uint8_t *without_trailers(const uint8_t *p, const struct ck_pack_index *ix, size_t *n_out)
{
	struct ck_pack_index old = *ix;
	struct ck_buf out = CK_BUF_INIT(1 << 30);
	struct ckpt_err err = { 0 };
	uint8_t *made;
	int rc = 0;

	old.frame = t_alloc(ix->nframes * sizeof(*old.frame));
	for (uint64_t i = 0; !rc && i < ix->nframes; i++) {
		old.frame[i] = ix->frame[i];
		old.frame[i].off = out.len;
		old.frame[i].bytes -= CK_PACK_TRAILER;
		rc = ck_buf_add(&out, p + ix->frame[i].off, old.frame[i].bytes, &err);
	}
	if (!rc)
		rc = ck_pack_index_write(&old, &out, &err);
	assert_int_equal(rc, 0);
	made = t_alloc(out.len);
	memcpy(made, out.p, out.len);
	*n_out = out.len;
	ck_buf_release(&out);
	free(old.frame);
	return made;
}

static void packs_without_trailers_are_read(void **state)
{
	const struct ckpt_run_opts run = t_pack_run(2);
	struct ckpt_err err = { 0 };
	struct opened o;
	struct t_pack t;
	uint8_t *p, *old;
	size_t n, m;

	(void)state;
	t_pack_open(&t, odd, NODD);
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), 0);
	p = t_file_read(t.pack, &n);
	open_pack(&o, t.pack);
	old = without_trailers(p, ck_pack_index(o.pack), &m);
	assert_int_equal(n - m, ck_pack_index(o.pack)->nframes * CK_PACK_TRAILER);
	close_pack(&o);
	t_file_write(t.pack, old, m);
	read_by_threads(&t);
	if (t_pack_unpack(&t, t.pack, &run, 0, &err))
		fail_msg("%s: %s", err.where, err.msg);
	assert_true(t_pack_is_out(&t));
	free(old);
	free(p);
	t_pack_close(&t);
}

struct changer {
	char *path;
	int done;
};

static void change(void *arg, const struct ckpt_progress *now)
{
	struct changer *c = arg;

	if (c->done++ || !now->done_bytes)
		return;
	t_file_write(c->path, "other", 5);
}

static void a_file_that_changes_is_an_error(void **state)
{
	struct ckpt_run_opts run = t_pack_run(1);
	struct ckpt_err err = { 0 };
	struct changer c = { 0 };
	struct t_pack t;

	(void)state;
	t_pack_open(&t, odd, NODD);
	c.path = t_fmt("%s/in/f1", t.dir);	/* read already: only its time tells */
	run.progress = change;
	run.progress_arg = &c;
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), -CKPT_E_MISMATCH);
	t_pack_nothing_else(&t, false);
	free(c.path);
	/* not yet read: it is short */
	c = (struct changer){ .path = t_fmt("%s/in/f11", t.dir) };
	memset(&err, 0, sizeof(err));
	assert_true(t_pack_make(&t, &run, 1, -1, &err) < 0);
	assert_true(err.code == CKPT_E_TRUNCATED || err.code == CKPT_E_MISMATCH);
	t_pack_nothing_else(&t, false);
	free(c.path);
	t_pack_close(&t);
}

static void a_run_that_is_canceled_leaves_nothing(void **state)
{
	static const volatile int yes = 1;
	struct ckpt_run_opts run = t_pack_run(2);
	struct ckpt_err err = { 0 };
	struct t_pack t;

	(void)state;
	t_pack_open(&t, odd, NODD);
	run.cancel = &yes;
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), -CKPT_E_CANCELED);
	t_pack_nothing_else(&t, false);
	run.cancel = NULL;
	memset(&err, 0, sizeof(err));
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), 0);
	run.cancel = &yes;
	assert_int_equal(t_pack_unpack(&t, t.pack, &run, 0, &err), -CKPT_E_CANCELED);
	t_pack_nothing_else(&t, true);
	t_pack_close(&t);
}

static uint64_t disk_left;

static int statvfs_of_a_small_disk(const char *path, struct statvfs *st)
{
	(void)path;
	memset(st, 0, sizeof(*st));
	st->f_blocks = 1 << 20;
	st->f_frsize = 1;
	st->f_bavail = disk_left;
	return 0;
}

/* Before the first byte; a dry run asks the same. */
static void a_disk_that_is_too_small_is_refused_up_front(void **state)
{
	int (*const real)(const char *path, struct statvfs *st) = ck_sys.statvfs;
	const struct ckpt_run_opts run = t_pack_run(2);
	uint64_t bytes = 0;
	struct t_pack t;

	(void)state;
	t_pack_open(&t, odd, NODD);
	for (size_t i = 0; i < NODD; i++)
		bytes += odd[i].bytes;
	assert_int_equal(t_pack_make(&t, &run, 1, -1, NULL), 0);
	ck_sys.statvfs = statvfs_of_a_small_disk;
	for (int dry = 1; dry >= 0; dry--) {
		const unsigned flags = dry ? CKPT_WRITE_DRY_RUN : 0;

		disk_left = bytes - 1;
		assert_int_equal(t_pack_unpack(&t, t.pack, &run, flags, NULL), -CKPT_E_NOSPACE);
		t_pack_nothing_else(&t, true);
		disk_left = bytes;
		assert_int_equal(t_pack_unpack(&t, t.pack, &run, flags, NULL), 0);
	}
	ck_sys.statvfs = real;
	assert_true(t_pack_is_out(&t));
	t_pack_close(&t);
}

/* ---- headers of files that need not be there ---- */

struct heads {
	struct ck_pack_index ix;
	struct ck_pack_entry entry[4];
	struct ck_buf buf;
	struct ck_tar_gaps gaps;
};

/* As a pack of these files has them, the files' own bytes left out. */
static void make_heads(struct heads *h, const struct ck_tar_file *file, size_t n)
{
	uint64_t at = 0, pos[8];
	struct ckpt_err err = { 0 };

	*h = (struct heads){ .buf = CK_BUF_INIT(1 << 20) };
	for (size_t i = 0; i < n; i++) {
		pos[i] = h->buf.len;
		if (ck_tar_header(&file[i], &h->buf, &err))
			fail_msg("%s: %s", file[i].name, err.msg);
		h->entry[i] = (struct ck_pack_entry){ .name = file[i].name,
						      .bytes = file[i].bytes };
		h->entry[i].at = at + (h->buf.len - pos[i]);
		at = h->entry[i].at + file[i].bytes + ck_tar_pad(file[i].bytes);
	}
	h->ix.entry = h->entry;
	h->ix.n = n;
	h->ix.content = at + CK_TAR_END;
	assert_int_equal(ck_tar_gaps_init(&h->gaps, &h->ix, 1 << 20, &err), 0);
	memset(h->gaps.bytes, 0, h->gaps.pos[n + 1]);
	pos[n] = h->buf.len;
	for (size_t i = 0; i < n; i++) {
		const uint64_t len = pos[i + 1] - pos[i];

		memcpy(h->gaps.bytes + h->gaps.pos[i + 1] - len, h->buf.p + pos[i], len);
	}
}

static void end_heads(struct heads *h)
{
	ck_tar_gaps_release(&h->gaps);
	ck_buf_release(&h->buf);
}

static void headers_of_huge_files_and_long_names(void **state)
{
	const struct ck_tar_file file[] = {
		{ .name = "a/huge", .bytes = ((uint64_t)9 << 30) + 7,
		  .mtime_ns = 1700000000999999999 },
		{ .name = L50 "/" L50 "/" L50, .bytes = ((uint64_t)1 << 43) + 1, .mtime_ns = -1 },
		{ .name = "x", .bytes = ((uint64_t)8 << 30) - 1, .executable = true },
	};
	struct ckpt_err err = { 0 };
	struct heads h;

	(void)state;
	make_heads(&h, file, 3);
	if (ck_tar_check(&h.ix, &h.gaps, "here", &err))
		fail_msg("%s", err.msg);
	end_heads(&h);
}

/* The index says one thing, the headers another. */
static void a_second_account_that_differs_is_refused(void **state)
{
	const struct ck_tar_file file[] = {
		{ .name = "a", .bytes = 10 },
		{ .name = "b", .bytes = 0 },
		{ .name = "c", .bytes = 5 },
	};

	(void)state;
	for (int k = 0; k < 6; k++) {
		struct ckpt_err err = { 0 };
		struct heads h;

		make_heads(&h, file, 3);
		if (k == 0)
			h.entry[0].name = "A";
		else if (k == 1)
			h.entry[2].bytes = 6;
		else if (k == 2)
			h.gaps.bytes[156] = '2';	/* a link; its header's sum is wrong, too */
		else if (k == 3)
			memset(h.gaps.bytes + h.gaps.pos[1], 0, 512);	/* the end, too early */
		else if (k == 4)
			h.ix.n = 2;	/* one header more than files */
		else
			h.gaps.bytes[0] = 'Z';
		if (k == 4) {
			ck_tar_gaps_release(&h.gaps);
			assert_int_equal(ck_tar_gaps_init(&h.gaps, &h.ix, 1 << 20, &err), 0);
			memset(h.gaps.bytes, 0, h.gaps.pos[3]);
			memcpy(h.gaps.bytes, h.buf.p, 512);
			memcpy(h.gaps.bytes + h.gaps.pos[1] + 502, h.buf.p + 512, 512);
			memcpy(h.gaps.bytes + h.gaps.pos[2], h.buf.p + 1024, 512);
		}
		assert_int_equal(ck_tar_check(&h.ix, &h.gaps, "here", &err), -CKPT_E_CORRUPT);
		end_heads(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_packed_comes_out),
		cmocka_unit_test(the_bytes_depend_on_nothing_else),
		cmocka_unit_test(without_the_index_it_is_a_tar),
		cmocka_unit_test(every_byte_of_a_pack_counts),
		cmocka_unit_test(no_flip_in_a_frame_is_taken),
		cmocka_unit_test(packs_without_trailers_are_read),
		cmocka_unit_test(a_file_that_changes_is_an_error),
		cmocka_unit_test(a_run_that_is_canceled_leaves_nothing),
		cmocka_unit_test(a_disk_that_is_too_small_is_refused_up_front),
		cmocka_unit_test(headers_of_huge_files_and_long_names),
		cmocka_unit_test(a_second_account_that_differs_is_refused),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
