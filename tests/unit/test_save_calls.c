/*
 * Calls of a save session, right and wrong ones, and the end of the process that saves.  If this
 * fails, a trainer that makes a mistake gets a step that is not its state, memory that changes
 * after put() ends up in the step, or a job that is told to stop loses the save it had committed.
 * It is long on purpose: every call of a saver is tried here, and all of it shares one model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/t_dir.h"
#include "tests/lib/t_fault.h"
#include "tests/lib/t_ranks.h"

static char *dir, *root;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	root = t_fmt("%s/run", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(root);
	t_dir_end(dir);
	return 0;
}

/* Nothing but these names is below the root ("" = it is empty, or not there). */
static void there_is_only(const char *name)
{
	char **list = t_dir_list(root, NULL);

	for (size_t i = 0; list[i]; i++)
		if (strcmp(list[i], name))
			fail_msg("%s is there", list[i]);
	t_list_free(list);
}

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
		.size = sizeof(good), .root = root, .job = "j", .nranks = 2, .rank = 1,
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
	NEW(o.job = NULL, "the job has no name");
	NEW(o.threads = 65, "65 threads");
	NEW(o.buffer_bytes = 4096, "buffer of 4096 bytes");
	NEW(o.flags = 6, "flags 0x6");
	wrong(ckpt_saver_new(NULL, &sv, &err), &err, CKPT_E_USAGE, "needs the folder", __LINE__);
	ckpt_saver_free(NULL);
}

static void descriptions_that_cannot_be(void **state)
{
	const struct t_trainer t = { .root = root, .nranks = 1 };
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
	there_is_only("")
#define BEGIN(how, words) BEGIN_AS(CKPT_E_USAGE, how, words)
	BEGIN(s->size = 3, "struct ckpt_save_step");
	BEGIN(s->tag = NULL, "no tag");
	BEGIN(s->tag = "a/b", "a/b");
	BEGIN(s->tag = "..", "..");
	BEGIN(s->tag = "latest", "latest");
	BEGIN(s->tag = "", "cannot name a step");
	BEGIN(s->tag = "x.zckpt-partial", "not finished");
	BEGIN(s->to = 3, "layout 3");
	BEGIN(s->stage = 5, "stage 5");
	BEGIN(s->world = 5000, "5000");
	BEGIN(s->tensor = NULL, "not given");
	BEGIN(s->state = NULL, "not given");
	BEGIN(s->group = NULL, "not given");
	BEGIN(s->ntensors = 0, "0 tensors");
	BEGIN(tensor[1].name = tensor[0].name, "embed.weight: two tensors");
	BEGIN(tensor[1].name = NULL, "tensor 1 of 9 has no name");
	BEGIN(tensor[1].name = "", "tensor 1 of 9 has no name");
	BEGIN(tensor[1].name = "a\xff", "not UTF-8");
	BEGIN(tensor[1].shape = NULL, "no shape");
	BEGIN(tensor[0].shape = NULL, "no shape");
	BEGIN(tensor[1].role = 17, "its role");
	BEGIN(tensor[1].group = 2, "param group is not described");
	BEGIN(tensor[1].group = -1, "have a param group");
	BEGIN(tensor[3].group = 0, "have a param group");
	BEGIN(tensor[3].derived = 1, "only a trainable weight");
	BEGIN(tensor[7].alias_of = 7, "alias of no tensor");
	BEGIN(tensor[7].alias_of = 9, "alias of no tensor");
	BEGIN(tensor[1].dtype = 200, "no known type");
	BEGIN(tensor[1].dtype = 0, "no known type");
	BEGIN(st[1].name = "master", "two states");
	BEGIN(st[1].name = "a/b", "state 1");
	BEGIN(st[1].name = "weight", "state 1");
	BEGIN(st[1].dtype = 0, "state 1");
	BEGIN(s->nstates = 33, "33 states");
	BEGIN((st[0].name = "other", tensor[0].derived = 1), "'master' is not among");
	BEGIN((s->own = &beyond, s->nown = 1), "elements 7000 to 7430 of a tensor with 7429");
	BEGIN((s->own = &none, s->nown = 1), "range 0");
	BEGIN((s->own = &none, s->nown = 0, s->world = 2), "as many ranks as save");
	BEGIN((s->own = &none, s->nown = 0, s->to = CKPT_TO_DEEPSPEED), "native form");
	BEGIN_AS(CKPT_E_CORRUPT, s->client = "{\"a\": }", "client");
	BEGIN_AS(CKPT_E_CORRUPT, s->ds_config = "[]", "ds_config: an object is wanted");
	BEGIN_AS(CKPT_E_CORRUPT, s->scheduler = "", "scheduler");
	BEGIN_AS(CKPT_E_LIMIT, tensor[1].shape = (tensor[1].ndim = 2, huge), "63 bits");
	t_must(ckpt_save_wait(sv, 0, NULL, &err), &err);
	ckpt_saver_free(sv);
	t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err), &err);
	t_step_check(&t, "s");
}

