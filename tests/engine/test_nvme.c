/*
 * The file of states on a drive: what is written is read again, by any method, also when
 * requests end short, are interrupted or fail; a full disk is found at the start, and nothing is
 * left.  If this fails, an optimizer trains with other moments than it had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/nvme/en_nvme.h"
#include "kernels/include/kn_train.h"
#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"

#define PAGES 64u		/* of the file */
#define PAGE EN_NVME_ALIGN
#define OPS 6u

static const unsigned ways[] = {
	0, EN_NVME_NO_DIRECT, EN_NVME_NO_URING, EN_NVME_NO_URING | EN_NVME_NO_DIRECT,
};

/* What of a request's end is another one, by a counter. */
struct fault {
	unsigned every;		/* 0: none */
	int64_t res;		/* -errno, or 0: half of it, where that is a page */
	bool write, read;	/* which are meant */
	unsigned seen;
	unsigned done;
};

static int64_t fault(void *arg, bool write, uint64_t at, int64_t res)
{
	struct fault *f = arg;

	(void)at;
	if (!f->every || res <= 0 || !(write ? f->write : f->read) ||
	    __atomic_add_fetch(&f->seen, 1, __ATOMIC_RELAXED) % f->every)
		return res;
	__atomic_add_fetch(&f->done, 1, __ATOMIC_RELAXED);
	return f->res ? f->res : res > (int64_t)PAGE ? res / 2 : res;
}

static struct en_nvme *open_way(const char *dir, unsigned avoid, struct fault *f)
{
	const struct en_nvme_opts o = {
		.dir = dir, .bytes = PAGES * PAGE, .block = 3 * PAGE, .depth = 3, .threads = 2,
		.avoid = avoid, .ended = f ? fault : NULL, .arg = f,
	};
	struct ckpt_err err = { 0 };
	struct en_nvme *n = NULL;

	if (en_nvme_open(&o, &n, &err))
		fail_msg("%s: %s", err.where, err.msg);
	return n;
}

static uint32_t draw(uint64_t *at, uint32_t below)
{
	uint64_t bits;

	kn_random_bits(&bits, 1, 11, 0, (*at)++);
	return (uint32_t)(bits % below);
}

static uint8_t *pages(uint32_t n)
{
	uint8_t *p = aligned_alloc(PAGE, (size_t)n * PAGE);

	assert_non_null(p);
	memset(p, 0xee, (size_t)n * PAGE);
	return p;
}

/* Runs of a round lie apart, so all of them may be under way together. */
static void one_round(struct en_nvme *n, uint8_t *model, uint64_t *seed)
{
	struct en_nvme_op op[OPS] = { { 0 } };
	uint8_t *buf[OPS];
	uint32_t from[OPS], count[OPS];
	struct ckpt_err err = { 0 };

	for (uint32_t i = 0; i < OPS; i++) {
		const uint32_t room = PAGES / OPS, first = i * room;

		from[i] = first + draw(seed, room);
		count[i] = 1 + draw(seed, first + room - from[i]);
		buf[i] = pages(count[i]);
	}
	for (uint32_t i = 0; i < OPS; i++) {
		const bool write = draw(seed, 2);

		if (write)
			for (uint32_t k = 0; k < count[i] * PAGE; k++)
				buf[i][k] = model[from[i] * PAGE + k] = (uint8_t)draw(seed, 256);
		en_nvme_begin(n, &op[i], write, buf[i], (uint64_t)from[i] * PAGE,
			      (uint64_t)count[i] * PAGE);
	}
	for (uint32_t i = OPS; i-- > 0;) {
		if (en_nvme_wait(n, &op[i], &err))
			fail_msg("%s: %s", err.where, err.msg);
		assert_memory_equal(buf[i], model + from[i] * PAGE, count[i] * PAGE);
		free(buf[i]);
	}
}

