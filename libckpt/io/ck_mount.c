/*
 * ck_mount.c -- see ck_mount.h.  The table is sorted, so what lies below a folder is a run of it.
 */
#include "libckpt/io/ck_mount.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"

/* What follows the archive's path, without slashes at the ends; NULL = it is elsewhere. */
static const char *within(const struct ck_mount *m, const char *path, size_t *len_out)
{
	const size_t n = m ? strlen(m->at) : 0;
	size_t len;

	if (!m || strncmp(path, m->at, n) || (path[n] && path[n] != '/'))
		return NULL;
	path += n + strspn(path + n, "/");
	len = strlen(path);
	while (len && path[len - 1] == '/')
		len--;
	*len_out = len;
	return path;
}

bool ck_mount_holds(const struct ck_mount *m, const char *path)
{
	size_t len;

	return within(m, path, &len) != NULL;
}

/* As strcmp() of name and key[0..len). */
static int compare(const char *name, const char *key, size_t len)
{
	const int d = strncmp(name, key, len);

	return d ? d : name[len] != 0;
}

/* The first file whose name is not less. */
static uint64_t lower(const struct ck_mount *m, const char *key, size_t len)
{
	uint64_t i;

	CK_LOWER_BOUND(i, m->n, compare(m->file[i].name, key, len) < 0);
	return i;
}

static const struct ck_mount_file *find(const struct ck_mount *m, const char *key, size_t len)
{
	const uint64_t i = lower(m, key, len);

	return i < m->n && !compare(m->file[i].name, key, len) ? &m->file[i] : NULL;
}

/* The number of the first file in the folder; m->n = there is no such folder. */
static uint64_t first_in(const struct ck_mount *m, const char *key, size_t len)
{
	char *dir;
	uint64_t i;

	if (!len)
		return 0;
	dir = ck_strndup(key, len + 1);
	if (!dir)
		return m->n;
	dir[len] = '/';
	i = lower(m, dir, len + 1);
	if (i < m->n && strncmp(m->file[i].name, dir, len + 1))
		i = m->n;
	ck_free(dir);
	return i;
}

static int read_member(void *arg, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	const struct ck_mount_file *f = arg;

	return f->mount->read(f->mount->arg, f->at + off, buf, n, err);
}

int ck_mount_open(const struct ck_mount *m, const char *path, struct ck_src **src_out,
		  struct ckpt_err *err)
{
	size_t len;
	const char *key = within(m, path, &len);
	const struct ck_mount_file *f = find(m, key, len);

	if (f)
		return ck_src_made(read_member, (void *)(uintptr_t)f, f->bytes, path, src_out, err);
	if (!len || first_in(m, key, len) < m->n)
		return ck_fail(err, CKPT_E_FORMAT, path, CKPT_NO_OFFSET,
			       "this is a folder, not a regular file");
	return ck_fail(err, CKPT_E_NOTFOUND, path, CKPT_NO_OFFSET,
		       "the file is not in the archive");
}

char *ck_mount_root(const char *at, const struct ck_mount_file *file, uint64_t n)
{
	const size_t len = n ? strcspn(file[0].name, "/") : 0;
	const char *last = n ? file[n - 1].name : "";

	if (!n || strncmp(last, file[0].name, len) || (last[len] && last[len] != '/'))
		return ck_strdup(at);
	/* sorted: so has all that is between the first and the last */
	return ck_asprintf("%s/%.*s", at, (int)len, file[0].name);
}

int ck_look_kind(const struct ck_fdpool *pool, const char *path, enum ck_fs_kind *kind_out,
		 uint64_t *bytes_out, struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(pool);
	const struct ck_mount_file *f;
	const char *key;
	struct stat st;
	size_t len;
	int rc;

	key = within(m, path, &len);
	if (!key) {
		rc = ck_fs_kind(path, kind_out, err);
		if (rc || !bytes_out || *kind_out != CK_FS_FILE)
			return rc;
		if (ck_sys.stat(path, &st))
			return ck_fail_sys(err, errno, "stat", path);
		*bytes_out = (uint64_t)st.st_size;
		return 0;
	}
	f = find(m, key, len);
	if (f && bytes_out)
		*bytes_out = f->bytes;
	*kind_out = f ? CK_FS_FILE : !len || first_in(m, key, len) < m->n ? CK_FS_DIR :
		    CK_FS_NOTHING;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct ck_tree_entry *x = a, *y = b;

	return ck_name_compare(x->name, y->name);
}

