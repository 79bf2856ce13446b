/*
 * ck_stage_file.c -- the files of a stage: made, written by position, synced.
 *
 * The kernel lets one thread at a time write to a file, and those that wait spin: 16 of them took 5
 * to 7 s of processor time for the 2.4 GB that 4 wrote as fast with 1.5 (ext4, xfs, tmpfs; 16
 * cores).  So two write, one of which has the file, and the others sleep.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage_priv.h"
#include "libckpt/io/ck_fs.h"

#define MOST_WRITERS 2u

int ck_stage_make_dir(const char *path, bool *made_out, struct ckpt_err *err)
{
	struct stat st;

	if (!ck_sys.mkdir(path, 0777)) {
		*made_out = true;
		return 0;
	}
	if (errno != EEXIST)
		return ck_fs_fail_make(err, errno, path);
	if (ck_sys.lstat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	if (!S_ISDIR(st.st_mode))
		return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			       "the path for partial output exists and is not a folder");
	return 0;
}

/* True where taking space ahead only costs: memory file systems check it anyway. */
static int preallocate(struct stage_file *f, uint64_t bytes, bool plain, struct ckpt_err *err)
{
	const int fd = f->pooled.fd;
	struct stat st;

	if (ck_sys.fstat(fd, &st))
		return ck_fail_sys(err, errno, "fstat", f->path);
	if ((uint64_t)st.st_size != bytes && ck_ftruncate(fd, (off_t)bytes))
		return ck_fail_sys(err, errno, "set the length", f->path);
	if (plain || !bytes || !ck_fallocate(fd, 0, (off_t)bytes))
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		return 0;
	return ck_fail_sys(err, errno, "preallocate", f->path);
}

/* The folders that a name like "tag/file" needs; they are synced with the files. */
static int make_folders(struct ck_stage *stage, const char *name, struct ckpt_err *err)
{
	const char *slash = strchr(name, '/');
	bool made;
	int rc = 0;

	for (; !rc && slash; slash = strchr(slash + 1, '/')) {
		char *path = ck_asprintf("%s/%.*s", stage->paths.data, (int)(slash - name), name);

		if (!path)
			return ck_fail_nomem(err, "a file name", strlen(name));
		rc = ck_stage_make_dir(path, &made, err);
		ck_free(path);
	}
	return rc;
}

int ck_stage_file_of_other(struct ck_stage *stage, const char *name, uint32_t *file_out,
			   struct ckpt_err *err)
{
	struct stage_file *f;
	int rc = ck_grow(&stage->file, &stage->cap, stage->nfiles + 1, sizeof(struct stage_file *),
			 err);

	if (!rc)
		rc = make_folders(stage, name, err);
	if (rc)
		return rc;
	f = ck_zalloc(sizeof(*f));
	if (!f)
		return ck_fail_nomem(err, "a file", sizeof(*f));
	f->path = ck_fs_join(stage->paths.data, name);
	if (!f->path) {
		ck_free(f);
		return ck_fail_nomem(err, "a file name", strlen(name));
	}
	f->pooled = (struct ck_pooled){
		.path = f->path, .flags = O_RDWR | O_CREAT | O_NOFOLLOW, .fd = -1,
	};
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->left, NULL);
	stage->file[stage->nfiles++] = f;
	*file_out = (uint32_t)(stage->nfiles - 1);
	return 0;
}

int ck_stage_file_to_read(struct ck_stage *stage, const char *name, uint32_t *file_out,
			  struct ckpt_err *err)
{
	int rc = ck_stage_file_of_other(stage, name, file_out, err);

	if (!rc)
		stage->file[*file_out]->pooled.flags = O_RDONLY | O_NOFOLLOW;
	return rc;
}

static bool is_refused(int error)
{
	return error == EMLINK || error == EPERM || error == EXDEV || error == EOPNOTSUPP ||
	       error == ENOSYS;
}

/* A name that is there is of a run that was killed. */
static int make_link(const char *from, const char *path, bool *made_out, struct ckpt_err *err)
{
	int failed = ck_sys.link(from, path) ? errno : 0;

	if (failed == EEXIST && !ck_sys.unlink(path))
		failed = ck_sys.link(from, path) ? errno : 0;
	*made_out = !failed;
	return !failed || is_refused(failed) ? 0 : ck_fail_sys(err, failed, "link", from);
}

int ck_stage_file_linked(struct ck_stage *stage, const char *name, const char *from,
			 uint32_t *file_out, bool *made_out, struct ckpt_err *err)
{
	char *path = ck_fs_join(stage->paths.data, name);
	int rc = path ? make_link(from, path, made_out, err) :
		 ck_fail_nomem(err, "a file name", strlen(name));

	ck_free(path);
	if (rc || !*made_out)
		return rc;
	rc = ck_stage_file_to_read(stage, name, file_out, err);
	if (!rc)	/* the other name's writer may have had another policy */
		stage->file[*file_out]->touched = true;
	return rc;
}

