/*
 * Steps whose ranks share no storage.  If this fails, what each of them wrote is no step when it is
 * brought together, or a step that lacks a rank, or mixes two saves, passes for a whole one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_step.h"

#define MOST 7

static char *dir, *shared, *merged, *node[MOST];

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	shared = t_fmt("%s/shared", dir);
	merged = t_fmt("%s/merged", dir);
	for (int i = 0; i < MOST; i++)
		node[i] = t_fmt("%s/node-%d", dir, i);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < MOST; i++)
		free(node[i]);
	free(shared);
	free(merged);
	t_dir_end(dir);
	return 0;
}

static struct t_trainer trainer(uint32_t nranks, enum t_held held)
{
	return (struct t_trainer){
		.root = shared, .nranks = nranks, .held = held, .own = true, .frozen = 20011,
		.seed = 3, .flags = CKPT_SAVER_LOCAL, .timeout_ms = 5000,
	};
}

/* Each rank alone, the last one first: nobody waits. */
static int save_one(struct t_trainer t, const char *tag, uint32_t rank, unsigned flags,
		    struct ckpt_err *err)
{
	struct ckpt_save_step *s = t_save_step(&t, tag, CKPT_TO_NATIVE, 2, 0);
	struct ckpt_saver *sv;
	int rc;

	s->flags = flags;
	t.root = node[rank];
	t_must(t_saver(&t, rank, &sv, err), err);
	rc = t_save_begin(&t, sv, s, rank, err);
	if (!rc)
		rc = t_save_put(&t, sv, s, rank, err);
	if (!rc)
		rc = ckpt_save_commit(sv, err);
	if (!rc)
		rc = ckpt_save_wait(sv, 0, NULL, err);
	ckpt_saver_free(sv);
	return rc;
}

static void save_parts(const struct t_trainer *t, const char *tag)
{
	struct ckpt_err err = { 0 };

	for (uint32_t r = t->nranks; r > 0; r--) {
		t_must(save_one(*t, tag, r - 1, 0, &err), &err);
		t_nothing_left(node[r - 1]);
		t_latest_check(node[r - 1], tag);
	}
}

static void save_shared(struct t_trainer t, const char *tag)
{
	struct ckpt_err err = { 0 };

	t.flags = 0;
	t_must(t_save_all(&t, t_save_step(&t, tag, CKPT_TO_NATIVE, 2, 0), &err), &err);
}

/* All that the nodes have of a step, in one folder. */
static void merge(uint32_t n, const char *tag)
{
	char *to = t_fmt("%s/%s", merged, tag);

	t_dir_remove(merged);
	t_dir_make(merged);
	t_dir_make(to);
	for (uint32_t r = 0; r < n; r++) {
		char *from = t_fmt("%s/%s", node[r], tag), **list = t_dir_list(from, NULL);

		for (size_t i = 0; list[i]; i++) {
			char *a = t_fmt("%s/%s", from, list[i]), *b = t_fmt("%s/%s", to, list[i]);

			assert_false(t_exists(b));	/* no two ranks write one file */
			t_dir_copy(a, b);
			free(a);
			free(b);
		}
		t_list_free(list);
		free(from);
	}
	free(to);
}

static struct ckpt *open_all(const char *const *paths, size_t n, const char *tag)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open(paths, n, &oo, &ck, &err), &err);
	return ck;
}

static void digest_of(const char *const *paths, size_t n, const char *tag, char *to)
{
	struct ckpt *ck = open_all(paths, n, tag);

	t_step_digest(ck, to);
	ckpt_close(ck);
}

/* "ID where|ID where|", sorted as they come. */
static char *findings_of(struct ckpt *ck)
{
	char *all = t_fmt("%s", "");
	struct ckpt_info info;
	struct ckpt_finding f;
	struct ckpt_err err = { 0 };

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		char *was = all;

		t_must(ckpt_finding_get(ck, i, &f, &err), &err);
		all = t_fmt("%s%s %s|", was, f.id, strrchr(f.where, '/') ?
			    strrchr(f.where, '/') + 1 : f.where);
		free(was);
	}
	return all;
}

static char *verify(const char *const *paths, size_t n, const char *tag)
{
	const struct ckpt_verify_opts vo = { .size = sizeof(vo), .flags = CKPT_VERIFY_FULL };
	struct ckpt *ck = open_all(paths, n, tag);
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };
	char *all;

	t_must(ckpt_verify(ck, &vo, &v, &err), &err);
	all = findings_of(ck);
	ckpt_close(ck);
	return all;
}

