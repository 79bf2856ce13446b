/* t_convert.c -- see t_convert.h. */
#define _GNU_SOURCE
#include "tests/lib/ops/t_convert.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"

static uint64_t part_bytes(const struct t_part *p)
{
	return p->rows * (p->cols ? p->cols : 1) * t_st_itemsize(p->dtype);
}

/* Finite in every floating type: exponents stay small. */
static void make_bytes(const char *name, uint8_t *out, uint64_t n)
{
	uint64_t x = 88172645463325252u;

	while (*name)
		x = x * 31 + (unsigned char)*name++;
	for (uint64_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		out[i] = (uint8_t)(x >> 32) & 0x3f;
	}
}

void t_convert_source(const char *path, const struct t_part *parts)
{
	char *header = t_fmt("{");
	uint64_t at = 0, length;
	uint8_t *file;

	for (const struct t_part *p = parts; p->name; p++) {
		char *shape = p->cols ? t_fmt("%" PRIu64 ",%" PRIu64, p->rows, p->cols) :
					t_fmt("%" PRIu64, p->rows);
		char *more = t_fmt("%s%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
				   "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", header,
				   p != parts ? "," : "", p->name, p->dtype, shape, at,
				   at + part_bytes(p));

		at += part_bytes(p);
		free(shape);
		free(header);
		header = more;
	}
	length = strlen(header) + 1;
	file = t_alloc(8 + length + at);
	memcpy(file, &length, 8);
	memcpy(file + 8, header, length - 1);
	file[8 + length - 1] = '}';
	at = 8 + length;
	for (const struct t_part *p = parts; p->name; at += part_bytes(p), p++) {
		if (p->bytes)
			memcpy(file + at, p->bytes, part_bytes(p));
		else
			make_bytes(p->name, file + at, part_bytes(p));
	}
	t_file_write(path, file, at);
	free(file);
	free(header);
}

struct ckpt *t_convert_open(const char *path)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	if (ckpt_open(&path, 1, NULL, &ck, &err))
		t_die("%s: %s: %s", path, ckpt_code_name(err.code), err.msg);
	return ck;
}

void t_convert(const char *src, const char *dst, const struct ckpt_convert_opts *opts, int code,
	    struct ckpt_report *report, struct ckpt_err *err_out)
{
	struct ckpt *ck = t_convert_open(src);
	struct ckpt_report mine = { 0 };
	struct ckpt_err err = { 0 };
	const int rc = ckpt_convert(ck, dst, opts, report ? report : &mine, &err);

	if (rc != -code)
		t_die("convert %s %s: %s wanted, %s came (%s: %s)", src, dst,
		      ckpt_code_name((enum ckpt_code)code), ckpt_code_name((enum ckpt_code)-rc),
		      err.where, err.msg);
	if (rc && (err.code != (enum ckpt_code)code || !err.msg[0]))
		t_die("convert %s %s: failed without a sentence", src, dst);
	if (err_out)
		*err_out = err;
	ckpt_report_free(&mine);
	ckpt_close(ck);
}

static void kill_self(void *arg, const struct ckpt_progress *p)
{
	if (p->done_bytes >= *(const uint64_t *)arg)
		raise(SIGKILL);
}

void t_convert_killed(const char *src, const char *dst, const struct ckpt_convert_opts *opts,
		   uint64_t bytes)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		t_die("no process to kill");
	if (!pid) {
		struct ckpt_convert_opts o = *opts;
		struct ckpt_run_opts run = *opts->run;

		run.progress = kill_self;
		run.progress_arg = &bytes;
		o.run = &run;
		t_convert(src, dst, &o, 0, NULL, NULL);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		t_die("the process to kill is lost");
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		t_die("convert %s %s: not killed at byte %" PRIu64, src, dst, bytes);
}

void t_convert_result(struct t_st *st, const char *dir, const char *name)
{
	char *path = name ? t_fmt("%s/%s", dir, name) : t_fmt("%s", dir);

	if (t_st_open(st, path))
		t_die("%s: %s", path, st->err);
	free(path);
}

const struct t_st_tensor *t_convert_tensor(const struct t_st *st, const char *name,
					const char *say)
{
	const struct t_st_tensor *t = t_st_find(st, name);

	if (!t)
		t_die("there is no tensor %s", name);
	if (strcmp(t_st_say(t), say))
		t_die("%s is %s, not %s", name, t_st_say(t), say);
	return t;
}

void t_convert_same_files(const char *a, const char *b)
{
	size_t n, m, at = 0;
	uint8_t *x = t_file_read(a, &n), *y = t_file_read(b, &m);

	if (!x || !y)
		t_die("%s cannot be read", x ? b : a);
	if (n != m)
		t_die("%s has %zu bytes, %s has %zu", a, n, b, m);
	while (at < n && x[at] == y[at])
		at++;
	if (at < n)
		t_die("%s and %s differ at byte %zu", a, b, at);
	free(x);
	free(y);
}
