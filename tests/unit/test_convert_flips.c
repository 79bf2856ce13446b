/*
 * One bit flipped anywhere in what convert wrote. If this is wrong, a user trains or serves a model
 * with a damaged weight, and every program he asks says that it is whole.
 *
 * Flips are drawn with a seed, which is printed; ZCKPT_SEED=N repeats them. ZCKPT_LONG=1: 10,000.
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
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_raw.h"
#include "tests/lib/ops/t_step.h"

#define EACH 120u
#define EACH_LONG 2000u

static char *dir, *src;
static uint64_t seed;
static const char *const every[] = { "all", NULL };
static struct ckpt_convert_opts opts;

static void put(const char *name, const char *text)
{
	char *path = t_fmt("%s/aux/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static int begin(void **state)
{
	const char *text = getenv("ZCKPT_SEED");

	(void)state;
	seed = text ? strtoull(text, NULL, 10) : 20;
	printf("ZCKPT_SEED=%llu\n", (unsigned long long)seed);
	dir = t_step_copy("ds0.19.8-z2-bf16-w2-tied3");
	src = t_fmt("%s/ckpt", dir);
	t_dir_make_in(dir, "aux");
	put("config.json", "{\"model_type\": \"llama\"}\n");
	put("tokenizer.json", "{\"version\": \"1.0\", \"empty\": {}}\n");
	put("merges.txt", "");
	opts = (struct ckpt_convert_opts){ .size = sizeof(opts) };
	return 0;
}

static int end(void **state)
{
	(void)state;
	t_dir_end(dir);
	free(src);
	return 0;
}

static enum ckpt_severity worst(const char *path)
{
	char id[64];

	return t_flip_found(path, NULL, NULL, id, sizeof(id));
}

/* Bytes of headers are drawn as often as all others. */
static uint64_t draw(uint64_t *random, const uint8_t *p, uint64_t n)
{
	uint64_t head = 0;

	for (unsigned i = 0; n > 8 && i < 8; i++)
		head += (uint64_t)p[i] << (8 * i);
	head += 8;
	if (t_random(random) % 2 && head < n)
		return t_random(random) % head;
	return t_random(random) % n;
}

/* What convert makes of a whole result. */
static void convert_whole(const char *path)
{
	const struct ckpt_convert_opts co = { .size = sizeof(co) };
	char *dst = t_fmt("%s/whole.safetensors", dir);

	if (t_exists(dst))
		t_dir_remove(dst);
	t_convert(path, dst, &co, 0, NULL, NULL);
	free(dst);
}

/*
 * Damage must not get new sums that fit it. An archive has records that hold no value (the number
 * of its version): of those convert reads none, and writes what the whole one gives.
 */
static void convert_refuses(const char *path)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo) };
	const struct ckpt_convert_opts co = { .size = sizeof(co) };
	char *dst = t_fmt("%s/again.safetensors", dir), *whole = t_fmt("%s/whole.safetensors", dir);
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	if (!ckpt_open(&path, 1, &oo, &ck, &err) && !ckpt_convert(ck, dst, &co, NULL, &err)) {
		if (!t_ends_with(path, ".pt"))
			t_die("%s: verify --full finds an error, and convert does not", path);
		t_convert_same_files(dst, whole);
		t_dir_remove(dst);
	}
	assert_false(t_exists(dst));
	ckpt_close(ck);
	free(whole);
	free(dst);
}

/* Flips in one file of a result; 'path' is what verify is given. */
static void flip_file(const char *path, const char *file, unsigned flips)
{
	uint64_t random = seed;
	enum ckpt_severity said;
	size_t n;
	uint8_t *p = t_file_read(file, &n);

	convert_whole(path);
	for (unsigned i = 0; n && i < flips; i++) {
		const uint64_t at = draw(&random, p, n);
		const uint8_t bit = (uint8_t)(1u << t_random(&random) % 8);

		p[at] ^= bit;
		t_file_write(file, p, n);
		said = worst(path);
		if (said == CKPT_ERROR)
			convert_refuses(path);
		if (said < CKPT_WARN)
			t_die("%s: bit 0x%02x of byte %llu of %zu flipped, and verify --full finds "
			      "nothing", file, bit, (unsigned long long)at, n);
		p[at] ^= bit;
	}
	t_file_write(file, p, n);
	free(p);
}

static void convert_and_flip(const char *name, bool is_dir)
{
	const unsigned flips = getenv("ZCKPT_LONG") ? EACH_LONG : EACH;
	char *dst = t_fmt("%s/%s", dir, name);
	char **list = NULL;
	size_t n = 1;

	t_convert(src, dst, &opts, 0, NULL, NULL);
	assert_int_equal(worst(dst), CKPT_INFO);
	if (!is_dir) {
		flip_file(dst, dst, flips);
	} else {
		list = t_dir_list(dst, &n);
		for (size_t i = 0; i < n; i++) {
			char *file = t_fmt("%s/%s", dst, list[i]);

			flip_file(dst, file, flips / (unsigned)n + 1);
			free(file);
		}
		t_list_free(list);
	}
	assert_int_equal(worst(dst), CKPT_INFO);
	free(dst);
}

static void file_shows_every_flipped_bit(void **state)
{
	(void)state;
	convert_and_flip("model.safetensors", false);
}

static void folder_of_shards_shows_every_flipped_bit(void **state)
{
	char *aux = t_fmt("%s/aux", dir);

	(void)state;
	opts.aux_dir = aux;
	opts.max_shard_bytes = 4000;
	opts.dtype = CKPT_BF16;
	convert_and_flip("shards", true);
	free(aux);
}

static void folder_of_one_file_shows_every_flipped_bit(void **state)
{
	char *aux = t_fmt("%s/aux", dir);

	(void)state;
	opts.aux_dir = aux;
	opts.flags = CKPT_CONVERT_DIGEST;
	convert_and_flip("folder", true);
	free(aux);
}

static void files_of_states_show_every_flipped_bit(void **state)
{
	char *dst = t_fmt("%s/states", dir);
	char **list;
	size_t n;

	(void)state;
	opts.states = every;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	list = t_dir_list(dst, &n);
	assert_true(n >= 3);
	for (size_t i = 0; i < n; i++) {
		char *file = t_fmt("%s/%s", dst, list[i]);

		assert_int_equal(worst(file), CKPT_INFO);
		flip_file(file, file, getenv("ZCKPT_LONG") ? EACH_LONG / 2 : EACH / 4);
		free(file);
	}
	t_list_free(list);
	free(dst);
}

static void torch_file_shows_every_flipped_bit(void **state)
{
	(void)state;
	convert_and_flip("model.pt", false);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		T(file_shows_every_flipped_bit),
		T(folder_of_shards_shows_every_flipped_bit),
		T(folder_of_one_file_shows_every_flipped_bit),
		T(files_of_states_show_every_flipped_bit),
		T(torch_file_shows_every_flipped_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
