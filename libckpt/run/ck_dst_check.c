/* ck_dst_check.c -- see ck_dst_check.h. */
#include "libckpt/run/ck_dst_check.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/step/ck_step_find.h"

#define WINDOW_BYTES ((uint64_t)256 << 10)

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int is_below(const char *path, const struct stat *dir, bool *out, struct ckpt_err *err)
{
	char *p = ck_fs_parent(path);
	int rc = p ? 0 : ck_fail_nomem(err, "a file name", strlen(path));

	*out = false;
	while (!rc && p && !*out) {
		struct stat st;
		char *up;

		if (ck_sys.stat(p, &st))
			rc = ck_fail_sys(err, errno, "stat", p);
		else
			*out = same_file(&st, dir);
		up = ck_fs_parent(p);
		if (!up && !rc)
			rc = ck_fail_nomem(err, "a file name", strlen(p));
		if (up && !strcmp(up, p)) {
			ck_free(up);
			up = NULL;
		}
		ck_free(p);
		p = up;
	}
	ck_free(p);
	return rc;
}

/*
 * Does 'path', or the file that it links to, lie in the folder 'dir', at any depth?  What cannot be
 * looked at is no answer: what is read must not be replaced.
 */
static int lies_in(const char *path, const struct stat *dir, bool *out, struct ckpt_err *err)
{
	char real[PATH_MAX];
	int rc = is_below(path, dir, out, err);

	if (rc || *out)
		return rc;
	if (!ck_sys.realpath(path, real))
		return ck_fail_sys(err, errno, "resolve", path);
	return is_below(real, dir, out, err);
}

/* What --force replaces is a step, or an empty folder. */
static int check_replaced(const struct ck_run_to_dst *d, const char *path, const struct stat *st,
			  struct ckpt_err *err)
{
	const struct ck_index *ix = &d->ck->ix;
	enum ck_holds holds = CK_HOLDS_SHARDS;
	bool empty = false, is_read = false;
	int rc = 0;

	for (uint64_t i = 0; !rc && !is_read && i < ix->nsources; i++)
		rc = lies_in(ix->source[i].path, st, &is_read, err);
	if (!rc && is_read)
		rc = ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			     d->step_is_fixed ?
			     "this is the source step; give another destination" :
			     "this is the source step; --new-tag gives the new one another "
			     "name");
	if (!rc && d->driver->is_step)
		rc = ck_step_look(d->ck->formats, path, &d->ck->limits, &holds, err);
	if (!rc && holds != CK_HOLDS_SHARDS)
		rc = ck_fs_dir_is_empty(path, &empty, err);
	if (rc || holds == CK_HOLDS_SHARDS || empty)
		return rc;
	return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
		       "the destination exists and is not a step, and --force replaces only "
		       "steps; %s", d->step_is_fixed ? "move it away, or give another destination" :
		       "--new-tag gives the new step another name");
}

static int check_step(const struct ck_run_to_dst *d, struct ckpt_err *err)
{
	char *path = ck_fs_join(d->dst, d->step);
	struct stat st;
	int rc = 0;

	if (!path)
		return ck_fail_nomem(err, "a file name", 0);
	if (ck_sys.lstat(path, &st)) {
		if (errno != ENOENT)
			rc = ck_fail_sys(err, errno, "stat", path);
	} else if (!S_ISDIR(st.st_mode)) {
		rc = ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			     "the step's path exists and is not a folder");
	} else if (!(d->flags & CKPT_WRITE_FORCE)) {
		rc = ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			     d->step_is_fixed ?
			     "the step exists; --force replaces it, or give another destination" :
			     "the step exists; --new-tag gives the new one another name, --force "
			     "replaces it");
	} else {
		rc = check_replaced(d, path, &st, err);
	}
	ck_free(path);
	return rc;
}

/* Bytes [at, at + n) of a file of the plan; false for what only the run makes. */
static int planned_bytes(const struct ck_run_to_dst *d, const struct ck_outfile *f, uint64_t at,
			 uint8_t *p, uint64_t n, bool *known_out, struct ckpt_err *err)
{
	const struct ck_seg *s = d->plan->seg + f->seg, *end = s + f->nsegs;
	int rc = 0;

	for (; !rc && n && s < end; s++) {
		const uint64_t skip = at - s->off, k = ck_min_u64(n, s->bytes - skip);
		struct ck_src *src;

		if (at >= s->off + s->bytes)
			continue;
		if (s->kind == CK_SEG_LITERAL) {
			memcpy(p, (const uint8_t *)s->text + skip, k);
		} else if (s->kind == CK_SEG_FILE) {
			rc = ck_src_open(d->ck->pool, s->text, &src, err);
			if (!rc) {
				rc = ck_src_read(src, s->first + skip, p, k, err);
				ck_src_close(src);
			}
		} else {
			*known_out = false;
			return 0;
		}
		at += k;
		p += k;
		n -= k;
	}
	return rc;
}

