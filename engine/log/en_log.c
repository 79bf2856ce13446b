/*
 * en_log.c -- the file; see en_log.h.
 *
 * Opening reads the log before it changes anything: only a file whose lines are all those of a log
 * is cut.  A line without its newline counts as torn if it begins as a line does, or with a NUL, as
 * files do that grew when the power went.
 */
#include "engine/log/en_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MAX_LINE 65536
#define BEGINS "{\"step\": "

struct en_log {
	char *path;
	int fd;
	uint64_t bytes;		/* of whole lines */
	int64_t last;		/* step, 0 = none */
	bool torn;		/* part of a line follows 'bytes' */
	struct ck_buf line;
};

/* What reading the file has found so far. */
struct scan {
	struct en_log *log;
	int64_t after;
	struct en_log_found found;
	uint64_t keep;		/* bytes, up to the first line that goes */
	uint64_t lines;		/* read */
	int64_t last;		/* step of the line before */
	bool past;		/* lines go from here on */
	bool zeros;		/* so many that no line follows */
};

static int bad_line(const struct scan *s, struct ckpt_err *err, const char *why)
{
	return ck_fail(err, CKPT_E_CORRUPT, s->log->path, CKPT_NO_OFFSET,
		       "line %llu: %s; the file is unchanged: give --log a different file",
		       (unsigned long long)s->lines, why);
}

static int take_line(struct scan *s, const char *text, uint64_t len, struct ckpt_err *err)
{
	struct ckpt_err local = { 0 };
	struct en_log_step step;

	s->lines++;
	if (s->zeros)
		return bad_line(s, err, "it follows zero bytes");
	if (en_log_parse(text, len, s->log->path, &step, &local))
		return local.code == CKPT_E_NOMEM ? ck_fail_nomem(err, "a line of the log", len) :
		       bad_line(s, err, local.msg);
	if (step.step <= s->last)
		return bad_line(s, err, "its step is not after that of the previous line");
	s->last = step.step;
	s->past |= step.step > s->after;
	if (s->past)
		return 0;
	s->keep += len + 1;
	s->found.last_step = step.step;
	s->found.lines++;
	return 0;
}

/* The bytes after the last newline. */
static int take_rest(struct scan *s, const char *text, uint64_t len, struct ckpt_err *err)
{
	const size_t n = len < sizeof(BEGINS) - 1 ? (size_t)len : sizeof(BEGINS) - 1;

	s->lines++;
	if (!len || !text[0] || !memcmp(text, BEGINS, n))
		return 0;
	return bad_line(s, err, "not a line of a training log");
}

static int read_more(struct en_log *log, char *buf, uint64_t off, uint64_t *have,
		     struct ckpt_err *err)
{
	ssize_t n;

	do
		n = ck_sys.pread(log->fd, buf + *have, MAX_LINE - *have, (off_t)off);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return ck_fail_sys(err, errno, "read", log->path);
	if (!n)
		return ck_fail(err, CKPT_E_TRUNCATED, log->path, off,
			       "the file was truncated while it was read");
	*have += (uint64_t)n;
	return 0;
}

static int scan_file(struct scan *s, uint64_t size, char *buf, struct ckpt_err *err)
{
	uint64_t have = 0, read = 0;
	int rc = 0;

	while (!rc && read < size) {
		const uint64_t was = have;
		uint64_t at = 0;
		const char *end;

		rc = read_more(s->log, buf, read, &have, err);
		read += have - was;
		while (!rc && (end = memchr(buf + at, '\n', have - at))) {
			const uint64_t len = (uint64_t)(end - (buf + at));

			rc = take_line(s, buf + at, len, err);
			at += len + 1;
		}
		memmove(buf, buf + at, have - at);
		have -= at;
		if (!rc && have == MAX_LINE) {
			/* Zeros may be long; a line is not. */
			rc = take_rest(s, buf, have, err);
			if (!rc && buf[0])
				rc = bad_line(s, err, "it is longer than 64 KiB");
			have = 0;
			s->zeros = true;
			s->lines--;
		}
	}
	return rc ? rc : take_rest(s, buf, have, err);
}