static void check_sound(const struct t_trainer *t, const char *const *paths, size_t n,
			const char *tag)
{
	char *bad = verify(paths, n, tag);
	struct ckpt *ck = open_all(paths, n, tag);
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	assert_string_equal(bad, "");
	assert_string_equal(info.format, "native");
	assert_int_equal(info.world, t->nranks);
	t_save_check(t, ck);
	ckpt_close(ck);
	free(bad);
}

/* The step of all paths, cut anew. */
static void reshard_from(const char *const *paths, size_t n, const char *to)
{
	const struct ckpt_reshard_opts ro = {
		.size = sizeof(ro), .world = 2, .stage = 2, .to = CKPT_TO_DEEPSPEED, .nparts = 1,
		.round_robin = -1, .tag = "s",
	};
	struct ckpt *ck = open_all(paths, n, "s");
	struct ckpt_err err = { 0 };

	t_must(ckpt_reshard(ck, to, &ro, NULL, &err), &err);
	ckpt_close(ck);
}

static void parts_by(uint32_t nranks, enum t_held held, bool derived)
{
	const char *const one[] = { merged }, *const want[] = { shared };
	struct t_trainer t = trainer(nranks, held);
	char *out = t_fmt("%s/out", dir);
	const char *const outs[] = { out };
	char a[33], b[33];

	t.derived = derived;
	save_parts(&t, "s");
	save_shared(t, "s");
	merge(nranks, "s");
	check_sound(&t, (const char *const *)node, nranks, "s");
	check_sound(&t, one, 1, "s");
	digest_of(want, 1, "s", a);
	digest_of((const char *const *)node, nranks, "s", b);
	assert_string_equal(a, b);
	digest_of(one, 1, "s", b);
	assert_string_equal(a, b);
	reshard_from((const char *const *)node, nranks, out);
	digest_of(outs, 1, "s", b);
	assert_string_equal(a, b);
	t_dir_remove(out);
	free(out);
	for (uint32_t r = 0; r < nranks; r++)
		t_dir_remove(node[r]);
	t_dir_remove(shared);
}

static void parts_are_one_step(void **state)
{
	static const uint32_t worlds[] = { 1, 2, 3, 7 };

	(void)state;
	for (size_t i = 0; i < 4; i++)
		for (int held = T_HELD_EVEN; held <= T_HELD_FIRST; held++)
			parts_by(worlds[i], (enum t_held)held, held & 1);
}

/* ---- not whole, or not one ---- */

static void a_rank_that_is_missing_is_named(void **state)
{
	struct t_trainer t = trainer(3, T_HELD_EVEN);
	const char *some[] = { node[0], node[2] }, *last[] = { node[2] };
	const struct ckpt_digest_opts dopts = { .size = sizeof(dopts) };
	struct ckpt_digests d = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	char *bad;

	(void)state;
	save_parts(&t, "s");
	bad = verify(some, 2, "s");
	assert_non_null(strstr(bad, "RANK_FILE_MISSING manifest-00001.json|"));
	assert_null(strstr(bad, "manifest-00000"));
	free(bad);
	ck = open_all(some, 2, "s");
	t_must_fail(ckpt_digest(ck, &dopts, &d, &err), &err, CKPT_E_INCOMPLETE,
		    "manifest-00001.json|each of 3 ranks");
	ckpt_close(ck);
	bad = verify(last, 1, "s");
	assert_non_null(strstr(bad, "RANK_FILE_MISSING manifest-00000.json|"));
	assert_non_null(strstr(bad, "RANK_FILE_MISSING manifest-00001.json|"));
	assert_non_null(strstr(bad, "RANK_FILE_MISSING rest.pt|"));
	free(bad);
}

static void parts_of_two_saves_are_told(void **state)
{
	struct t_trainer t = trainer(2, T_HELD_EVEN);
	struct ckpt_err err = { 0 };
	char *bad;

	(void)state;
	save_parts(&t, "s");
	t.job = "job 2";
	t_must(save_one(t, "s", 1, CKPT_SAVE_FORCE, &err), &err);
	bad = verify((const char *const *)node, 2, "s");
	assert_non_null(strstr(bad, "STEP_MIXED manifest-00001.json|"));
	free(bad);
	t_must(save_one(t, "s", 0, CKPT_SAVE_FORCE, &err), &err);
	check_sound(&t, (const char *const *)node, 2, "s");
}

