/*
 * Virtual files. If this fails, a server or a mount hands out other bytes than `convert` writes,
 * or bytes of a damaged file, and the model that loads them is wrong without a message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_step.h"
#include "tests/lib/run/t_seed.h"

static const char *const all_states[] = { "all", NULL };

/* What is served: each type of weights, and the states. */
struct form {
	int dtype;
	const char *const *states;
};
static const struct form forms[] = {
	{ CKPT_KEEP, NULL }, { 0, NULL }, { CKPT_BF16, NULL }, { CKPT_F16, NULL },
	{ 0, all_states },
};
#define NFORMS (sizeof(forms) / sizeof(forms[0]))

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return n ? random_state % n : 0;
}

static struct ckpt *open_path(const char *path)
{
	struct ckpt *ck = NULL;

	return ckpt_open(&path, 1, NULL, &ck, NULL) ? NULL : ck;
}

static int open_view(struct ckpt *ck, const struct form *form, struct ckpt_view **view,
		     struct ckpt_err *err)
{
	const struct ckpt_view_opts o = {
		.size = sizeof(o), .dtype = form->dtype, .states = form->states,
	};

	return ckpt_view_open(ck, &o, view, err);
}

/* What `convert` writes of it into a new folder; its code. */
static int convert(const char *path, const struct form *form, const char *dst)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .sync = CKPT_SYNC_NONE };
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .run = &run, .dtype = form->dtype, .states = form->states,
		.max_shard_bytes = UINT64_MAX, .flags = CKPT_CONVERT_NO_SUMS,
	};
	struct ckpt *ck = open_path(path);
	const int rc = ck ? ckpt_convert(ck, dst, &o, NULL, NULL) : -CKPT_E_FORMAT;

	ckpt_close(ck);
	return rc;
}

