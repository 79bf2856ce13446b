/*
 * Calls of a save session, right and wrong ones.  If this fails, a trainer that makes a mistake
 * gets a step that is not its state, or memory that changes after put() ends up in the step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"
#include "tests/lib/torture/t_fault.h"

/* ---- wrong calls ---- */

static void wrong(int rc, struct ckpt_err *err, int code, const char *words, int line)
{
	char *all = t_fmt("%s: %s", err->where, err->msg);

	if (rc != -code || !strstr(all, words))
		fail_msg("line %d: %d, '%s' lacks '%s'", line, rc, all, words);
	*err = (struct ckpt_err){ 0 };
	free(all);
}

static void savers_that_cannot_be(void **state)
{
	const struct ckpt_saver_opts good = {
		.size = sizeof(good), .root = t_root, .job = "j", .nranks = 2, .rank = 1,
	};
	struct ckpt_saver_opts o = good;
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv = NULL;

	(void)state;
#define NEW(how, words) \
	o = good; \
	how; \
	wrong(ckpt_saver_new(&o, &sv, &err), &err, CKPT_E_USAGE, words, __LINE__); \
	assert_null(sv)
	NEW(o.size = 0, "struct ckpt_saver_opts");
	NEW(o.root = NULL, "needs the folder");
	NEW(o.root = "", "needs the folder");
	NEW(o.rank = 2, "rank 2 of 2");
	NEW(o.nranks = 0, "rank 1 of 0");
	NEW(o.nranks = 4097, "1 to 4096");
	NEW(o.job = NULL, "'job' is not set");
	NEW(o.threads = 65, "65 threads");
	NEW(o.buffer_bytes = 4096, "buffer of 4096 bytes");
	NEW(o.flags = 6, "flags 0x6");
	wrong(ckpt_saver_new(NULL, &sv, &err), &err, CKPT_E_USAGE, "needs the folder", __LINE__);
	ckpt_saver_free(NULL);
}

static void descriptions_that_cannot_be(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1 };
	static const uint64_t huge[2] = { UINT64_MAX, 2 };
	static const struct ckpt_save_range beyond = { 1, 7000, 430 }, none = { 99, 0, 1 };
	struct ckpt_save_tensor tensor[16];
	struct ckpt_save_state st[33];
	struct ckpt_save_step *s;
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t_must(t_saver(&t, 0, &sv, &err), &err);
#define BEGIN_AS(code, how, words) \
	s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0); \
	memcpy(tensor, s->tensor, s->ntensors * sizeof(*tensor)); \
	memcpy(st, s->state, s->nstates * sizeof(*st)); \
	s->tensor = tensor; \
	s->state = st; \
	how; \
	wrong(ckpt_save_begin(sv, s, &err), &err, code, words, __LINE__); \
	wrong(ckpt_save_put(sv, 0, "weight", 0, 1, "", 0, &err), &err, CKPT_E_USAGE, \
	      "no save is open", __LINE__); \
	t_root_holds_only("")
#define BEGIN(how, words) BEGIN_AS(CKPT_E_USAGE, how, words)
	BEGIN(s->size = 3, "struct ckpt_save_step");
	BEGIN(s->tag = NULL, "'tag' is not set");
	BEGIN(s->tag = "a/b", "a/b");
	BEGIN(s->tag = "..", "..");
	BEGIN(s->tag = "latest", "latest");
	BEGIN(s->tag = "", "not usable as the name of a step");
	BEGIN(s->tag = "x.zckpt-partial", "unfinished output");
	BEGIN(s->to = 5, "layout 5");
	BEGIN(s->stage = 5, "stage 5");
	BEGIN(s->world = 5000, "5000");
	BEGIN(s->tensor = NULL, "is NULL");
	BEGIN(s->state = NULL, "is NULL");
	BEGIN(s->group = NULL, "is NULL");
	BEGIN(s->ntensors = 0, "0 tensors");
	BEGIN(tensor[1].name = tensor[0].name, "embed.weight: two tensors");
	BEGIN(tensor[1].name = NULL, "tensor 1 of 9 has no name");
	BEGIN(tensor[1].name = "", "tensor 1 of 9 has no name");
	BEGIN(tensor[1].name = "a\xff", "not UTF-8");
	BEGIN(tensor[1].shape = NULL, "its shape is NULL");
	BEGIN(tensor[0].shape = NULL, "its shape is NULL");
	BEGIN(tensor[1].role = 17, "its role");
	BEGIN(tensor[1].group = 2, "param group is not declared");
	BEGIN(tensor[1].group = -1, "must have a param group");
	BEGIN(tensor[3].group = 0, "must have a param group");
	BEGIN(tensor[3].derived = 1, "only a trainable weight");
	BEGIN(tensor[7].alias_of = 7, "alias of a tensor that does not exist");
	BEGIN(tensor[7].alias_of = 9, "alias of a tensor that does not exist");
	BEGIN(tensor[1].dtype = 200, "an unknown type");
	BEGIN(tensor[1].dtype = 0, "an unknown type");
	BEGIN(st[1].name = "master", "two states");
	BEGIN(st[1].name = "a/b", "state 1");
	BEGIN(st[1].name = "weight", "state 1");
	BEGIN(st[1].dtype = 0, "state 1");
	BEGIN(s->nstates = 33, "33 states");
	BEGIN((st[0].name = "other", tensor[0].derived = 1), "'master' is not among");
	BEGIN((s->own = &beyond, s->nown = 1), "elements 7000 to 7430, but the tensor has 7429");
	BEGIN((s->own = &none, s->nown = 1), "range 0");
	BEGIN((s->own = &none, s->nown = 0, s->world = 2), "same number of ranks as save");
	BEGIN((s->own = &none, s->nown = 0, s->to = CKPT_TO_DEEPSPEED), "native form");
	BEGIN_AS(CKPT_E_CORRUPT, s->client = "{\"a\": }", "client");
	BEGIN_AS(CKPT_E_CORRUPT, s->ds_config = "[]", "ds_config: expected a JSON object");
	BEGIN_AS(CKPT_E_CORRUPT, s->scheduler = "", "scheduler");
	BEGIN_AS(CKPT_E_LIMIT, tensor[1].shape = (tensor[1].ndim = 2, huge), "2^63");
	t_must(ckpt_save_wait(sv, 0, NULL, &err), &err);
	ckpt_saver_free(sv);
	t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err), &err);
	t_step_check(&t, "s");
}

