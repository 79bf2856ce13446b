/*
 * The power is cut while something is written. If this fails, a user who comes back to a machine
 * without power finds half a checkpoint under its name, a 'latest' that names nothing, a result
 * that was reported as done and is gone, or a next run that goes on with bytes that never reached
 * the disk.
 *
 * Every verb (tests/lib/torture/t_power_verbs.c) runs on a disk in memory (tests/lib/fs/t_disk.h),
 * is cut at and between all its syncs, and what is left is read, gone on with and cut again. Then
 * each kind of sync is left out in turn: that must be noticed, or the sync is for nothing.
 * docs/internals/power-cuts.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/torture/t_power.h"

#define SEEDS 6		/* of each boundary; 200 with ZCKPT_LONG */

/* In the order of enum ck_synced. */
static const char *const sync_name[] = {
	NULL, "files", "sums", "names", "partial", "parents", "begun", "entry", "beside", "step",
	"latest", "kept", "placed", "gone", "small file", "small file's name", "moved aside",
	"traded places",
};

static const struct t_verb *verb;
static size_t nverbs;
static uint64_t seed;
static unsigned seeds;

static int begin(void **state)
{
	const char *text = getenv("ZCKPT_SEED");

	(void)state;
	seed = text ? strtoull(text, NULL, 10) : 1;
	seeds = getenv("ZCKPT_LONG") ? 200 : SEEDS;
	print_message("seed %llu, %u seeds for each sync\n", (unsigned long long)seed, seeds);
	t_disk_install();
	verb = t_power_verbs(&nverbs);
	return 0;
}

static int end(void **state)
{
	(void)state;
	t_power_verbs_free();
	t_disk_remove();
	return 0;
}

static void a_power_cut_leaves_old_or_new(void **state)
{
	size_t bad = 0;

	(void)state;
	for (size_t i = 0; i < nverbs; i++) {
		struct t_power p = { .seeds = seeds, .seed = seed };

		t_power_cut(&verb[i], &p);
		print_message("%-48s %3llu boundaries, %6llu cuts, %6llu different disks\n",
			      verb[i].name, (unsigned long long)p.boundaries,
			      (unsigned long long)p.states, (unsigned long long)p.checked);
		if (p.wrong) {
			print_message("  WRONG: %s\n", p.wrong);
			bad++;
		}
		free(p.wrong);
	}
	assert_int_equal(bad, 0);
}

/* The first verb that notices, or NULL. */
static const char *who_notices(int what, char **how_out)
{
	const char *name = NULL;

	t_disk_without(what);
	for (size_t i = 0; !name && i < nverbs; i++) {
		struct t_power p = { .seeds = seeds < 40 ? 40 : seeds, .seed = seed };
		const uint64_t asked = t_disk_synced(what);
		struct ckpt_err err = { 0 };

		t_disk_plain_renames(verb[i].plain);
		t_disk_load(verb[i].before);
		if (verb[i].run(&verb[i], &err))
			t_die("%s: %s", verb[i].name, err.msg);
		if (t_disk_synced(what) == asked)
			continue;
		t_power_cut(&verb[i], &p);
		if (p.wrong)
			name = verb[i].name;
		*how_out = p.wrong;
	}
	t_disk_without(-1);
	return name;
}

static void every_sync_is_needed(void **state)
{
	int unneeded = 0;

	(void)state;
	assert_int_equal(sizeof(sync_name) / sizeof(sync_name[0]), CK_SYNCED_END);
	for (int what = CK_SYNCED_FILES; what < CK_SYNCED_END; what++) {
		char *how = NULL;

		if (!who_notices(what, &how))
			unneeded++;
		print_message("without '%s': %s\n", sync_name[what], how ? how : "NOBODY NOTICES");
		free(how);
	}
	assert_int_equal(unneeded, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_power_cut_leaves_old_or_new),
		cmocka_unit_test(every_sync_is_needed),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
