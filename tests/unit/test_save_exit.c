/*
 * The end of a process that saves: exit(), signals, and children that were forked.  If this fails,
 * a job that is told to stop loses the save it had committed, or never ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"

static ssize_t (*real_pwrite)(int fd, const void *p, size_t n, off_t off);
static atomic_bool slow, hangs;

static ssize_t slow_pwrite(int fd, const void *p, size_t n, off_t off)
{
	const struct timespec nap = { .tv_sec = hangs ? 60 : 0, .tv_nsec = 3000000 };

	if (slow)
		nanosleep(&nap, NULL);
	return real_pwrite(fd, p, n, off);
}

/*
 * What a program has so that its end waits for a save.  A handler wakes a thread, which waits and
 * then lets the signal do what it did before; in a forked child it does that at once.
 */
static struct {
	struct ckpt_saver *saver;
	pid_t pid;
	sem_t come;
	int sig;
	uint32_t budget_ms;
	struct sigaction before;
} program;

static void drain_at_exit(void)
{
	if (getpid() == program.pid)
		ckpt_saver_drain(program.saver, 0);
}

static void on_signal(int sig)
{
	const int kept = errno;

	if (getpid() == program.pid) {
		sem_post(&program.come);
	} else {
		sigaction(sig, &program.before, NULL);
		raise(sig);
	}
	errno = kept;
}

static void *wait_for_signal(void *arg)
{
	while (sem_wait(&program.come))
		;	/* interrupted */
	ckpt_saver_drain(program.saver, program.budget_ms);
	sigaction(program.sig, &program.before, NULL);
	kill(getpid(), program.sig);
	return arg;
}

static void drain_on(int sig, uint32_t budget_ms)
{
	const struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t thread;

	program.pid = getpid();
	program.sig = sig;
	program.budget_ms = budget_ms;
	if (sem_init(&program.come, 0, 0) || sigaction(sig, &act, &program.before) ||
	    pthread_create(&thread, NULL, wait_for_signal, NULL))
		_exit(2);
	pthread_detach(thread);
}

/* Commits a save that takes its time, and says so. */
static struct ckpt_saver *commit_slowly(int fd)
{
	const struct t_trainer t = { .root = t_root, .nranks = 1, .seed = 4 };
	const struct ckpt_saver_opts o = {
		.size = sizeof(o), .root = t_root, .nranks = 1, .threads = 1,
		.buffer_bytes = 1 << 20,
	};
	struct ckpt_save_step *s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	struct ckpt_saver *sv;

	real_pwrite = ck_sys.pwrite;
	ck_sys.pwrite = slow_pwrite;
	if (ckpt_saver_new(&o, &sv, NULL) || ckpt_save_begin(sv, s, NULL) ||
	    t_save_put(&t, sv, s, 0, NULL))
		_exit(1);
	program.saver = sv;
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
	program.pid = getpid();
	atexit(drain_at_exit);
	commit_slowly(fd);
	exit_with(7);
}

static void exits_at_once(int fd)
{
	hangs = true;
	commit_slowly(fd);
	exit_with(7);
}

static void exit_waits_for_a_save(void **state)
{
	const struct t_trainer t = { .root = t_root, .seed = 4 };
	int status = end_of(exits, 0);

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	t_step_check(&t, "s");
	t_dir_remove(t_root);
	status = end_of(exits_at_once, 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	t_root_holds_only("s.zckpt-partial");
}

/* The save is not a forked child's, which has no thread that could end it. */
static void forks(int fd)
{
	struct ckpt_saver *sv;
	int status;
	pid_t pid;

	drain_on(SIGTERM, 60000);
	atexit(drain_at_exit);
	hangs = true;
	sv = commit_slowly(fd);
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
	drain_on(SIGTERM, 20000);
	commit_slowly(fd);
	for (;;)
		pause();
}

static void drains_too_short(int fd)
{
	hangs = true;
	drain_on(SIGTERM, 150);
	commit_slowly(fd);
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
	drain_on(SIGUSR1, 20000);
	sv = commit_slowly(fd);
	while (!heard)
		usleep(1000);
	_exit(ckpt_save_wait(sv, 1, NULL, NULL) ? 3 : 0);	/* it had ended before */
}

static void a_signal_waits_for_a_save(void **state)
{
	const struct t_trainer t = { .root = t_root, .seed = 4 };
	int status = end_of(drains, SIGTERM);

	(void)state;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	t_step_check(&t, "s");
	t_dir_remove(t_root);
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
	t_root_holds_only("s.zckpt-partial");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)
	const struct CMUnitTest tests[] = {
		TEST(exit_waits_for_a_save),
		TEST(forked_children_end_at_once),
		TEST(a_signal_waits_for_a_save),
		TEST(a_signal_waits_no_longer_than_it_may),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