static void puts_that_cannot_be(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1, .derived = true, .own = true };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	const uint64_t bytes[4] = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t_must(t_saver(&t, 0, &sv, &err), &err);
#define PUT(tensor, state, first, count, p, flags, words) \
	wrong(ckpt_save_put(sv, tensor, state, first, count, p, flags, &err), &err, \
	      CKPT_E_USAGE, words, __LINE__)
	PUT(0, "master", 0, 1, bytes, 0, "no save is open");
	wrong(ckpt_save_commit(sv, &err), &err, CKPT_E_USAGE, "no save is open", __LINE__);
	ckpt_save_abort(sv, "nothing is open");
	t_must(ckpt_save_wait(sv, 0, NULL, &err), &err);
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	wrong(ckpt_save_begin(sv, s, &err), &err, CKPT_E_USAGE, "a save is open", __LINE__);
	wrong(ckpt_save_wait(sv, 0, NULL, &err), &err, CKPT_E_USAGE, "not been committed",
	      __LINE__);
	PUT(9, "master", 0, 1, bytes, 0, "tensor 9 was put, but only 9 were declared");
	PUT(UINT64_MAX, "master", 0, 1, bytes, 0, "were declared");
	PUT(1, "nonsense", 0, 1, bytes, 0, "layers.0.w: state nonsense");
	PUT(1, NULL, 0, 1, bytes, 0, "layers.0.w: state (NULL)");
	PUT(3, "master", 0, 1, bytes, 0, "layers.0.frozen: state master");
	PUT(1, "weight", 0, 1, bytes, 0, "is derived from the master");
	PUT(7, "weight", 0, 1, bytes, 0, "head.weight: it is an alias of embed.weight");
	PUT(1, "master", 7429, 1, bytes, 0, "elements 7429 to 7429 of its master");
	PUT(1, "master", 7428, 2, bytes, 0, "has 7429");
	PUT(1, "master", 1, UINT64_MAX, bytes, 0, "has 7429");
	PUT(1, "master", 0, 1, NULL, 0, "layers.0.w: cannot put 1 elements");
	PUT(1, "master", 0, 1, bytes, 2, "flags 0x2");
	t_must(ckpt_save_put(sv, 1, "master", 7429, 0, NULL, 0, &err), &err);
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	wrong(ckpt_save_commit(sv, &err), &err, CKPT_E_USAGE, "no save is open", __LINE__);
	PUT(0, "master", 0, 1, bytes, 0, "no save is open");
	t_must(ckpt_save_wait(sv, 0, NULL, &err), &err);
	ckpt_saver_free(sv);
	t_step_check(&t, "s");	/* none of it did harm */
}

/* Elements that are this rank's, but not by what it said. */
static void puts_outside_of_what_is_held(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1 };
	static const struct ckpt_save_range own[] = { { 1, 0, 100 }, { 1, 100, 7329 } };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	const uint64_t bytes[64] = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t_must(t_saver(&t, 0, &sv, &err), &err);
	s->own = own;
	s->nown = 2;
	t_must(ckpt_save_begin(sv, s, &err), &err);
	t_must(ckpt_save_put(sv, 1, "master", 0, 100, bytes, 0, &err), &err);
	PUT(1, "master", 90, 20, bytes, 0, "elements 90 to 109 of its master were put, but");
	PUT(0, "master", 0, 1, bytes, 0, "embed.weight: elements 0 to 0");
	ckpt_saver_free(sv);
	t_root_holds_only("");
}

/* ---- buffers, threads, time ---- */

