/*
 * See fz.h. One input is many files: text markers cut it, so that an insertion or a deletion moves
 * no length, and two inputs can be crossed. Behind a marker and the end of its line:
 *
 *	%%%o WORLD STAGE FLAGS VERSION	what to reshard to (struct fz_wish)
 *	%%%f NAME		a file of these bytes
 *	%%%d NAME		the same, archives one after the other: their checksums become right
 *	%%%t NAME		an archive of torch.save, whose data.pkl these bytes are
 *	%%%s KEY SIZE FILL	a storage of that archive: these bytes, then FILL up to SIZE
 *
 * FILL is a byte in hex. Checksums of archives are right, else no change of a pickle would be seen;
 * what a wrong one does is the business of the target "zip", and of archives given by "%%%f".
 */
#include "tests/fuzz/fz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_sums.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"

#define MAX_STORAGES 200
#define MAX_BYTES ((size_t)1 << 20)	/* of all storages of an input */

struct files {
	const char *dir;
	struct t_zip zip;	/* under way, if 'path' is not NULL */
	char *path;
	size_t left;		/* of MAX_BYTES */
};

static void finish(struct files *f)
{
	if (!f->path)
		return;
	t_zip_add(&f->zip, "archive/version", "3\n", 2);
	t_zip_end(&f->zip);
	fz_fs_put(f->path, f->zip.p, f->zip.n);
	free(f->path);
	free(f->zip.p);
	f->path = NULL;
	memset(&f->zip, 0, sizeof(f->zip));
}

static bool is_sound(const char *name)
{
	return *name && *name != '/' && !strstr(name, "..") && !strstr(name, "//") &&
	       strlen(name) < 200;
}

static void add_file(struct files *f, const char *name, const uint8_t *p, size_t n)
{
	char *path;

	finish(f);
	if (!is_sound(name))
		return;
	path = t_fmt("%s/%s", f->dir, name);
	fz_fs_put(path, p, n);
	free(path);
}

static void add_archives(struct files *f, const char *name, const uint8_t *p, size_t n)
{
	uint8_t *copy = t_alloc(n + 1);

	memcpy(copy, p, n);
	t_sums_set(copy, n);
	add_file(f, name, copy, n);
	free(copy);
}

static void add_torch(struct files *f, const char *name, const uint8_t *p, size_t n)
{
	finish(f);
	if (!is_sound(name))
		return;
	f->path = t_fmt("%s/%s", f->dir, name);
	t_zip_add(&f->zip, "archive/data.pkl", p, n);
}

static void add_storage(struct files *f, const char *args, const uint8_t *p, size_t n)
{
	unsigned long size = 0;
	unsigned fill = 0;
	char key[40], name[64];
	uint8_t *all;

	if (!f->path || sscanf(args, "%39s %9lu %2x", key, &size, &fill) < 2 ||
	    size > f->left || f->zip.count > MAX_STORAGES)
		return;
	f->left -= size;
	all = t_alloc(size + 1);
	memset(all, (int)fill, size);
	memcpy(all, p, n < size ? n : size);
	snprintf(name, sizeof(name), "archive/data/%s", key);
	t_zip_add(&f->zip, name, all, size);
	free(all);
}

static void add(struct files *f, struct fz_wish *wish, char kind, const char *args,
		const uint8_t *p, size_t n)
{
	if (kind == 'o')
		sscanf(args, "%6u %6d %6u %6u", &wish->world, &wish->stage, &wish->flags,
		       &wish->version);
	else if (kind == 'f')
		add_file(f, args, p, n);
	else if (kind == 'd')
		add_archives(f, args, p, n);
	else if (kind == 't')
		add_torch(f, args, p, n);
	else if (kind == 's')
		add_storage(f, args, p, n);
}

static const uint8_t *marker(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *m = memmem(p, (size_t)(end - p), "%%%", 3);

	return m ? m : end;
}

void fz_files_make(const uint8_t *p, size_t n, const char *dir, struct fz_wish *wish)
{
	const uint8_t *const end = p + n;
	struct files f = { .dir = dir, .left = MAX_BYTES };

	for (p = marker(p, end); end - p > 5;) {
		const uint8_t *eol = memchr(p, '\n', (size_t)(end - p));
		const uint8_t *next;
		char *args;

		if (!eol)
			break;
		next = marker(eol + 1, end);
		args = eol - p > 5 ? t_fmt("%.*s", (int)(eol - p - 5), (const char *)p + 5) : NULL;
		if (args)
			add(&f, wish, (char)p[3], args, eol + 1, (size_t)(next - eol - 1));
		free(args);
		p = next;
	}
	finish(&f);
}