/* Is the file ours to write, and of which lines? */
static int scan_log(struct scan *s, struct ckpt_err *err)
{
	struct en_log *log = s->log;
	struct stat st;
	char *buf;
	int rc;

	if (ck_sys.fstat(log->fd, &st))
		return ck_fail_sys(err, errno, "fstat", log->path);
	if (!S_ISREG(st.st_mode))
		return ck_fail(err, CKPT_E_FORMAT, log->path, CKPT_NO_OFFSET, "not a regular file");
	if (s->after == EN_LOG_NEW && st.st_size)
		return ck_fail(err, CKPT_E_EXISTS, log->path, CKPT_NO_OFFSET,
			       "the file has %llu bytes; a new run needs a new or empty file (a "
			       "resumed run appends)",
			       (unsigned long long)st.st_size);
	buf = ck_alloc(MAX_LINE);
	if (!buf)
		return ck_fail_nomem(err, "a line of the log", MAX_LINE);
	rc = scan_file(s, (uint64_t)st.st_size, buf, err);
	ck_free(buf);
	s->found.cut_bytes = (uint64_t)st.st_size - s->keep;
	return rc;
}

static int open_file(struct en_log *log, struct ckpt_err *err)
{
	log->fd = ck_open(log->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
	if (log->fd < 0)
		return ck_fail_sys(err, errno, "open", log->path);
	/* File systems without locks have none to be broken. */
	if (ck_flock(log->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return ck_fail(err, CKPT_E_BUSY, log->path, CKPT_NO_OFFSET,
			       "another process writes to this log");
	return 0;
}

int en_log_open(struct en_log **log_out, const char *path, int64_t after,
		struct en_log_found *found_out, struct ckpt_err *err)
{
	struct en_log *log = ck_zalloc(sizeof(*log));
	struct scan s = { .log = log, .after = after };
	int rc = 0;

	if (log) {
		log->fd = -1;
		log->line.limit = MAX_LINE;
		log->path = ck_strdup(path);
	}
	if (!log || !log->path)
		rc = ck_fail_nomem(err, "a log", sizeof(*log));
	if (!rc)
		rc = open_file(log, err);
	if (!rc)
		rc = scan_log(&s, err);
	if (!rc && s.found.cut_bytes && ck_ftruncate(log->fd, (off_t)s.keep))
		rc = ck_fail_sys(err, errno, "ftruncate", path);
	if (rc) {
		en_log_close(log, NULL);
		return rc;
	}
	log->bytes = s.keep;
	log->last = s.found.last_step;
	*log_out = log;
	if (found_out)
		*found_out = s.found;
	return 0;
}

static int put(struct en_log *log, struct ckpt_err *err)
{
	size_t done = 0;

	while (done < log->line.len) {
		const ssize_t n = ck_sys.write(log->fd, log->line.p + done, log->line.len - done);

		if (n > 0)
			done += (size_t)n;
		else if (!n || errno != EINTR)
			return ck_fail_sys(err, n ? errno : ENOSPC, "write", log->path);
	}
	return 0;
}

/* Part of a line would spoil the next one. */
static int drop_torn(struct en_log *log, struct ckpt_err *err)
{
	if (log->torn && ck_ftruncate(log->fd, (off_t)log->bytes))
		return ck_fail_sys(err, errno, "ftruncate", log->path);
	log->torn = false;
	return 0;
}

int en_log_write(struct en_log *log, const struct en_log_step *step, struct ckpt_err *err)
{
	int rc;

	if (step->step <= log->last)
		return ck_fail(err, CKPT_E_USAGE, log->path, CKPT_NO_OFFSET,
			       "step %lld is not after step %lld, the last in the log",
			       (long long)step->step, (long long)log->last);
	log->line.len = 0;
	rc = en_log_line(step, &log->line, err);
	if (!rc)
		rc = drop_torn(log, err);
	if (rc)
		return rc;
	rc = put(log, err);
	if (rc) {
		/* If it stays for now, the next write or opening drops it. */
		log->torn = true;
		(void)drop_torn(log, NULL);
		return rc;
	}
	log->bytes += log->line.len;
	log->last = step->step;
	return 0;
}

int en_log_close(struct en_log *log, struct ckpt_err *err)
{
	int rc = 0;

	if (!log)
		return 0;
	if (log->fd >= 0 && ck_close(log->fd))
		rc = ck_fail_sys(err, errno, "close", log->path ? log->path : "");
	ck_buf_release(&log->line);
	ck_free(log->path);
	ck_free(log);
	return rc;
}
