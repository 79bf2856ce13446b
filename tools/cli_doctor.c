/*
 * cli_doctor.c -- what can be said about files without opening them: no permission, pointers of
 * git-lfs, empty files, remains of copies.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_doctor.h"

#define DEPTH 6

void doctor_note(struct doctor *d, const char *id, enum ckpt_severity severity, const char *where,
		 char *text, char *next)
{
	d->errors += severity == CKPT_ERROR;
	if (d->n < MAX_NOTES)
		d->note[d->n++] = (struct note){ cli_strdup(id), severity, cli_strdup(where), text,
						 next };
}

static int is_pointer(const char *path)
{
	static const char magic[] = "version https://git-lfs";
	char head[sizeof(magic) - 1];
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f)
		return 0;
	n = fread(head, 1, sizeof(head), f);
	fclose(f);
	return n == sizeof(head) && !memcmp(head, magic, n);
}

static int ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && !strcmp(s + n - m, end);
}

/* Names under which copying programs keep what is not complete. */
static int is_remains(const char *name)
{
	static const char *const ends[] = {
		".part", ".partial", ".tmp", ".aria2", ".crdownload", ".incomplete", ".filepart",
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends_with(name, ends[i]))
			return 1;
	/* rsync: ".model.pt.Xa81bC" */
	return name[0] == '.' && dot > name + 1 && strlen(dot) == 7 && strstr(name, ".pt.");
}

static void count(uint64_t *n, char **first, const char *path)
{
	if (!(*n)++)
		*first = cli_strdup(path);
}

static int no_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* In order of names, so that "the first" is the same on every file system. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void scan(struct doctor *d, const char *dir, int depth)
{
	struct dirent **list;
	const int n = scandir(dir, &list, no_dots, by_name);
	struct stat st;

	if (n < 0) {
		count(&d->unreadable, &d->unreadable_at, dir);
		return;
	}
	for (int i = 0; i < n; i++) {
		const struct dirent *e = list[i];
		char *path = cli_format("%s/%s", dir, e->d_name);

		if (stat(path, &st))
			st.st_mode = 0;
		if (S_ISDIR(st.st_mode) && depth < DEPTH)
			scan(d, path, depth + 1);
		if (S_ISREG(st.st_mode)) {
			if (access(path, R_OK))
				count(&d->unreadable, &d->unreadable_at, path);
			else if (is_remains(e->d_name))
				count(&d->remains, &d->remains_at, path);
			else if (!st.st_size && (ends_with(path, ".pt") ||
						 ends_with(path, ".safetensors") ||
						 ends_with(path, ".bin")))
				count(&d->empty, &d->empty_at, path);
			else if (st.st_size < 1024 && is_pointer(path))
				count(&d->pointers, &d->pointer_at, path);
		}
		cli_free(path);
		free(list[i]);
	}
	free(list);
}

/* ", and 3 more", or "". */
static char *say_more(uint64_t n)
{
	return n > 1 ? cli_format("; %" PRIu64 " more like it", n - 1) : cli_strdup("");
}

static void note_unreadable(struct doctor *d)
{
	char *more = say_more(d->unreadable);
	struct stat st;
	int ours = stat(d->unreadable_at, &st) || st.st_uid == geteuid();

	doctor_note(d, "NO_PERMISSION", CKPT_ERROR, d->unreadable_at,
		    ours ? cli_format("no permission to read%s", more) :
		    cli_format("no permission to read: ask its owner, user %u%s",
			       (unsigned)st.st_uid,
			       more),
		    ours ? cli_format("chmod -R u+rX %s", out_word(d->path)) : cli_strdup(""));
	cli_free(more);
}

static void note_files(struct doctor *d)
{
	char *more;

	if (d->unreadable)
		note_unreadable(d);
	if (d->pointers) {
		char *dir = advice_parent(d->pointer_at);

		more = say_more(d->pointers);
		doctor_note(d, "LFS_POINTER", CKPT_ERROR, d->pointer_at,
			    cli_format("a git-lfs pointer, not the file itself%s", more),
			    strcmp(dir, ".") ? cli_format("git -C %s lfs pull", out_word(dir)) :
					       cli_strdup("git lfs pull"));
		cli_free(more);
		cli_free(dir);
	}
	if (d->empty) {
		more = say_more(d->empty);
		doctor_note(d, "FILE_EMPTY", CKPT_ERROR, d->empty_at,
			    cli_format("this is an empty file: the disk was full, or a save or "
				       "copy was cut short%s", more),
			    cli_strdup(""));
		cli_free(more);
	}
	if (d->remains) {
		more = say_more(d->remains);
		doctor_note(d, "COPY_REMAINS", CKPT_WARN, d->remains_at,
			    cli_format("the name of an unfinished copy%s", more), cli_strdup(""));
		cli_free(more);
	}
}

void doctor_scan(struct doctor *d, int is_folder, uint64_t size)
{
	if (is_folder)
		scan(d, d->path, 0);
	else if (access(d->path, R_OK))
		count(&d->unreadable, &d->unreadable_at, d->path);
	else if (size < 1024 && is_pointer(d->path))
		count(&d->pointers, &d->pointer_at, d->path);
	note_files(d);
}