/* 'buf' holds two windows. */
static int compare(const struct ck_run_to_dst *d, const struct ck_outfile *f, const char *path,
		   uint8_t *buf, bool *same_out, struct ckpt_err *err)
{
	struct ck_fdpool *pool = ck_fdpool_new(1);	/* the old files there are no source */
	struct ck_src *there = NULL;
	int rc = pool ? ck_src_open(pool, path, &there, err) :
		 ck_fail_nomem(err, "a pool of files", 0);

	for (uint64_t at = 0; !rc && *same_out && at < f->bytes; at += WINDOW_BYTES) {
		const uint64_t n = ck_min_u64(WINDOW_BYTES, f->bytes - at);

		rc = ck_src_read(there, at, buf, n, err);
		if (!rc)
			rc = planned_bytes(d, f, at, buf + WINDOW_BYTES, n, same_out, err);
		if (!rc && *same_out)
			*same_out = !memcmp(buf, buf + WINDOW_BYTES, n);
	}
	ck_src_close(there);
	ck_fdpool_free(pool);
	return rc;
}

/* The file is a copy of the very one that stands there. */
static bool is_itself(const struct ck_run_to_dst *d, const struct ck_outfile *f,
		      const struct stat *there)
{
	const struct ck_seg *s = d->plan->seg + f->seg;
	struct stat st;

	return f->nsegs == 1 && s->kind == CK_SEG_FILE && !ck_sys.stat(s->text, &st) &&
	       same_file(&st, there);
}

static int check_file(const struct ck_run_to_dst *d, const struct ck_outfile *f, const char *path,
		      uint8_t *buf, struct ckpt_err *err)
{
	const bool pointer = !strcmp(f->name, "latest") || !strcmp(f->name, "latest_universal");
	struct stat st;
	bool same;
	int rc;

	if (ck_sys.stat(path, &st)) {
		if (errno == ENOENT && ck_sys.lstat(path, &st))
			return 0;
		if (errno == ENOENT && !pointer && !(d->flags & CKPT_WRITE_FORCE))
			return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
				       "a file beside the step goes here, but this is a broken "
				       "link");
		if (errno == ENOENT)
			return 0;
		if (errno == ENOTDIR)
			return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
				       "a folder beside the step goes here, but this is a file");
		return ck_fail_sys(err, errno, "stat", path);
	}
	if (S_ISDIR(st.st_mode))
		return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			       "a file beside the step goes here, but this is a folder");
	if (pointer || d->flags & CKPT_WRITE_FORCE || is_itself(d, f, &st))
		return 0;
	same = S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->bytes;
	rc = same ? compare(d, f, path, buf, &same, err) : 0;
	if (rc || same)
		return rc;
	if (d->step_is_fixed)
		return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			       "it names another step than the new one, %s; --force makes it name "
			       "the new one, or give another destination", d->step);
	return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
		       "the step has a file of this name with other contents; move this one "
		       "away, or --force replaces it");
}

/* Files get into the folders that are there by a rename, which stays on one file system. */
static int check_folders(const struct ck_run_to_dst *d, const char *name, dev_t dev,
			 struct ckpt_err *err)
{
	const char *slash = strchr(name, '/');
	struct stat st;
	int rc = 0;

	for (; !rc && slash; slash = strchr(slash + 1, '/')) {
		char *path = ck_asprintf("%s/%.*s", d->dst, (int)(slash - name), name);

		if (!path)
			return ck_fail_nomem(err, "a file name", strlen(name));
		if (!ck_sys.stat(path, &st) && S_ISDIR(st.st_mode) && st.st_dev != dev)
			rc = ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
				     "a folder beside the step goes here, but this is a mount "
				     "point or a link to another file system");
		ck_free(path);
	}
	return rc;
}

static int check_beside(const struct ck_run_to_dst *d, struct ckpt_err *err)
{
	const size_t n = strlen(d->step);
	struct stat root;
	uint8_t *buf = ck_alloc(2 * WINDOW_BYTES);
	int rc = buf ? 0 : ck_fail_nomem(err, "a buffer", 2 * WINDOW_BYTES);

	if (!rc && ck_sys.stat(d->dst, &root))
		rc = ck_fail_sys(err, errno, "stat", d->dst);
	for (uint64_t i = 0; !rc && i < d->plan->nfiles; i++) {
		const struct ck_outfile *f = &d->plan->file[i];
		char *path;

		if (!strncmp(f->name, d->step, n) && f->name[n] == '/')
			continue;
		rc = check_folders(d, f->name, root.st_dev, err);
		if (rc)
			break;
		path = ck_fs_join(d->dst, f->name);
		rc = path ? check_file(d, f, path, buf, err) :
		     ck_fail_nomem(err, "a file name", 0);
		ck_free(path);
	}
	ck_free(buf);
	return rc;
}

int ck_dst_check(const struct ck_run_to_dst *d, struct ckpt_err *err)
{
	enum ck_holds holds = CK_HOLDS_OTHER;
	int rc = 0;

	if (d->driver->is_step)
		rc = ck_step_look(d->ck->formats, d->dst, &d->ck->limits, &holds, err);
	if (rc)
		return rc;
	if (holds == CK_HOLDS_SHARDS)
		return ck_fail(err, CKPT_E_EXISTS, d->dst, CKPT_NO_OFFSET,
			       "this folder is itself a step; give the folder above it");
	if (holds == CK_HOLDS_OTHER && !(d->flags & CKPT_WRITE_FORCE))
		return ck_fail(err, CKPT_E_EXISTS, d->dst, CKPT_NO_OFFSET,
			       "the destination exists and has no steps; --force writes this "
			       "step into it");
	rc = check_step(d, err);
	return rc ? rc : check_beside(d, err);
}
