/*
 * Files of two steps that become one. If this fails, a step loses bytes to a link, two files that
 * differ are made one, or a failure on the way leaves half a step.
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

#include "libckpt/base/ck_sys.h"
#include "libckpt/retain/ck_link.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_fault.h"

static char *dir, *a, *b;
static const struct ck_link_opts hard = { .least = 5 };

static void put(const char *where, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", where, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void has(const char *where, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", where, name);
	size_t n;
	char *is = (char *)t_file_read(path, &n);

	if (!is || strcmp(is, text))
		fail_msg("%s is %s, not %s", path, is ? is : "gone", text);
	free(is);
	free(path);
}

static int is_one(const char *name)
{
	char *x = t_fmt("%s/%s", a, name), *y = t_fmt("%s/%s", b, name);
	struct stat s, t;

	assert_int_equal(lstat(x, &s), 0);
	assert_int_equal(lstat(y, &t), 0);
	free(x);
	free(y);
	return s.st_ino == t.st_ino;
}

static void make(void)
{
	for (int i = 0; i < 2; i++) {
		const char *where = i ? b : a;

		t_dir_remove(where);
		t_dir_make(where);
		t_dir_make_in(where, "zero");
		put(where, "same", "the same bytes");
		put(where, "short", "1234");
		put(where, "frozen-00000.safetensors", "1");
		put(where, "empty", "");
		put(where, "last", i ? "all but the last 1" : "all but the last 2");
		put(where, "longer", i ? "some bytes" : "some bytes more");
		put(where, "zero/deep", "bytes below");
	}
	put(a, "alone", "only here");
	put(b, "alone too", "only there");
}

static void check_bytes(void)
{
	for (int i = 0; i < 2; i++) {
		has(i ? b : a, "same", "the same bytes");
		has(i ? b : a, "short", "1234");
		has(i ? b : a, "frozen-00000.safetensors", "1");
		has(i ? b : a, "zero/deep", "bytes below");
	}
	has(a, "last", "all but the last 2");
	has(b, "last", "all but the last 1");
	has(a, "longer", "some bytes more");
	has(b, "longer", "some bytes");
}

static void only_what_is_the_same_becomes_one(void **state)
{
	const struct ck_link_opts dry = { .least = 5, .dry_run = true };
	struct ck_linked linked = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	make();
	assert_int_equal(ck_link_same(b, a, &dry, &linked, &err), 0);
	assert_int_equal(linked.files, 3);
	assert_int_equal(linked.bytes, 14 + 1 + 11);
	assert_false(is_one("same"));
	linked = (struct ck_linked){ 0 };
	assert_int_equal(ck_link_same(b, a, &hard, &linked, &err), 0);
	assert_int_equal(linked.files, 3);
	assert_true(is_one("same"));
	assert_true(is_one("frozen-00000.safetensors"));
	assert_true(is_one("zero/deep"));
	assert_false(is_one("short"));
	assert_false(is_one("last"));
	check_bytes();
	linked = (struct ck_linked){ 0 };
	assert_int_equal(ck_link_same(b, a, &hard, &linked, &err), 0);
	assert_int_equal(linked.files, 0);
}

/* Links lead elsewhere, and a file of another mode would get that of the first. */
static void what_is_not_alike_stays(void **state)
{
	char *x = t_fmt("%s/same", a), *y = t_fmt("%s/same", b), *z = t_fmt("%s/zero/deep", b);
	struct ck_linked linked = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	make();
	assert_int_equal(chmod(z, 0600), 0);
	assert_int_equal(unlink(y), 0);
	assert_int_equal(symlink(x, y), 0);
	assert_int_equal(ck_link_same(b, a, &hard, &linked, &err), 0);
	assert_int_equal(linked.files, 1);
	assert_false(is_one("same"));
	assert_false(is_one("zero/deep"));
	check_bytes();
	free(x);
	free(y);
	free(z);
}

static int halves(const char *where)
{
	char **list = t_dir_list(where, NULL);
	int n = 0;

	for (char **p = list; *p; p++)
		n += strstr(*p, ".zckpt-") != NULL;
	t_list_free(list);
	return n;
}

