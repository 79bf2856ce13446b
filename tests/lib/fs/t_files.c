/* See t_files.h. */
#include "tests/lib/fs/t_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"

static struct t_file *add(struct t_files *t, const char *name)
{
	struct t_file *f;

	t->f = t_grow(t->f, (t->n + 1) * sizeof(*t->f));
	f = &t->f[t->n++];
	*f = (struct t_file){ .name = t_fmt("%s", name) };
	return f;
}

static void read_below(struct t_files *t, const char *dir, const char *below)
{
	char *path = t_fmt("%s/%s", dir, below), **names = t_dir_list(path, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *name = t_fmt("%s%s%s", below, *below ? "/" : "", names[i]);
		char *full = t_fmt("%s/%s", dir, name);

		if (t_is_dir(full)) {
			read_below(t, dir, name);
		} else {
			struct t_file *f = add(t, name);

			f->p = t_file_read(full, &f->n);
			if (!f->p)
				t_die("cannot read %s", full);
		}
		free(full);
		free(name);
	}
	t_list_free(names);
	free(path);
}

void t_files_read(struct t_files *t, const char *dir)
{
	*t = (struct t_files){ 0 };
	read_below(t, dir, "");
}

void t_files_copy(struct t_files *t, const struct t_files *from)
{
	*t = (struct t_files){ 0 };
	for (size_t i = 0; i < from->n; i++) {
		struct t_file *f = add(t, from->f[i].name);

		f->p = from->f[i].p;
		f->n = from->f[i].n;
		f->was = &from->f[i];
	}
}

static void let_go(struct t_file *f)
{
	if (!f->was)
		free(f->p);
	free(f->name);
}

void t_files_free(struct t_files *t)
{
	for (size_t i = 0; i < t->n; i++)
		let_go(&t->f[i]);
	free(t->f);
	*t = (struct t_files){ 0 };
}

struct t_file *t_files_find(const struct t_files *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->f[i].name, name))
			return &t->f[i];
	return NULL;
}

struct t_file *t_files_next(const struct t_files *t, const struct t_file *after,
			    const char *part)
{
	for (size_t i = after ? (size_t)(after - t->f) + 1 : 0; i < t->n; i++)
		if (strstr(t->f[i].name, part))
			return &t->f[i];
	return NULL;
}

static void put(struct t_file *f, const void *p, size_t n)
{
	uint8_t *copy = t_alloc(n + 1);

	if (n)
		memcpy(copy, p, n);
	if (!f->was)
		free(f->p);
	f->p = copy;
	f->n = n;
	f->was = NULL;
}

uint8_t *t_file_own(struct t_file *f)
{
	if (f->was)
		put(f, f->p, f->n);
	return f->p;
}

void t_files_set(struct t_files *t, const char *name, const void *p, size_t n)
{
	struct t_file *f = t_files_find(t, name);

	put(f ? f : add(t, name), p, n);
}

void t_files_drop(struct t_files *t, const char *name)
{
	struct t_file *f = t_files_find(t, name);

	if (!f)
		t_die("there is no %s to drop", name);
	let_go(f);
	memmove(f, f + 1, (size_t)(t->f + t->n - f - 1) * sizeof(*f));
	t->n--;
}

void t_files_rename(struct t_files *t, const char *from, const char *to)
{
	const size_t k = strlen(from);
	int any = 0;

	for (size_t i = 0; i < t->n; i++) {
		char *name = t->f[i].name;

		if (strncmp(name, from, k))
			continue;
		t->f[i].name = t_fmt("%s%s", to, name + k);
		free(name);
		any = 1;
	}
	if (!any)
		t_die("there is no %s to rename", from);
}

void t_files_swap(struct t_file *a, struct t_file *b)
{
	struct t_file c = *a;

	a->p = b->p, a->n = b->n, a->was = b->was;
	b->p = c.p, b->n = c.n, b->was = c.was;
}

/* Folders above a file are made as needed. */
static void write_one(const struct t_file *f, const char *dir)
{
	char *path = t_fmt("%s/%s", dir, f->name);

	for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		if (!t_exists(path))
			t_dir_make(path);
		*p = '/';
	}
	t_file_write(path, f->p, f->n);
	free(path);
}

/* Folders that are empty then go too. */
static void remove_one(const struct t_file *f, const char *dir)
{
	char *path = t_fmt("%s/%s", dir, f->name), *p;

	t_dir_remove(path);
	while ((p = strrchr(path, '/')) && p > path + strlen(dir)) {
		*p = 0;
		if (rmdir(path))
			break;
	}
	free(path);
}

void t_files_write(const struct t_files *t, const char *dir)
{
	t_dir_remove(dir);
	t_dir_make(dir);
	for (size_t i = 0; i < t->n; i++)
		write_one(&t->f[i], dir);
}

static int is_same(const struct t_file *a, const struct t_file *b)
{
	return a && a->p == b->p && a->n == b->n;
}

static void turn(const struct t_files *from, const struct t_files *to, const char *dir)
{
	for (size_t i = 0; i < from->n; i++)
		if (!t_files_find(to, from->f[i].name))
			remove_one(&from->f[i], dir);
	for (size_t i = 0; i < to->n; i++)
		if (!is_same(t_files_find(from, to->f[i].name), &to->f[i]))
			write_one(&to->f[i], dir);
}

void t_files_turn(const struct t_files *base, const struct t_files *to, const char *dir)
{
	turn(base, to, dir);
}

void t_files_turn_back(const struct t_files *base, const struct t_files *to, const char *dir)
{
	for (size_t i = 0; i < to->n; i++) {	/* some of it may be gone */
		char *path = t_fmt("%s/%s", dir, to->f[i].name);

		if (!t_exists(path))
			write_one(&to->f[i], dir);
		free(path);
	}
	turn(to, base, dir);
}