/* All of it, then ranges anywhere: also empty ones, and single bytes of an element. */
static void same_bytes(struct ckpt_view *view, uint64_t file, const uint8_t *want, size_t n,
		       const char *what)
{
	uint8_t *buf = t_alloc(n + 1);
	struct ckpt_err err = { 0 };

	if (ckpt_view_read(view, file, 0, n, buf, &err))
		fail_msg("%s: %s: %s", what, err.where, err.msg);
	if (memcmp(buf, want, n))
		fail_msg("%s: the view has other bytes", what);
	for (int i = 0; i < 24; i++) {
		const uint64_t off = random_below(n + 1);
		const uint64_t k = random_below(i % 3 ? 40 : n - off + 1);
		const uint64_t take = k < n - off ? k : n - off;

		memset(buf, 0xa5, n);
		assert_int_equal(ckpt_view_read(view, file, off, take, buf, NULL), 0);
		if (memcmp(buf, want + off, take))
			fail_msg("%s: other bytes in %llu+%llu", what, (unsigned long long)off,
				 (unsigned long long)take);
		assert_true(buf[take] == 0xa5 || take == n);
	}
	assert_int_equal(ckpt_view_read(view, file, n, 1, buf, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_view_read(view, file, UINT64_MAX, 2, buf, NULL), -CKPT_E_USAGE);
	free(buf);
}

/* Every file of the folder is in the view, and no other. */
static void same_files(struct ckpt_view *view, const char *dir, const char *what)
{
	size_t n;
	char **name = t_dir_list(dir, &n);

	assert_int_equal(ckpt_view_file_count(view), n);
	for (size_t i = 0; i < n; i++) {
		char *path = t_fmt("%s/%s", dir, name[i]);
		struct ckpt_view_file f;
		uint64_t file;
		size_t bytes;
		uint8_t *p = t_file_read(path, &bytes);

		if (ckpt_view_find(view, name[i], &file, NULL))
			fail_msg("%s: the view has no %s", what, name[i]);
		assert_int_equal(ckpt_view_file_get(view, file, &f, NULL), 0);
		assert_int_equal(f.bytes, bytes);
		assert_int_equal(strlen(f.etag), 32);
		same_bytes(view, file, p, bytes, what);
		free(p);
		free(path);
	}
	t_list_free(name);
}

/* True if all can be read; what a sparse file announces in terabytes is not tried. */
static int is_readable(struct ckpt_view *view)
{
	struct ckpt_view_file f;
	int good = 1;

	for (uint64_t i = 0; good && i < ckpt_view_file_count(view); i++) {
		uint8_t *buf;

		ckpt_view_file_get(view, i, &f, NULL);
		if (f.bytes > (uint64_t)64 << 20)
			return 0;
		buf = t_alloc(f.bytes + 1);
		good = !ckpt_view_read(view, i, 0, f.bytes, buf, NULL);
		free(buf);
	}
	return good;
}

/* The forms of a checkpoint that `convert` writes; 0 where it writes none. */
static int compare_all(const char *path, const char *dir)
{
	struct ckpt *ck = open_path(path);
	int done = 0;

	for (size_t i = 0; ck && i < NFORMS; i++) {
		char *dst = t_fmt("%s/out", dir);
		struct ckpt_view *view = NULL;
		struct ckpt_err err = { 0 };
		const int want = convert(path, &forms[i], dst);
		const int rc = open_view(ck, &forms[i], &view, &err);

		if (want && !rc && is_readable(view)) {
			fail_msg("%s, form %zu: convert refuses it, the view does not", path, i);
		} else if (!want && rc) {
			fail_msg("%s, form %zu: %s", path, i, err.msg);
		} else if (!want) {
			same_files(view, dst, path);
			done++;
		}
		ckpt_view_close(view);
		t_dir_remove(dst);
		free(dst);
	}
	ckpt_close(ck);
	return done;
}

/* One of five, or all of them with ZCKPT_LONG. */
static int is_drawn(void)
{
	static unsigned calls;

	return t_is_long() || !(calls++ % 5);
}

static void a_view_has_the_bytes_of_convert(void **state)
{
	char *root = t_fixture("deepspeed"), *dir = t_dir_new();
	char **name = t_dir_list(root, NULL);
	int done = 0;

	(void)state;
	for (size_t i = 0; name[i]; i++) {
		char *path = t_fmt("%s/%s/ckpt", root, name[i]);

		if (t_is_dir(path) && is_drawn())
			done += compare_all(path, dir);
		free(path);
	}
	assert_true(done > 80);
	t_list_free(name);
	t_dir_end(dir);
	free(root);
}

static int compare_below(const char *root, const char *dir)
{
	char **name = t_dir_list(root, NULL);
	int done = 0;

	for (size_t i = 0; name[i]; i++) {
		char *path = t_fmt("%s/%s", root, name[i]);

		if (is_drawn())
			done += compare_all(path, dir);
		if (t_is_dir(path))
			done += compare_below(path, dir);
		free(path);
	}
	t_list_free(name);
	return done;
}

/* Odd types, views, deflated members, big-endian files, shards. */
static void so_has_one_of_every_other_format(void **state)
{
	static const char *const folders[] = { "safetensors", "torch", "hf", "legacy", "zip" };
	char *dir = t_dir_new();
	int done = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		char *name = t_fmt("formats/%s", folders[i]), *root = t_fixture(name);

		done += compare_below(root, dir);
		free(root);
		free(name);
	}
	assert_true(done > 20);
	t_dir_end(dir);
}

/* Files of several archives, one after the other. */
static void so_has_a_step_of_fsdp(void **state)
{
	char *dir = t_dir_new(), *root = t_fixture("fsdp");

	(void)state;
	assert_true(compare_below(root, dir) > 6);
	t_dir_end(dir);
	free(root);
}

