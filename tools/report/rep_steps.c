/* rep_steps.c -- the steps of the folder that was given, as `zckpt ls` lists them, and its log. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../cli_advice.h"
#include "../cli_steps.h"
#include "../shared/cli_log.h"
#include "rep_data.h"

static int is_same(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static void put_step(struct rep *rep, const struct step *s)
{
	struct json *json = rep->json;
	const time_t t = (time_t)s->time;
	char text[40];
	struct tm tm;

	json_open(json, NULL, '{');
	json_text(json, "name", s->name);
	json_known(json, "step", s->number);
	if (gmtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm))
		json_text(json, "time", text);
	json_uint(json, "bytes", s->bytes);
	json_text(json, "format", s->format);
	json_known(json, "stage", s->stage);
	json_uint(json, "world", s->world);
	json_bool(json, "latest", s->is_latest);
	json_text(json, "complete", s->unread ? "?" : s->errors ? "NO" : "yes");
	json_bool(json, "shown", is_same(s->path, rep->info.path));
	if (s->errors || s->unread)
		json_text(json, "why", s->why ? s->why : "");
	json_close(json, '}');
}

static void put_steps(struct rep *rep)
{
	struct steps steps = { 0 };
	struct stat st;

	if (stat(rep->opts->path[0], &st) || !S_ISDIR(st.st_mode))
		return;
	steps_near(&cli_args, rep->opts->path[0], 4, &steps);
	steps_sort(&cli_args, &steps);
	if (steps.n > 1 || (steps.n == 1 && steps.step[0].unfinished)) {
		json_open(rep->json, "steps", '[');
		for (size_t i = 0; i < steps.n; i++) {
			step_look(&cli_args, &steps.step[i]);
			put_step(rep, &steps.step[i]);
		}
		json_close(rep->json, ']');
	}
	steps_free(&steps);
}

/* ---------------------------------------------------------------- the log */

static void put_series(struct json *json, const struct log_series *s)
{
	json_open(json, NULL, '{');
	json_text(json, "name", s->name);
	json_open(json, "step", '[');
	for (size_t i = 0; i < s->n; i++)
		fprintf(json->out, "%s%" PRId64, i ? "," : "", s->step[i]);
	json_close(json, ']');
	json_open(json, "value", '[');
	for (size_t i = 0; i < s->n; i++) {
		if (i)
			fputc(',', json->out);
		rep_real(json->out, s->value[i]);
	}
	json_close(json, ']');
	json_close(json, '}');
}

/* Whether the page draws it: losses, the norm of gradients, the learning rate. */
static int is_drawn(const char *name)
{
	return strstr(name, "loss") || !strcmp(name, "grad_norm") || !strcmp(name, "lr");
}

static void put_log(struct rep *rep, const struct run_log *log)
{
	struct json *json = rep->json;

	json_open(json, "log", '{');
	json_text(json, "path", log->path);
	json_uint(json, "entries", log->entries);
	json_int(json, "first", log->first);
	json_int(json, "last", log->last);
	json_uint(json, "restarts", log->restarts);
	json_uint(json, "replaced", log->replaced);
	json_uint(json, "torn_bytes", log->torn_bytes);
	json_uint(json, "bad", log->bad);
	json_open(json, "series", '[');
	for (size_t i = 0; i < log->nseries; i++)
		if (is_drawn(log->series[i].name))
			put_series(json, &log->series[i]);
	json_close(json, ']');
	json_close(json, '}');
}

/* The log of a folder; a file that is a checkpoint is none. */
static int log_in(const char *dir, struct run_log *log, char *why)
{
	struct stat st;

	return stat(dir, &st) || !S_ISDIR(st.st_mode) ? -1 : log_read(dir, log, why);
}

/* A trainer's state beside the step or above it, or log.jsonl in the folder that was given. */
static int find_log(struct rep *rep, struct run_log *log, char *why)
{
	char *up = advice_parent(rep->info.path);
	int rc = log_in(rep->info.path, log, why);

	if (rc)
		rc = log_in(up, log, why);
	if (rc)
		rc = log_in(rep->opts->path[0], log, why);
	cli_free(up);
	return rc;
}

int rep_log_read(const struct report_opts *opts, struct run_log *log, struct ckpt_err *err)
{
	char why[LOG_WHY] = "";

	if (!opts->log || !log_read(opts->log, log, why))
		return 0;
	*err = (struct ckpt_err){ .code = CKPT_E_USAGE, .offset = CKPT_NO_OFFSET };
	snprintf(err->msg, sizeof(err->msg), "--log: %.500s", why);
	return -CKPT_E_USAGE;
}

void rep_steps(struct rep *rep)
{
	struct run_log log;
	char why[LOG_WHY];

	put_steps(rep);
	if (rep->opts->log) {
		put_log(rep, rep->log);
	} else if (!find_log(rep, &log, why)) {
		put_log(rep, &log);
		log_release(&log);
	}
}