static void a_failure_leaves_the_bytes(void **state)
{
	static const enum t_fault_kind kinds[] = { T_FAULT_IO, T_FAULT_NOSPACE, T_FAULT_MEMORY,
						   T_FAULT_INTR, T_FAULT_SHORT, T_FAULT_FILES };

	(void)state;
	t_fault_install();
	for (size_t k = 0; k < 12; k++) {
		const enum t_fault_kind kind = kinds[k / 2];
		bool fired = true;

		for (long n = 1; fired; n++) {
			struct ck_linked linked = { 0 };
			struct ckpt_err err = { 0 };
			int rc;

			make();
			t_fault_arm(kind, n, k % 2);
			rc = ck_link_same(b, a, &hard, &linked, &err);
			fired = t_fault_fired();
			t_fault_arm(T_FAULT_IO, 0, false);
			assert_int_equal(rc, -(int)err.code);
			if (rc && (!fired || kind == T_FAULT_INTR || kind == T_FAULT_SHORT))
				fail_msg("%s at %ld: %s", t_fault_name(kind), n, err.msg);
			check_bytes();
			if (!(k % 2))
				assert_int_equal(halves(b), 0);
			if (!rc)
				assert_true(is_one("same"));
			assert_int_equal(ck_link_same(b, a, &hard, &linked, &err), 0);
			assert_int_equal(halves(b), 0);
			assert_true(is_one("same"));
		}
	}
	t_fault_remove();
}

static int (*real_link)(const char *from, const char *to);
static bool in_place;

/* A trainer saves the step anew just then: bytes of the same number. */
static int link_what_came(const char *from, const char *to)
{
	static const char other[] = "other bytes!!!";
	char *aside = t_fmt("%s.new", from);

	if (strstr(from, "/same")) {
		t_file_write(in_place ? from : aside, other, strlen(other));
		if (!in_place)
			rename(aside, from);
	}
	free(aside);
	return real_link(from, to);
}

/* A link is made by name: what is there then may be another file than the one that was compared. */
static void what_comes_meanwhile_is_no_link(void **state)
{
	(void)state;
	real_link = ck_sys.link;
	for (int i = 0; i < 2; i++) {
		struct ck_linked linked = { 0 };
		struct ckpt_err err = { 0 };

		in_place = i;
		make();
		ck_sys.link = link_what_came;
		assert_int_equal(ck_link_same(b, a, &hard, &linked, &err), -CKPT_E_MISMATCH);
		ck_sys.link = real_link;
		assert_non_null(strstr(err.where, "same"));
		has(b, "same", "the same bytes");
		has(a, "same", "other bytes!!!");
		assert_false(is_one("same"));
		assert_int_equal(halves(b), 0);
	}
}

struct shown {
	uint64_t calls, last, total;
};

static void show(void *arg, const struct ckpt_progress *now)
{
	struct shown *shown = arg;

	assert_true(now->done_bytes >= shown->last && now->done_bytes <= now->total_bytes);
	*shown = (struct shown){ shown->calls + 1, now->done_bytes, now->total_bytes };
}

static void progress_is_of_all_files_of_the_folder(void **state)
{
	struct shown shown = { 0 };
	struct ck_link_opts opts = {
		.least = 5, .progress = show, .progress_arg = &shown, .total = 68,
	};
	struct ck_linked linked = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	make();
	assert_int_equal(ck_link_same(b, a, &opts, &linked, &err), 0);
	/* those of the same size are read: same, last, zero/deep, frozen-... */
	assert_int_equal(shown.calls, 4);
	assert_int_equal(shown.total, 68);
	assert_int_equal(linked.seen, 68);
}

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	a = t_fmt("%s/a", dir);
	b = t_fmt("%s/b", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(a);
	free(b);
	t_dir_end(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_the_same_becomes_one),
		cmocka_unit_test(what_is_not_alike_stays),
		cmocka_unit_test(a_failure_leaves_the_bytes),
		cmocka_unit_test(what_comes_meanwhile_is_no_link),
		cmocka_unit_test(progress_is_of_all_files_of_the_folder),
	};

	return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