static void so_have_a_native_step_and_a_pack(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *from = t_fmt("%s/ckpt", dir);
	char *nat = t_fmt("%s/nat", dir), *pack = t_fmt("%s/p.tar.zst", dir);
	const struct ckpt_pack_opts o = { .size = sizeof(o) };
	struct ckpt *ck;

	(void)state;
	t_load_reshard(from, nat, CKPT_TO_NATIVE, 3);
	assert_true(compare_all(nat, dir) >= 3);
	if (ckpt_has_packs()) {
		ck = t_step_open(from, NULL);
		assert_int_equal(ckpt_pack(ck, pack, &o, NULL, NULL), 0);
		ckpt_close(ck);
		assert_true(compare_all(pack, dir) >= 3);
	}
	free(pack);
	free(nat);
	free(from);
	t_dir_end(dir);
}

/* ---------------------------------------------------------------- damage */

/* The file that holds a state of a tensor, and where; both of its first extent. */
static char *place_of(struct ckpt *ck, const char *tensor, const char *state, uint64_t *off_out)
{
	struct ckpt_extent_info e;
	uint64_t t;
	uint32_t s;

	assert_int_equal(ckpt_tensor_find(ck, tensor, &t, NULL), 0);
	assert_int_equal(ckpt_state_find(ck, t, state, &s, NULL), 0);
	assert_int_equal(ckpt_extent_get(ck, t, s, 0, &e, NULL), 0);
	*off_out = e.offset;
	return t_fmt("%s", e.path);
}

static void flip(const char *path, uint64_t off)
{
	FILE *f = fopen(path, "r+b");
	int c;

	if (!f || fseek(f, (long)off, SEEK_SET) || (c = fgetc(f)) == EOF ||
	    fseek(f, (long)off, SEEK_SET) || fputc(c ^ 16, f) == EOF || fclose(f))
		fail_msg("cannot change %s", path);
}

/* A name whose tensor has that state. */
static char *name_with(struct ckpt *ck, const char *state)
{
	struct ckpt_tensor_info t;
	struct ckpt_info info;
	uint32_t s;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors; i++) {
		ckpt_tensor_get(ck, i, &t, NULL);
		if (t.nstates && !ckpt_state_find(ck, i, state, &s, NULL))
			return t_fmt("%s", t.name);
	}
	fail_msg("no tensor has %s", state);
	return NULL;
}

/* Every window of the file is right, or is refused with that code; how many were refused. */
static int right_or_refused(struct ckpt_view *view, uint64_t file, const uint8_t *want, size_t n,
			    int code)
{
	const size_t window = 64;
	uint8_t buf[64];
	int refused = 0;

	for (size_t at = 0; at < n; at += window) {
		const size_t k = n - at < window ? n - at : window;
		const int rc = ckpt_view_read(view, file, at, k, buf, NULL);

		if (rc && rc != -code)
			fail_msg("byte %zu: %s", at, ckpt_code_name((enum ckpt_code)-rc));
		if (!rc)
			assert_memory_equal(buf, want + at, k);
		refused += rc != 0;
	}
	return refused;
}

/* One bit of a state that is damaged before the checkpoint is opened. */
static void damage_of(const char *from, const char *state, const char *dir, int code)
{
	const struct form form = { 0, NULL };
	char *dst = t_fmt("%s/good", dir), *model = t_fmt("%s/model.safetensors", dst);
	struct ckpt *ck = t_step_open(from, NULL);
	struct ckpt_view_checks *checks;
	struct ckpt_view_opts o = { .size = sizeof(o) };
	struct ckpt_view_file f;
	struct ckpt_finding finding;
	struct ckpt_view *view;
	uint64_t off, file;
	size_t n;
	char *name = name_with(ck, state), *path = place_of(ck, name, state, &off);
	uint8_t *want;
	int refused;

	ckpt_close(ck);
	assert_int_equal(convert(from, &form, dst), 0);
	want = t_file_read(model, &n);
	flip(path, off + 24);	/* not at an end, where master and weight are compared */
	ck = t_step_open(from, NULL);
	assert_int_equal(ckpt_view_checks_new(ck, &checks, NULL), 0);
	o.checks = checks;
	assert_int_equal(ckpt_view_open(ck, &o, &view, NULL), 0);
	assert_int_equal(ckpt_view_find(view, "model.safetensors", &file, NULL), 0);
	assert_int_equal(ckpt_view_finding_get(checks, 0, &finding, NULL), -CKPT_E_USAGE);
	refused = right_or_refused(view, file, want, n, code);
	assert_true(refused > 0);
	assert_true((size_t)refused < n / 64);	/* the header, at least, is right */
	assert_int_equal(right_or_refused(view, file, want, n, code), refused);
	assert_int_equal(ckpt_view_check(view, file, 0, n, NULL), -code);
	assert_int_equal(ckpt_view_check(view, file, 0, 8, NULL), 0);
	assert_int_equal(ckpt_view_finding_get(checks, 0, &finding, NULL), 0);
	assert_int_equal(finding.severity, CKPT_ERROR);
	assert_int_equal(ckpt_view_finding_get(checks, 1, &finding, NULL), -CKPT_E_USAGE);
	ckpt_view_file_get(view, file, &f, NULL);
	ckpt_view_close(view);
	ckpt_view_checks_free(checks);
	ckpt_close(ck);
	flip(path, off + 24);
	t_dir_remove(dst);
	free(want);
	free(path);
	free(name);
	free(model);
	free(dst);
}

