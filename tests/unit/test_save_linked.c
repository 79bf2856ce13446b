/*
 * Saves whose frozen parameters an earlier step has.  If this fails, a fine-tuning run fills its
 * disk with the same bytes, a step holds other bytes than it says, or loses them with an older one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save_root.h"
#include "tests/lib/ops/t_step.h"
#include "tests/lib/torture/t_fault.h"

#define MOST 20011u	/* frozen elements: five blocks, the last of them short */

static struct t_trainer trainer(uint32_t nranks, enum t_held held, bool own)
{
	return (struct t_trainer){
		.root = t_root, .nranks = nranks, .held = held, .own = own, .frozen = MOST,
		.seed = 3, .frozen_seed = 7, .ask = true, .timeout_ms = 5000,
	};
}

static void save(struct t_trainer *t, const char *tag, const char *from, uint64_t seed)
{
	struct ckpt_err err = { 0 };

	t->seed = seed;
	t->frozen_from = from;
	t_must(t_save_all(t, t_save_step(t, tag, CKPT_TO_NATIVE, 2, 0), &err), &err);
	t_step_check(t, tag);
	t_nothing_left(t_root);
}

static struct stat stat_of(const char *tag, const char *name)
{
	char *path = t_fmt("%s/%s/%s", t_root, tag, name);
	struct stat st;

	if (lstat(path, &st))
		t_die("%s is not there", path);
	free(path);
	return st;
}

/* How many frozen files a step has, and how many of them are files of the other one too. */
static void count(const char *tag, const char *other, int *files, int *same)
{
	char *path = t_fmt("%s/%s", t_root, tag), **list = t_dir_list(path, NULL);

	*files = *same = 0;
	for (size_t i = 0; list[i]; i++) {
		struct stat st;
		char *two = t_fmt("%s/%s/%s", t_root, other, list[i]);

		if (!strncmp(list[i], "frozen-", 7)) {
			++*files;
			*same += !lstat(two, &st) && st.st_ino == stat_of(tag, list[i]).st_ino;
		} else {
			assert_true(lstat(two, &st) ||
				    st.st_ino != stat_of(tag, list[i]).st_ino);
		}
		free(two);
	}
	t_list_free(list);
	free(path);
}

static void check_linked(const char *tag, const char *other, bool linked)
{
	int files, same;

	count(tag, other, &files, &same);
	assert_true(files > 0);
	assert_int_equal(same, linked ? files : 0);
}

static void take_away(const char *tag)
{
	char *path = t_fmt("%s/%s", t_root, tag);

	t_dir_remove(path);
	free(path);
}

/* ---- it is linked ---- */

static void linked_by(uint32_t nranks, enum t_held held, bool own)
{
	char three[33], whole[33];
	struct t_trainer t = trainer(nranks, held, own);

	save(&t, "one", NULL, 3);
	save(&t, "two", "one", 4);
	check_linked("two", "one", true);
	t.ask = false;		/* what is put all the same is dropped */
	save(&t, "three", "two", 5);
	check_linked("three", "one", true);
	save(&t, "whole", NULL, 5);
	check_linked("whole", "one", false);
	t_step_digest_at(t_root, "three", three);
	t_step_digest_at(t_root, "whole", whole);
	assert_string_equal(three, whole);
	take_away("one");
	take_away("two");
	t_step_check(&t, "three");
	t_dir_remove(t_root);
}

static void frozen_files_are_linked(void **state)
{
	static const uint32_t worlds[] = { 1, 3, 7 };

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (int held = T_HELD_EVEN; held <= T_HELD_FIRST; held++) {
			linked_by(worlds[i], (enum t_held)held, false);
			linked_by(worlds[i], (enum t_held)held, true);
		}
}

