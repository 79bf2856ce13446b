/*
 * mnt_ops.c -- see mnt.h: what the kernel asks.
 *
 * Files never change while they are mounted (shelf.keeps_first), so the kernel keeps their pages
 * and attributes.  A read that fails is EIO, and leaves nothing in the page cache.
 */
#include "mnt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_FOLDER ".zckpt"
#define LOG_FILE "findings.txt"
#define READ_MOST (1u << 20)
#define LONG_TIME 86400.0

/* A file that is open. */
struct opened {
	struct shelf_step *step;
	struct ckpt_view *view;
	uint64_t file, bytes;
	char *text;		/* of the log, as it was when it was opened; else NULL */
};

static struct mnt *this_mount(void)
{
	return fuse_get_context()->private_data;
}

static struct opened *opened_of(const struct fuse_file_info *fi)
{
	return (struct opened *)(uintptr_t)fi->fh;
}

/* ---------------------------------------------------------------- names */

static int is_log_folder(const char *path)
{
	return !strcmp(path, "/" LOG_FOLDER);
}

static int is_log(const char *path)
{
	return !strcmp(path, "/" LOG_FOLDER "/" LOG_FILE);
}

static int is_latest(const struct mnt *mnt, const char *path)
{
	return mnt->shelf->latest && !strcmp(path, "/latest") &&
	       strcmp(mnt->shelf->latest, "latest");
}

/* A failure of the library has been written to the log. */
static int errno_of(const struct ckpt_err *err)
{
	return err->code == CKPT_E_NOMEM ? -ENOMEM : -EIO;
}

/* The view of a place, until shelf_put(). */
static int get_view(struct mnt *mnt, const struct shelf_place *at, struct ckpt_view **view_out)
{
	struct ckpt_err err = { 0 };

	if (shelf_get(mnt->shelf, at->step, at->form, view_out, &err))
		return errno_of(&err);
	return *view_out ? 0 : -ENOENT;
}

/* The file of a place that is one: its view, until shelf_put(). */
static int get_file(struct mnt *mnt, const char *path, struct shelf_place *at,
		    struct ckpt_view **view_out, uint64_t *file_out, struct ckpt_view_file *info)
{
	int rc;

	shelf_find(mnt->shelf, path + 1, at);
	if (at->kind != SHELF_FILE)
		return at->kind == SHELF_NOTHING ? -ENOENT : -EISDIR;
	rc = get_view(mnt, at, view_out);
	if (rc)
		return rc;
	if (ckpt_view_find(*view_out, at->file, file_out, NULL)) {
		shelf_put(mnt->shelf, at->step);
		return -ENOENT;
	}
	ckpt_view_file_get(*view_out, *file_out, info, NULL);
	return 0;
}

/* ---------------------------------------------------------------- attributes */

static void fill(struct stat *st, mode_t mode, uint64_t bytes, int64_t time)
{
	*st = (struct stat){
		.st_mode = mode, .st_nlink = S_ISDIR(mode) ? 2 : 1, .st_size = (off_t)bytes,
		.st_uid = getuid(), .st_gid = getgid(), .st_blksize = READ_MOST,
		/* 0 would be true, but tar --sparse takes it for a file of zeros */
		.st_blocks = (blkcnt_t)((bytes + 511) / 512),
		.st_atim.tv_sec = (time_t)time, .st_mtim.tv_sec = (time_t)time,
		.st_ctim.tv_sec = (time_t)time,
	};
}

static int stat_log(const struct mnt *mnt, struct stat *st)
{
	char *text = shelf_log_text(mnt->shelf);

	fill(st, S_IFREG | 0444, strlen(text), mnt->began);
	free(text);
	return 0;
}

static int stat_folder(struct mnt *mnt, const struct shelf_place *at, struct stat *st)
{
	struct ckpt_view *view;
	int rc = 0;

	if (at->form == SHELF_STATE) {	/* some have none */
		rc = get_view(mnt, at, &view);
		if (!rc)
			shelf_put(mnt->shelf, at->step);
	}
	fill(st, S_IFDIR | 0555, 0, at->step->time);
	return rc == -ENOENT ? rc : 0;
}

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	struct mnt *mnt = this_mount();
	struct ckpt_view_file info;
	struct ckpt_view *view;
	struct shelf_place at;
	uint64_t file;
	int rc;

	(void)fi;
	if (is_log(path))
		return stat_log(mnt, st);
	if (is_latest(mnt, path)) {
		fill(st, S_IFLNK | 0777, strlen(mnt->shelf->latest), mnt->began);
		return 0;
	}
	shelf_find(mnt->shelf, path + 1, &at);
	if (is_log_folder(path) || at.kind == SHELF_TOP) {
		fill(st, S_IFDIR | 0555, 0, mnt->began);
		return 0;
	}
	if (at.kind == SHELF_FOLDER)
		return stat_folder(mnt, &at, st);
	rc = get_file(mnt, path, &at, &view, &file, &info);
	if (rc)
		return rc;
	fill(st, S_IFREG | 0444, info.bytes, at.step->time);
	shelf_put(mnt->shelf, at.step);
	return 0;
}