/* A file of the folder, or the folder in it that this and the following files lie in. */
static int add_entry(const struct ck_mount_file *f, size_t skip, const char *dir,
		     struct ck_tree *tree, struct ckpt_err *err)
{
	const char *name = f->name + skip;
	const size_t n = strcspn(name, "/");
	struct ck_tree_entry *e;
	const char *path;
	int rc = ck_grow(&tree->entry, &tree->cap, tree->n + 1, sizeof(*e), err);

	if (rc)
		return rc;
	path = ck_arena_printf(&tree->arena, "%s/%.*s", dir, (int)n, name);
	if (!path)
		return ck_fail_nomem(err, "a folder's listing", n);
	e = &tree->entry[tree->n++];
	*e = (struct ck_tree_entry){
		.path = path, .name = path + strlen(dir) + 1, .is_dir = name[n] == '/',
		.bytes = name[n] ? 0 : f->bytes, .mtime_ns = f->mtime_ns,
	};
	return 0;
}

static bool same_folder(const struct ck_mount_file *a, const struct ck_mount_file *b, size_t skip)
{
	const size_t n = strcspn(a->name + skip, "/") + 1;

	return a->name[skip + n - 1] == '/' && !strncmp(a->name + skip, b->name + skip, n);
}

static int list_in(const struct ck_mount *m, struct ck_tree *tree, const char *dir,
		   uint64_t max_entries, struct ckpt_err *err)
{
	size_t len;
	const char *key = within(m, dir, &len);
	const size_t skip = len ? len + 1 : 0;
	uint64_t i = first_in(m, key, len);
	int rc = 0;

	if (i == m->n && len)
		return ck_fail(err, CKPT_E_NOTFOUND, dir, CKPT_NO_OFFSET,
			       "the folder is not in the archive");
	for (uint64_t seen = m->n; !rc && i < m->n; i++) {
		const struct ck_mount_file *f = &m->file[i];

		if (len && (strncmp(f->name, key, len) || f->name[len] != '/'))
			break;
		if (seen < m->n && same_folder(&m->file[seen], f, skip))
			continue;
		seen = i;
		if (tree->n >= max_entries)
			rc = ck_fail(err, CKPT_E_LIMIT, dir, CKPT_NO_OFFSET,
				     "the folder holds more than %" PRIu64 " entries", max_entries);
		else
			rc = add_entry(f, skip, dir, tree, err);
	}
	if (!rc && tree->n)
		qsort(tree->entry, tree->n, sizeof(*tree->entry), by_name);
	if (rc)
		ck_tree_release(tree);
	return rc;
}

int ck_look_list(const struct ck_fdpool *pool, struct ck_tree *tree, const char *const *root,
		 size_t nroots, const char *sub, uint64_t max_entries, struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(pool);
	char *dir;
	int rc;

	if (!nroots || !ck_mount_holds(m, root[0]))
		return ck_tree_list(tree, root, nroots, sub, max_entries, err);
	dir = sub ? ck_fs_join(root[0], sub) : ck_strdup(root[0]);
	if (!dir)
		return ck_fail_nomem(err, "a path", strlen(root[0]));
	rc = list_in(m, tree, dir, max_entries, err);
	ck_free(dir);
	return rc;
}

int ck_look_each(const struct ck_fdpool *pool, const char *path, ck_fs_each_fn fn, void *arg,
		 struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(pool);
	struct ck_tree tree = CK_TREE_INIT;
	int rc;

	if (!ck_mount_holds(m, path))
		return ck_fs_each(path, fn, arg, err);
	rc = list_in(m, &tree, path, UINT64_MAX, err);
	for (uint64_t i = 0; !rc && i < tree.n; i++)
		rc = fn(arg, path, tree.entry[i].name, err);
	ck_tree_release(&tree);
	return rc;
}

int ck_look_read(const struct ck_fdpool *pool, const char *path, uint64_t max, char **data_out,
		 uint64_t *len_out, struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(pool);
	struct ck_src *src;
	uint64_t n;
	char *buf;
	int rc;

	if (!ck_mount_holds(m, path))
		return ck_file_read(path, max, data_out, len_out, err);
	rc = ck_mount_open(m, path, &src, err);
	if (rc)
		return rc;
	n = ck_src_size(src);
	if (n > max) {
		ck_src_close(src);
		return ck_fail(err, CKPT_E_LIMIT, path, CKPT_NO_OFFSET,
			       "the file has %" PRIu64 " bytes, but at most %" PRIu64 " can be "
			       "read here", n, max);
	}
	buf = ck_alloc(n + 1);
	rc = buf ? ck_src_read(src, 0, buf, n, err) : ck_fail_nomem(err, path, n + 1);
	ck_src_close(src);
	if (rc) {
		ck_free(buf);
		return rc;
	}
	buf[n] = 0;
	*data_out = buf;
	*len_out = n;
	return 0;
}
