/* cmd_latest.c -- `zckpt latest` and `zckpt set-latest`: which step a run resumes from. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_advice.h"
#include "cli_steps.h"

static struct {
	int valid;
} want;

static const struct opt own_latest[] = {
	{ "valid", 0, OPT_FLAG, &want.valid, NULL,
	  "the step of 'latest' if it is complete, else the newest complete one", 0 },
	{ 0 },
};

static const struct opt own_set[] = {
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL, "set it even if the step has errors", 0 },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync before the end", OPT_RARE },
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
		cli_say("skipped %s: %s", out_name(step->name), out_text(step->why));
}

/* A trainer's checkpoint-N that holds weights and no step. */
static int is_weights(const struct args *args, struct step *step)
{
	return !step_is_of_run(step->format) && step_is_good(args, step);
}

static void pass_over_weights(const struct args *args, const struct step *step)
{
	if (!args->quiet)
		cli_say("skipped %s: it has weights only, nothing to resume from",
			out_name(step->name));
}

/* "checkpoint-4/global_step4" is checkpoint-4 for its folder. */
static char *tag_of(const struct step *step)
{
	return cli_format("%.*s", (int)strcspn(step->name, "/"), step->name);
}

/* The file that names the step of its run: of Megatron-Core and verl it has the number. */
static const char *file_of(const struct step *step)
{
	const int is_numbered = !strncmp(step->name, "iter_", 5) ||
				!strncmp(step->name, "global_step_", 12) ||
				!strcmp(step->name, "release");

	return is_numbered ? "latest_checkpointed_iteration.txt" : "latest";
}

/* A newer one is complete: how to have it instead. */
static void report_newer(const struct args *args, const struct step *newer,
			 const struct step *taken)
{
	char *tag = tag_of(newer);

	if (!step_takes_latest(newer->format))
		cli_say("%s is newer and complete, but '%s' names %s; --tag %s reads it",
			out_name(newer->name), file_of(taken), out_name(taken->name),
			out_word(tag));
	else
		cli_say("%s is newer and complete, but 'latest' names %s; to use it: "
			"zckpt set-latest %s %s", out_name(newer->name), out_name(taken->name),
			out_word(args->rest.list[0]), out_word(tag));
	cli_free(tag);
}

/* Newer ones, which 'latest' does not name: of the complete ones the newest. */
static void leave_newer(const struct args *args, struct steps *steps, const struct step *taken)
{
	int said = 0;

	for (size_t i = steps->n; i > 0 && &steps->step[i - 1] != taken; i--) {
		struct step *s = &steps->step[i - 1];

		if (!step_is_good(args, s))
			pass_over(args, s);
		else if (is_weights(args, s))
			pass_over_weights(args, s);
		else if (!args->quiet && !said++)
			report_newer(args, s, taken);
	}
}

/* What 'latest' decides for, if it is good; else the newest good one, or else weights. */
static struct step *find_valid(const struct args *args, struct steps *steps, struct step *named)
{
	struct step *weights = NULL;

	if (named && step_is_good(args, named)) {
		leave_newer(args, steps, named);
		return named;
	}
	if (named)
		pass_over(args, named);
	for (size_t i = steps->n; i > 0; i--) {
		struct step *s = &steps->step[i - 1];

		if (s != named && step_is_good(args, s) && !is_weights(args, s))
			return s;
		if (s != named && !step_is_good(args, s))
			pass_over(args, s);
		else if (s != named)
			pass_over_weights(args, s);
		if (!weights && is_weights(args, s))
			weights = s;
	}
	return weights;
}

/* The newest that a file 'latest' names. */
static struct step *find_named(struct steps *steps)
{
	for (size_t i = steps->n; i > 0; i--)
		if (steps->step[i - 1].is_latest)
			return &steps->step[i - 1];
	return NULL;
}

/* The folder's step is another one than those that a 'latest' deeper in it names. */
static int is_undecided(const struct args *args)
{
	struct ckpt_latest which;
	int named;

	if (ckpt_latest_get(args->rest.list[0], args->limits.size ? &args->limits : NULL, &which,
			    NULL))
		return 0;
	named = which.named || !which.name[0];
	ckpt_latest_free(&which);
	return !named;
}