/* The ranks contradict each other: an element is held by both, or by none. */
static void ranks_that_hold_the_same_are_told(void **state)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = "s" };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct t_trainer a = trainer(2, i ? T_HELD_WHOLE : T_HELD_FIRST);
		struct t_trainer b = trainer(2, i ? T_HELD_FIRST : T_HELD_WHOLE);

		t_must(save_one(a, "s", 0, CKPT_SAVE_FORCE, &err), &err);
		t_must(save_one(b, "s", 1, CKPT_SAVE_FORCE, &err), &err);
		t_must_fail(ckpt_open((const char *const *)node, 2, &oo, &ck, &err), &err,
			    CKPT_E_MISMATCH, "layers.0.w");
	}
}

static void damage_is_found(void **state)
{
	static const char *const name[] = { "rank-00001.safetensors", "frozen-00001.safetensors" };
	const struct t_trainer t = trainer(2, T_HELD_EVEN);

	(void)state;
	save_parts(&t, "s");
	merge(2, "s");
	for (int i = 0; i < 2; i++) {
		char *path = t_fmt("%s/s/%s", merged, name[i]), *bad;
		uint8_t *p;
		size_t n;

		if (!t_exists(path)) {
			free(path);
			continue;
		}
		p = t_file_read(path, &n);
		for (size_t at = 4096; at < n; at += at + 300 > n ? 7 : 1999) {
			p[at] ^= 4;
			t_file_write(path, p, n);
			bad = verify((const char *const *)&merged, 1, "s");
			if (!strstr(bad, name[i]) && !strstr(bad, "MANIFEST_HASH_WRONG"))
				t_die("byte %zu of %s: %s", at, name[i], bad);
			free(bad);
			p[at] ^= 4;
		}
		t_file_write(path, p, n);
		free(p);
		free(path);
	}
}

static void a_manifest_that_was_edited(void **state)
{
	const struct t_trainer t = trainer(2, T_HELD_EVEN);
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = "s" };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	char *path, *bad, *other;
	uint8_t *p;
	size_t n;

	(void)state;
	save_parts(&t, "s");
	merge(2, "s");
	path = t_fmt("%s/s/manifest-00001.json", merged);
	other = t_fmt("%s/s/manifest-00002.json", merged);
	p = t_file_read(path, &n);
	t_file_write(other, p, n);		/* renamed by hand */
	bad = verify((const char *const *)&merged, 1, "s");
	assert_non_null(strstr(bad, "RANK_FILE_SWAPPED manifest-00002.json|"));
	free(bad);
	t_dir_remove(other);
	p[n / 2] ^= 1;
	t_file_write(path, p, n);
	t_must_fail(ckpt_open((const char *const *)&merged, 1, &oo, &ck, &err), &err,
		    CKPT_E_CORRUPT, "manifest-00001.json");
	free(p);
	free(path);
	free(other);
}

/* ---- saving ---- */