/* One rank for a layout of several, and a step that takes the place of the one it links to. */
static void one_rank_links_all_files(void **state)
{
	struct t_trainer t = trainer(1, T_HELD_EVEN, false);
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s;
	ino_t was;

	(void)state;
	t_must(t_save_all(&t, t_save_step(&t, "one", CKPT_TO_NATIVE, 2, 4), &err), &err);
	was = stat_of("one", "frozen-00003.safetensors").st_ino;
	t.seed = 8;
	t.frozen_from = "one";
	s = t_save_step(&t, "one", CKPT_TO_NATIVE, 2, 4);
	s->flags = CKPT_SAVE_FORCE;
	t_must(t_save_all(&t, s, &err), &err);
	t_step_check(&t, "one");
	t_nothing_left(t_root);
	assert_int_equal(stat_of("one", "frozen-00003.safetensors").st_ino, was);
	assert_int_equal(stat_of("one", "frozen-00003.safetensors").st_nlink, 1);
}

static void what_is_needed_is_told(void **state)
{
	struct t_trainer t = trainer(1, T_HELD_EVEN, false);
	struct ckpt_saved saved;
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s;
	struct ckpt_saver *sv;

	(void)state;
	save(&t, "one", NULL, 3);
	t.frozen_from = "one";
	t_must(t_saver(&t, 0, &sv, &err), &err);
	assert_int_equal(ckpt_save_needs(sv, 0), 0);
	s = t_save_step(&t, "two", CKPT_TO_NATIVE, 2, 0);
	t_must(t_save_begin(&t, sv, s, 0, &err), &err);
	for (uint64_t i = 0; i < s->ntensors; i++)
		assert_int_equal(ckpt_save_needs(sv, i), s->tensor[i].role != CKPT_ROLE_FROZEN &&
				 s->tensor[i].role != CKPT_ROLE_ALIAS);
	assert_int_equal(ckpt_save_needs(sv, s->ntensors), 0);
	/* a wrong put is told, dropped or not */
	t_must_fail(ckpt_save_put(sv, 3, "weight", MOST, 1, &saved, 0, &err), &err, CKPT_E_USAGE,
		    "layers.0.frozen");
	t_must(t_save_put(&t, sv, s, 0, &err), &err);
	t_must(ckpt_save_commit(sv, &err), &err);
	t_must(ckpt_save_wait(sv, 0, &saved, &err), &err);
	assert_int_equal(saved.linked_bytes, stat_of("two", "frozen-00000.safetensors").st_size);
	assert_true(saved.linked_bytes >= 2 * MOST);
	assert_true(saved.written_bytes + saved.linked_bytes <= saved.file_bytes);
	ckpt_saver_free(sv);
	t_step_check(&t, "two");
}

/* ---- it is not ---- */

static void not_from(struct t_trainer *t, const char *from)
{
	save(t, "two", from, 4);
	check_linked("two", "one", false);
	take_away("two");
}

static void without_such_files_all_is_written(void **state)
{
	struct t_trainer t = trainer(3, T_HELD_EVEN, false), o = t;
	struct ckpt_err err = { 0 };
	char *path = t_fmt("%s/one/frozen-00001.safetensors", t_root);
	uint8_t *p;
	size_t n;

	(void)state;
	t.ask = false;
	not_from(&t, NULL);
	not_from(&t, "one");			/* not there */
	save(&t, "one", NULL, 3);
	o.own = true;
	not_from(&o, "one");			/* cut as held */
	o = t;
	o.nranks = 2;
	not_from(&o, "one");
	o = t;
	o.frozen++;
	not_from(&o, "one");
	o = t;
	o.weight = CKPT_F16;
	not_from(&o, "one");
	t_must(t_save_all(&t, t_save_step(&t, "ds", CKPT_TO_DEEPSPEED, 2, 0), &err), &err);
	not_from(&t, "ds");
	p = t_file_read(path, &n);
	p[20] ^= 1;				/* another header than the manifest knows */
	t_file_write(path, p, n);
	not_from(&t, "one");
	p[20] ^= 1;
	t_file_write(path, p, n - 1);		/* cut short */
	not_from(&t, "one");
	unlink(path);
	not_from(&t, "one");
	unlink(path);
	assert_int_equal(symlink("../elsewhere", path), 0);
	path = (free(path), t_fmt("%s/elsewhere", t_root));
	t_file_write(path, p, n);
	not_from(&t, "one");
	free(p);
	free(path);
}