/* There are steps, but none is the answer. */
static void say_none(const struct steps *steps, const char *dir)
{
	const char *file = file_of(&steps->step[steps->n - 1]);
	char *named = step_pointer(dir, file);
	size_t unread = 0;

	for (size_t i = 0; i < steps->n; i++)
		unread += steps->step[i].unread != 0;
	if (want.valid && unread)
		cli_say("%s: no step is known to be complete; zckpt does not read %zu of %zu",
			out_name(dir), unread, steps->n);
	else if (want.valid)
		cli_say("no step in %s is complete", out_name(dir));
	else if (named)
		cli_say("%s: '%s' names %s, which does not exist; the newest complete step: "
			"zckpt latest --valid %s", out_name(dir), file, out_name(named),
			out_word(dir));
	else
		cli_say("%s has no file '%s'; the newest complete step: zckpt latest --valid %s",
			out_name(dir), file, out_word(dir));
	cli_free(named);
}

static int is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

static int run_latest(struct args *args)
{
	struct steps steps = { 0 };
	struct step *step;
	int status;

	if (args->rest.n != 1)
		return cli_wrong(&cmd_latest, "latest needs one folder");
	if (is_file(args->rest.list[0]))
		return cli_wrong(&cmd_latest, "%s is a file; latest needs the folder of a run",
				 out_name(args->rest.list[0]));
	status = steps_find(args, args->rest.list[0], &steps);
	if (status) {
		json_no_folder(args, "latest", args->rest.list[0]);
		return status;
	}
	step = find_named(&steps);
	if (want.valid)
		step = find_valid(args, &steps, is_undecided(args) ? NULL : step);
	if (step) {
		print_step(args, step);
	} else {
		status = EXIT_NO;
		print_none(args);
		if (!steps.n)
			advice_no_step(args, args->rest.list[0]);
		else
			say_none(&steps, args->rest.list[0]);
	}
	steps_free(&steps);
	return status;
}

const struct command cmd_latest = {
	.name = "latest",
	.run = run_latest,
	.ranks = RANKS_EACH,
	.gist = "print the step that 'latest' names, or a complete one",
	.synopsis = "[--valid] DIR",
	.about = "Prints the path of the step that the file 'latest' names. Every other command "
		 "uses the same step if DIR holds the steps or checkpoints itself; from a folder "
		 "further up it names the command to type. With --valid: prints that step if it "
		 "is complete, else the newest complete one; stderr says which steps it skips and "
		 "why. In a Trainer's output folder without 'latest' it is the highest "
		 "checkpoint-N that holds a step, and in it the step that its own 'latest' names.",
	.examples = "zckpt latest run\n"
		    "zckpt latest --valid run\n",
	.notes = "Exit 1 if no step is found.",
	.tables = { own_latest, opts_steps, opts_talk, NULL },
};

/* ---------------------------------------------------------------- set-latest */

