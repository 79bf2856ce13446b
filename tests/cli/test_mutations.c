/*
 * test_mutations.c -- every way of damaging a checkpoint, and what is said of it.
 *
 * If this fails, a damage that was found is found no longer, or is called otherwise; or a verb
 * writes another result than before without a word. Where that is meant:
 *
 * usage: test_mutations [--update [FORMAT] | --all | --list [FORMAT [MUTATION]]]
 *   (none)	a sample of the mutants, by a seed ($ZCKPT_SEED), against the table
 *   --all	all of them ($ZCKPT_LONG too), and that the table has no more
 *   --update	write the table; or of it what is about formats that are called so
 *   --list	what each mutant is, and what is said of it
 * Environment: ZCKPT_FIXTURES (default build/fixtures).
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_cases.h"
#include "tests/lib/mutate/t_mutate_bases.h"
#include "tests/lib/mutate/t_mutation_table.h"
#include "tests/lib/mutate/t_verdict.h"

#define TABLE "tests/cli/mutations.md"
#define BY_NAME "Damages by name"

enum way {
	SAMPLE,
	ALL,
	UPDATE,
	LIST,
};

struct test {
	enum way way;
	uint64_t seed;
	const char *only_format, *only_mutation;
	struct t_table table, made;	/* of the file; of this run */
	/* at work */
	const char *format;
	bool is_step;
	struct t_base base;
	struct t_whole whole;
	char mutation[200], what[300];
	size_t number;
	long tried, failed;
};

/* ---------------------------------------------------------------------- choosing */

static uint64_t mix(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3u;
	return h ^ h >> 29;
}

/* Of flips and cuts, of which there are thousands, fewer. */
static bool is_in_sample(const struct test *t, const char *mutation, size_t number)
{
	const bool bytes = strstr(mutation, "a bit flips") || strstr(mutation, "is cut");
	char text[32];

	snprintf(text, sizeof(text), "%zu", number);
	return mix(mix(mix(t->seed * 0x9e3779b97f4a7c15u, t->format), mutation), text) % 1000 <
	       (bytes ? 55 : 200);
}

static bool want(void *arg, const char *mutation, size_t number, const char *what)
{
	struct test *t = arg;

	if ((t->way == SAMPLE && !is_in_sample(t, mutation, number)) ||
	    !strstr(mutation, t->only_mutation))
		return false;
	snprintf(t->mutation, sizeof(t->mutation), "%s", mutation);
	snprintf(t->what, sizeof(t->what), "%s", what);
	t->number = number;
	return true;
}

/* ----------------------------------------------------------------------- judging */

static void complain(struct test *t, const struct t_cells *is, const char *why)
{
	t->failed++;
	if (t->failed > 40)
		return;
	printf("%s: %s, number %zu: %s\n  %s\n", t->format, t->mutation, t->number, t->what, why);
	for (enum t_mode m = 0; m < T_MODES; m++)
		printf("  %-16s %s\n", t_mode_names[m], is->text[m]);
}

static void compare(struct test *t, const struct t_cells *is)
{
	const struct t_row *r = t_table_find(&t->table, t->format, t->mutation, t->number);

	if (!r) {
		complain(t, is, "the table does not have it");
		return;
	}
	for (enum t_mode m = 0; m < T_MODES; m++)
		if (strcmp(r->cells.text[m], is->text[m])) {
			char *why = t_fmt("%s: the table says %s", t_mode_names[m],
					  r->cells.text[m]);

			complain(t, is, why);
			free(why);
			return;
		}
}

static void judge(struct test *t)
{
	struct t_verdict v;
	struct t_cells is;
	const char *never;

	t->tried++;
	t_verdict_of(&t->whole, &v);
	never = t_cells_make(t->mutation, &v, t->is_step, &is);
	if (t->way == LIST)
		printf("%s | %zu | %s | %s | %s | %s | %s | %s%s%s\n", t->mutation, t->number,
		       t->what, is.text[0], is.text[1], is.text[2], is.text[3], is.text[4],
		       never ? " | NEVER: " : "", never ? never : "");
	else if (never)
		complain(t, &is, never);
	else if (t->way != UPDATE)
		compare(t, &is);
	t_table_add(&t->made, t->format, t->mutation, t->number, &is);
}

static void take(void *arg, const struct t_files *mutant)
{
	struct test *t = arg;

	const struct t_file *manifest = t_files_find(&t->base.files, t->whole.manifest);
	char *path = t_fmt("%s/%s", t->base.dir, manifest->name);

	t_files_turn(&t->base.files, mutant, t->base.dir);
	judge(t);
	t_files_turn_back(&t->base.files, mutant, t->base.dir);
	t_file_write(path, manifest->p, manifest->n);	/* it was removed on the way */
	free(path);
}

