/*
 * Where a run begins (en_find.h), and what it costs. If this fails, a run on a slow file system
 * reads every step of its folder again and again before it trains.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ckpt_keep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/en_find.h"
#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"

#define STEPS 3

static int (*real_open)(const char *path, int flags, mode_t mode);
static unsigned opened[STEPS + 1];	/* data files of a step, by its number */

static int count(const char *path, int flags, mode_t mode)
{
	const char *step = strstr(path, "/global_step");

	if (step && t_ends_with(path, ".safetensors"))
		opened[atoi(step + strlen("/global_step")) % (STEPS + 1)]++;
	return real_open(path, flags, mode);
}

static char *save_steps(void)
{
	char *root = t_dir_new();
	struct t_trainer t = {
		.root = root, .job = "find", .nranks = 1, .threads = 1, .timeout_ms = 5000,
		.sync = CKPT_SYNC_NONE,
	};

	for (int i = 1; i <= STEPS; i++) {
		char *tag = t_fmt("global_step%d", i);
		struct ckpt_save_step *s = t_save_step(&t, tag, CKPT_TO_NATIVE, 2, 0);
		struct ckpt_err err = { 0 };

		t_save_at(s, i);
		t_must(t_save_all(&t, s, &err), &err);
		free(tag);
	}
	return root;
}

/* Opening step 1, once. */
static unsigned open_one(const char *root)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .tag = "global_step1", .threads = 1 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	memset(opened, 0, sizeof(opened));
	ck_sys.open = count;
	t_must(ckpt_open(&root, 1, &o, &ck, &err), &err);
	ck_sys.open = real_open;
	ckpt_close(ck);
	return opened[1];
}

/* Listing all, once. */
static unsigned list_all(const char *root)
{
	struct ckpt_steps steps = { .nsteps = 0 };
	struct ckpt_err err = { 0 };

	memset(opened, 0, sizeof(opened));
	ck_sys.open = count;
	t_must(ckpt_steps_list(root, NULL, NULL, &steps, &err), &err);
	ck_sys.open = real_open;
	ckpt_steps_free(&steps);
	return opened[1];
}

static void find(const char *root, struct en_found *found)
{
	const struct en_find_opts o = { .save = root, .from = root, .sync = CKPT_SYNC_NONE };
	struct ckpt_err err = { 0 };
	struct en_comm *comm = NULL;

	t_must(en_comm_local_open(&comm, &err), &err);
	memset(opened, 0, sizeof(opened));
	ck_sys.open = count;
	t_must(en_find_steps(&o, comm, found, &err), &err);
	ck_sys.open = real_open;
	t_must(en_comm_close(comm, &err), &err);
}

/* Without 'latest' too: a step is listed, and opened once for the ids of its run. */
static void each_step_is_read_once(void **state)
{
	char *root = save_steps(), *latest = t_fmt("%s/latest", root);
	struct en_found found;
	unsigned least;

	(void)state;
	real_open = ck_sys.open;
	t_dir_remove(latest);
	least = list_all(root) + open_one(root);
	assert_true(least > 0);
	find(root, &found);
	print_message("data files of a step: opened %u and %u times, %u are needed\n", opened[1],
		      opened[2], least);
	assert_int_equal(opened[1], least);
	assert_int_equal(opened[2], least);
	assert_int_equal(found.n, STEPS);
	assert_string_equal(found.tag[0], "global_step3");
	en_found_release(&found);
	free(latest);
	t_dir_end(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_step_is_read_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