/* Tensors far larger than the buffer: put() waits for room. */
static void any_buffer_and_any_threads(void **state)
{
	struct ckpt_err err = { 0 };

	(void)state;
	for (uint32_t threads = 1; threads <= 8; threads++)
		for (int lend = 0; lend < 2; lend++) {
			struct t_trainer t = {
				.root = t_root, .nranks = 1 + threads % 3, .threads = threads,
				.size = 100001, .held = threads & 1 ? T_HELD_BLOCKS : T_HELD_EVEN,
				.lend = lend, .own = threads & 2,
			};

			t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err),
			     &err);
			t_step_check(&t, "s");
			t_dir_remove(t_root);
		}
}

static void waiting_has_an_end(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 2 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	struct ckpt_saved saved = { .nfiles = 77 };
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv[2];

	(void)state;
	for (uint32_t r = 0; r < 2; r++) {
		t_must(t_saver(&t, r, &sv[r], &err), &err);
		t_must(t_save_begin(&t, sv[r], s, r, &err), &err);
		t_must(t_save_put(&t, sv[r], s, r, &err), &err);
	}
	t_must(ckpt_save_commit(sv[0], &err), &err);
	wrong(ckpt_save_wait(sv[0], 30, &saved, &err), &err, CKPT_E_BUSY, "within 30 ms", __LINE__);
	wrong(ckpt_save_wait(sv[0], 1, &saved, &err), &err, CKPT_E_BUSY, "within 1 ms", __LINE__);
	assert_int_equal(saved.nfiles, 77);
	t_must(ckpt_save_commit(sv[1], &err), &err);
	t_must(ckpt_save_wait(sv[0], 60000, &saved, &err), &err);
	assert_true(saved.nfiles >= 4 && saved.file_bytes > saved.written_bytes);
	assert_true(saved.put_bytes > 0 && saved.commit_seconds >= saved.write_seconds);
	t_must(ckpt_save_wait(sv[1], 60000, &saved, &err), &err);
	t_must(ckpt_save_wait(sv[1], 1, NULL, &err), &err);
	for (uint32_t r = 0; r < 2; r++)
		ckpt_saver_free(sv[r]);
	t_step_check(&t, "s");
}

static void an_open_save_that_is_freed_leaves_nothing(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_DEEPSPEED, 2, 3);
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t_must(t_saver(&t, 0, &sv, &err), &err);
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	ckpt_saver_free(sv);
	t_root_holds_only("");
	t_must(t_saver(&t, 0, &sv, &err), &err);	/* and who frees after a commit waits */
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	ckpt_saver_free(sv);
	t_step_check(&t, "s");
}

/* The trainer does not look at what put() returns. */
static void a_put_without_memory_fails_the_save(void **state)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1, .threads = 1, .size = 100001 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	bool fired = true;

	(void)state;
	t_fault_install();
	for (long n = 1; fired; n++) {
		struct ckpt_err err = { 0 };
		struct ckpt_saver *sv;
		int rc, end;

		t_must(t_saver(&t, 0, &sv, &err), &err);
		t_must(t_save_begin(&t, sv, s, 0, &err), &err);
		t_fault_arm(T_FAULT_MEMORY, n, false);
		rc = t_save_put(&t, sv, s, 0, &err);
		fired = t_fault_fired();
		t_fault_arm(T_FAULT_MEMORY, 0, false);
		err = (struct ckpt_err){ 0 };
		if (rc)		/* the rest of it, as if nothing had happened */
			ckpt_save_put(sv, 1, "master", 0, 1, "1234", 0, &err);
		end = ckpt_save_commit(sv, &err);
		if (!end)
			end = ckpt_save_wait(sv, 0, NULL, &err);
		assert_int_equal(!!end, fired);
		ckpt_saver_free(sv);
		if (fired)
			t_root_holds_only("");
	}
	t_fault_remove();
}

/* ---- folders that cannot be written ---- */

static int mkdir_fails(const char *path, mode_t mode)
{
	(void)path;
	(void)mode;
	errno = EROFS;
	return -1;
}

static void roots_that_cannot_be(void **state)
{
	struct t_trainer t = { .root = t_root, .nranks = 1 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	const struct ck_sys kept = ck_sys;
	char *nowhere = t_fmt("%s/no/where", t_scratch);
	struct ckpt_err err = { 0 };

	(void)state;
	t_file_write(t_root, "a file", 6);
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_EXISTS, "the path for partial output exists",
	      __LINE__);
	t_dir_remove(t_root);
	t.root = nowhere;
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_NOTFOUND, "no/where", __LINE__);
	t.root = t_root;
	ck_sys.mkdir = mkdir_fails;
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_IO, "read-only file system", __LINE__);
	t_dir_make(t_root);
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_IO, "read-only file system", __LINE__);
	ck_sys = kept;
	t_root_holds_only("");
	t_must(t_save_all(&t, s, &err), &err);
	t_step_check(&t, "s");
	free(nowhere);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)
	const struct CMUnitTest tests[] = {
		TEST(savers_that_cannot_be),
		TEST(descriptions_that_cannot_be),
		TEST(puts_that_cannot_be),
		TEST(puts_outside_of_what_is_held),
		TEST(any_buffer_and_any_threads),
		TEST(waiting_has_an_end),
		TEST(an_open_save_that_is_freed_leaves_nothing),
		TEST(a_put_without_memory_fails_the_save),
		TEST(roots_that_cannot_be),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
