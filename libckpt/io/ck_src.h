/*
 * ck_src.h -- random-access bytes: a file read by position, memory, or what a function makes.
 *
 * A source is opened once and read by many threads.  File sources share a pool of
 * descriptors (ck_fdpool.h).
 */
#ifndef CK_SRC_H
#define CK_SRC_H

#include "libckpt/base/ck_base.h"
#include "libckpt/io/ck_fdpool.h"

struct ck_src;

/*
 * Open a regular file, or one of the archive that is mounted on the pool (ck_mount.h).  'pool'
 * must outlive the source.  CKPT_E_NOTFOUND, CKPT_E_IO; CKPT_E_FORMAT for a folder, pipe or
 * device; CKPT_E_MISMATCH if the pool has looked at the file before and it has changed.
 */
int ck_src_open(struct ck_fdpool *pool, const char *path, struct ck_src **src_out,
		struct ckpt_err *err);
/* It will be read, by whatever means: it must stay what it is now.  Codes of ck_src_open(). */
int ck_src_watch(struct ck_fdpool *pool, const char *path, struct ckpt_err *err);
/* For what is known of its contents (ck_stamp.h). */
void ck_src_known(struct ck_src *src, enum ck_known known);
/* Bytes in memory, lent until the source is closed.  'name' is copied. */
int ck_src_mem(const void *p, uint64_t n, const char *name, struct ck_src **src_out,
	       struct ckpt_err *err);
/*
 * Bytes that 'read' makes: bytes [off, off + n) lie within 'size' when it is called, by any thread.
 * 'arg' is lent until the source is closed; 'name' is copied.
 */
typedef int (*ck_src_read_fn)(void *arg, uint64_t off, void *buf, size_t n, struct ckpt_err *err);
int ck_src_made(ck_src_read_fn read, void *arg, uint64_t size, const char *name,
		struct ck_src **src_out, struct ckpt_err *err);
void ck_src_close(struct ck_src *src);

uint64_t ck_src_size(const struct ck_src *src);
const char *ck_src_name(const struct ck_src *src);	/* lent */

/*
 * Read exactly 'n' bytes at 'off'.  Any number of threads.  CKPT_E_TRUNCATED if the
 * source ends before, CKPT_E_MISMATCH if the file is another one by now, CKPT_E_IO.
 */
int ck_src_read(struct ck_src *src, uint64_t off, void *buf, size_t n, struct ckpt_err *err);

#endif