static void try_format(struct test *t, const struct t_format *f)
{
	char *dir = t_dir_new();
	struct t_sink sink = { .arg = t, .want = want, .take = take };

	t->format = f->name;
	t->is_step = f->is_step;
	t_base_begin(&t->base, f, dir);
	t_whole_begin(&t->whole, dir, t->base.open, f->is_step);
	t_files_free(&t->base.files);
	t_files_read(&t->base.files, t->base.dir);	/* with the manifest */
	if (f->what & T_BYTES)
		t_mutate_bytes(&t->base, &sink);
	if (f->what & T_TENSORS)
		t_mutate_tensors(&t->base, &sink);
	if (f->what & T_FILES)
		t_mutate_files(&t->base, &sink);
	t_whole_end(&t->whole);
	t_base_end(&t->base);
	t_dir_end(dir);
}

/* ---------------------------------------------------------------- damages by name */

static void try_damage(struct test *t, const struct t_damage_case *d, const char *fixtures)
{
	char *dir = t_dir_new(), *from = t_fmt("%s/%s/ckpt", fixtures, d->fixture), *latest;
	struct t_copy k = { .fixtures = fixtures, .root = t_fmt("%s/ckpt", dir) };
	size_t n;

	t_dir_copy(from, k.root);
	free(from);
	from = t_fmt("%s/latest", k.root);
	latest = (char *)t_file_read(from, &n);
	k.tag_dir = t_fmt("%s/%s", k.root, latest);
	t_whole_begin(&t->whole, dir, "", true);
	t_damage_do(d, &k);
	judge(t);
	t_whole_end(&t->whole);
	free(latest);
	free(from);
	free(k.root);
	free(k.tag_dir);
	t_dir_end(dir);
}

static void try_damages(struct test *t)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *fixtures = t_fmt("%s/deepspeed", root && *root ? root : "build/fixtures");

	t->format = BY_NAME;
	t->is_step = true;
	for (size_t i = 0; i < t_ndamage_cases; i++)
		if (want(t, t_damage_cases[i].name, 1, t_damage_cases[i].fixture))
			try_damage(t, &t_damage_cases[i], fixtures);
	free(fixtures);
}

/* --------------------------------------------------------------------------- all */

static void write_table(const struct test *t)
{
	FILE *out = fopen(TABLE, "w");

	if (!out)
		t_die("%s cannot be written", TABLE);
	t_table_print(&t->made, out);
	if (fclose(out))
		t_die("%s cannot be written", TABLE);
}

/* What the table says of a format that is not tried now. */
static void keep(struct test *t, const char *format)
{
	for (size_t i = 0; i < t->table.n; i++) {
		const struct t_row *r = &t->table.row[i];

		for (size_t k = 0; !strcmp(r->format, format) && k < r->n; k++)
			t_table_add(&t->made, format, r->mutation, r->number[k], &r->cells);
	}
}

static void try_all(struct test *t)
{
	for (size_t i = 0; i < t_nformats; i++)
		if (strstr(t_formats[i].name, t->only_format))
			try_format(t, &t_formats[i]);
		else
			keep(t, t_formats[i].name);
	if (strstr(BY_NAME, t->only_format))
		try_damages(t);
	else
		keep(t, BY_NAME);
}

/* Every mutant of the table is made still. */
static void count(struct test *t)
{
	size_t in_table = 0;

	for (size_t i = 0; i < t->table.n; i++)
		in_table += t->table.row[i].n;
	if (t->way == ALL && in_table != (size_t)t->tried) {
		t->failed++;
		printf("%ld mutants were made, the table has %zu\n", t->tried, in_table);
	}
}

static enum way way_of(int argc, char **argv)
{
	const char *is_long = getenv("ZCKPT_LONG");

	if (argc < 2)
		return is_long && *is_long ? ALL : SAMPLE;
	if (!strcmp(argv[1], "--update"))
		return UPDATE;
	if (!strcmp(argv[1], "--list"))
		return LIST;
	if (strcmp(argv[1], "--all"))
		t_die("usage: test_mutations [--update [FORMAT] | --all | --list [FORMAT "
		      "[MUTATION]]]");
	return ALL;
}

int main(int argc, char **argv)
{
	const char *seed = getenv("ZCKPT_SEED");
	struct test *t = t_alloc(sizeof(*t));
	int bad;

	t->way = way_of(argc, argv);
	t->seed = seed && *seed ? strtoull(seed, NULL, 10) :
				  (uint64_t)time(NULL) ^ (uint64_t)getpid() << 20;
	t->only_format = argc > 2 ? argv[2] : "";
	t->only_mutation = argc > 3 ? argv[3] : "";
	if (t->way == SAMPLE)
		printf("seed %llu\n", (unsigned long long)t->seed);
	if (t->way == SAMPLE || t->way == ALL || (t->way == UPDATE && *t->only_format))
		t_table_read(&t->table, TABLE);
	t_dir_in_memory();
	try_all(t);
	if (t->way == UPDATE)
		write_table(t);
	count(t);
	printf("%ld mutants tried\n", t->tried);
	if (t->tried > t->failed)
		printf("[  PASSED  ] %ld test(s).\n", t->tried - t->failed);
	if (t->failed)
		printf("[  FAILED  ] %ld test(s).\n", t->failed);
	bad = t->failed || !t->tried;
	t_table_free(&t->table);
	t_table_free(&t->made);
	free(t);
	return bad;
}
