/* arc_dest.c -- see arc_dest.h. */
#include "formats/archive/arc_dest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/io/ck_fs.h"

#define WINDOW ((uint64_t)1 << 20)

static bool is_pointer(const char *name)
{
	return !strcmp(name, "latest") || !strcmp(name, "latest_universal");
}

/* The folder that all names with a slash begin with; NULL = none, or several. */
static int find_step(struct arc_dest *d, struct ckpt_err *err)
{
	const char *first = NULL;
	size_t n = 0;

	for (uint64_t i = 0; i < d->n; i++) {
		const char *name = d->file[i].name;
		const size_t k = strcspn(name, "/");

		if (!name[k])
			continue;
		if (first && (k != n || strncmp(first, name, n)))
			return 0;
		first = name;
		n = k;
	}
	if (!first)
		return 0;
	d->step = ck_strndup(first, n);
	return d->step ? 0 : ck_fail_nomem(err, "a file name", n);
}

int ck_arc_dest_init(struct arc_dest *d, const struct ck_unpack_want *want,
		  struct arc_dest_file *file, uint64_t n, struct ckpt_err *err)
{
	const char **list = ck_alloc_array(n + 1, sizeof(*list));
	int rc;

	*d = (struct arc_dest){ .want = want, .file = file, .n = n };
	if (!list)
		return ck_fail_nomem(err, "names", n);
	for (uint64_t i = 0; i < n; i++)
		list[i] = file[i].name;
	rc = n ? ck_arc_names_check(list, n, want->path, err) :
	     ck_fail(err, CKPT_E_FORMAT, want->path, CKPT_NO_OFFSET, "the archive holds no file");
	ck_free(list);
	return rc ? rc : find_step(d, err);
}

static int same_bytes(const struct arc_dest_file *f, const char *path, bool *same_out,
		      struct ckpt_err *err)
{
	struct ck_hasher *hash = ck_hasher_new();
	uint8_t *buf = ck_alloc(WINDOW);
	struct ck_fdpool *pool = ck_fdpool_new(1);	/* the old files there are no source */
	struct ck_src *src = NULL;
	int rc = hash && buf && pool ? ck_src_open(pool, path, &src, err) :
		 ck_fail_nomem(err, "a buffer", WINDOW);

	for (uint64_t at = 0; !rc && at < f->bytes; at += WINDOW) {
		const uint64_t n = ck_min_u64(WINDOW, f->bytes - at);

		rc = ck_src_read(src, at, buf, n, err);
		if (!rc)
			ck_hasher_add(hash, buf, n);
	}
	*same_out = !rc && ck_hash128_equal(ck_hasher_sum(hash), *f->hash);
	ck_src_close(src);
	ck_fdpool_free(pool);
	ck_hasher_free(hash);
	ck_free(buf);
	return rc;
}

/* A file that goes beside the step. */
static int check_beside(const struct arc_dest *d, const struct arc_dest_file *f, const char *path,
			struct ckpt_err *err)
{
	bool same = false;
	struct stat st;
	int rc = 0;

	if (ck_sys.lstat(path, &st))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (S_ISREG(st.st_mode) && (is_pointer(f->name) || d->want->flags & CKPT_WRITE_FORCE))
		return 0;
	if (S_ISREG(st.st_mode) && f->hash && (uint64_t)st.st_size == f->bytes)
		rc = same_bytes(f, path, &same, err);
	if (rc || same)
		return rc;
	return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
		       "a file of the archive goes here, but something else has this name; move "
		       "it away%s",
		       S_ISREG(st.st_mode) ? ", or --force replaces it" : "");
}

static int check_step(const struct arc_dest *d, const char *path, struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.lstat(path, &st))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat", path);
	if (S_ISDIR(st.st_mode) && d->want->flags & CKPT_WRITE_FORCE)
		return 0;
	return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET, "%s",
		       S_ISDIR(st.st_mode) ?
		       "the archive's folder exists; --force replaces it" :
		       "the archive's folder goes here, but this is not a folder");
}

