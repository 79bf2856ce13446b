/*
 * ck_tree.c -- see ck_tree.h.  Folders are read one after the other; a map of the
 * names seen so far lays them over each other, then the list is sorted once.
 */
#include "libckpt/io/ck_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"

/* One listing while it is made. */
struct listing {
	struct ck_tree *tree;
	struct ck_map seen;	/* name -> number of the entry */
	uint64_t max_entries;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Compare the runs of digits at both places and step behind them. */
static int compare_numbers(const char **a_io, const char **b_io)
{
	const char *a = *a_io, *b = *b_io;
	size_t na = 0, nb = 0;
	int d;

	while (*a == '0')
		a++;
	while (*b == '0')
		b++;
	while (is_digit(a[na]))
		na++;
	while (is_digit(b[nb]))
		nb++;
	*a_io = a + na;
	*b_io = b + nb;
	if (na != nb)
		return na < nb ? -1 : 1;
	d = memcmp(a, b, na);
	return d < 0 ? -1 : d > 0;
}

int ck_name_compare(const char *a, const char *b)
{
	const char *x = a, *y = b;

	while (*x && *y) {
		if (is_digit(*x) && is_digit(*y)) {
			const int d = compare_numbers(&x, &y);

			if (d)
				return d;
			continue;
		}
		if (*x != *y)
			return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
		x++;
		y++;
	}
	if (*x || *y)
		return *x ? 1 : -1;
	return strcmp(a, b);	/* "01" and "1": equal as numbers only */
}

static int compare_entries(const void *a, const void *b)
{
	const struct ck_tree_entry *x = a, *y = b;

	return ck_name_compare(x->name, y->name);
}

/* The name stood in an earlier root: note it if this is another file. */
static int meet_again(struct ck_tree *tree, uint64_t number, const struct stat *st,
		      struct ckpt_err *err)
{
	const struct ck_tree_entry *first = &tree->entry[number];
	const bool is_dir = S_ISDIR(st->st_mode);
	int rc;

	if (first->is_dir && is_dir)
		return 0;
	if (first->is_dir == is_dir && first->bytes == (uint64_t)st->st_size)
		return 0;
	rc = ck_grow(&tree->differing, &tree->differing_cap, tree->ndiffering + 1,
		     sizeof(*tree->differing), err);
	if (!rc)
		tree->differing[tree->ndiffering++] = first->name;
	return rc;
}

static int add_new(struct listing *l, const char *path, size_t base, uint32_t root,
		   const struct stat *st, struct ckpt_err *err)
{
	struct ck_tree *tree = l->tree;
	struct ck_tree_entry *e;
	int rc;

	if (tree->n >= l->max_entries)
		return ck_fail_limit(err, path, CKPT_NO_OFFSET, "files", l->max_entries,
				     "the folder has too many entries");
	rc = ck_grow(&tree->entry, &tree->cap, tree->n + 1, sizeof(*e), err);
	if (rc)
		return rc;
	rc = ck_map_add(&l->seen, path + base, strlen(path + base), tree->n, NULL, err);
	if (rc)
		return rc;
	e = &tree->entry[tree->n++];
	memset(e, 0, sizeof(*e));
	e->name = path + base;
	e->path = path;
	e->is_dir = S_ISDIR(st->st_mode);
	e->is_odd = !e->is_dir && !S_ISREG(st->st_mode);
	e->bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	e->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
	e->root = root;
	return 0;
}

static int add_entry(struct listing *l, const char *dir, const char *name, uint32_t root,
		     struct ckpt_err *err)
{
	const char *path = ck_arena_printf(&l->tree->arena, "%s/%s", dir, name);
	struct stat st;
	uint64_t number;

	if (!path)
		return ck_fail_nomem(err, "a folder's listing", strlen(name));
	/* A link to nothing stays in the list as an odd entry; a file that went away
	 * meanwhile does not. */
	if (ck_sys.stat(path, &st)) {
		if (ck_sys.lstat(path, &st))
			return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	}
	if (ck_map_find(&l->seen, name, strlen(name), &number))
		return meet_again(l->tree, number, &st, err);
	return add_new(l, path, strlen(dir) + 1, root, &st, err);
}

static int read_folder(struct listing *l, DIR *d, const char *dir, uint32_t root,
		       struct ckpt_err *err)
{
	for (;;) {
		const struct dirent *de;
		int rc;

		errno = 0;
		de = ck_sys.readdir(d);
		if (!de)
			return errno ? ck_fail_sys(err, errno, "readdir", dir) : 0;
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		rc = add_entry(l, dir, de->d_name, root, err);
		if (rc)
			return rc;
	}
}

/* Read one root.  1 = it lacks the folder, which 'sub' permits. */
static int read_root(struct listing *l, const char *root, const char *sub, uint32_t number,
		     struct ckpt_err *err)
{
	char *dir = sub ? ck_asprintf("%s/%s", root, sub) : ck_strdup(root);
	DIR *d = NULL;
	int rc = 0;