static void a_tag_that_is_none_is_refused(void **state)
{
	struct t_trainer t = trainer(1, T_HELD_EVEN, false);
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;

	(void)state;
	t.frozen_from = "../elsewhere";
	t_must(t_saver(&t, 0, &sv, &err), &err);
	t_must_fail(t_save_begin(&t, sv, t_save_step(&t, "one", CKPT_TO_NATIVE, 2, 0), 0, &err),
		    &err, CKPT_E_USAGE, "../elsewhere");
	ckpt_saver_free(sv);
}

/* The step went between the looks of two ranks: the second one is told. */
static void ranks_that_do_not_agree_are_told(void **state)
{
	struct t_trainer t = trainer(2, T_HELD_EVEN, false);
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv[2];
	struct ckpt_save_step *s;

	(void)state;
	save(&t, "one", NULL, 3);
	t.frozen_from = "one";
	s = t_save_step(&t, "two", CKPT_TO_NATIVE, 2, 0);
	for (uint32_t i = 0; i < 2; i++)
		t_must(t_saver(&t, i, &sv[i], &err), &err);
	t_must(t_save_begin(&t, sv[0], s, 0, &err), &err);
	take_away("one");
	t_must_fail(t_save_begin(&t, sv[1], s, 1, &err), &err, CKPT_E_MISMATCH,
		    "rank 0|rank 1|frozen_from");
	for (uint32_t i = 0; i < 2; i++)
		ckpt_saver_free(sv[i]);
	t.frozen_from = NULL;
	save(&t, "two", "one", 4);
}

/* A rank begins before rank 0 has put the step into its place that it links to. */
static void a_rank_waits_for_the_step_it_links_to(void **state)
{
	struct t_ranks r = { .t = trainer(2, T_HELD_EVEN, false) };
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s;

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		t_must(t_saver(&r.t, i, &r.sv[i], &err), &err);
	for (int turn = 0; turn < 8; turn++) {
		char *tag = t_fmt("step%d", turn), *last = t_fmt("step%d", turn - 1);

		r.t.seed = 20 + (uint64_t)turn;
		r.t.frozen_from = turn ? last : NULL;
		s = t_save_step(&r.t, tag, CKPT_TO_NATIVE, 2, 0);
		for (uint32_t i = 2; i > 0; i--)
			t_must(t_save_begin(&r.t, r.sv[i - 1], s, i - 1, &err), &err);
		for (uint32_t i = 2; i > 0; i--) {
			t_ranks_put(&r, tag, i - 1);
			t_ranks_commit(&r, i - 1);
		}
		free(tag);
		free(last);
	}
	for (uint32_t i = 0; i < 2; i++)
		t_must(t_ranks_wait(&r, i, &err), &err);
	t_step_check(&r.t, "step7");
	check_linked("step7", "step0", true);
	t_ranks_close(&r);
}

/* ---- no links are to be had ---- */

static int refusal;

static int refuse(const char *from, const char *to)
{
	(void)from;
	(void)to;
	errno = refusal;
	return -1;
}

static void a_link_that_is_refused(void **state)
{
	static const int why[] = { EMLINK, EXDEV, EPERM, EOPNOTSUPP };
	const struct ck_sys real = ck_sys;
	struct t_trainer even = trainer(3, T_HELD_EVEN, false);
	struct t_trainer own = trainer(3, T_HELD_EVEN, true);

	(void)state;
	save(&even, "even", NULL, 3);
	save(&own, "own", NULL, 3);
	ck_sys.link = refuse;
	for (size_t i = 0; i < 4; i++) {
		refusal = why[i];
		save(&even, "two", "even", 4);	/* copied */
		check_linked("two", "even", false);
		take_away("two");
		save(&own, "two", "own", 4);	/* put after all */
		check_linked("two", "own", false);
		take_away("two");
	}
	refusal = EIO;
	for (int i = 0; i < 2; i++) {
		struct t_trainer *t = i ? &even : &own;
		struct ckpt_err err = { 0 };

		t->frozen_from = i ? "even" : "own";
		t->job = i ? "job 2" : "job 3";
		t_must_fail(t_save_all(t, t_save_step(t, "two", CKPT_TO_NATIVE, 2, 0), &err),
			    &err, CKPT_E_IO, "link|frozen-0000");
		assert_false(t_is_there(t_root, "two"));
	}
	ck_sys = real;
	save(&even, "two", "even", 4);
	check_linked("two", "even", true);
}