/* The destination is there and holds something. */
static int check_into(void *arg, struct ckpt_err *err)
{
	const struct arc_dest *d = arg;
	char *path = ck_fs_join(d->want->dst, d->step);
	int rc = path ? check_step(d, path, err) : ck_fail_nomem(err, "a file name", 0);

	ck_free(path);
	for (uint64_t i = 0; !rc && i < d->n; i++) {
		if (strchr(d->file[i].name, '/'))
			continue;
		path = ck_fs_join(d->want->dst, d->file[i].name);
		rc = path ? check_beside(d, &d->file[i], path, err) :
		     ck_fail_nomem(err, "a file name", 0);
		ck_free(path);
	}
	return rc;
}

/* What ck_stage_begin() finds, and without a folder that may go beside others. */
static int check_dst(const struct arc_dest *d, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	bool empty = true;
	int rc = ck_fs_kind(d->want->dst, &kind, err);

	if (!rc && kind == CK_FS_DIR)
		rc = ck_fs_dir_is_empty(d->want->dst, &empty, err);
	if (rc || kind == CK_FS_NOTHING || (kind == CK_FS_DIR && empty))
		return rc;
	if (kind != CK_FS_DIR)
		return ck_fail(err, CKPT_E_EXISTS, d->want->dst, CKPT_NO_OFFSET,
			       "the destination exists and is not a folder");
	if (!d->step)
		return ck_fail(err, CKPT_E_EXISTS, d->want->dst, CKPT_NO_OFFSET,
			       "the destination exists, and the archive holds more than one "
			       "folder; give another path");
	return d->want->flags & CKPT_WRITE_DRY_RUN ?
	       check_into((void *)(uintptr_t)d, err) : 0;
}

static struct ck_hash128 names_hash(const struct arc_dest *d, uint64_t *total_out)
{
	struct ck_hash128 sum = { 0 };

	*total_out = 0;
	for (uint64_t i = 0; i < d->n; i++) {
		const struct arc_dest_file *f = &d->file[i];
		struct ck_hash128 own = ck_hash128(f->name, strlen(f->name));

		own.lo += f->bytes * 0x9e3779b97f4a7c15u;
		sum = ck_hash128_add(sum, own);
		if (f->hash)
			sum = ck_hash128_add(sum, *f->hash);
		*total_out += f->bytes;
	}
	return sum;
}

int ck_arc_dest_begin(struct arc_dest *d, bool *done_out, struct ckpt_err *err)
{
	const struct ck_unpack_want *want = d->want;
	struct ck_stage_opts so = {
		.dst = want->dst, .is_dir = true, .force = want->flags & CKPT_WRITE_FORCE,
		.restart = want->flags & CKPT_WRITE_RESTART, .sync = want->run->sync,
		.nparts = 1, .step = d->step, .check = check_into, .check_arg = d,
		.sources = want->pool,
	};
	int rc = check_dst(d, err);

	*done_out = false;
	so.plan = names_hash(d, &so.total_bytes);
	so.fingerprint = so.plan;
	if (!rc && want->flags & CKPT_WRITE_DRY_RUN)
		rc = ck_commit_room(want->dst, true, so.total_bytes, &d->free, err);
	if (rc || want->flags & CKPT_WRITE_DRY_RUN)
		return rc;
	d->number = ck_alloc_array(d->n + 1, sizeof(*d->number));
	if (!d->number)
		return ck_fail_nomem(err, "files", d->n);
	rc = ck_stage_begin(&so, &d->stage, err);
	if (rc)
		return rc;
	*done_out = ck_stage_is_done(d->stage);
	for (uint64_t i = 0; !rc && !*done_out && i < d->n; i++)
		rc = ck_stage_file(d->stage, d->file[i].name, d->file[i].bytes, &d->number[i], err);
	return rc;
}

int ck_arc_dest_commit(struct arc_dest *d, struct ckpt_err *err)
{
	int rc = ck_stage_end(d->stage, err);

	return rc ? rc : ck_stage_commit(d->stage, 0, err);
}

void ck_arc_dest_release(struct arc_dest *d, int rc)
{
	if (rc)
		ck_stage_abort(d->stage);
	else
		ck_stage_close(d->stage);
	ck_free(d->number);
	ck_free(d->step);
	*d = (struct arc_dest){ .want = NULL };
}
