/*
 * cli_next.c -- other steps and folders that a call may mean: beside, above or below the one given.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_advice.h"
#include "cli_steps.h"

#define TRIED 8		/* other steps that are opened */
#define PARTS "@parts"	/* a word that no shell quotes */

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---------------------------------------------------------------- another step */

static int is_same(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The newest complete one but 'bad', or NULL. */
static const struct step *newest_complete(const struct args *args, struct steps *steps,
					  const char *bad)
{
	int tried = 0;

	for (size_t i = steps->n; i > 0 && tried < TRIED; i--) {
		struct step *s = &steps->step[i - 1];

		if (s->unfinished || (bad && is_same(s->path, bad)))
			continue;
		tried++;
		if (step_is_good(args, s) && step_is_of_run(s->format))
			return s;
	}
	return NULL;
}

/* "checkpoint-2/global_step2" -> "checkpoint-2", which is a tag of its folder too. */
static char *tag_of(const struct step *s)
{
	const size_t n = strcspn(s->name, "/");

	if (!s->name[n])
		return cli_strdup(s->name);
	if (step_is_trainers(s->name))
		return cli_format("%.*s", (int)n, s->name);
	return NULL;
}

char *advice_tag_in(const struct args *args, const char *dir)
{
	struct steps steps = { 0 };
	struct stat st;
	char *tag = NULL;

	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return NULL;
	steps_near(args, dir, 2, &steps);
	for (size_t i = steps.n; i > 0 && !tag; i--)
		if (!steps.step[i - 1].unfinished && strcmp(steps.step[i - 1].name, "."))
			tag = tag_of(&steps.step[i - 1]);
	steps_free(&steps);
	return tag;
}

static char *say_complete(const struct args *args, const char *src, const struct step *s,
			  const char *dir)
{
	char *tag = tag_of(s), *path = NULL, *call, *text;
	const char *slash = strrchr(s->path, '/');

	/* the folder with the steps was given: its name stays, with a tag */
	if (!is_same(dir, src) || !tag)
		path = !tag ? cli_strdup(s->path) :
		       strcmp(dir, ".") ? cli_format("%s/%s", dir, tag) : cli_strdup(tag);
	call = advice_step(args, src, path ? NULL : tag, path);
	text = cli_format("%s is complete: %s", out_name(tag ? tag : slash ? slash + 1 : s->path),
			  call);
	cli_free(path);
	cli_free(call);
	cli_free(tag);
	return text;
}

/* In 'dir', at most so deep. */
static char *complete_in(const struct args *args, const char *src, const char *bad,
			 const char *dir, int depth)
{
	struct steps steps = { 0 };
	const struct step *s;
	char *text = NULL;

	steps_near(args, dir, depth, &steps);
	s = newest_complete(args, &steps, bad);
	if (s)
		text = say_complete(args, src, s, dir);
	steps_free(&steps);
	return text;
}

char *advice_complete(const struct args *args, const char *src, const char *bad)
{
	const int is_step = step_is_folder(src);
	const char *slash = strrchr(src, '/');
	char *text = NULL, *up;

	if (!is_step)
		text = complete_in(args, src, bad, src, 2);
	if (text || (!is_step && !step_is_trainers(slash ? slash + 1 : src) &&
		     strncmp(slash ? slash + 1 : src, "tmp-checkpoint-", 15)))
		return text;
	/* beside a step, or beside a trainer's checkpoint-N */
	up = advice_parent(src);
	text = complete_in(args, src, bad ? bad : src, up, is_step ? 1 : 2);
	cli_free(up);
	return text;
}

/* ---------------------------------------------------------------- another place */

/* The folder 'n' above a path, in its own form: "a/b/c" -> "a", "b" -> ".", "." -> "..". */
static char *folder_above(const char *path, int n, const char *absolute)
{
	char *at;

	if (path[0] == '/')
		return cli_strdup(absolute);
	at = cli_strdup(path);
	for (int i = 0; i < n; i++) {
		const int is_dots = !strcmp(at, ".") || strstr(at, "..") != NULL;
		char *up = !is_dots ? advice_parent(at) : !strcmp(at, ".") ? cli_strdup("..") :
			   cli_format("%s/..", at);

		cli_free(at);
		at = up;
	}
	return at;
}

char *advice_above(const char *path)
{
	char *dir = realpath(path, NULL), *at, *up;

	if (!dir)
		return NULL;
	at = cli_strdup(dir);
	free(dir);
	for (int i = 0; i < 4 && strcmp(at, "/"); i++) {
		up = advice_parent(at);
		cli_free(at);
		at = up;
		if (step_is_folder(at)) {
			up = folder_above(path, i + 1, at);
			cli_free(at);
			return up;
		}
	}
	cli_free(at);
	return NULL;
}

/* The folder to give for a step: the one above, if its 'latest' names the step. */
static char *root_of(const char *top, const struct step *s)
{
	char *up = advice_parent(s->path);

	if (s->is_latest && !is_same(up, top))
		return up;
	cli_free(up);
	return cli_strdup(s->path);
}

const char *advice_only_below(const struct args *args, const char *path)
{
	struct steps steps = { 0 };
	char *only = NULL;
	struct stat st;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return NULL;
	steps_near(args, path, 4, &steps);
	for (size_t i = 0; i < steps.n; i++) {
		char *up = advice_parent(steps.step[i].path);

		if (steps.step[i].unfinished || (only && !is_same(up, only))) {
			cli_free(only);
			only = NULL;
			break;
		}
		if (!only)
			only = steps.n == 1 ? root_of(path, &steps.step[i]) : cli_strdup(up);
		cli_free(up);
	}
	steps_free(&steps);
	return only;
}

/* The folders above the steps of the newest one's name, if they are one step together. */
static char *call_of_parts(const struct args *args, const struct steps *steps)
{
	const struct step *newest = &steps->step[steps->n - 1];
	const char *name = base_of(newest->path);
	struct step all = { .path = newest->path, .name = newest->name };
	struct words dirs = { 0 };
	char *more = NULL, *call = NULL, *longer;

	for (size_t i = 0; i < steps->n; i++)
		if (!strcmp(base_of(steps->step[i].path), name))
			words_add(&dirs, advice_parent(steps->step[i].path));
	if (dirs.n > 1 && advice_takes_folders(args))
		step_open(args, &all, (const char *const *)dirs.list, dirs.n);
	if (!all.looked || all.errors)
		return NULL;
	call = advice_call(args, NULL, dirs.list[0], PARTS);
	for (size_t i = 1; i < dirs.n; i++) {
		longer = cli_format("%s%s%s", more ? more : "", more ? " " : "",
				    out_word(dirs.list[i]));
		cli_free(more);
		more = longer;
	}
	longer = strstr(call, PARTS);
	return cli_format("%.*s%s%s", (int)(longer - call), call, more, longer + strlen(PARTS));
}

/* Of steps below a folder: parts that are one together, else the newest complete one. */
static char *say_below(const struct args *args, const char *path, struct steps *steps)
{
	struct step *newest = &steps->step[steps->n - 1];
	const struct step *good;
	char *call = NULL;

	if (newest->unfinished || !step_is_good(args, newest)) {
		call = newest->unfinished ? NULL : call_of_parts(args, steps);
		if (call)
			return cli_format("the parts of one step are below it: %s", call);
		good = newest_complete(args, steps, NULL);
		if (good) {
			call = advice_call(args, NULL, root_of(path, good), NULL);
			return cli_format("%zu steps are below it; the newest complete one: %s",
					  steps->n, call);
		}
	}
	call = advice_call(args, NULL, root_of(path, newest), NULL);
	return cli_format("%zu step%s below it; for the newest: %s", steps->n,
			  steps->n == 1 ? " is" : "s are", call);
}

char *advice_place(const struct args *args, const char *path)
{
	struct steps steps = { 0 };
	char *text = NULL, *at = NULL, *call;
	struct stat st;

	if (stat(path, &st))
		return NULL;
	if (S_ISDIR(st.st_mode))
		steps_near(args, path, 4, &steps);
	if (steps.n)
		text = say_below(args, path, &steps);
	else
		at = advice_above(path);
	if (at) {
		call = advice_call(args, NULL, at, NULL);
		text = cli_format("it is a part of the step above it: %s", call);
		cli_free(call);
	}
	cli_free(at);
	steps_free(&steps);
	return text;
}

char *advice_nearby(const struct args *args, const char *path)
{
	struct steps steps = { 0 };
	char *up = advice_parent(path), *text;

	if (strcmp(up, "."))	/* the user knows what is here */
		steps_near(args, up, 2, &steps);
	text = steps.n ? cli_format("zckpt ls %s", out_word(up)) : cli_strdup("");
	steps_free(&steps);
	cli_free(up);
	return text;
}
