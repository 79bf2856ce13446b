/* ck_err.c -- see ck_err.h. */
#include "libckpt/base/ck_err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ck_fail(struct ckpt_err *err, enum ckpt_code code, const char *where,
	    uint64_t offset, const char *fmt, ...)
{
	if (err && !err->code) {
		va_list ap;

		err->code = code;
		err->offset = offset;
		snprintf(err->where, sizeof(err->where), "%s", where ? where : "");
		va_start(ap, fmt);
		vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
	}
	return -(int)code;
}

int ck_fail_limit(struct ckpt_err *err, const char *where, uint64_t offset, const char *limit,
		  uint64_t value, const char *fmt, ...)
{
	char clause[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(clause, sizeof(clause), fmt, ap);
	va_end(ap);
	return ck_fail(err, CKPT_E_LIMIT, where, offset,
		       "%s; the limit %s is %" PRIu64 ", --limit %s=N raises it", clause, limit,
		       value, limit);
}

int ck_fail_nomem(struct ckpt_err *err, const char *what, uint64_t n)
{
	return ck_fail(err, CKPT_E_NOMEM, NULL, CKPT_NO_OFFSET,
		       "no memory for %s (%" PRIu64 " bytes requested)", what, n);
}

static enum ckpt_code code_of_errno(int errnum)
{
	switch (errnum) {
	case ENOENT:
	case ENOTDIR:
		return CKPT_E_NOTFOUND;
	case EEXIST:
	case ENOTEMPTY:
		return CKPT_E_EXISTS;
	case ENOSPC:
	case EDQUOT:
		return CKPT_E_NOSPACE;
	case ENOMEM:
		return CKPT_E_NOMEM;
	default:
		return CKPT_E_IO;
	}
}

/* What a call does, in words; others are verbs already. */
static const char *verb_of(const char *call)
{
	static const char *const words[][2] = {
		{ "stat", "examine" }, { "fstat", "examine" }, { "mkdir", "create" },
		{ "opendir", "list" }, { "readdir", "list" }, { "fsync", "sync" },
		{ "statvfs", "find the free space" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(words); i++)
		if (!strcmp(call, words[i][0]))
			return words[i][1];
	return call;
}

int ck_fail_sys(struct ckpt_err *err, int errnum, const char *call, const char *path)
{
	const enum ckpt_code code = code_of_errno(errnum);
	const char *verb = verb_of(call);
	char text[96];

	if (!strncmp(call, "the ", 4) || !strncmp(call, "a ", 2))
		return ck_fail(err, code, path, CKPT_NO_OFFSET, "%s failed: %s", call,
			       strerror_r(errnum, text, sizeof(text)));
	if (errnum == EACCES || errnum == EPERM)
		return ck_fail(err, code, path, CKPT_NO_OFFSET, "no permission to %s", verb);
	if (errnum == ENOENT && (!strcmp(verb, "examine") || !strcmp(verb, "open")))
		return ck_fail(err, code, path, CKPT_NO_OFFSET, "no such file or folder");
	/* GNU strerror_r: the result may or may not be in 'text'. */
	return ck_fail(err, code, path, CKPT_NO_OFFSET, "cannot %s: %s", verb,
		       strerror_r(errnum, text, sizeof(text)));
}

/*
 * A failure of the machine (no memory, a call that failed), which says nothing of the bytes: what
 * is read may not be taken for damaged, or for lacking something.
 */
static bool is_system(int rc)
{
	return rc <= -CKPT_E_IO && rc > -CKPT_E_TRUNCATED;
}

int ck_err_take_system(int rc, const struct ckpt_err *inner, struct ckpt_err *err)
{
	if (!is_system(rc) || rc == -CKPT_E_NOTFOUND)
		return 0;
	if (err && !err->code)
		*err = *inner;
	return rc;
}

void ck_err_clear(struct ckpt_err *err)
{
	if (err)
		memset(err, 0, sizeof(*err));
}
