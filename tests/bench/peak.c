/*
 * peak.c - runs a command and says how much space a folder took meanwhile:
 *	peak FILE FOLDER COMMAND...
 * appends to FILE the most bytes that everything below FOLDER took on its
 * file system at any sample, what it takes at the end, and the samples. A
 * sample is one walk, taken again every half millisecond; space that comes
 * and goes between two of them is not seen (bench.sh also compares the bytes
 * that calls wrote with those of the result).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static unsigned long long sum;

static int add(const char *path, const struct stat *st, int what,
	       struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (what == FTW_F)
		sum += (unsigned long long)st->st_blocks * 512;
	return 0;
}

/* What vanishes under the walk is no failure: files are renamed meanwhile. */
static unsigned long long used(const char *folder)
{
	sum = 0;
	nftw(folder, add, 16, FTW_PHYS);
	return sum;
}

int main(int argc, char **argv)
{
	const struct timespec pause = { .tv_nsec = 500000 };
	unsigned long long most = 0, now, samples = 0;
	int status = 0;
	pid_t pid, got;
	FILE *f;

	if (argc < 4) {
		fputs("peak FILE FOLDER COMMAND...\n", stderr);
		return 2;
	}
	pid = fork();
	if (!pid) {
		execvp(argv[3], argv + 3);
		perror(argv[3]);
		_exit(127);
	}
	while (pid > 0 && !(got = waitpid(pid, &status, WNOHANG))) {
		now = used(argv[2]);
		most = now > most ? now : most;
		samples++;
		nanosleep(&pause, NULL);
	}
	f = pid > 0 && got == pid ? fopen(argv[1], "a") : NULL;
	if (!f) {
		perror("peak");
		return 3;
	}
	now = used(argv[2]);
	fprintf(f, "%llu %llu %llu\n", now > most ? now : most, now, samples);
	fclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
