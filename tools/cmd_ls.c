/* cmd_ls.c -- `zckpt ls`: the steps below folders, and whether each is complete. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cli_advice.h"
#include "cli_steps.h"

#define NARROW 76	/* columns of the terminal */

static const char *when(int64_t seconds)
{
	static char text[40];
	const time_t t = (time_t)seconds;
	struct tm tm;

	if (!seconds || !localtime_r(&t, &tm) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm))
		return "-";
	return text;
}

/* No room for time, format and stage beside a name. */
static int is_narrow(void)
{
	const size_t width = term_width(stdout);

	return width && width < NARROW;
}

/* Below one folder a name is enough. */
static const char *label(const struct args *args, const struct step *s)
{
	return out_name(args->rest.n > 1 ? s->path : s->name);
}

static void print_row(const struct args *args, struct table *table, const struct step *s)
{
	const char *whole = s->unread ? "?" : s->errors ? "NO" : "yes";
	char step[24] = "-", stage[16] = "-", world[16] = "-";
	char *more = s->folders > 1 ? cli_format(" and %zu more", s->folders - 1) : cli_strdup("");
	char *name = cli_format("%s%s%s", label(args, s), more, s->is_latest ? " (latest)" : "");
	char *time = cli_strdup(when(s->time));

	if (s->number >= 0)
		snprintf(step, sizeof(step), "%" PRId64, s->number);
	if (s->stage >= 0)
		snprintf(stage, sizeof(stage), "%" PRId32, s->stage);
	if (s->world)
		snprintf(world, sizeof(world), "%" PRIu32, s->world);
	if (is_narrow())
		table_add(table, (const char *const[]){ step, out_size(s->bytes), world,
							whole, name });
	else
		table_add(table, (const char *const[]){ step, time, out_size(s->bytes),
							s->format[0] ? s->format : "-", stage,
							world, whole, name });
	cli_free(time);
	cli_free(more);
	cli_free(name);
}

/* Why it is not complete, without the name of the file that was given. */
static const char *without_label(const struct args *args, const struct step *s)
{
	const char *name = label(args, s);
	const size_t n = strlen(name);

	return !strncmp(s->why, name, n) && !strncmp(s->why + n, ": ", 2) ? s->why + n + 2 : s->why;
}

static void print_all(const struct args *args, const struct steps *steps)
{
	struct table table = { .align = is_narrow() ? "rrrll" : "rlrlrrll" };

	if (steps->n && is_narrow())
		table_add(&table, (const char *const[]){ "STEP", "SIZE", "RANKS", "COMPLETE",
							 "NAME" });
	else if (steps->n)
		table_add(&table, (const char *const[]){ "STEP", "TIME", "SIZE", "FORMAT", "STAGE",
							 "RANKS", "COMPLETE", "NAME" });
	for (size_t i = 0; i < steps->n; i++)
		print_row(args, &table, &steps->step[i]);
	table_print(&table, stdout, "");
	for (size_t i = 0; i < steps->n && !args->quiet; i++) {
		const struct step *s = &steps->step[i];

		if (!s->errors)
			continue;
		printf("%s: %s\n", label(args, s), out_text(without_label(args, s)));
	}
}

static void json_step(struct json *json, const struct step *s)
{
	const time_t t = (time_t)s->time;
	char text[40];
	struct tm tm;

	json_open(json, NULL, '{');
	json_text(json, "path", s->path);
	json_text(json, "name", s->name);
	json_known(json, "step", s->number);
	if (gmtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
		json_text(json, "time", text);
	json_uint(json, "bytes", s->bytes);
	json_uint(json, "files", s->files);
	json_text(json, "format", s->format);
	json_known(json, "stage", s->stage);
	json_uint(json, "world", s->world);
	json_uint(json, "folders", s->folders ? s->folders : 1);
	json_bool(json, "latest", s->is_latest);
	json_bool(json, "whole", !s->errors);
	json_bool(json, "read", !s->unread);
	json_uint(json, "errors", s->errors);
	json_uint(json, "warnings", s->warnings);
	if (s->errors) {
		json_text(json, "why", s->why);
		json_text(json, "id", s->id);
		json_text(json, "text", s->text);
	}
	json_close(json, '}');
}

static void print_json(const struct steps *steps, const struct ckpt_err *err)
{
	struct json json;

	json_begin(&json, stdout, "ls");
	if (err->code)
		json_error(&json, err);
	json_open(&json, "steps", '[');
	for (size_t i = 0; i < steps->n; i++)
		json_step(&json, &steps->step[i]);
	json_close(&json, ']');
	json_close(&json, '}');
}

/* A file of another kind is no step that is damaged. */
static void drop_strangers(struct steps *steps)
{
	size_t kept = 0;

	for (size_t i = 0; i < steps->n; i++) {
		struct step *s = &steps->step[i];

		if (s->id && !strcmp(s->id, "CKPT_E_FORMAT") && !strcmp(s->path, s->name))
			step_release(s);
		else
			steps->step[kept++] = *s;
	}
	steps->n = kept;
}

static int run(struct args *args)
{
	struct steps steps = { 0 };
	struct ckpt_err err = { 0 };
	int status = 0;

	if (!args->rest.n)
		return cli_wrong(&cmd_ls, "ls needs a folder");
	for (size_t i = 0; i < args->rest.n; i++) {
		int bad = steps_find(args, args->rest.list[i], &steps);

		if (bad && !status)
			steps_no_folder(args->rest.list[i], &err);
		status = bad ? bad : status;
	}
	for (size_t i = 0; i < steps.n; i++)
		step_look(args, &steps.step[i]);
	drop_strangers(&steps);
	steps_join(args, &steps);
	steps_sort(args, &steps);
	if (args->json)
		print_json(&steps, &err);
	else
		print_all(args, &steps);
	if (!status && !steps.n) {
		advice_no_step(args, args->rest.list[0]);
		status = EXIT_NO;
	}
	steps_free(&steps);
	return status;
}

const struct command cmd_ls = {
	.name = "ls",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "list the steps of a run: time, size, complete or not",
	.synopsis = "DIR...",
	.about = "Lists the steps at and below each folder, oldest first, with step number, time, "
		 "size, format and ranks, and whether each is complete. Below the list: what is "
		 "wrong with the others. Reads no tensor data. Of several folders, the parts of "
		 "one step (each node kept its own ranks' files) are one row.",
	.examples = "zckpt ls run\n"
		    "zckpt ls --json run\n",
	.notes = "COMPLETE is \"?\" for a step of a layout that zckpt does not read. Exit 0 if the "
		 "folder has a step, 1 if it has none.",
	.tables = { opts_steps, opts_talk, NULL },
};