	if (!dir)
		return ck_fail_nomem(err, "a path", strlen(root));
	d = ck_opendir(dir);
	if (!d && sub && (errno == ENOENT || errno == ENOTDIR))
		rc = 1;
	else if (!d)
		rc = ck_fail_sys(err, errno, "opendir", dir);
	else
		rc = read_folder(l, d, dir, number, err);
	if (d)
		ck_sys.closedir(d);
	ck_free(dir);
	return rc;
}

int ck_tree_list(struct ck_tree *tree, const char *const *root, size_t nroots,
		 const char *sub, uint64_t max_entries, struct ckpt_err *err)
{
	struct listing l = { .tree = tree, .seen = CK_MAP_INIT, .max_entries = max_entries };
	size_t nread = 0;
	int rc = 0;

	for (size_t i = 0; i < nroots; i++) {
		rc = read_root(&l, root[i], sub, (uint32_t)i, err);
		if (rc < 0)
			goto out;
		nread += !rc;
	}
	rc = 0;
	if (!nread)
		rc = ck_fail(err, CKPT_E_NOTFOUND, nroots ? root[0] : "", CKPT_NO_OFFSET,
			     "the folder %s does not exist here", sub ? sub : "");
	else if (tree->n)
		qsort(tree->entry, tree->n, sizeof(*tree->entry), compare_entries);
out:
	ck_map_release(&l.seen);
	if (rc)
		ck_tree_release(tree);
	return rc;
}

void ck_tree_release(struct ck_tree *tree)
{
	ck_arena_release(&tree->arena);
	ck_free(tree->entry);
	ck_free(tree->differing);
	memset(tree, 0, sizeof(*tree));
}

const struct ck_tree_entry *ck_tree_find(const struct ck_tree *tree, const char *name)
{
	const struct ck_tree_entry *e = tree->entry;
	uint64_t i;

	CK_LOWER_BOUND(i, tree->n, ck_name_compare(e[i].name, name) < 0);
	return i < tree->n && !ck_name_compare(e[i].name, name) ? &e[i] : NULL;
}

static int read_open_file(int fd, const char *path, char *buf, uint64_t n, struct ckpt_err *err)
{
	uint64_t got = 0;

	while (got < n) {
		const ssize_t k = ck_sys.pread(fd, buf + got, n - got, (off_t)got);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ck_fail_sys(err, errno, "read", path);
		if (k == 0)
			return ck_fail(err, CKPT_E_TRUNCATED, path, got,
				       "expected %" PRIu64 " bytes, but the file ended (did it "
				       "shrink?)", n - got);
		got += (uint64_t)k;
	}
	return 0;
}

int ck_file_read(const char *path, uint64_t max, char **data_out, uint64_t *len_out,
		 struct ckpt_err *err)
{
	char *buf = NULL;
	struct stat st;
	int fd = -1, rc;

	if (ck_sys.stat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	if (!S_ISREG(st.st_mode))	/* opening a pipe would wait for its writer */
		return ck_fail(err, CKPT_E_FORMAT, path, CKPT_NO_OFFSET,
			       "this is %s, not a regular file",
			       S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
	if ((uint64_t)st.st_size > max)
		return ck_fail_limit(err, path, CKPT_NO_OFFSET, "header_bytes", max,
				     "the file has %lld bytes", (long long)st.st_size);
	fd = ck_open(path, O_RDONLY, 0);
	if (fd < 0)
		return ck_fail_sys(err, errno, "open", path);
	buf = ck_alloc((size_t)st.st_size + 1);
	if (buf)
		rc = read_open_file(fd, path, buf, (uint64_t)st.st_size, err);
	else
		rc = ck_fail_nomem(err, path, (uint64_t)st.st_size + 1);
	ck_close(fd);
	if (rc) {
		ck_free(buf);
		return rc;
	}
	buf[st.st_size] = 0;
	*data_out = buf;
	*len_out = (uint64_t)st.st_size;
	return 0;
}
