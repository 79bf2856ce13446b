/* cmd_latest.c -- `zckpt latest` and `zckpt set-latest`: which step a run resumes from. */
#include <string.h>
#include <sys/stat.h>

#include "cli_steps.h"

#define AT(field) offsetof(struct args, field)

static const struct opt own_latest[] = {
	{ "valid", 0, OPT_FLAG, AT(valid), NULL,
	  "the newest step that opens without an error", 0 },
	{ 0 },
};

static const struct opt own_set[] = {
	{ "force", 0, OPT_FLAG, AT(force), NULL, "even if the step has errors", 0 },
	{ "sync", 0, OPT_CHOICE, AT(sync), "data|full|none",
	  "what must be on disk before the end", 0 },
	{ 0 },
};

/* ---------------------------------------------------------------- latest */

static void print_step(const struct args *args, const struct step *step)
{
	struct json json;

	if (!args->json) {
		puts(step->path);
		return;
	}
	json_begin(&json, stdout, "latest");
	json_text(&json, "path", step->path);
	json_text(&json, "name", step->name);
	json_known(&json, "step", step->number);
	json_bool(&json, "latest", step->is_latest);
	json_close(&json, '}');
}

static void print_none(const struct args *args)
{
	struct json json;

	if (!args->json)
		return;
	json_begin(&json, stdout, "latest");
	json_known(&json, "path", -1);
	json_close(&json, '}');
}

static void pass_over(const struct args *args, const struct step *step)
{
	if (!args->quiet)
		cli_say("passed over %s: %s: %s", out_name(step->name), step->id,
			out_name(step->text));
}

/* The newest good one. */
static struct step *find_valid(const struct args *args, struct steps *steps)
{
	for (size_t i = steps->n; i > 0; i--) {
		if (step_is_good(args, &steps->step[i - 1]))
			return &steps->step[i - 1];
		pass_over(args, &steps->step[i - 1]);
	}
	return NULL;
}

/* The newest that a file 'latest' names. */
static struct step *find_named(struct steps *steps)
{
	for (size_t i = steps->n; i > 0; i--)
		if (steps->step[i - 1].is_latest)
			return &steps->step[i - 1];
	return NULL;
}

static int run_latest(struct args *args, int argc, char **argv)
{
	struct steps steps = { 0 };
	struct step *step;
	int status;

	(void)argc;
	(void)argv;
	if (args->rest.n != 1)
		return cli_wrong(&cmd_latest, "latest needs one folder");
	status = steps_find(args, args->rest.list[0], &steps);
	if (status)
		return status;
	step = args->valid ? find_valid(args, &steps) : find_named(&steps);
	if (step) {
		print_step(args, step);
	} else {
		status = EXIT_NO;
		print_none(args);
		cli_say(!steps.n ? "no step is in %s" : args->valid ?
			"none of the steps in %s is without errors" :
			"no file 'latest' in %s names a step that is there; --valid looks for one",
			out_name(args->rest.list[0]));
	}
	steps_free(&steps);
	return status;
}

const struct command cmd_latest = {
	.name = "latest",
	.run = run_latest,
	.ranks = RANKS_EACH,
	.gist = "the step that 'latest' names, or the newest that is whole",
	.synopsis = "[--valid] DIR",
	.about = "Prints the path of the step that the file 'latest' names. With --valid: of the "
		 "newest step that opens without an error, whatever 'latest' says; which newer "
		 "ones were passed over, and why, goes to stderr.",
	.notes = "Exit 1 if there is none.",
	.tables = { own_latest, opts_steps, opts_talk, NULL },
};

/* ---------------------------------------------------------------- set-latest */

static int is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* What stands in the way of pointing to the step; 0, or the exit status. */
static int check_step(const struct args *args, const char *path, struct step *step)
{
	*step = (struct step){ .path = cli_strdup(path), .name = cli_strdup(path) };
	if (!is_folder(path)) {
		cli_say("%s: there is no such folder; 'zckpt ls %s' lists the steps",
			out_name(path), out_word(args->rest.list[0]));
		return EXIT_TROUBLE;
	}
	step_look(args, step);
	if (!step->errors)
		return 0;
	cli_say("%s: %s: %s", out_name(path), step->id, out_name(step->text));
	if (args->force && step_is_folder(path))
		return 0;
	cli_say("'latest' is not changed%s", args->force ? ": this is no step" :
		"; --force points to it all the same");
	return EXIT_NO;
}

static int point(const struct args *args, const char *dir, const char *tag,
		 const struct step *step)
{
	static const enum ckpt_sync syncs[] = { CKPT_SYNC_DATA, CKPT_SYNC_FULL, CKPT_SYNC_NONE };
	int universal = !strcmp(step->format, "universal");
	struct ckpt_err err = { 0 };
	struct json json;

	if (ckpt_latest_set(dir, tag, universal, syncs[args->sync], &err))
		return cli_fail(args->json ? "set-latest" : NULL, NULL, &err);
	if (args->json) {
		json_begin(&json, stdout, "set-latest");
		json_text(&json, "path", step->path);
		json_text(&json, "file", universal ? "latest_universal" : "latest");
		json_close(&json, '}');
	} else if (!args->quiet) {
		printf("%s/%s names %s\n", out_name(dir),
		       universal ? "latest_universal" : "latest", out_name(tag));
	}
	return 0;
}

static int run_set(struct args *args, int argc, char **argv)
{
	const char *dir, *tag;
	struct steps one = { 0 };
	char *root;
	int status;
	size_t n;

	(void)argc;
	(void)argv;
	if (args->rest.n != 2)
		return cli_wrong(&cmd_set_latest,
				 "set-latest needs a folder and the name of a step");
	root = cli_strdup(args->rest.list[0]);
	for (n = strlen(root); n > 1 && root[n - 1] == '/';)
		root[--n] = 0;
	dir = root;
	tag = args->rest.list[1];
	if (!*tag || strchr(tag, '/'))
		return cli_wrong(&cmd_set_latest, "'%s' is no name of a step; give the folder that "
				 "holds the step, and the step's name", out_name(tag));
	one.step = cli_alloc(sizeof(*one.step));
	one.n = 1;
	status = check_step(args, cli_format("%s/%s", dir, tag), one.step);
	if (!status)
		status = point(args, dir, tag, one.step);
	steps_free(&one);
	cli_free(root);
	return status;
}

const struct command cmd_set_latest = {
	.name = "set-latest",
	.run = run_set,
	.gist = "point 'latest' at a step that is whole",
	.synopsis = "DIR TAG",
	.about = "Opens the step DIR/TAG and, if that shows no error, makes DIR/latest name it, in "
		 "one rename: a reader finds the old text or the new one. A universal checkpoint "
		 "is named by latest_universal.",
	.notes = "Exit 1, and nothing is changed, if the step has errors.",
	.tables = { own_set, opts_steps, opts_talk, NULL },
};