static void puts_that_cannot_be(void **state)
{
	const struct t_trainer t = { .root = root, .nranks = 1, .derived = true, .own = true };
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
	PUT(9, "master", 0, 1, bytes, 0, "tensor 9 is put, and 9 were described");
	PUT(UINT64_MAX, "master", 0, 1, bytes, 0, "were described");
	PUT(1, "nonsense", 0, 1, bytes, 0, "layers.0.w: state nonsense");
	PUT(1, NULL, 0, 1, bytes, 0, "layers.0.w: state (NULL)");
	PUT(3, "master", 0, 1, bytes, 0, "layers.0.frozen: state master");
	PUT(1, "weight", 0, 1, bytes, 0, "follows from the master");
	PUT(7, "weight", 0, 1, bytes, 0, "head.weight: it is an alias of embed.weight");
	PUT(1, "master", 7429, 1, bytes, 0, "elements 7429 to 7429 of its master");
	PUT(1, "master", 7428, 2, bytes, 0, "has 7429");
	PUT(1, "master", 1, UINT64_MAX, bytes, 0, "has 7429");
	PUT(1, "master", 0, 1, NULL, 0, "layers.0.w: 1 elements");
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
	const struct t_trainer t = { .root = root, .nranks = 1 };
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
	PUT(1, "master", 90, 20, bytes, 0, "elements 90 to 109 of its master are put, and are not");
	PUT(0, "master", 0, 1, bytes, 0, "embed.weight: elements 0 to 0");
	ckpt_saver_free(sv);
	there_is_only("");
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
				.root = root, .nranks = 1 + threads % 3, .threads = threads,
				.size = 100001, .held = threads & 1 ? T_HELD_BLOCKS : T_HELD_EVEN,
				.lend = lend, .own = threads & 2,
			};

			t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err),
			     &err);
			t_step_check(&t, "s");
			t_dir_remove(root);
		}
}

static void waiting_has_an_end(void **state)
{
	const struct t_trainer t = { .root = root, .nranks = 2 };
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
	wrong(ckpt_save_wait(sv[0], 30, &saved, &err), &err, CKPT_E_BUSY, "after 30 ms", __LINE__);
	wrong(ckpt_save_wait(sv[0], 1, &saved, &err), &err, CKPT_E_BUSY, "after 1 ms", __LINE__);
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
	const struct t_trainer t = { .root = root, .nranks = 1 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_DEEPSPEED, 2, 3);
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t_must(t_saver(&t, 0, &sv, &err), &err);
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	ckpt_saver_free(sv);
	there_is_only("");
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
	const struct t_trainer t = { .root = root, .nranks = 1, .threads = 1, .size = 100001 };
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
			there_is_only("");
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
	struct t_trainer t = { .root = root, .nranks = 1 };
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	const struct ck_sys kept = ck_sys;
	char *nowhere = t_fmt("%s/no/where", dir);
	struct ckpt_err err = { 0 };

	(void)state;
	t_file_write(root, "a file", 6);
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_EXISTS, "run: something that is no folder",
	      __LINE__);
	t_dir_remove(root);
	t.root = nowhere;
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_NOTFOUND, "no/where", __LINE__);
	t.root = root;
	ck_sys.mkdir = mkdir_fails;
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_IO, "Read-only file system", __LINE__);
	t_dir_make(root);
	wrong(t_save_all(&t, s, &err), &err, CKPT_E_IO, "Read-only file system", __LINE__);
	ck_sys = kept;
	there_is_only("");
	t_must(t_save_all(&t, s, &err), &err);
	t_step_check(&t, "s");
	free(nowhere);
}

/* ---- the end of the process ---- */

/* Processes end here with a save at work, whose memory is not lost. */
__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
	return "detect_leaks=0";
}

static ssize_t (*real_pwrite)(int fd, const void *p, size_t n, off_t off);
static atomic_bool slow, hangs;

static ssize_t slow_pwrite(int fd, const void *p, size_t n, off_t off)
{
	const struct timespec nap = { .tv_sec = hangs ? 60 : 0, .tv_nsec = 3000000 };

	if (slow)
		nanosleep(&nap, NULL);
	return real_pwrite(fd, p, n, off);
}

/* Commits a save that takes its time, and says so. */
static struct ckpt_saver *commit_slowly(unsigned flags, int fd)
{
	const struct t_trainer t = { .root = root, .nranks = 1, .seed = 4 };
	const struct ckpt_saver_opts o = {
		.size = sizeof(o), .root = root, .nranks = 1, .threads = 1, .flags = flags,
		.buffer_bytes = 1 << 20,
	};
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	struct ckpt_saver *sv;

