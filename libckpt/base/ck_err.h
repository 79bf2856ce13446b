/*
 * ck_err.h -- filling a struct ckpt_err.  The first failure wins: a callee that
 * fails describes it, callers up the stack may add their call and are ignored.
 */
#ifndef CK_ERR_H
#define CK_ERR_H

#include "libckpt/base/ck_base.h"

/*
 * Describe a failure and return -code, so that failing is one line.  'err' may be
 * NULL.  'where' is the file, member or tensor ("" or NULL if there is none),
 * 'offset' a byte in it or CKPT_NO_OFFSET.  'fmt' gives a clause: no capital at
 * its start, no full stop, no newline.
 */
int ck_fail(struct ckpt_err *err, enum ckpt_code code, const char *where,
	    uint64_t offset, const char *fmt, ...) CK_PRINTF(5, 6);

/*
 * A bound of struct ckpt_limits is met: its field, what it is, and a clause that says what
 * is too much.  The message ends with how to raise it.
 */
int ck_fail_limit(struct ckpt_err *err, const char *where, uint64_t offset, const char *limit,
		  uint64_t value, const char *fmt, ...) CK_PRINTF(6, 7);

/* Out of memory while doing 'what', of which 'n' bytes were asked. */
int ck_fail_nomem(struct ckpt_err *err, const char *what, uint64_t n);

/*
 * A system call 'call' (its name, a verb, or a noun with its article) on 'path' failed with errno
 * 'errnum'.  ENOENT becomes
 * CKPT_E_NOTFOUND, EEXIST CKPT_E_EXISTS, ENOSPC and EDQUOT CKPT_E_NOSPACE, ENOMEM
 * CKPT_E_NOMEM, everything else CKPT_E_IO.
 */
int ck_fail_sys(struct ckpt_err *err, int errnum, const char *call, const char *path);

/*
 * 'rc' and '*inner' are what a callee said where damage, or that nothing is there, is no failure: 0
 * for these; for what is one of the machine 'rc', and '*err' takes it.
 */
int ck_err_take_system(int rc, const struct ckpt_err *inner, struct ckpt_err *err);

/* Forget a failure that the caller has dealt with. */
void ck_err_clear(struct ckpt_err *err);

/* Of a file without a byte, wherever it is met. */
#define CK_WHY_EMPTY "the disk was full, or a save or copy was cut short"

#endif
