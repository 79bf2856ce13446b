/*
 * measure.c - runs a command and appends one line about it to a file:
 *	wall seconds, peak RSS in KiB, bytes read by calls, bytes written by
 *	calls, exit status, user seconds, system seconds
 * Bytes are rchar and wchar of /proc/PID/io, taken from the finished process
 * before it is reaped; pages of mapped files do not count there. Peak RSS is
 * wait4's, which starts from what this program had at fork (about 1 MiB).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void read_io(pid_t pid, unsigned long long *rchar,
		    unsigned long long *wchar)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return;
	if (fscanf(f, "rchar: %llu wchar: %llu", rchar, wchar) != 2)
		*rchar = *wchar = 0;
	fclose(f);
}

int main(int argc, char **argv)
{
	unsigned long long rchar = 0, wchar = 0;
	struct rusage ru = { 0 };
	siginfo_t si;
	double start, wall;
	int status = 0, rc;
	pid_t pid;
	FILE *f;

	if (argc < 3) {
		fputs("measure FILE COMMAND...\n", stderr);
		return 2;
	}
	start = seconds();
	pid = fork();
	if (!pid) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	if (pid < 0 || waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT)) {
		perror("measure");
		return 3;
	}
	wall = seconds() - start;
	read_io(pid, &rchar, &wchar);
	if (wait4(pid, &status, 0, &ru) != pid) {
		perror("measure");
		return 3;
	}
	rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	f = fopen(argv[1], "a");
	if (!f) {
		perror(argv[1]);
		return 3;
	}
	fprintf(f, "%.4f %ld %llu %llu %d %.3f %.3f\n", wall, ru.ru_maxrss,
		rchar, wchar, rc,
		(double)ru.ru_utime.tv_sec + (double)ru.ru_utime.tv_usec * 1e-6,
		(double)ru.ru_stime.tv_sec + (double)ru.ru_stime.tv_usec * 1e-6);
	fclose(f);
	return rc;
}
