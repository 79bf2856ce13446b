/*
 * test_pack_hostile.c -- archives that were made to do harm, or that are no longer what they were.
 *
 * If this fails, `unpack` writes where it was not told to, follows a link out of its folder, makes
 * a device, fills the disk, or leaves half a result; or an index makes a reader step out of bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "libckpt/format/ck_limits.h"
#include "tests/lib/archive/t_pack.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"

static struct t_pack scene;

static int open_scene(void **state)
{
	(void)state;
	t_pack_open(&scene, NULL, 0);
	return 0;
}

static int close_scene(void **state)
{
	(void)state;
	t_pack_close(&scene);
	return 0;
}

static int unpack_bytes(const void *p, size_t n, unsigned flags, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = t_pack_run(2);

	memset(err, 0, sizeof(*err));
	t_file_write(scene.pack, p, n);
	return t_pack_unpack(&scene, scene.pack, &run, flags, err);
}

/* Refused with that code, in words, and nothing is there. */
static void refused(const void *p, size_t n, int code, const char *words)
{
	struct ckpt_err err;
	const int rc = unpack_bytes(p, n, 0, &err);

	if (rc != -code || !strstr(err.msg, words))
		fail_msg("%d, not %d, '%s' wanted: %s", rc, -code, words, err.msg);
	t_pack_nothing_else(&scene, true);
}

/* The archive as it is, and compressed. */
static void refused_tar(struct t_tar *t, int code, const char *words)
{
	const size_t room = ZSTD_compressBound(t->n);
	uint8_t *z = t_alloc(room);
	size_t n;

	t_tar_end(t);
	refused(t->p, t->n, code, words);
	n = ZSTD_compress(z, room, t->p, t->n, 1);
	assert_false(ZSTD_isError(n));
	refused(z, n, code, words);
	free(z);
	free(t->p);
	*t = (struct t_tar){ 0 };
}

static void names_that_lead_elsewhere(void **state)
{
	static const struct {
		const char *name, *words;
	} bad[] = {
		{ "/etc/passwd", "absolute" }, { "../x", ".." }, { "a/../../x", ".." },
		{ "a/..", ".." }, { "..", ".." }, { "a//b", "empty component" },
		{ "a/./b", "'.'" }, { ".", "'.'" }, { "a\nb", "control" }, { "a\x7f", "control" },
		{ "a/\xff", "UTF-8" }, { "a/\xc0\xae", "UTF-8" }, { "\xed\xa0\x80", "UTF-8" },
		{ "a/", "empty component" }, { ".//..//x", ".." },
	};
	struct t_tar t = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		t_tar_add(&t, "good", '0', NULL, "1", 1);
		t_tar_add(&t, bad[i].name, '0', NULL, "12345", 5);
		/* libarchive takes a file whose name ends in a slash for a folder */
		if (!strcmp(bad[i].name, "a/")) {
			free(t.p);
			t = (struct t_tar){ 0 };
			continue;
		}
		refused_tar(&t, CKPT_E_UNSAFE, bad[i].words);
	}
	t_tar_add(&t, "../d/", '5', NULL, NULL, 0);
	t_tar_add(&t, "good", '0', NULL, "1", 1);
	refused_tar(&t, CKPT_E_UNSAFE, "..");
}

/* The name that counts is the one of the extended header. */
static void a_long_name_that_leads_elsewhere(void **state)
{
	char pax[64];
	struct t_tar t = { 0 };
	const char *gnu = "../../gnu";

	(void)state;
	snprintf(pax, sizeof(pax), "%d path=../../x/y\n", 18);
	t_tar_add(&t, "PaxHeaders/x", 'x', NULL, pax, 18);
	t_tar_add(&t, "x", '0', NULL, "1", 1);
	refused_tar(&t, CKPT_E_UNSAFE, "..");
	t_tar_add(&t, "././@LongLink", 'L', NULL, gnu, strlen(gnu) + 1);
	t_tar_add(&t, "x", '0', NULL, "1", 1);
	refused_tar(&t, CKPT_E_UNSAFE, "..");
}

static void what_is_no_file(void **state)
{
	static const struct {
		char type;
		const char *link, *words;
	} bad[] = {
		{ '1', "good", "hard link" }, { '2', "/tmp", "symbolic link" },
		{ '2', "good", "symbolic link" }, { '3', NULL, "device" }, { '4', NULL, "device" },
		{ '6', NULL, "fifo" },
	};
	struct t_tar t = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		t_tar_add(&t, "step/good", '0', NULL, "1", 1);
		t_tar_add(&t, "step/bad", bad[i].type, bad[i].link, NULL, 0);
		t_tar_add(&t, "step/bad/x", '0', NULL, "1", 1);
		refused_tar(&t, CKPT_E_UNSAFE, bad[i].words);
	}
}

