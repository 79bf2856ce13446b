/* Folders, files and path strings for tests. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void t_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void *t_alloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p)
		t_die("no memory for %zu bytes", n);
	return p;
}

void *t_grow(void *p, size_t n)
{
	p = realloc(p, n ? n : 1);
	if (!p)
		t_die("no memory for %zu bytes", n);
	return p;
}

char *t_fmt(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		t_die("no memory for a string");
	va_end(ap);
	return s;
}

void t_dir_in_memory(void)
{
	const char *base = getenv("TMPDIR");

	if (!(base && *base) && !access("/dev/shm", W_OK | X_OK))
		setenv("TMPDIR", "/dev/shm", 1);
}

char *t_dir_new(void)
{
	const char *base = getenv("TMPDIR");
	char *path = t_fmt("%s/zckpt-test-XXXXXX", base && *base ? base : "/tmp");

	if (!mkdtemp(path))
		t_die("cannot make a folder like %s: %s", path, strerror(errno));
	return path;
}

void t_dir_make(const char *path)
{
	if (mkdir(path, 0777) < 0)
		t_die("cannot make %s: %s", path, strerror(errno));
}

char **t_dir_list(const char *path, size_t *n_out)
{
	struct dirent **ents = NULL;
	int got = scandir(path, &ents, NULL, alphasort);
	char **list = t_alloc((size_t)(got < 0 ? 1 : got + 1) * sizeof(*list));
	size_t n = 0;

	for (int i = 0; i < got; i++) {
		const char *s = ents[i]->d_name;

		if (strcmp(s, ".") && strcmp(s, ".."))
			list[n++] = t_fmt("%s", s);
		free(ents[i]);
	}
	free(ents);
	if (n_out)
		*n_out = n;
	return list;
}

void t_list_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

int t_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

int t_is_dir(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void t_dir_remove(const char *path)
{
	char **names;

	if (!t_is_dir(path)) {
		if (unlink(path) < 0 && errno != ENOENT)
			t_die("cannot remove %s: %s", path, strerror(errno));
		return;
	}
	names = t_dir_list(path, NULL);
	for (size_t i = 0; names[i]; i++) {
		char *sub = t_fmt("%s/%s", path, names[i]);

		t_dir_remove(sub);
		free(sub);
	}
	t_list_free(names);
	if (rmdir(path) < 0)
		t_die("cannot remove %s: %s", path, strerror(errno));
}

void t_dir_end(char *dir)
{
	t_dir_remove(dir);
	free(dir);
}

void t_dir_copy(const char *from, const char *to)
{
	char **names;

	if (!t_is_dir(from)) {
		size_t n;
		uint8_t *b = t_file_read(from, &n);

		if (!b)
			t_die("cannot read %s", from);
		t_file_write(to, b, n);
		free(b);
		return;
	}
	t_dir_make(to);
	names = t_dir_list(from, NULL);
	for (size_t i = 0; names[i]; i++) {
		char *a = t_fmt("%s/%s", from, names[i]);
		char *b = t_fmt("%s/%s", to, names[i]);

		t_dir_copy(a, b);
		free(a);
		free(b);
	}
	t_list_free(names);
}

void t_dir_make_in(const char *dir, const char *name)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_dir_make(path);
	free(path);
}

void t_dir_copy_in(const char *dir, const char *from, const char *to)
{
	char *a = t_fmt("%s/%s", dir, from), *b = t_fmt("%s/%s", dir, to);

	t_dir_copy(a, b);
	free(a);
	free(b);
}

uint8_t *t_file_read(const char *path, size_t *n_out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0, room;
	struct stat st;
	uint8_t *b;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) < 0 || S_ISDIR(st.st_mode)) {
		close(fd);
		return NULL;
	}
	room = (size_t)st.st_size;
	b = t_alloc(room + 1);
	while (n < room) {
		ssize_t got = read(fd, b + n, room - n);

		if (got <= 0)
			break;
		n += (size_t)got;
	}
	close(fd);
	b[n] = 0;
	*n_out = n;
	return b;
}

void t_file_write(const char *path, const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	const uint8_t *p = bytes;

	if (fd < 0)
		t_die("cannot write %s: %s", path, strerror(errno));
	while (n) {
		ssize_t put = write(fd, p, n);

		if (put < 0)
			t_die("cannot write %s: %s", path, strerror(errno));
		p += put;
		n -= (size_t)put;
	}
	close(fd);
}

int t_ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}
