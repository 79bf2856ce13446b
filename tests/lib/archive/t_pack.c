/* t_pack.c -- see t_pack.h. */
#include "tests/lib/archive/t_pack.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/fs/t_dir.h"

/* Some of it compresses, some does not. */
uint8_t t_pack_byte(size_t i, uint64_t at)
{
	const uint64_t k = at / 4096;
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;

	if (k % 3 == 1)
		return (uint8_t)(k + i);
	x ^= x >> 29;
	x *= 0x94d049bb133111ebu;
	return k % 3 ? (uint8_t)(x >> 60) : (uint8_t)(x >> 32);
}

static void write_in(const struct t_pack *t, size_t i)
{
	const struct t_pack_file *f = &t->file[i];
	char *path = t_fmt("%s/in/f%zu", t->dir, i);
	uint8_t *p = t_alloc(f->bytes + 1);

	for (uint64_t k = 0; k < f->bytes; k++)
		p[k] = t_pack_byte(i, k);
	t_file_write(path, p, f->bytes);
	free(p);
	free(path);
}

void t_pack_open(struct t_pack *t, const struct t_pack_file *file, size_t n)
{
	*t = (struct t_pack){ .dir = t_dir_new(), .file = file, .n = n };
	t->pack = t_fmt("%s/x.tar.zst", t->dir);
	t->out = t_fmt("%s/out", t->dir);
	t_dir_make_in(t->dir, "in");
	for (size_t i = 0; i < n; i++)
		write_in(t, i);
}

void t_pack_close(struct t_pack *t)
{
	free(t->pack);
	free(t->out);
	t_dir_end(t->dir);
}

struct ckpt_run_opts t_pack_run(uint32_t threads)
{
	return (struct ckpt_run_opts){
		.size = sizeof(struct ckpt_run_opts), .threads = threads,
		.mem_limit = (uint64_t)256 << 20, .sync = CKPT_SYNC_NONE,
	};
}

int t_pack_make(const struct t_pack *t, const struct ckpt_run_opts *run, int level, int fd,
		struct ckpt_err *err)
{
	struct ck_pack_file *list = t_alloc((t->n + 1) * sizeof(*list));
	struct ckpt_limits limits;
	struct ck_pack_want want = {
		.file = list, .n = t->n, .pool = ck_fdpool_new(0),
		.dst = fd < 0 ? t->pack : NULL, .fd = fd, .flags = CKPT_WRITE_FORCE,
		.level = level, .run = run, .limits = &limits,
	};
	struct ck_pack_done done;
	int rc;

	ck_limits_fill(NULL, &limits);
	for (size_t i = 0; i < t->n; i++)
		list[i] = (struct ck_pack_file){ .name = t->file[i].name,
						 .path = t_fmt("%s/in/f%zu", t->dir, i) };
	rc = want.pool ? ck_pack_make(&want, &done, err) :
	     ck_fail_nomem(err, "a pool of files", 0);
	if (!rc)
		assert_true(done.files == t->n && done.archive > 0);
	ck_fdpool_free(want.pool);
	for (size_t i = 0; i < t->n; i++)
		free((void *)(uintptr_t)list[i].path);
	free(list);
	return rc;
}

int t_pack_unpack(const struct t_pack *t, const char *path, const struct ckpt_run_opts *run,
		  unsigned flags, struct ckpt_err *err)
{
	struct ckpt_limits limits;
	struct ck_unpack_want want = {
		.path = path, .pool = ck_fdpool_new(0), .dst = t->out, .flags = flags, .run = run,
		.limits = &limits,
	};
	struct ck_pack_done done;
	int rc;

	ck_limits_fill(NULL, &limits);
	rc = want.pool ? ck_unpack(&want, &done, err) :
	     ck_fail_nomem(err, "a pool of files", 0);
	ck_fdpool_free(want.pool);
	return rc;
}

static size_t count_files(const char *dir)
{
	size_t n, found = 0;
	char **list = t_dir_list(dir, &n);

	for (size_t i = 0; i < n; i++) {
		char *path = t_fmt("%s/%s", dir, list[i]);

		found += t_is_dir(path) ? count_files(path) : 1;
		free(path);
	}
	t_list_free(list);
	return found;
}

bool t_pack_is_out(const struct t_pack *t)
{
	bool ok = count_files(t->out) == t->n;

	for (size_t i = 0; ok && i < t->n; i++) {
		char *path = t_fmt("%s/%s", t->out, t->file[i].name);
		size_t n = 0;
		uint8_t *p = t_file_read(path, &n);

		ok = p && n == t->file[i].bytes;
		for (size_t k = 0; ok && k < n; k++)
			ok = p[k] == t_pack_byte(i, k);
		free(p);
		free(path);
	}
	return ok;
}

void t_pack_nothing_else(const struct t_pack *t, bool pack)
{
	size_t n;
	char **list = t_dir_list(t->dir, &n);

	assert_int_equal(n, pack ? 2 : 1);
	assert_string_equal(list[0], "in");
	if (pack)
		assert_string_equal(list[1], "x.tar.zst");
	t_list_free(list);
}

static void add_bytes(struct t_tar *t, const void *p, size_t n)
{
	t->p = t_grow(t->p, t->n + n + 512);
	memset(t->p + t->n, 0, n + 512);
	if (n)
		memcpy(t->p + t->n, p, n);
	t->n += (n + 511) / 512 * 512;
}

void t_tar_add(struct t_tar *t, const char *name, char type, const char *link, const void *data,
	       size_t n)
{
	char h[513] = { 0 };
	unsigned sum = 0;

	memcpy(h, name, strlen(name) < 100 ? strlen(name) : 100);
	memcpy(h + 100, "0000644\0" "0000000\0" "0000000\0", 24);
	snprintf(h + 124, 12, "%011zo", n);
	snprintf(h + 136, 12, "%011o", 0u);
	memset(h + 148, ' ', 8);
	h[156] = type;
	if (link)
		memcpy(h + 157, link, strlen(link) < 100 ? strlen(link) : 100);
	memcpy(h + 257, "ustar\0" "00", 8);
	memcpy(h + 329, "0000001\0" "0000003\0", 16);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	add_bytes(t, h, 512);
	if (n)
		add_bytes(t, data, n);
}

void t_tar_end(struct t_tar *t)
{
	static const uint8_t zeros[1024];

	add_bytes(t, zeros, sizeof(zeros));
}
