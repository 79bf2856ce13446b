/*
 * test_native_beside.c -- files that lie in the folder of a native step and are no part of it: its
 * manifest keeps their sums, whoever wrote it.
 *
 * If this fails, a tokenizer that was damaged on its way passes for the one that was saved, or a
 * step is called damaged whose config.json was edited.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_hash.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/ops/t_step.h"

#define STEP "global_step3"
#define BIG 9001	/* more than two blocks of a sum */

static char *dir, *aux, *root;

static void put(const char *folder, const char *name, const void *p, size_t n)
{
	char *path = t_fmt("%s/%s", folder, name);

	t_file_write(path, p, n);
	free(path);
}

static bool has_file(const char *folder, const char *name)
{
	char *path = t_fmt("%s/%s", folder, name);
	const bool is = !access(path, F_OK);

	free(path);
	return is;
}

/* A model's folder, with a file of no bytes. */
static int setup(void **state)
{
	static char big[BIG];

	(void)state;
	memset(big, 'x', sizeof(big));
	dir = t_dir_new();
	aux = t_fmt("%s/model", dir);
	root = t_fmt("%s/root", dir);
	t_dir_make(aux);
	put(aux, "config.json", "{}", 2);
	put(aux, "tokenizer.json", big, sizeof(big));
	put(aux, "merges.txt", "", 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(aux);
	free(root);
	t_dir_end(dir);
	return 0;
}

/* How many findings of BESIDE_CHANGED speak of the file; there are no others. */
static unsigned changed(const char *const *path, size_t n, const char *tag, const char *name)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	const struct ckpt_verify_opts o = { .size = sizeof(o) };
	struct ckpt_verified v;
	struct ckpt_finding f;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	unsigned found = 0;

	if (ckpt_open(path, n, &oo, &ck, &err) || ckpt_verify(ck, &o, &v, &err))
		fail_msg("%s: %s: %s", path[0], err.where, err.msg);
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++) {
		if (strcmp(f.id, "BESIDE_CHANGED") || !name || !strstr(f.where, name))
			fail_msg("%s: %s: %s", f.id, f.where, f.text);
		assert_int_equal(f.severity, CKPT_WARN);
		found++;
	}
	ckpt_close(ck);
	return found;
}

/* Each bit that flips, each byte more or less, and none of it. */
static void try_file(const char *const *path, size_t n, const char *tag, const char *step,
		     const char *name)
{
	char *file = t_fmt("%s/%s", step, name);
	size_t bytes;
	uint8_t *p = t_file_read(file, &bytes);

	assert_int_equal(changed(path, n, tag, NULL), 0);
	for (size_t i = 0; i < bytes; i += bytes / 7 + 1) {
		p[i] ^= (uint8_t)(1u << i % 8);
		t_file_write(file, p, bytes);
		assert_int_equal(changed(path, n, tag, name), 1);
		p[i] ^= (uint8_t)(1u << i % 8);
	}
	if (bytes)
		t_file_write(file, p, bytes - 1);
	else
		t_file_write(file, "x", 1);
	assert_int_equal(changed(path, n, tag, name), 1);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(changed(path, n, tag, name), 1);
	t_file_write(file, p, bytes);
	assert_int_equal(changed(path, n, tag, NULL), 0);
	free(p);
	free(file);
}

static void try_model(const char *const *path, size_t n, const char *tag, const char *step)
{
	try_file(path, n, tag, step, "config.json");
	try_file(path, n, tag, step, "tokenizer.json");
	try_file(path, n, tag, step, "merges.txt");
}

/* ---- saved by sessions ---- */

/* Rank 0 alone sees the model's folder. */
static void save(const struct t_trainer *t, const char *tag, const char *config,
		 const char *adapter)
{
	struct ckpt_saver *sv[4];
	struct ckpt_err err = { 0 };
	int rc = 0;

	for (uint32_t r = 0; !rc && r < t->nranks; r++)
		rc = t_saver(t, r, &sv[r], &err);
	for (uint32_t r = 0; !rc && r < t->nranks; r++) {
		struct ckpt_save_step *step = t_save_step(t, tag, CKPT_TO_NATIVE, 2, 0);

		step->config_json = r ? NULL : config;
		step->aux_dir = r ? "/nowhere" : aux;
		step->adapter_json = r ? NULL : adapter;
		rc = t_save_begin(t, sv[r], step, r, &err);
	}
	for (uint32_t r = 0; !rc && r < t->nranks; r++)
		rc = t_save_put(t, sv[r], t_save_step(t, tag, CKPT_TO_NATIVE, 2, 0), r, &err);
	for (uint32_t r = 0; !rc && r < t->nranks; r++)
		rc = ckpt_save_commit(sv[r], &err);
	for (uint32_t r = 0; !rc && r < t->nranks; r++)
		rc = ckpt_save_wait(sv[r], 0, NULL, &err);
	if (rc)
		fail_msg("%s: %s", err.where, err.msg);
	for (uint32_t r = t->nranks; r > 0; r--)
		ckpt_saver_free(sv[r - 1]);
}

