/* Stops a program at the n-th system call that changes a file. A small input
 * is done in milliseconds, so a signal sent by the clock would hit nothing or
 * another place each time; this hits every place, one after the other. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

/* Which calls change files; NEEDS_FD: the first argument must be above 2. */
static int changes_files(const struct ptrace_syscall_info *s)
{
	const __u64 *a = s->entry.args;

	switch (s->entry.nr) {
	case SYS_openat:
		return (a[2] & (O_CREAT | O_TRUNC)) != 0;
	case SYS_write: case SYS_writev: case SYS_pwrite64: case SYS_pwritev:
	case SYS_sendfile: case SYS_ftruncate: case SYS_fallocate:
	case SYS_fsync: case SYS_fdatasync: case SYS_sync_file_range:
		return (int)a[0] > 2;
	case SYS_copy_file_range:
		return (int)a[2] > 2;
	case SYS_mkdirat: case SYS_renameat2: case SYS_linkat: case SYS_unlinkat:
#ifdef SYS_renameat
	case SYS_renameat:
#endif
#ifdef SYS_open
	case SYS_mkdir: case SYS_rename: case SYS_link: case SYS_unlink:
	case SYS_rmdir: case SYS_creat:
#endif
		return 1;
#ifdef SYS_open
	case SYS_open:
		return (a[1] & (O_CREAT | O_TRUNC)) != 0;
#endif
	default:
		return 0;
	}
}

static void child(const char *const argv[])
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(126);
	raise(SIGSTOP);
	execv(argv[0], (char *const *)(const void *)argv);
	_exit(127);
}

static volatile sig_atomic_t late;

static void on_alarm(int sig)
{
	(void)sig;
	late = 1;
}

/* One stop of thread TID: what to send on, and whether calls are still seen. */
static int on_stop(struct t_trace *t, pid_t tid, pid_t pid, int st, long at,
		   int sig)
{
	struct ptrace_syscall_info s;
	int stop = WSTOPSIG(st);

	if (stop == (SIGTRAP | 0x80)) {
		if (t->fired || ptrace(PTRACE_GET_SYSCALL_INFO, tid,
				       (void *)sizeof(s), &s) <= 0)
			return 0;
		if (s.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(&s))
			return 0;
		t->calls++;
		if (t->calls == at) {
			t->fired = 1;
			kill(pid, sig);
		}
		return 0;
	}
	return st >> 16 || stop == SIGTRAP || stop == SIGSTOP ? 0 : stop;
}

static void follow(struct t_trace *t, pid_t pid, long at, int sig)
{
	for (;;) {
		int st, pass;
		pid_t tid = waitpid(-1, &st, __WALL);

		if (tid < 0 && errno == EINTR && late) {
			kill(pid, SIGKILL);
			late = 0;
			continue;
		}
		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0)
			return;
		if (WIFEXITED(st) || WIFSIGNALED(st)) {
			if (tid != pid)
				continue;
			t->exit = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
			t->signal = WIFSIGNALED(st) ? WTERMSIG(st) : 0;
			return;
		}
		pass = on_stop(t, tid, pid, st, at, sig);
		ptrace(t->fired ? PTRACE_CONT : PTRACE_SYSCALL, tid, NULL,
		       (void *)(long)pass);
	}
}

void t_trace(struct t_trace *t, const char *const argv[], long at, int sig)
{
	struct sigaction sa = { .sa_handler = on_alarm }, old;
	long opts = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
		    PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
		    PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	int st = 0;
	pid_t pid;

	memset(t, 0, sizeof(*t));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		t_die("cannot fork: %s", strerror(errno));
	if (!pid)
		child(argv);
	if (waitpid(pid, &st, __WALL) != pid || !WIFSTOPPED(st) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)opts) < 0) {
		t->refused = 1;
		kill(pid, SIGKILL);
		waitpid(pid, &st, __WALL);
		return;
	}
	late = 0;
	sigaction(SIGALRM, &sa, &old);
	alarm(60);
	ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	follow(t, pid, at, sig);
	alarm(0);
	sigaction(SIGALRM, &old, NULL);
}