static void a_damaged_record_is_refused_and_the_others_are_right(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-frozen"), *from = t_fmt("%s/ckpt", dir);
	char *nat = t_fmt("%s/nat", dir);

	(void)state;
	t_load_reshard(from, nat, CKPT_TO_NATIVE, 3);
	damage_of(from, "master", dir, CKPT_E_CORRUPT);
	damage_of(nat, "master", dir, CKPT_E_MISMATCH);
	free(nat);
	free(from);
	t_dir_end(dir);
}

/* What happens to the file of a state while a view is open; 'change' does it. */
static void change_of(void (*change)(const char *path, uint64_t off), const char *first)
{
	char *dir = t_step_copy("ds0.19.8-z2-bf16-w3"), *from = t_fmt("%s/ckpt", dir);
	const struct form form = { 0, NULL };
	struct ckpt *ck = t_step_open(from, NULL);
	char *name = name_with(ck, "master"), *path;
	struct ckpt_view *view = NULL;
	struct ckpt_view_file f;
	struct ckpt_err err = { 0 };
	uint64_t off, file;
	uint8_t *buf;

	path = place_of(ck, name, "master", &off);
	assert_int_equal(open_view(ck, &form, &view, NULL), 0);
	assert_int_equal(ckpt_view_find(view, "model.safetensors", &file, NULL), 0);
	ckpt_view_file_get(view, file, &f, NULL);
	buf = t_alloc(f.bytes);
	if (first)	/* all has been compared, and is remembered as right */
		assert_int_equal(ckpt_view_read(view, file, 0, f.bytes, buf, NULL), 0);
	change(path, off);
	if (ckpt_view_read(view, file, 0, f.bytes, buf, &err) != -CKPT_E_MISMATCH)
		fail_msg("a file that changed is %s", ckpt_code_name(err.code));
	assert_non_null(strstr(err.where, strrchr(path, '/')));
	ckpt_view_close(view);
	ckpt_close(ck);
	free(buf);
	free(path);
	free(name);
	free(from);
	t_dir_end(dir);
}

static void cut_short(const char *path, uint64_t off)
{
	if (truncate(path, (off_t)off))
		fail_msg("cannot cut %s", path);
}

/* The bytes, the size and the mtime of before, in another file. */
static void put_in_place(const char *path, uint64_t off)
{
	char *copy = t_fmt("%s.new", path);
	struct timespec at[2];
	struct stat st;

	(void)off;
	t_dir_copy(path, copy);
	assert_int_equal(stat(path, &st), 0);
	at[0] = st.st_atim;
	at[1] = st.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, copy, at, 0), 0);
	assert_int_equal(rename(copy, path), 0);
	free(copy);
}

static void a_file_that_changes_while_it_is_served_is_refused(void **state)
{
	(void)state;
	change_of(flip, NULL);
	change_of(flip, "after a read");
	change_of(cut_short, NULL);
	change_of(cut_short, "after a read");
	change_of(put_in_place, "after a read");
}