static void rounds(unsigned avoid, struct fault *f, unsigned how_many)
{
	char *dir = t_dir_new();
	struct en_nvme *n = open_way(dir, avoid, f);
	uint8_t *model = pages(PAGES), *all = pages(PAGES);
	struct en_nvme_op op = { 0 };
	uint64_t seed = 0;

	for (uint32_t i = 0; i < PAGES * PAGE; i++)
		model[i] = all[i] = (uint8_t)draw(&seed, 256);
	en_nvme_begin(n, &op, true, all, 0, PAGES * PAGE);
	assert_int_equal(en_nvme_wait(n, &op, NULL), 0);
	while (how_many--)
		one_round(n, model, &seed);
	memset(all, 0, PAGES * PAGE);
	en_nvme_begin(n, &op, false, all, 0, PAGES * PAGE);
	assert_int_equal(en_nvme_wait(n, &op, NULL), 0);
	assert_memory_equal(all, model, PAGES * PAGE);
	en_nvme_close(n);
	free(model);
	free(all);
	t_dir_end(dir);
}

static void what_is_written_is_read_again(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(ways); i++)
		rounds(ways[i], NULL, 12);
}

static void short_and_interrupted_requests_go_on(void **state)
{
	static const int64_t res[] = { 0, -EINTR, -EAGAIN };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(ways); i++)
		for (size_t k = 0; k < CK_ARRAY_LEN(res); k++) {
			struct fault f = { .every = 3, .res = res[k], .write = true, .read = true };

			rounds(ways[i], &f, 6);
			assert_true(f.done > 5);
		}
}

static void a_failed_request_is_told_by_its_transfer(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(ways); i++) {
		struct fault f = { .every = 5, .res = -EIO, .write = true };
		struct en_nvme_op good = { 0 }, bad = { 0 }, again = { 0 };
		char *dir = t_dir_new();
		struct en_nvme *n = open_way(dir, ways[i], &f);
		uint8_t *a = pages(3), *b = pages(60);
		struct ckpt_err err = { 0 };

		en_nvme_begin(n, &good, true, a, 60 * PAGE, 3 * PAGE);
		assert_int_equal(en_nvme_wait(n, &good, &err), 0);
		en_nvme_begin(n, &bad, true, b, 0, 60 * PAGE);
		assert_int_equal(en_nvme_wait(n, &bad, &err), -CKPT_E_IO);
		assert_non_null(strstr(err.msg, "writing 245760 bytes at 0 of the states"));
		assert_non_null(strstr(err.msg, "Input/output error"));
		assert_string_equal(err.where, dir);
		/* what it had not asked for is not in the way of others */
		f.every = 0;
		en_nvme_begin(n, &again, false, a, 60 * PAGE, 3 * PAGE);
		assert_int_equal(en_nvme_wait(n, &again, NULL), 0);
		assert_int_equal(a[0], 0xee);
		f = (struct fault){ .every = 1, .res = -ENOSPC, .read = true };
		memset(&err, 0, sizeof(err));
		en_nvme_begin(n, &again, false, a, 60 * PAGE, 3 * PAGE);
		en_nvme_begin(n, &bad, false, b, 0, 9 * PAGE);	/* no caller waits */
		assert_int_equal(en_nvme_wait(n, &again, &err), -CKPT_E_NOSPACE);
		en_nvme_close(n);
		free(a);
		free(b);
		t_dir_end(dir);
	}
}

/* ---- the file ---- */

static struct ck_sys real;

static int no_room(int fd, off_t off, off_t len)
{
	(void)fd;
	(void)off;
	(void)len;
	errno = ENOSPC;
	return -1;
}

static int no_fallocate(int fd, off_t off, off_t len)
{
	(void)fd;
	(void)off;
	(void)len;
	errno = EOPNOTSUPP;
	return -1;
}

static int no_direct(const char *path, int flags, mode_t mode)
{
	if (!(flags & O_DIRECT))
		return real.open(path, flags, mode);
	errno = EINVAL;
	return -1;
}

static unsigned others;

