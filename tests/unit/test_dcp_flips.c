/*
 * One bit flips in a folder of torch.distributed.checkpoint. If this fails, a damaged index or data
 * file gives other tensors, or the same under other names, and no verb says a word.
 *
 * Flips are drawn with a seed, which is printed; ZCKPT_SEED=N repeats them. ZCKPT_LONG=1: 2,000 of
 * each file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_raw.h"

#define CASE "fsdp/t2.11-fsdp2-dcp-w2-sweep/ckpt"
#define EACH 40u
#define EACH_LONG 2000u

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};
static char *dir;
static uint64_t seed, whole;

static int begin(void **state)
{
	const char *text = getenv("ZCKPT_SEED"), *fixtures = getenv("ZCKPT_FIXTURES");
	struct ckpt_err err = { 0 };
	char *from = t_fmt("%s/" CASE, fixtures ? fixtures : "build/fixtures");

	(void)state;
	seed = text ? strtoull(text, NULL, 10) : 1;
	printf("ZCKPT_SEED=%llu\n", (unsigned long long)seed);
	dir = t_dir_new();
	t_dir_remove(dir);
	t_dir_copy(from, dir);
	if (t_flip_digest(dir, &run, &whole, &err))
		t_die("%s: %s", from, err.msg);
	free(from);
	return 0;
}

static int end(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

/* Values are read again from the files: none of the damage may end the process. */
static void read_values(void)
{
	const char *path = dir, *step;
	struct ckpt_values *v;
	struct ckpt_value top;
	struct ckpt *ck;

	if (ckpt_open(&path, 1, NULL, &ck, NULL))
		return;
	if (!ckpt_values_open(ck, 0, CKPT_LOAD_DESPITE_FINDINGS, &v, NULL)) {
		if (!ckpt_value_get(v, "optimizer.state", &top, NULL))
			for (uint64_t i = 0; i < top.n; i++)
				assert_int_equal(ckpt_value_step(v, "optimizer.state", i, &step,
								 NULL), 0);
		ckpt_values_close(v);
	}
	ckpt_close(ck);
}

/* Other values than the whole folder has need a word: an error, or a warning. */
static void check(const char *file, uint64_t at, unsigned bit)
{
	struct ckpt_err err = { 0 };
	char id[64];
	uint64_t hash;

	read_values();
	if (t_flip_digest(dir, &run, &hash, &err) || hash == whole)
		return;
	if (t_flip_found(dir, NULL, &run, id, sizeof(id)) < CKPT_WARN)
		t_die("%s: bit %u of byte %llu flipped, the values differ, and nothing is said",
		      file, bit, (unsigned long long)at);
}

static void flip(const char *name)
{
	const unsigned n = getenv("ZCKPT_LONG") ? EACH_LONG : EACH;
	char *file = t_fmt("%s/%s", dir, name);
	uint64_t random = seed;
	size_t size;
	uint8_t *p = t_file_read(file, &size);

	for (unsigned i = 0; i < n; i++) {
		const uint64_t at = t_random(&random) % size;
		const unsigned bit = (unsigned)(t_random(&random) % 8);

		p[at] ^= (uint8_t)(1u << bit);
		t_file_write(file, p, size);
		check(name, at, bit);
		p[at] ^= (uint8_t)(1u << bit);
	}
	t_file_write(file, p, size);
	free(p);
	free(file);
}

static void test_index(void **state)
{
	(void)state;
	flip(".metadata");
}

static void test_data(void **state)
{
	(void)state;
	flip("__0_0.distcp");
	flip("__1_0.distcp");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_data),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