static void names_that_meet(void **state)
{
	struct t_tar t = { 0 };

	(void)state;
	t_tar_add(&t, "step/a", '0', NULL, "1", 1);
	t_tar_add(&t, "./step/a", '0', NULL, "2", 1);
	refused_tar(&t, CKPT_E_UNSAFE, "two files of the same name");
	t_tar_add(&t, "step/a", '0', NULL, "1", 1);
	t_tar_add(&t, "step/a-b", '0', NULL, "2", 1);
	t_tar_add(&t, "step/a/b", '0', NULL, "2", 1);
	refused_tar(&t, CKPT_E_UNSAFE, "also a file");
}

static void what_is_no_archive(void **state)
{
	static const uint8_t zeros[10240];
	struct t_tar t = { 0 };

	(void)state;
	refused("hello, this is no archive at all", 32, CKPT_E_FORMAT, "not a pack");
	refused("", 0, CKPT_E_FORMAT, "not a pack");
	t_tar_add(&t, "step/", '5', NULL, NULL, 0);
	refused_tar(&t, CKPT_E_FORMAT, "no file");
	refused(zeros, sizeof(zeros), CKPT_E_FORMAT, "no file");
	t_tar_add(&t, "step/a", '0', NULL, zeros, 5000);
	refused(t.p, 2000, CKPT_E_CORRUPT, "cannot be read");	/* cut inside the file */

	free(t.p);
}

