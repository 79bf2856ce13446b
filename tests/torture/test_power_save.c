/*
 * The power is cut while a trainer's ranks save. If this fails, a job that comes back to a machine
 * without power resumes from half a step, finds 'latest' at one that is gone, or cannot save.
 *
 * As test_power.c does it, on a disk in memory, with ranks and their threads in one process; the
 * next run is another job that saves the same step (docs/internals/power-cuts.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_calls.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/torture/t_power.h"

#define SEEDS 6		/* of each boundary; 200 with ZCKPT_LONG */

struct session {
	struct t_trainer t;
	const char *tag;
	int to, stage;
	bool force;
};

/* The next one is another job: what the power took from one is a leftover. */
static int save_as(const struct session *s, bool replace, struct ckpt_err *err)
{
	static unsigned njobs;
	struct t_trainer t = s->t;
	struct ckpt_save_step *step;
	char *job = t_fmt("job %u", njobs++);
	int rc;

	if (t.nranks > 1)
		t.job = job;
	step = t_save_step(&t, s->tag, s->to, s->stage, 0);
	step->flags = replace ? CKPT_SAVE_FORCE : 0;
	t_calls_in_turn(true);
	rc = t_save_all(&t, step, err);
	t_calls_in_turn(false);
	free(job);
	return rc;
}

static int save(const struct t_verb *v, struct ckpt_err *err)
{
	return save_as(v->opts, ((const struct session *)v->opts)->force, err);
}

static int save_again(const struct t_verb *v, struct ckpt_err *err)
{
	return save_as(v->opts, true, err);
}

#define TRAINER(n, number, how) \
	{ .root = "/run", .nranks = n, .threads = 1, .size = 900, .seed = number, .own = how }

static const struct session first = { TRAINER(1, 1, false), "a", CKPT_TO_NATIVE, 3, false };
static const struct session one = { TRAINER(1, 2, true), "b", CKPT_TO_NATIVE, 3, false };
static const struct session two = { TRAINER(2, 3, false), "b", CKPT_TO_DEEPSPEED, 2, false };
static const struct session dcp = { TRAINER(2, 6, false), "b", CKPT_TO_DCP, 2, false };
static const struct session over = { TRAINER(1, 4, false), "a", CKPT_TO_DEEPSPEED, 3, true };
static const struct session like = { TRAINER(1, 5, false), "a", CKPT_TO_NATIVE, 3, true };

static const struct {
	const char *name, *place;
	const struct session *s;
	bool plain;
} rows[] = {
	{ "save, one rank", "/run/b", &one, false },
	{ "save, two ranks", "/run/b", &two, false },
	{ "save of DCP, two ranks", "/run/b", &dcp, false },
	{ "save, over a step", "/run/a", &over, false },
	/* of the same names: where they are all gone for a moment, that is seen */
	{ "save, over a step, without exchange", "/run/a", &like, true },
};

#define NROWS (sizeof(rows) / sizeof(rows[0]))

/* A run with one step in it, and what is not its own. */
static struct t_image *with_run(void)
{
	struct t_image *im = t_image_new();
	struct ckpt_err err = { 0 };

	t_image_put(im, "/other", "of somebody else", 16);
	t_disk_load(im);
	t_image_free(im);
	if (save_as(&first, false, &err))
		t_die("a run cannot be made: %s: %s", err.where, err.msg);
	return t_disk_image();
}

static struct t_power cut(size_t row, unsigned seeds)
{
	const char *text = getenv("ZCKPT_SEED");
	struct t_image *before = with_run();
	const struct t_verb v = {
		.name = rows[row].name, .before = before, .dst = "/run", .run = save,
		.again = save_again, .opts = rows[row].s, .step = rows[row].s->tag,
		.place = rows[row].place, .staged = true, .plain = rows[row].plain,
	};
	struct t_power p = { .seeds = seeds, .seed = text ? strtoull(text, NULL, 10) : 1 };

	t_power_cut(&v, &p);
	t_image_free(before);
	return p;
}

static void a_power_cut_leaves_old_or_new(void **state)
{
	size_t bad = 0;

	(void)state;
	t_disk_install();
	for (size_t i = 0; i < NROWS; i++) {
		struct t_power p = cut(i, getenv("ZCKPT_LONG") ? 200 : SEEDS);

		print_message("%-38s seed %llu, %3llu boundaries, %6llu cuts, %6llu different "
			      "disks\n", rows[i].name, (unsigned long long)p.seed,
			      (unsigned long long)p.boundaries, (unsigned long long)p.states,
			      (unsigned long long)p.checked);
		if (p.wrong) {
			print_message("  WRONG: %s\n", p.wrong);
			bad++;
		}
		free(p.wrong);
	}
	t_disk_remove();
	assert_int_equal(bad, 0);
}

/* That a sync is left out is noticed: the cuts above would find it. */
static void a_sync_that_is_left_out_is_noticed(void **state)
{
	static const enum ck_synced syncs[] = {
		CK_SYNCED_FILES, CK_SYNCED_NAMES, CK_SYNCED_PLACED, CK_SYNCED_HALF,
		CK_SYNCED_HALF_NAME,
	};
	size_t unseen = 0;

	(void)state;
	t_disk_install();
	for (size_t k = 0; k < sizeof(syncs) / sizeof(syncs[0]); k++) {
		char *how = NULL;

		t_disk_without(syncs[k]);
		for (size_t i = 0; !how && i < NROWS; i++)
			how = cut(i, 40).wrong;
		t_disk_without(-1);
		unseen += !how;
		print_message("without sync %d: %s\n", syncs[k], how ? how : "NOBODY NOTICES");
		free(how);
	}
	t_disk_remove();
	assert_int_equal(unseen, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_cut_leaves_old_or_new),
		cmocka_unit_test(a_sync_that_is_left_out_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