	real_pwrite = ck_sys.pwrite;
	ck_sys.pwrite = slow_pwrite;
	if (ckpt_saver_new(&o, &sv, NULL) || ckpt_save_begin(sv, s, NULL) ||
	    t_save_put(&t, sv, s, 0, NULL))
		_exit(1);
	slow = true;
	if (ckpt_save_commit(sv, NULL) || ckpt_save_wait(sv, 1, NULL, NULL) != -CKPT_E_BUSY ||
	    write(fd, "c", 1) != 1)
		_exit(1);
	return sv;
}

/*
 * exit() of a child that is in the midst of a save.  Its handlers run, and this one after all that
 * the library has: memory that threads still use is no leak, whatever a sanitizer sees.
 */
static int leaves_with;

static void leave(void)
{
	_exit(leaves_with);
}

static _Noreturn void exit_with(int status)
{
	leaves_with = status;
	exit(status);
}

typedef void (*child_fn)(int fd);

/* A child that runs 'fn'; with 'sig' it gets that as soon as it has committed. */
static int end_of(child_fn fn, int sig)
{
	int fd[2], status;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(30);
		atexit(leave);
		fn(fd[1]);
		_exit(1);
	}
	close(fd[1]);
	assert_int_equal(read(fd[0], &byte, 1), 1);
	if (sig)
		kill(pid, sig);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd[0]);
	return status;
}

static void exits(int fd)
{
	commit_slowly(CKPT_SAVER_AT_EXIT, fd);
	exit_with(7);
}

static void exits_at_once(int fd)
{
	hangs = true;
	commit_slowly(0, fd);
	exit_with(7);
}

static void exit_waits_for_a_save(void **state)
{
	const struct t_trainer t = { .root = root, .seed = 4 };
	int status = end_of(exits, 0);

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	t_step_check(&t, "s");
	t_dir_remove(root);
	status = end_of(exits_at_once, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	there_is_only("s.zckpt-partial");
}

/* The save is not a forked child's, which has no thread that could end it. */
static void forks(int fd)
{
	struct ckpt_saver *sv;
	int status;
	pid_t pid;

	if (ckpt_saver_drain_on(SIGTERM, 60000, NULL))
		_exit(2);
	hangs = true;
	sv = commit_slowly(CKPT_SAVER_AT_EXIT, fd);
	pid = fork();
	if (!pid)
		exit_with(3);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 3)
		_exit(4);
	pid = fork();
	while (!pid)
		pause();
	kill(pid, SIGTERM);
	_exit(waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || !sv ? 5 : 0);
}

static void forked_children_end_at_once(void **state)
{
	int status;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip();		/* it hangs in what a process with threads forks */
#endif
	status = end_of(forks, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void drains(int fd)
{
	struct ckpt_err err = { 0 };

	if (ckpt_saver_drain_on(SIGTERM, 20000, &err) ||
	    ckpt_saver_drain_on(SIGTERM, 20000, &err) != -CKPT_E_USAGE)
		_exit(2);
	commit_slowly(0, fd);
	for (;;)
		pause();
}

static void drains_too_short(int fd)
{
	hangs = true;
	if (ckpt_saver_drain_on(SIGTERM, 150, NULL))
		_exit(2);
	commit_slowly(0, fd);
	for (;;)
		pause();
}

static volatile sig_atomic_t heard;

static void hear(int sig)
{
	heard = sig;
}

static void drains_and_goes_on(int fd)
{
	struct ckpt_saver *sv;

	signal(SIGUSR1, hear);
	if (ckpt_saver_drain_on(SIGUSR1, 20000, NULL))
		_exit(2);
	sv = commit_slowly(0, fd);
	while (!heard)
		usleep(1000);
	_exit(ckpt_save_wait(sv, 1, NULL, NULL) ? 3 : 0);	/* it had ended before */
}

static void a_signal_waits_for_a_save(void **state)
{
	const struct t_trainer t = { .root = root, .seed = 4 };
	int status = end_of(drains, SIGTERM);

	(void)state;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	t_step_check(&t, "s");
	t_dir_remove(root);
	status = end_of(drains_and_goes_on, SIGUSR1);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	t_step_check(&t, "s");
}

static void a_signal_waits_no_longer_than_it_may(void **state)
{
	const int status = end_of(drains_too_short, SIGTERM);

	(void)state;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	there_is_only("s.zckpt-partial");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
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
		TEST(exit_waits_for_a_save),
		TEST(forked_children_end_at_once),
		TEST(a_signal_waits_for_a_save),
		TEST(a_signal_waits_no_longer_than_it_may),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