static int is_folder(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static void json_refused(const struct args *args, const char *code, const char *path,
			 const char *text)
{
	struct json json;

	if (!args->json)
		return;
	json_begin(&json, stdout, "set-latest");
	json_open(&json, "error", '{');
	json_text(&json, "code", code);
	json_text(&json, "where", path);
	json_text(&json, "text", text);
	json_close(&json, '}');
	json_close(&json, '}');
}

/* The step that the word probably means: the one of its number; without one, the nearest name. */
static const char *name_near(const struct steps *steps, const char *word)
{
	const char *digits = word + strcspn(word, "0123456789");
	const long number = *digits ? strtol(digits, NULL, 10) : -1;
	const char *near = NULL;
	struct words names = { 0 };

	for (size_t i = 0; i < steps->n; i++)
		words_add(&names, tag_of(&steps->step[i]));
	for (size_t i = 0; i < names.n; i++) {
		const char *first = names.list[i] + strcspn(names.list[i], "0123456789");

		if (number >= 0 && *first && strtol(first, NULL, 10) == number &&
		    (!near || strcmp(names.list[i], near) < 0))
			near = names.list[i];
	}
	if (near)
		return near;
	return number < 0 && names.n ? opt_nearest(word, names.list) : NULL;
}

/* "did you mean checkpoint-100?", or how to find the names. */
static const char *near_tag(const struct args *args)
{
	struct steps steps = { 0 };
	const char *near = NULL;

	if (!steps_find(args, args->rest.list[0], &steps))
		near = name_near(&steps, args->rest.list[1]);
	steps_free(&steps);
	return near ? cli_format("did you mean %s?", out_name(near)) :
	       cli_format("the steps: zckpt ls %s", out_word(args->rest.list[0]));
}

/* "3" is global_step3 or checkpoint-3, if one of them alone is here. */
static const char *tag_of_number(const char *dir, const char *tag)
{
	const char *deepspeed = cli_format("global_step%s", tag);
	const char *trainer = cli_format("checkpoint-%s", tag);
	int first, second;

	if (tag[strspn(tag, "0123456789")] || is_folder(cli_format("%s/%s", dir, tag)))
		return tag;
	first = is_folder(cli_format("%s/%s", dir, deepspeed));
	second = is_folder(cli_format("%s/%s", dir, trainer));
	return first && !second ? deepspeed : second && !first ? trainer : tag;
}

/* What keeps 'latest' from naming the step; 0, or the exit status. */
static int check_step(const struct args *args, const char *path, struct step *step)
{
	*step = (struct step){ .path = cli_strdup(path), .name = cli_strdup(path) };
	if (!is_folder(path)) {
		cli_say_error("%s does not exist; %s", out_name(path), near_tag(args));
		json_no_folder(args, "set-latest", path);
		return EXIT_TROUBLE;
	}
	step_look(args, step);
	if (!step->errors)
		return 0;
	cli_say_error("%s: %s", out_name(path), out_text(step->why));
	if (args->force && step_leads_to_one(path))
		return 0;
	cli_say("'latest' is not changed%s", args->force ? ": this is not a step" :
		"; --force names it anyway");
	json_refused(args, step->id, path, step->text);
	return EXIT_NO;
}

/* A reader that is given the folder must come to the step; 0, or the exit status. */
static int check_reader(const struct args *args, const char *dir, const char *tag,
			const struct step *step)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	struct ckpt_info info;
	int bad;

	if (step->errors)	/* --force */
		return 0;
	cli_open_opts(args, &opts);
	opts.tag = tag;
	bad = ckpt_open(&dir, 1, &opts, &ck, &err);
	if (!bad) {
		ckpt_info_get(ck, &info);
		bad = !step_takes_latest(info.format);
		ckpt_close(ck);
	}
	if (!bad)
		return 0;
	if (!err.msg[0] && step_is_of_run(step->format) && !step_takes_latest(step->format)) {
		cli_say_error("%s/%s: runs of this format (%s) do not read 'latest', which is not "
			      "changed; --tag %s reads the step", out_name(dir), out_name(tag),
			      step->format, out_word(tag));
		json_refused(args, "CKPT_E_FORMAT", step->path, "its runs do not read 'latest'");
		return EXIT_NO;
	}
	cli_say_error("%s/%s holds no step%s%s%s; 'latest' is not changed", out_name(dir),
		      out_name(tag), strcmp(step->format, "huggingface") ? "" : ", only weights",
		      err.msg[0] ? ": " : "", out_name(err.msg));
	json_refused(args, err.code ? ckpt_code_name(err.code) : "CKPT_E_FORMAT", step->path,
		     err.msg[0] ? err.msg : "zckpt finds no step in it that it would use");
	return EXIT_NO;
}

/* The Trainer neither reads nor writes this file: it would hide later checkpoints. */
static void report_trainer(const char *dir, const struct step *step)
{
	cli_say("the HF Trainer ignores %s/latest: pass resume_from_checkpoint=\"%s\"",
		out_name(dir), out_name(step->path));
	cli_say("%s/latest stays in use after later saves; delete it when training continues",
		out_name(dir));
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
		if (!step_is_folder(step->path))
			report_trainer(dir, step);
	}
	return 0;
}

static char *without_slashes(const char *path)
{
	char *text = cli_strdup(path);
	size_t n = strlen(text);

	while (n > 1 && text[n - 1] == '/')
		text[--n] = 0;
	return text;
}