int ck_stage_file(struct ck_stage *stage, const char *name, uint64_t bytes,
		  uint32_t *file_out, struct ckpt_err *err)
{
	const bool plain = ck_commit_in_memory(&stage->paths);
	struct stage_file *f;
	uint32_t number;
	int rc = ck_stage_file_of_other(stage, name, &number, err);

	if (rc)
		return rc;
	f = stage->file[number];
	f->touched = true;
	rc = ck_fdpool_pin(stage->pool, &f->pooled, err);
	if (rc)
		return rc;
	f->made = true;
	f->pooled.flags &= ~O_CREAT;	/* opened again, it must be there */
	rc = preallocate(f, bytes, plain, err);
	ck_fdpool_unpin(stage->pool, &f->pooled);
	if (!rc)
		*file_out = number;
	return rc;
}

static void enter(struct stage_file *f)
{
	pthread_mutex_lock(&f->lock);
	while (f->writing == MOST_WRITERS)
		pthread_cond_wait(&f->left, &f->lock);
	f->writing++;
	pthread_mutex_unlock(&f->lock);
}

static void leave(struct stage_file *f)
{
	pthread_mutex_lock(&f->lock);
	f->writing--;
	pthread_cond_signal(&f->left);
	pthread_mutex_unlock(&f->lock);
}

static int write_all(const struct stage_file *f, uint64_t off, const char *p, size_t n,
		     struct ckpt_err *err)
{
	while (n) {
		const ssize_t k = ck_sys.pwrite(f->pooled.fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : EIO, "write", f->path);
		p += k;
		off += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

int ck_stage_write(struct ck_stage *stage, uint32_t file, uint64_t off, const void *p,
		   size_t n, struct ckpt_err *err)
{
	struct stage_file *f = stage->file[file];
	int rc = ck_fdpool_pin(stage->pool, &f->pooled, err);

	if (rc)
		return rc;
	f->touched = true;
	if (!stage->maps || !ck_stage_map_write(stage, f, off, p, n)) {
		enter(f);
		rc = write_all(f, off, p, n, err);
		leave(f);
	}
	ck_fdpool_unpin(stage->pool, &f->pooled);
	return rc;
}

static int read_all(const struct stage_file *f, uint64_t off, char *p, size_t n,
		    struct ckpt_err *err)
{
	while (n) {
		const ssize_t k = ck_sys.pread(f->pooled.fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ck_fail_sys(err, errno, "read", f->path);
		if (!k)
			return ck_fail(err, CKPT_E_TRUNCATED, f->path, off,
				       "expected %zu bytes, but the file ended", n);
		p += k;
		off += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

int ck_stage_read(struct ck_stage *stage, uint32_t file, uint64_t off, void *p, size_t n,
		  struct ckpt_err *err)
{
	struct stage_file *f = stage->file[file];
	int rc = ck_fdpool_pin(stage->pool, &f->pooled, err);

	if (rc)
		return rc;
	rc = read_all(f, off, p, n, err);
	ck_fdpool_unpin(stage->pool, &f->pooled);
	return rc;
}

static int sync_file(struct ck_stage *stage, struct stage_file *f, struct ckpt_err *err)
{
	int rc;

	if (stage->opts.sync != CKPT_SYNC_NONE) {
		rc = ck_fdpool_pin(stage->pool, &f->pooled, err);
		if (rc)
			return rc;
		rc = stage->opts.sync == CKPT_SYNC_FULL ? ck_fsync(f->pooled.fd, CK_SYNCED_FILES) :
		     ck_fdatasync(f->pooled.fd, CK_SYNCED_FILES);
		if (rc)
			rc = ck_fail_sys(err, errno, "sync", f->path);
		ck_fdpool_unpin(stage->pool, &f->pooled);
		if (rc)
			return rc;
	}
	/* Network file systems report late failures of writing here. */
	return ck_fdpool_close(stage->pool, &f->pooled, err);
}

/* What another process removed is written for nothing, even where a file has its name again. */
static int check_is_there(const struct stage_file *f, struct ckpt_err *err)
{
	struct stat named, open;

	if (!f->made)
		return 0;
	if (ck_sys.stat(f->path, &named)) {
		if (errno != ENOENT)
			return ck_fail_sys(err, errno, "stat", f->path);
	} else if (f->pooled.fd < 0 || (!ck_sys.fstat(f->pooled.fd, &open) &&
					named.st_ino == open.st_ino)) {
		return 0;
	}
	return ck_fail(err, CKPT_E_INCOMPLETE, f->path, CKPT_NO_OFFSET,
		       "another process removed this file while it was written, so the result "
		       "is incomplete and was not put into place");
}

/*
 * Contents first: the end entry must not say more than the disk has.  The names as well, since a
 * committer looks at no byte of a part that has ended, and a file whose name is lost would be made
 * anew by the next part.
 */
int ck_stage_flush(struct ck_stage *stage, struct ckpt_err *err)
{
	const bool sync = stage->opts.sync != CKPT_SYNC_NONE;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < stage->nfiles; i++) {
		rc = check_is_there(stage->file[i], err);
		if (!rc && stage->file[i]->touched)
			rc = sync_file(stage, stage->file[i], err);
	}
	if (!rc && sync)
		rc = ck_fs_sync_tree(stage->paths.data, CK_SYNCED_NAMES, err);
	if (!rc && sync)
		rc = ck_fs_sync_dir(stage->paths.partial, CK_SYNCED_PARTIAL, err);
	return rc;
}