/* Names of others, as of a host that has the same process number. */
static int taken(const char *path, int flags, mode_t mode)
{
	if (!(flags & O_CREAT) || !others)
		return real.open(path, flags, mode);
	others--;
	errno = EEXIST;
	return -1;
}

static int no_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	(void)thread;
	(void)fn;
	(void)arg;
	return EAGAIN;
}

static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool empty = true;

	assert_non_null(d);
	while ((e = readdir(d)))
		empty &= !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	closedir(d);
	return empty;
}

static void must_fail(const char *dir, uint64_t bytes, int code, const char *text)
{
	const struct en_nvme_opts o = { .dir = dir, .bytes = bytes };
	struct ckpt_err err = { 0 };
	struct en_nvme *n = NULL;

	assert_int_equal(en_nvme_open(&o, &n, &err), -code);
	if (!strstr(err.msg, text))
		fail_msg("'%s' is not said: %s", text, err.msg);
	assert_null(n);
}

static void a_file_that_does_not_fit_is_found_at_the_start(void **state)
{
	char *dir = t_dir_new(), *none = t_fmt("%s/no/folder", dir);

	(void)state;
	real = ck_sys;
	ck_sys.fallocate = no_room;
	must_fail(dir, 8 * PAGE, CKPT_E_NOSPACE, "need 32768 bytes there, and ");
	ck_sys.fallocate = no_fallocate;
	must_fail(dir, (uint64_t)1 << 60, CKPT_E_NOSPACE, "need 1152921504606846976 bytes");
	ck_sys = real;
	must_fail(none, PAGE, CKPT_E_NOTFOUND, "cannot create: No such file");
	others = 100;
	ck_sys.open = taken;
	must_fail(dir, PAGE, CKPT_E_EXISTS, "making a file");
	ck_sys = real;
	ck_sys.thread = no_thread;
	must_fail(dir, PAGE, CKPT_E_IO, "starting a thread");
	ck_sys = real;
	assert_true(is_empty(dir));
	free(none);
	t_dir_end(dir);
}

static void what_is_refused_is_said_and_done_without(void **state)
{
	char *dir = t_dir_new(), *own = t_fmt("%s/states", dir);
	struct en_nvme *n;

	(void)state;
	real = ck_sys;
	ck_sys.open = no_direct;
	n = open_way(own, 0, NULL);	/* and the folder is made */
	assert_non_null(strstr(en_nvme_text(n), "through the page cache (O_DIRECT: Invalid"));
	assert_true(is_empty(own));
	en_nvme_close(n);
	ck_sys.fallocate = no_fallocate;
	ck_sys.open = taken;
	others = 3;
	n = open_way(own, EN_NVME_NO_URING, NULL);
	assert_non_null(strstr(en_nvme_text(n), "2 threads (io_uring: disabled), "));
	en_nvme_close(n);
	ck_sys = real;
	n = open_way(own, 0, NULL);
	printf("here: %s\n", en_nvme_text(n));
	en_nvme_close(n);
	en_nvme_close(NULL);
	rounds(0, NULL, 1);
	free(own);
	t_dir_end(dir);
}

static void no_bytes_are_a_file_too(void **state)
{
	char *dir = t_dir_new();
	const struct en_nvme_opts o = { .dir = dir };
	struct en_nvme_op op = { 0 };
	struct en_nvme *n = NULL;

	(void)state;
	assert_int_equal(en_nvme_open(&o, &n, NULL), 0);
	assert_int_equal(en_nvme_wait(n, &op, NULL), 0);
	en_nvme_begin(n, &op, false, NULL, 0, 0);
	assert_int_equal(en_nvme_wait(n, &op, NULL), 0);
	en_nvme_close(n);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_again),
		cmocka_unit_test(short_and_interrupted_requests_go_on),
		cmocka_unit_test(a_failed_request_is_told_by_its_transfer),
		cmocka_unit_test(a_file_that_does_not_fit_is_found_at_the_start),
		cmocka_unit_test(what_is_refused_is_said_and_done_without),
		cmocka_unit_test(no_bytes_are_a_file_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