/* 3 GiB of zeros in 300 kB. */
static void a_bomb_is_refused(void **state)
{
	const size_t chunk = 1 << 20, want = (size_t)3 << 30;
	uint8_t *zeros = calloc(1, chunk);
	ZSTD_CCtx *ctx = ZSTD_createCCtx();
	ZSTD_outBuffer out = { t_alloc(8 << 20), 8 << 20, 0 };
	struct t_tar t = { 0 };
	unsigned sum = 0;

	(void)state;
	t_tar_add(&t, "step/bomb", '0', NULL, "", 0);
	snprintf((char *)t.p + 124, 12, "%011zo", want);
	memset(t.p + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += t.p[i];
	snprintf((char *)t.p + 148, 8, "%06o", sum);
	for (size_t at = 0; at <= want; at += chunk) {
		ZSTD_inBuffer in = { at ? zeros : t.p, at ? chunk : 512, 0 };

		ZSTD_compressStream2(ctx, &out, &in, at < want ? ZSTD_e_continue : ZSTD_e_end);
		assert_int_equal(in.pos, in.size);
	}
	refused(out.dst, out.pos, CKPT_E_LIMIT, "would unpack to more than");
	ZSTD_freeCCtx(ctx);
	free(out.dst);
	free(zeros);
	free(t.p);
}

/* ---- zip ---- */

/* Central entry i: made by Unix, with this mode. */
static void set_mode(struct t_zip *z, size_t i, unsigned mode)
{
	uint8_t *p = z->p + z->entry[i].central;

	p[5] = 3;
	t_put32(p + 38, (uint32_t)mode << 16);
}

static void zips_are_looked_at_the_same_way(void **state)
{
	struct ckpt_err err;
	struct t_zip z = { 0 };
	uint8_t *got;
	size_t n;
	char *path;

	(void)state;
	t_zip_add(&z, "step/a", "hello", 5);
	t_zip_deflate(&z, "step/b/c", "hello hello hello hello", 23);
	t_zip_end(&z);
	assert_int_equal(unpack_bytes(z.p, z.n, 0, &err), 0);
	path = t_fmt("%s/step/b/c", scene.out);
	got = t_file_read(path, &n);
	assert_true(got && n == 23 && !memcmp(got, "hello hello hello hello", 23));
	free(got);
	free(path);
	t_dir_remove(scene.out);
	z.p[z.entry[0].data] ^= 1;
	refused(z.p, z.n, CKPT_E_CORRUPT, "cannot be read");	/* its CRC */
	z.p[z.entry[0].data] ^= 1;
	set_mode(&z, 0, 0120777);
	refused(z.p, z.n, CKPT_E_UNSAFE, "symbolic link");
	free(z.p);
	z = (struct t_zip){ 0 };
	t_zip_add(&z, "../a", "hello", 5);
	t_zip_end(&z);
	refused(z.p, z.n, CKPT_E_UNSAFE, "..");
	free(z.p);
}

/* ---- the index of a pack ---- */

static const struct t_pack_file files[] = { { "step/a", 700 }, { "step/b", 5 }, { "step/c", 0 } };

struct bend {
	size_t off;		/* in the index, from its "ZCKPTPAK" */
	uint64_t value;
	int bytes;
	int code;
};

static void put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* With the hash made right again, so that what is behind it is met. */
static void an_index_that_lies_is_refused(void **state)
{
	enum { FRAME = 48, ENTRY = 48 + 32 };
	static const struct bend bends[] = {
		{ 0, 'z', 1, CKPT_E_CORRUPT }, { 8, 2, 4, CKPT_E_UNSUPPORTED },
		{ 12, 1, 4, CKPT_E_UNSUPPORTED }, { 16, 1, 8, CKPT_E_CORRUPT },
		{ 16, UINT64_MAX, 8, CKPT_E_CORRUPT }, { 24, 2, 8, CKPT_E_CORRUPT },
		{ 24, UINT64_MAX, 8, CKPT_E_CORRUPT },
		{ 24, UINT64_MAX / 32 + 1, 8, CKPT_E_CORRUPT },
		{ 32, 2, 8, CKPT_E_CORRUPT }, { 32, 4, 8, CKPT_E_CORRUPT },
		{ 32, UINT64_MAX / 48 + 1, 8, CKPT_E_CORRUPT }, { 40, 0, 8, CKPT_E_CORRUPT },
		{ 40, UINT64_MAX, 8, CKPT_E_CORRUPT },
		{ FRAME, 1, 8, CKPT_E_CORRUPT }, { FRAME + 8, UINT32_MAX, 4, CKPT_E_CORRUPT },
		{ FRAME + 8, 0, 4, CKPT_E_CORRUPT }, { FRAME + 12, 0, 4, CKPT_E_CORRUPT },
		{ FRAME + 12, (16 << 20) + 1, 4, CKPT_E_CORRUPT },
		{ FRAME + 16, 1, 8, CKPT_E_CORRUPT },
		{ FRAME + 24, 1, 8, CKPT_E_CORRUPT },
		{ ENTRY, 0, 8, CKPT_E_CORRUPT }, { ENTRY, 513, 8, CKPT_E_CORRUPT },
		{ ENTRY, UINT64_MAX - 511, 8, CKPT_E_CORRUPT },
		{ ENTRY + 8, 701, 8, CKPT_E_CORRUPT },
		{ ENTRY + 8, UINT64_MAX, 8, CKPT_E_CORRUPT },
		{ ENTRY + 24, 100, 4, CKPT_E_CORRUPT },
		{ ENTRY + 24, 6, 4, CKPT_E_UNSAFE },	/* the next one's name */
		{ ENTRY + 28, 0, 4, CKPT_E_UNSAFE },
		{ ENTRY + 28, UINT32_MAX, 4, CKPT_E_CORRUPT },
		{ ENTRY + 28, 5, 4, CKPT_E_UNSAFE },	/* "step/" */
		{ ENTRY + 28, 4, 4, CKPT_E_UNSAFE },	/* "step", a folder of the others */
		{ ENTRY + 32, 1, 8, CKPT_E_CORRUPT }, { ENTRY + 144, '.', 1, CKPT_E_CORRUPT },
		{ ENTRY + 144, '/', 1, CKPT_E_UNSAFE }, { ENTRY + 144 + 4, 0, 1, CKPT_E_UNSAFE },
		{ ENTRY + 48, 512, 8, CKPT_E_CORRUPT },	/* inside the file before */
	};
	const struct ckpt_run_opts run = t_pack_run(1);
	struct ckpt_err err = { 0 };
	struct t_pack t;
	size_t n, begin, len;
	uint8_t *p, *q;

	(void)state;
	t_pack_open(&t, files, 3);
	assert_int_equal(t_pack_make(&t, &run, 1, -1, &err), 0);
	p = t_file_read(t.pack, &n);
	len = ck_le32(p + n - 9 - 8);
	begin = n - 9 - 2 * 8 - 8 - len + 8;
	len -= 8;
	assert_memory_equal(p + begin, "ZCKPTPAK", 8);
	q = t_alloc(n);
	for (size_t i = 0; i < sizeof(bends) / sizeof(bends[0]); i++) {
		const struct bend *b = &bends[i];
		struct ck_hash128 sum;
		int rc;

		memcpy(q, p, n);
		put(q + begin + b->off, b->value, b->bytes);
		sum = ck_hash128(q + begin, len - 16);
		put(q + begin + len - 16, sum.lo, 8);
		put(q + begin + len - 8, sum.hi, 8);
		t_file_write(t.pack, q, n);
		memset(&err, 0, sizeof(err));
		rc = t_pack_unpack(&t, t.pack, &run, 0, &err);
		if (rc != -b->code)
			fail_msg("bend %zu at %zu: %d, not %d: %s", i, b->off, rc, -b->code,
				 err.msg);
		t_pack_nothing_else(&t, true);
	}
	free(q);
	free(p);
	t_pack_close(&t);
}

/* ---- where it goes ---- */

static void write_tar(const char *name, const char *text)
{
	struct t_tar t = { 0 };

	t_tar_add(&t, "step9/a", '0', NULL, text, strlen(text));
	if (name)
		t_tar_add(&t, name, '0', NULL, text, strlen(text));
	t_tar_end(&t);
	t_file_write(scene.pack, t.p, t.n);
	free(t.p);
}

static char *read_out(const char *name)
{
	char *path = t_fmt("%s/%s", scene.out, name);
	size_t n;
	char *text = (char *)t_file_read(path, &n);

	free(path);
	return text;
}

static void is_out(const char *name, const char *text)
{
	char *got = read_out(name);

	if (!got || strcmp(got, text))
		fail_msg("%s holds '%s', not '%s'", name, got ? got : "nothing", text);
	free(got);
}

static void what_stands_there_is_kept(void **state)
{
	const struct ckpt_run_opts run = t_pack_run(1);
	struct ckpt_err err = { 0 };
	char *other;

	(void)state;
	t_dir_make(scene.out);
	t_dir_make_in(scene.out, "step8");
	other = t_fmt("%s/step8/a", scene.out);
	t_file_write(other, "old", 3);
	free(other);
	write_tar("latest", "one");
	assert_int_equal(t_pack_unpack(&scene, scene.pack, &run, 0, &err), 0);
	is_out("step8/a", "old");
	is_out("step9/a", "one");
	is_out("latest", "one");
	write_tar("latest", "two");
	assert_int_equal(t_pack_unpack(&scene, scene.pack, &run, 0, &err), -CKPT_E_EXISTS);
	is_out("step9/a", "one");
	is_out("latest", "one");
	memset(&err, 0, sizeof(err));
	if (t_pack_unpack(&scene, scene.pack, &run, CKPT_WRITE_FORCE, &err))
		fail_msg("%s", err.msg);
	is_out("step8/a", "old");
	is_out("step9/a", "two");
	is_out("latest", "two");
	/* a file beside the step */
	write_tar("notes", "mine");
	t_dir_remove(scene.out);
	t_dir_make(scene.out);
	other = t_fmt("%s/notes", scene.out);
	t_file_write(other, "yours", 5);
	assert_int_equal(t_pack_unpack(&scene, scene.pack, &run, 0, &err), -CKPT_E_EXISTS);
	is_out("notes", "yours");
	t_dir_remove(other);
	assert_int_equal(symlink("/etc/passwd", other), 0);
	memset(&err, 0, sizeof(err));
	assert_int_equal(t_pack_unpack(&scene, scene.pack, &run, CKPT_WRITE_FORCE, &err),
			 -CKPT_E_EXISTS);
	assert_int_equal(unlink(other), 0);
	free(other);
	/* two folders cannot go beside others */
	write_tar("step7/b", "x");
	other = t_fmt("%s/keep", scene.out);
	t_file_write(other, "k", 1);
	free(other);
	memset(&err, 0, sizeof(err));
	assert_int_equal(t_pack_unpack(&scene, scene.pack, &run, CKPT_WRITE_FORCE, &err),
			 -CKPT_E_EXISTS);
	is_out("keep", "k");
	t_dir_remove(scene.out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_lead_elsewhere),
		cmocka_unit_test(a_long_name_that_leads_elsewhere),
		cmocka_unit_test(what_is_no_file),
		cmocka_unit_test(names_that_meet),
		cmocka_unit_test(what_is_no_archive),
		cmocka_unit_test(a_bomb_is_refused),
		cmocka_unit_test(zips_are_looked_at_the_same_way),
		cmocka_unit_test(an_index_that_lies_is_refused),
		cmocka_unit_test(what_stands_there_is_kept),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, open_scene, close_scene);
}