static int (*real_link)(const char *from, const char *to);
static bool is_refused;

/* The step of that name is saved anew just then, with other frozen bytes. */
static int replace_and_link(const char *from, const char *to)
{
	char *aside = t_fmt("%s.new", from);
	size_t n;
	uint8_t *p = t_file_read(from, &n);

	p[n - 1] ^= 1;
	t_file_write(aside, p, n);
	rename(aside, from);
	free(p);
	free(aside);
	errno = EMLINK;
	return is_refused ? -1 : real_link(from, to);
}

/* Its sums were taken from the manifest that was there before. */
static void a_file_that_is_replaced_is_not_linked_to(void **state)
{
	struct t_trainer t = trainer(3, T_HELD_EVEN, false);

	(void)state;
	real_link = ck_sys.link;
	for (int i = 0; i < 2; i++) {
		struct ckpt_err err = { 0 };

		is_refused = i;
		t.job = i ? "job 3" : "job 2";
		save(&t, "one", NULL, 3);
		t.frozen_from = "one";
		ck_sys.link = replace_and_link;
		t_must_fail(t_save_all(&t, t_save_step(&t, "two", CKPT_TO_NATIVE, 2, 0), &err),
			    &err, CKPT_E_MISMATCH, "another file replaced this one|frozen-0000");
		ck_sys.link = real_link;
		assert_false(t_is_there(t_root, "two"));
		take_away("one");
	}
}

/* ---- any call fails ---- */

/* Whatever fails, the step is whole or absent, and the one that it links to is as it was. */
static bool survives(struct t_trainer *t, enum t_fault_kind kind, long n)
{
	struct ckpt_err err = { 0 };
	struct ckpt_save_step *s = t_save_step(t, "two", CKPT_TO_NATIVE, 2, 0);
	bool fired;
	int rc;

	t_fault_arm(kind, n, false);
	rc = t_save_all(t, s, &err);
	fired = t_fault_fired();
	t_fault_arm(kind, 0, false);
	if (!rc)
		t_step_check(t, "two");
	else if (!strstr(err.msg, "is in place"))
		assert_false(t_is_there(t_root, "two"));
	take_away("two");
	return fired;
}

static void any_call_may_fail(void **state)
{
	static const enum t_fault_kind kinds[] = {
		T_FAULT_MEMORY, T_FAULT_IO, T_FAULT_NOSPACE, T_FAULT_FILES,
	};

	(void)state;
	t_fault_install();
	for (int own = 0; own < 2; own++) {
		struct t_trainer t = trainer(1, T_HELD_EVEN, own), one = t;

		t.threads = 1;
		save(&one, "one", NULL, 3);
		t.frozen_from = "one";
		for (size_t k = 0; k < 4; k++)
			for (long n = 1; survives(&t, kinds[k], n); n += 1 + n / 40)
				;
		t_step_check(&one, "one");
		t_dir_remove(t_root);
	}
	t_fault_remove();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)
	const struct CMUnitTest tests[] = {
		TEST(frozen_files_are_linked),
		TEST(one_rank_links_all_files),
		TEST(what_is_needed_is_told),
		TEST(without_such_files_all_is_written),
		TEST(a_tag_that_is_none_is_refused),
		TEST(ranks_that_do_not_agree_are_told),
		TEST(a_rank_waits_for_the_step_it_links_to),
		TEST(a_link_that_is_refused),
		TEST(a_file_that_is_replaced_is_not_linked_to),
		TEST(any_call_may_fail),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