static int is_same(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The folder above, and the name in it. */
static char *cut_at_slash(const char *path, char **name_out)
{
	const char *slash = strrchr(path, '/');

	*name_out = cli_strdup(name_of(path));
	return slash ? cli_format("%.*s", (int)(slash - path), path) : cli_strdup(".");
}

/*
 * A name as ls prints it, "checkpoint-4/global_step4", or the path of the step: the name that
 * 'latest' must have, and of which folder.  NULL if the step is not below 'dir'.
 */
static char *tag_below(const struct args *args, const char *dir, const char *word,
		       const char **dir_out)
{
	char *path = cli_format("%s/%s", dir, word), *above, *name;
	const int below = is_folder(path);
	struct ckpt_latest which;

	if (!below)
		path = cli_strdup(word);	/* from where the user is */
	if (!is_folder(path))
		return NULL;
	above = cut_at_slash(path, &name);
	if (step_is_trainers(name_of(above)) && !is_same(above, dir) &&
	    !ckpt_latest_get(above, args->limits.size ? &args->limits : NULL, &which, NULL)) {
		if (is_same(which.path, path))	/* the Trainer's folder: readers choose these */
			above = cut_at_slash(above, &name);
		ckpt_latest_free(&which);
	}
	if (!below && !is_same(above, dir))
		return NULL;
	*dir_out = is_same(above, dir) ? dir : above;
	return name;
}

/* The path of a step, or of a Trainer's checkpoint-N, which names its folder too. */
static int is_step_path(const char *path)
{
	const char *name = name_of(without_slashes(path));

	return strcmp(name, ".") && strcmp(name, "..") &&
	       (step_is_folder(path) ||
		(!strncmp(name, "checkpoint-", 11) && step_leads_to_one(path)));
}

static void cut_step(struct args *args)
{
	char *name, *dir = cut_at_slash(without_slashes(args->rest.list[0]), &name);

	args->rest = (struct words){ 0 };
	words_add(&args->rest, *dir ? dir : "/");
	words_add(&args->rest, name);
}

/* The call that makes 'latest' name this step, if it may; else NULL. */
static char *call_for(const struct args *args, struct step *step, const char *dir)
{
	if (!step_is_good(args, step) || !step_takes_latest(step->format) || step->name[0] == '.')
		return NULL;
	return cli_format("zckpt set-latest %s %s", out_word(dir), out_word(tag_of(step)));
}

/* The folder alone: its newest complete step is offered. */
static int missing_tag(const struct args *args)
{
	const char *dir = args->rest.n ? args->rest.list[0] : NULL;
	struct steps steps = { 0 };
	char *call = NULL;

	if (args->rest.n == 1 && !access(dir, F_OK) && !steps_find(args, dir, &steps))
		for (size_t i = steps.n; i > 0 && !call; i--)
			call = call_for(args, &steps.step[i - 1], dir);
	steps_free(&steps);
	return cli_try(&cmd_set_latest, call, "set-latest needs a folder and the name of a step");
}

static int run_set(struct args *args)
{
	const char *dir, *tag;
	struct steps one = { 0 };
	int status;

	if (args->rest.n == 1 && is_step_path(args->rest.list[0]))
		cut_step(args);
	if (args->rest.n != 2)
		return missing_tag(args);
	dir = without_slashes(args->rest.list[0]);
	tag = without_slashes(args->rest.list[1]);
	if (!*tag)
		return cli_wrong(&cmd_set_latest, "the step's name is empty");
	if (strchr(tag, '/') && !(tag = tag_below(args, dir, tag, &dir)))
		return cli_wrong(&cmd_set_latest, "%s is not in %s; give the folder of the step, "
				 "and the step's name", out_name(args->rest.list[1]),
				 out_name(dir));
	tag = tag_of_number(dir, tag);
	one.step = cli_alloc(sizeof(*one.step));
	one.n = 1;
	status = check_step(args, cli_format("%s/%s", dir, tag), one.step);
	if (!status)
		status = check_reader(args, dir, tag, one.step);
	if (!status)
		status = point(args, dir, tag, one.step);
	steps_free(&one);
	return status;
}

const struct command cmd_set_latest = {
	.name = "set-latest",
	.run = run_set,
	.gist = "point 'latest' at a complete step",
	.synopsis = "DIR TAG",
	.about = "Opens the step DIR/TAG and, if that shows no error, makes DIR/latest name it, in "
		 "one rename: a reader finds the old text or the new one. A universal checkpoint "
		 "is named by latest_universal. TAG may be a checkpoint-N of a Trainer too: zckpt "
		 "and ztrain follow it, the HF Trainer itself does not.",
	.examples = "zckpt set-latest run global_step200\n",
	.notes = "Exit 1, and 'latest' is unchanged, if the step has errors or does not exist.",
	.tables = { own_set, opts_steps, opts_talk, NULL },
};