static int do_readlink(const char *path, char *buf, size_t n)
{
	const struct mnt *mnt = this_mount();

	if (!is_latest(mnt, path))
		return -EINVAL;
	snprintf(buf, n, "%s", mnt->shelf->latest);
	return 0;
}

static int do_statfs(const char *path, struct statvfs *st)
{
	(void)path;
	*st = (struct statvfs){
		.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255, .f_flag = ST_RDONLY,
	};
	return 0;
}

/* ---------------------------------------------------------------- folders */

static void list_top(const struct mnt *mnt, void *buf, fuse_fill_dir_t add)
{
	const struct shelf *shelf = mnt->shelf;

	for (size_t i = 0; i < shelf->n; i++)
		add(buf, shelf->step[i].name, NULL, 0, 0);
	if (is_latest(mnt, "/latest"))
		add(buf, "latest", NULL, 0, 0);
}

static int has_states(struct mnt *mnt, struct shelf_step *step)
{
	const struct shelf_place at = { .step = step, .form = SHELF_STATE };
	struct ckpt_view *view;

	if (get_view(mnt, &at, &view))
		return 0;
	shelf_put(mnt->shelf, step);
	return 1;
}

static int list_folder(struct mnt *mnt, const struct shelf_place *at, void *buf,
		       fuse_fill_dir_t add)
{
	struct ckpt_view_file f;
	struct ckpt_view *view;
	const int rc = get_view(mnt, at, &view);

	for (uint64_t i = 0; !rc && !ckpt_view_file_get(view, i, &f, NULL); i++)
		add(buf, f.name, NULL, 0, 0);
	if (!rc)
		shelf_put(mnt->shelf, at->step);
	for (int i = 1; i < SHELF_STATE && !at->form; i++)
		add(buf, shelf_form_name[i], NULL, 0, 0);
	if (!at->form && has_states(mnt, at->step))
		add(buf, shelf_form_name[SHELF_STATE], NULL, 0, 0);
	return rc;
}

static int do_readdir(const char *path, void *buf, fuse_fill_dir_t add, off_t off,
		      struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	struct mnt *mnt = this_mount();
	struct shelf_place at;

	(void)off;
	(void)fi;
	(void)flags;
	add(buf, ".", NULL, 0, 0);
	add(buf, "..", NULL, 0, 0);
	if (is_log_folder(path)) {
		add(buf, LOG_FILE, NULL, 0, 0);
		return 0;
	}
	if (!strcmp(path, "/"))
		add(buf, LOG_FOLDER, NULL, 0, 0);
	shelf_find(mnt->shelf, path + 1, &at);
	if (at.kind == SHELF_TOP)
		list_top(mnt, buf, add);
	return at.kind == SHELF_FOLDER ? list_folder(mnt, &at, buf, add) :
	       at.kind == SHELF_TOP ? 0 : -ENOENT;
}

/* ---------------------------------------------------------------- files */

static int do_open(const char *path, struct fuse_file_info *fi)
{
	struct mnt *mnt = this_mount();
	struct ckpt_view_file info;
	struct shelf_place at;
	struct opened *o;
	int rc = 0;

	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	if (is_log(path)) {
		o->text = shelf_log_text(mnt->shelf);
		o->bytes = strlen(o->text);
		fi->direct_io = 1;	/* it grows */
	} else {
		rc = get_file(mnt, path, &at, &o->view, &o->file, &info);
		fi->keep_cache = 1;
	}
	if (rc) {
		free(o);
		return rc;
	}
	if (!o->text) {
		o->step = at.step;
		o->bytes = info.bytes;
	}
	fi->fh = (uint64_t)(uintptr_t)o;
	return 0;
}

static int do_read(const char *path, char *buf, size_t n, off_t off, struct fuse_file_info *fi)
{
	const struct opened *o = opened_of(fi);
	struct ckpt_err err = { 0 };

	(void)path;
	if ((uint64_t)off >= o->bytes)
		return 0;
	if (n > o->bytes - (uint64_t)off)
		n = (size_t)(o->bytes - (uint64_t)off);
	if (o->text)
		memcpy(buf, o->text + off, n);
	else if (shelf_read(this_mount()->shelf, o->step, o->view, o->file, (uint64_t)off, n, buf,
			    &err))
		return errno_of(&err);
	return (int)n;
}

static int do_release(const char *path, struct fuse_file_info *fi)
{
	struct opened *o = opened_of(fi);

	(void)path;
	if (o->step)
		shelf_put(this_mount()->shelf, o->step);
	free(o->text);
	free(o);
	return 0;
}

static void *do_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	cfg->kernel_cache = 1;
	cfg->attr_timeout = cfg->entry_timeout = LONG_TIME;
	cfg->negative_timeout = LONG_TIME;
	conn->max_read = READ_MOST;
	conn->max_readahead = READ_MOST;
	conn->want |= conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS);
	return fuse_get_context()->private_data;
}

const struct fuse_operations mnt_operations = {
	.init = do_init, .getattr = do_getattr, .readlink = do_readlink, .statfs = do_statfs,
	.readdir = do_readdir, .open = do_open, .read = do_read, .release = do_release,
};
