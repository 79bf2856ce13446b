/*
 * ck_src.c -- see ck_src.h.  Three kinds of source, told apart by a table.
 */
#include "libckpt/io/ck_src.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

struct ck_src_ops {
	int (*read)(struct ck_src *src, uint64_t off, void *buf, size_t n, struct ckpt_err *err);
	void (*close)(struct ck_src *src);
};

struct ck_src {
	const struct ck_src_ops *ops;
	char *name;
	uint64_t size;
	const uint8_t *mem;
	ck_src_read_fn make;		/* made ones, with its argument */
	void *arg;
	struct ck_fdpool *pool;		/* files only, as below */
	struct ck_pooled file;
};

static int read_all(struct ck_src *src, uint64_t off, uint8_t *buf, size_t n,
		    struct ckpt_err *err)
{
	size_t got = 0;

	while (got < n) {
		const ssize_t k = ck_sys.pread(src->file.fd, buf + got, n - got,
					       (off_t)(off + got));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return ck_fail_sys(err, errno, "read", src->name);
		if (k == 0)
			return ck_fail(err, CKPT_E_TRUNCATED, src->name, off + got,
				       "expected %zu bytes, but the file ended (did it "
				       "shrink?)",
				       n - got);
		got += (size_t)k;
	}
	return 0;
}

static int file_read(struct ck_src *src, uint64_t off, void *buf, size_t n,
		     struct ckpt_err *err)
{
	int rc = ck_fdpool_pin(src->pool, &src->file, err);

	if (rc)
		return rc;
	rc = read_all(src, off, buf, n, err);
	if (!rc && ck_fdpool_drops(src->pool))
		ck_sys.fadvise(src->file.fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
	if (!rc)
		ck_fdpool_count(src->pool, n);
	ck_fdpool_unpin(src->pool, &src->file);
	return rc;
}

static void file_close(struct ck_src *src)
{
	ck_fdpool_close(src->pool, &src->file, NULL);
}

static int mem_read(struct ck_src *src, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	(void)err;
	memcpy(buf, src->mem + off, n);
	return 0;
}

static void mem_close(struct ck_src *src)
{
	(void)src;
}

static int made_read(struct ck_src *src, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	return src->make(src->arg, off, buf, n, err);
}

static const struct ck_src_ops file_ops = { file_read, file_close };
static const struct ck_src_ops mem_ops = { mem_read, mem_close };
static const struct ck_src_ops made_ops = { made_read, mem_close };

static struct ck_src *src_new(const struct ck_src_ops *ops, const char *name)
{
	struct ck_src *src = ck_zalloc(sizeof(*src));

	if (!src)
		return NULL;
	src->ops = ops;
	src->file.fd = -1;
	src->name = ck_strdup(name);
	if (!src->name) {
		ck_free(src);
		return NULL;
	}
	return src;
}

/* Looked at before it is opened: opening a pipe would wait for its writer. */
static int check_regular(const char *path, struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.stat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	if (!S_ISREG(st.st_mode))
		return ck_fail(err, CKPT_E_FORMAT, path, CKPT_NO_OFFSET,
			       "this is %s, not a regular file",
			       S_ISDIR(st.st_mode) ? "a folder" : "a pipe or device");
	return 0;
}

int ck_src_open(struct ck_fdpool *pool, const char *path, struct ck_src **src_out,
		struct ckpt_err *err)
{
	struct ck_src *src;
	int rc;

	if (ck_mount_holds(ck_fdpool_mount(pool), path))
		return ck_mount_open(ck_fdpool_mount(pool), path, src_out, err);
	rc = check_regular(path, err);
	if (rc)
		return rc;
	src = src_new(&file_ops, path);
	if (!src)
		return ck_fail_nomem(err, "a file", strlen(path));
	src->pool = pool;
	src->file.path = src->name;
	src->file.flags = O_RDONLY;
	rc = ck_fdpool_pin(pool, &src->file, err);
	if (!rc) {
		rc = ck_fdpool_note_source(pool, &src->file, err);
		ck_fdpool_unpin(pool, &src->file);
	}
	if (rc) {
		ck_src_close(src);
		return rc;
	}
	src->size = src->file.stamp.bytes;
	*src_out = src;
	return 0;
}

int ck_src_mem(const void *p, uint64_t n, const char *name, struct ck_src **src_out,
	       struct ckpt_err *err)
{
	struct ck_src *src = src_new(&mem_ops, name);

	if (!src)
		return ck_fail_nomem(err, "a source", sizeof(*src));
	src->mem = p;
	src->size = n;
	*src_out = src;
	return 0;
}

int ck_src_made(ck_src_read_fn read, void *arg, uint64_t size, const char *name,
		struct ck_src **src_out, struct ckpt_err *err)
{
	struct ck_src *src = src_new(&made_ops, name);

	if (!src)
		return ck_fail_nomem(err, "a source", sizeof(*src));
	src->make = read;
	src->arg = arg;
	src->size = size;
	*src_out = src;
	return 0;
}

int ck_src_watch(struct ck_fdpool *pool, const char *path, struct ckpt_err *err)
{
	struct ck_src *src;
	int rc = ck_src_open(pool, path, &src, err);

	if (!rc)
		ck_src_close(src);
	return rc;
}

void ck_src_known(struct ck_src *src, enum ck_known known)
{
	if (src->pool)
		ck_stamps_known(ck_fdpool_stamps(src->pool), src->name, known);
}

void ck_src_close(struct ck_src *src)
{
	if (!src)
		return;
	src->ops->close(src);
	ck_free(src->name);
	ck_free(src);
}

uint64_t ck_src_size(const struct ck_src *src)
{
	return src->size;
}

const char *ck_src_name(const struct ck_src *src)
{
	return src->name;
}

int ck_src_read(struct ck_src *src, uint64_t off, void *buf, size_t n, struct ckpt_err *err)
{
	if (off > src->size || n > src->size - off)
		return ck_fail(err, CKPT_E_TRUNCATED, src->name, off,
			       "cannot read %zu bytes here: the file has %" PRIu64 " bytes in "
			       "all", n, src->size);
	if (!n)
		return 0;
	return src->ops->read(src, off, buf, n, err);
}