/* ---------------------------------------------------------------- many at once */

struct reading {
	struct ckpt_view *view;
	const uint8_t *want;
	uint64_t file, n, seed;
	int wrong;
};

static void *read_some(void *arg)
{
	struct reading *r = arg;
	uint8_t *buf = t_alloc(r->n);
	uint64_t x = r->seed;

	for (int i = 0; i < 60; i++) {
		uint64_t off, k;

		x = x * 6364136223846793005u + 1442695040888963407u;
		off = (x >> 20) % r->n;
		k = (x >> 40) % (r->n - off) + 1;
		if (ckpt_view_read(r->view, r->file, off, k, buf, NULL) ||
		    memcmp(buf, r->want + off, k))
			r->wrong = 1;
	}
	free(buf);
	return NULL;
}

static void threads_read_what_one_reads(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w8"), *from = t_fmt("%s/ckpt", dir);
	const struct form form = { CKPT_BF16, NULL };
	struct ckpt *ck = t_step_open(from, NULL);
	struct reading r[8] = { { 0 } };
	struct ckpt_view *view = NULL, *one = NULL;
	struct ckpt_view_file f;
	pthread_t thread[8];
	uint64_t file;
	uint8_t *want;

	(void)state;
	assert_int_equal(open_view(ck, &form, &one, NULL), 0);
	assert_int_equal(open_view(ck, &form, &view, NULL), 0);
	assert_int_equal(ckpt_view_find(one, "model.safetensors", &file, NULL), 0);
	ckpt_view_file_get(one, file, &f, NULL);
	want = t_alloc(f.bytes);
	assert_int_equal(ckpt_view_read(one, file, 0, f.bytes, want, NULL), 0);
	for (int i = 0; i < 8; i++) {
		r[i] = (struct reading){ view, want, file, f.bytes, (uint64_t)i + 1, 0 };
		assert_int_equal(pthread_create(&thread[i], NULL, read_some, &r[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(r[i].wrong, 0);
	}
	ckpt_view_close(view);
	ckpt_view_close(one);
	ckpt_close(ck);
	free(want);
	free(from);
	t_dir_end(dir);
}

/* The same again: the same tag; of another type, or of a changed file: another one. */
static void a_tag_is_that_of_the_bytes(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z2-bf16-w2"), *from = t_fmt("%s/ckpt", dir);
	char tag[4][33], *name, *path;
	uint64_t off;

	(void)state;
	for (int i = 0; i < 4; i++) {
		const struct form form = { i == 2 ? CKPT_BF16 : 0, NULL };
		struct ckpt *ck = t_step_open(from, NULL);
		struct ckpt_view *view = NULL;
		struct ckpt_view_file f;

		assert_int_equal(open_view(ck, &form, &view, NULL), 0);
		ckpt_view_file_get(view, 0, &f, NULL);
		memcpy(tag[i], f.etag, 33);
		name = name_with(ck, "exp_avg");
		path = place_of(ck, name, "exp_avg", &off);
		ckpt_view_close(view);
		ckpt_close(ck);
		if (i == 2)
			flip(path, off + 24);
		free(path);
		free(name);
	}
	assert_string_equal(tag[0], tag[1]);
	assert_string_not_equal(tag[0], tag[2]);
	assert_string_not_equal(tag[0], tag[3]);
	free(from);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_view_has_the_bytes_of_convert),
		cmocka_unit_test(so_has_one_of_every_other_format),
		cmocka_unit_test(so_has_a_step_of_fsdp),
		cmocka_unit_test(so_have_a_native_step_and_a_pack),
		cmocka_unit_test(a_damaged_record_is_refused_and_the_others_are_right),
		cmocka_unit_test(a_file_that_changes_while_it_is_served_is_refused),
		cmocka_unit_test(threads_read_what_one_reads),
		cmocka_unit_test(a_tag_is_that_of_the_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
