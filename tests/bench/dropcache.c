/*
 * dropcache.c - makes the next read of files come from the disk: writes them
 * out and gives their pages back. Folders are walked. Root also empties the
 * whole page cache, which reaches folders and inodes too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int drop(const char *path, const struct stat *st, int type,
		struct FTW *at)
{
	int fd;

	(void)st;
	(void)at;
	if (type != FTW_F)
		return 0;
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) {
		close(fd);
		return -1;
	}
	return close(fd);
}

int main(int argc, char **argv)
{
	FILE *f;

	for (int i = 1; i < argc; i++) {
		if (nftw(argv[i], drop, 16, FTW_PHYS)) {
			perror(argv[i]);
			return 3;
		}
	}
	f = fopen("/proc/sys/vm/drop_caches", "w");
	if (f) {
		fputs("3\n", f);
		fclose(f);
	}
	return 0;
}