static void what_cannot_be_saved_so_is_refused(void **state)
{
	struct t_trainer t = trainer(2, T_HELD_EVEN);
	const float zeros[8] = { 0 };
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s;
	struct ckpt_saver *sv;

	(void)state;
	t.root = node[0];
	t_must(t_saver(&t, 0, &sv, &err), &err);
	t.own = false;
	t_must_fail(t_save_begin(&t, sv, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), 0, &err),
		    &err, CKPT_E_USAGE, "CKPT_SAVER_LOCAL|own");
	t_must_fail(t_save_begin(&t, sv, t_save_step(&t, "s", CKPT_TO_DEEPSPEED, 2, 0), 0, &err),
		    &err, CKPT_E_USAGE, "CKPT_SAVER_LOCAL");
	t.own = true;
	t_must_fail(t_save_begin(&t, sv, t_save_step(&t, "s", CKPT_TO_DEEPSPEED, 2, 0), 0, &err),
		    &err, CKPT_E_USAGE, "native");
	s = t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0);
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	t_must(ckpt_save_put(sv, 0, "weight", 0, 8, zeros, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	t_must_fail(ckpt_save_wait(sv, 0, NULL, &err), &err, CKPT_E_INCOMPLETE,
		    "embed.weight|element 8|was not put");
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	t_must(ckpt_save_put(sv, 0, "weight", 4, 8, zeros, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	t_must_fail(ckpt_save_wait(sv, 0, NULL, &err), &err, CKPT_E_MISMATCH,
		    "embed.weight|element 4|twice");
	ckpt_saver_free(sv);
	assert_false(t_is_there(node[0], "s"));
	t_nothing_left(node[0]);
}

/* Two ranks that were given one root. */
static void a_root_that_is_shared_is_refused(void **state)
{
	const struct t_trainer t = trainer(2, T_HELD_EVEN);
	struct t_trainer second = t;
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s;
	struct ckpt_saver *sv;

	(void)state;
	t_must(save_one(t, "s", 0, 0, &err), &err);
	second.root = node[0];
	t_must(t_saver(&second, 1, &sv, &err), &err);
	s = t_save_step(&second, "s", CKPT_TO_NATIVE, 2, 0);
	s->flags = CKPT_SAVE_FORCE;
	t_must_fail(t_save_begin(&second, sv, s, 1, &err), &err, CKPT_E_USAGE,
		    "manifest-00000.json|needs its own root");
	ckpt_saver_free(sv);
}

/* As with any other save: a second one goes beside the first, or takes its place. */
static void parts_are_saved_again(void **state)
{
	struct t_trainer t = trainer(3, T_HELD_BLOCKS);
	struct ckpt_err err = { 0 };

	(void)state;
	save_parts(&t, "s");
	t.seed = 5;
	save_parts(&t, "t");
	check_sound(&t, (const char *const *)node, 3, "t");
	t_must_fail(save_one(t, "s", 1, 0, &err), &err, CKPT_E_EXISTS, "CKPT_SAVE_FORCE");
	for (uint32_t r = 0; r < 3; r++)
		t_must(save_one(t, "s", r, CKPT_SAVE_FORCE, &err), &err);
	check_sound(&t, (const char *const *)node, 3, "s");
	t.frozen_from = "s";	/* of one rank's part nothing is linked: all is written */
	save_parts(&t, "u");
	check_sound(&t, (const char *const *)node, 3, "u");
}

/*
 * In a rank's manifest, the first piece that is small enough is at byte 0 of its first file, which
 * is rest.pt.  The sum is the one that belongs to the text.
 */
static void put_piece_into_values(uint32_t rank)
{
	static const char mark[] = "\"pieces\": [[1, ";
	char *path = t_fmt("%s/s/manifest-%05u.json", node[rank], rank), hex[33], *was, *whole;
	unsigned long long first = 0, count = 0;
	size_t n;
	char *text = (char *)t_file_read(path, &n), *at = text;

	do {
		at = strstr(at + 1, mark);
		if (!at)
			fail_msg("no small piece in %s", path);
	} while (sscanf(at + strlen(mark), "%*u, %llu, %llu", &first, &count) != 2 || count > 500);
	was = text;
	text = t_fmt("%.*s\"pieces\": [[0, 0%s", (int)(at - was), was,
		     strchr(at + strlen(mark), ','));
	free(was);
	*strstr(text, "\n\"sum\":") = 0;
	whole = t_fmt("%s\n", text);
	ck_hash128_print(ck_hash128(whole, strlen(whole)), hex);
	free(whole);
	whole = t_fmt("%s\n\"sum\": \"%s\"\n}\n", text, hex);
	t_file_write(path, whole, strlen(whole));
	free(whole);
	free(text);
	free(path);
}

/*
 * rest.pt is mentioned by all parts, and only the first mention has opened it: a piece that a later
 * part puts there must not take its state away without a word.
 */
static void a_piece_in_a_file_that_another_part_has_is_refused(void **state)
{
	const struct t_trainer t = trainer(2, T_HELD_EVEN);
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = "s" };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	(void)state;
	save_parts(&t, "s");
	put_piece_into_values(1);
	t_must_fail(ckpt_open((const char *const *)node, 2, &oo, &ck, &err), &err, CKPT_E_CORRUPT,
		    "a file of values");
	for (uint32_t r = 0; r < 2; r++)
		t_dir_remove(node[r]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(parts_are_one_step),
		TEST(a_rank_that_is_missing_is_named),
		TEST(parts_of_two_saves_are_told),
		TEST(ranks_that_hold_the_same_are_told),
		TEST(damage_is_found),
		TEST(a_manifest_that_was_edited),
		TEST(a_piece_in_a_file_that_another_part_has_is_refused),
		TEST(what_cannot_be_saved_so_is_refused),
		TEST(a_root_that_is_shared_is_refused),
		TEST(parts_are_saved_again),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