static void sessions_state_sums_of_what_goes_along(void **state)
{
	static const struct t_trainer trainers[] = {
		{ .nranks = 1 },
		{ .nranks = 4 },
		{ .nranks = 3, .own = true, .held = T_HELD_EVEN },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(trainers) / sizeof(trainers[0]); i++) {
		struct t_trainer t = trainers[i];
		char *tag = t_fmt("s%zu", i), *step = t_fmt("%s/%s", root, tag);
		const char *path = root;

		t.root = root;
		t.timeout_ms = 5000;
		t.sync = CKPT_SYNC_NONE;
		save(&t, tag, i == 1 ? "{\"its\": \"own\"}" : NULL, i ? "{\"r\": 4}" : NULL);
		try_model(&path, 1, tag, step);
		if (i)
			try_file(&path, 1, tag, step, "adapter_config.json");
		else
			assert_false(has_file(step, "adapter_config.json"));
		free(step);
		free(tag);
	}
}

/* On storage that ranks do not share, the part of rank 0 has them. */
static void so_does_the_part_of_rank_0(void **state)
{
	char *node[2] = { t_fmt("%s/node0", dir), t_fmt("%s/node1", dir) };
	char *step = t_fmt("%s/node0/p", dir);

	(void)state;
	for (uint32_t r = 0; r < 2; r++) {
		const struct t_trainer t = {
			.root = node[r], .nranks = 2, .own = true, .held = T_HELD_WHOLE,
			.flags = CKPT_SAVER_LOCAL, .timeout_ms = 5000, .sync = CKPT_SYNC_NONE,
		};
		struct ckpt_save_step *s = t_save_step(&t, "p", CKPT_TO_NATIVE, 2, 0);
		struct ckpt_saver *sv = NULL;
		struct ckpt_err err = { 0 };
		int rc = t_saver(&t, r, &sv, &err);

		s->aux_dir = aux;
		if (!rc)
			rc = t_save_begin(&t, sv, s, r, &err);
		if (!rc)
			rc = t_save_put(&t, sv, s, r, &err);
		if (!rc)
			rc = ckpt_save_commit(sv, &err);
		if (!rc)
			rc = ckpt_save_wait(sv, 0, NULL, &err);
		if (rc)
			fail_msg("rank %u: %s: %s", r, err.where, err.msg);
		ckpt_saver_free(sv);
	}
	try_model((const char *const *)node, 2, "p", step);
	free(node[0]);
	free(node[1]);
	free(step);
}

/* ---- resharded ---- */

static char *reshard(const char *from, const char *name)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .world = 3, .stage = -1, .round_robin = -1,
		.to = CKPT_TO_NATIVE,
	};
	char *to = t_fmt("%s/%s", dir, name);
	struct ckpt *ck = t_step_open(from, NULL);
	struct ckpt_err err = { 0 };

	if (ckpt_reshard(ck, to, &o, NULL, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	return to;
}

/* Also of files in folders, and again of a native step; a name that JSON cannot say is no fault. */
static void reshard_states_sums_of_what_goes_along(void **state)
{
	char *copy = t_step_copy("ds0.19.8-z2-bf16-w2"), *from = t_fmt("%s/ckpt", copy);
	char *in = t_fmt("%s/" STEP, from), *one, *two, *step;
	const char *path;

	(void)state;
	t_dir_make_in(in, "notes");
	t_dir_make_in(in, "notes/deep");
	put(in, "notes/deep/n.txt", "it learns", 9);
	put(in, "weights.index.json", "{}", 2);
	put(in, "caf\xe9", "?", 1);
	put(in, ".hidden", "?", 1);
	one = reshard(from, "one");
	two = reshard(one, "two");
	for (int k = 0; k < 2; k++) {
		path = k ? two : one;
		step = t_fmt("%s/" STEP, path);
		try_file(&path, 1, NULL, step, "notes/deep/n.txt");
		try_file(&path, 1, NULL, step, "weights.index.json");
		put(step, "caf\xe9", "!", 1);
		put(step, "put there later", "!", 1);
		assert_int_equal(changed(&path, 1, NULL, NULL), 0);
		free(step);
	}
	/* who edits one takes it along, and is told */
	put(one, STEP "/weights.index.json", "[]", 2);
	free(two);
	two = reshard(one, "three");
	path = two;
	assert_int_equal(changed(&path, 1, NULL, NULL), 0);
	free(one);
	free(two);
	free(in);
	free(from);
	t_dir_end(copy);
}

/* As versions wrote it that kept no such sums: nothing is said of these files. */
static void steps_without_these_sums_are_read(void **state)
{
	const struct t_trainer t = {
		.root = root, .nranks = 2, .timeout_ms = 5000, .sync = CKPT_SYNC_NONE,
	};
	char *path = t_fmt("%s/old/manifest.json", root), hex[33], *text, *from, *to, *end;
	const char *one = root;
	size_t n;

	(void)state;
	save(&t, "old", NULL, NULL);
	text = (char *)t_file_read(path, &n);
	from = strstr(text, "\"beside\"");
	to = strstr(text, "\"tensors\"");
	assert_true(from && to);
	memmove(from, to, strlen(to) + 1);
	end = strstr(text, "\n\"sum\": \"");
	ck_hash128_print(ck_hash128(text, (size_t)(end + 1 - text)), hex);
	memcpy(end + strlen("\n\"sum\": \""), hex, 32);
	t_file_write(path, text, strlen(text));
	put(root, "old/config.json", "[]", 2);
	assert_int_equal(changed(&one, 1, "old", NULL), 0);
	free(text);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sessions_state_sums_of_what_goes_along),
		cmocka_unit_test(so_does_the_part_of_rank_0),
		cmocka_unit_test(reshard_states_sums_of_what_goes_along),
		cmocka_unit_test(steps_without_these_sums_are_read),
	};

	return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
