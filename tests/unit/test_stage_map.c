/*
 * Several threads write one file: through a map where it is in memory, else two at a time.  If this
 * fails, an output in tmpfs has lost bytes, is as slow as with one thread, or the program dies of a
 * signal where the disk is full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_stage.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_stage.h"

#define THREADS 6u
#define WINDOW ((size_t)100 << 10)	/* not a multiple of a page */
#define WINDOWS 60u
#define BYTES (WINDOW * WINDOWS + 77)
#define TMPFS 0x01021994

static struct ck_sys real;
static _Atomic unsigned maps, populated, refused, written, at_once, most_at_once;

static int statfs_of_memory(const char *path, struct statfs *st)
{
	const int rc = real.statfs(path, st);

	st->f_type = TMPFS;
	return rc;
}

static void *count_map(int fd, size_t n)
{
	maps++;
	return real.map(fd, n);
}

/* Every third call says that there is no room. */
static int sometimes_populate(void *p, size_t n)
{
	if (refused && ++populated % 3 == 0) {
		errno = EFAULT;
		return -1;
	}
	populated += !refused;
	return real.populate(p, n);
}

static ssize_t count_pwrite(int fd, const void *p, size_t n, off_t off)
{
	const unsigned now = ++at_once;
	ssize_t k;

	if (now > most_at_once)
		most_at_once = now;
	written += n >= WINDOW;
	k = real.pwrite(fd, p, n, off);
	at_once--;
	return k;
}

static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 2654435761u >> 13);
}

struct hand {
	struct ck_stage *stage;
	uint32_t file, number;
	pthread_t thread;
};

/* Every sixth window, and one thread the odd bytes at the end. */
static void *write_some(void *arg)
{
	const struct hand *h = arg;
	uint8_t *p = malloc(WINDOW);
	struct ckpt_err err = { 0 };

	for (uint64_t w = h->number; w <= WINDOWS; w += THREADS) {
		const uint64_t at = w * WINDOW;
		const size_t n = at + WINDOW > BYTES ? BYTES - at : WINDOW;

		for (size_t i = 0; i < n; i++)
			p[i] = byte_at(at + i);
		if (ck_stage_write(h->stage, h->file, at, p, n, &err))
			t_die("%s", err.msg);
	}
	free(p);
	return NULL;
}

static void write_all(uint32_t writers)
{
	struct t_scene s = t_scene_open("d");
	struct ck_stage_opts o = t_stage_opts(&s, true);
	struct hand hand[THREADS] = { { 0 } };
	struct ckpt_err err = { 0 };
	struct ck_stage *stage;
	uint8_t *got;
	size_t n;
	uint32_t file;
	char *path = t_fmt("%s/f", s.dst);

	maps = populated = written = 0;
	o.writers = writers;
	o.total_bytes = BYTES;
	assert_int_equal(ck_stage_begin(&o, &stage, &err), 0);
	assert_int_equal(ck_stage_file(stage, "f", BYTES, &file, &err), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		hand[i] = (struct hand){ .stage = stage, .file = file, .number = i };
		assert_int_equal(pthread_create(&hand[i].thread, NULL, write_some, &hand[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(hand[i].thread, NULL);
	assert_int_equal(ck_stage_end(stage, &err), 0);
	assert_int_equal(ck_stage_commit(stage, 0, &err), 0);
	ck_stage_abort(stage);
	got = t_file_read(path, &n);
	assert_int_equal(n, BYTES);
	for (uint64_t i = 0; i < BYTES; i++)
		if (got[i] != byte_at(i))
			t_die("byte %llu is wrong", (unsigned long long)i);
	free(got);
	free(path);
	t_scene_close(&s);
}

static void threads_write_through_one_map(void **state)
{
	(void)state;
	refused = 0;
	write_all(THREADS);
	assert_int_equal(maps, 1);
	assert_int_equal(populated, WINDOWS);
	assert_int_equal(written, 0);
}

/* Then the plain call says what is wrong; here nothing is. */
static void where_pages_are_refused_it_is_written_as_usual(void **state)
{
	(void)state;
	refused = 1;
	write_all(THREADS);
	assert_int_equal(maps, 1);
	assert_int_equal(written, WINDOWS / 3);
}

/* More would wait in the kernel for the file, and use a processor meanwhile. */
static void two_threads_at_a_time_write_to_a_file_of_a_disk(void **state)
{
	(void)state;
	refused = 0;
	most_at_once = 0;
	ck_sys.statfs = real.statfs;
	write_all(THREADS);
	ck_sys.statfs = statfs_of_memory;
	assert_int_equal(maps, 0);
	assert_in_range(most_at_once, 1, 2);
}

static void few_threads_and_disks_have_no_map(void **state)
{
	(void)state;
	refused = 0;
	write_all(2);
	assert_int_equal(maps, 0);
	ck_sys.statfs = real.statfs;
	write_all(0);
	assert_int_equal(maps, 0);
	ck_sys.statfs = statfs_of_memory;
}

static int setup(void **state)
{
	(void)state;
	real = ck_sys;
	ck_sys.statfs = statfs_of_memory;
	ck_sys.map = count_map;
	ck_sys.populate = sometimes_populate;
	ck_sys.pwrite = count_pwrite;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_write_through_one_map),
		cmocka_unit_test(where_pages_are_refused_it_is_written_as_usual),
		cmocka_unit_test(two_threads_at_a_time_write_to_a_file_of_a_disk),
		cmocka_unit_test(few_threads_and_disks_have_no_map),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
