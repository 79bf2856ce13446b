/*
 * cli_steps_join.c -- steps of which each folder that was given holds a part, as when every node
 * kept its own ranks' files: one step, if the folders of that name open better together.
 */
#include <string.h>
#include <sys/stat.h>

#include "cli_steps.h"

/* The folder of that step below a root, if there is one: cli_free(). */
static char *below(const char *root, const char *name)
{
	char *path = strcmp(name, ".") ? cli_format("%s/%s", root, name) : cli_strdup(root);
	struct stat st;

	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return path;
	cli_free(path);
	return NULL;
}

/* Is it a part of the same step?  One that is whole by itself is another run's. */
static int is_mate(const struct step *a, const struct step *b)
{
	return a != b && b->path && !b->unfinished && !strcmp(a->name, b->name);
}

static int has_whole_mate(const struct steps *steps, const struct step *a)
{
	for (size_t i = 0; i < steps->n; i++)
		if (is_mate(a, &steps->step[i]) && !steps->step[i].errors)
			return 1;
	return 0;
}

static void drop_mates(struct steps *steps, struct step *a)
{
	for (size_t i = 0; i < steps->n; i++)
		if (is_mate(a, &steps->step[i])) {
			a->is_latest |= steps->step[i].is_latest;
			step_release(&steps->step[i]);
		}
}

static void join(const struct args *args, struct steps *steps, struct step *a)
{
	struct step all = { .path = a->path, .name = a->name, .number = a->number };
	struct words paths = { 0 };

	words_add(&paths, cli_strdup(a->path));
	for (size_t i = 0; i < args->rest.n; i++) {
		char *path = below(args->rest.list[i], a->name);

		if (path && strcmp(path, a->path))
			words_add(&paths, path);
		else
			cli_free(path);
	}
	if (paths.n > 1)
		step_open(args, &all, (const char *const *)paths.list, paths.n);
	if (paths.n > 1 && all.errors < a->errors) {
		all.is_latest = a->is_latest;
		all.folders = paths.n;
		for (size_t i = 0; i < paths.n; i++)
			step_measure(&all, paths.list[i]);
		a->path = cli_strdup(a->path);
		a->name = cli_strdup(a->name);
		drop_mates(steps, a);
		all.is_latest = a->is_latest;
		step_release(a);
		*a = all;
	} else {
		all.path = all.name = NULL;
		step_release(&all);
	}
	for (size_t i = 0; i < paths.n; i++)
		cli_free((char *)paths.list[i]);
	cli_free(paths.list);
}

void steps_join(const struct args *args, struct steps *steps)
{
	size_t kept = 0;

	for (size_t i = 0; i < steps->n && args->rest.n > 1; i++) {
		struct step *a = &steps->step[i];

		if (a->path && a->errors && !a->unfinished && !has_whole_mate(steps, a))
			join(args, steps, a);
	}
	for (size_t i = 0; i < steps->n; i++)
		if (steps->step[i].path)
			steps->step[kept++] = steps->step[i];
	steps->n = kept;
}
