/* zt_runs.c -- logs of several runs: their names, and what the summary says of each. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/main/zt_report.h"
#include "engine/main/zt_say.h"

/* ---- names ---- */

static const char *last_part(const char *path, const char *end)
{
	while (end > path && end[-1] != '/')
		end--;
	return end;
}

/* The last 'parts' parts of the path; "log.jsonl" is "log". */
static const char *name_of(const char *path, unsigned parts)
{
	static const char *const ends[] = { ".jsonl", ".json", ".log", ".txt" };
	const char *at = path + strlen(path);
	char *name;
	size_t n;

	for (unsigned i = 0; i < parts && at > path; i++)
		at = last_part(path, i ? at - 1 : at);
	name = cli_strdup(at);
	n = strlen(name);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const size_t cut = strlen(ends[i]);

		if (n > cut && name[n - cut - 1] != '/' && !strcmp(name + n - cut, ends[i])) {
			name[n - cut] = 0;
			break;
		}
	}
	return name;
}

/* A name that says nothing: that of the folder comes before it. */
static bool is_common(const char *name)
{
	static const char *const common[] = { "log", "trainer_state", "trainer_log", "train",
					      "events" };

	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		if (!strcmp(name, common[i]))
			return true;
	return false;
}

static bool are_distinct(const struct zt_runs *runs)
{
	for (size_t i = 0; i < runs->n; i++)
		for (size_t k = 0; k < i; k++)
			if (!strcmp(runs->run[i].name, runs->run[k].name))
				return false;
	return true;
}

#define MOST_PARTS 16

/* With ".." in it, a path says little. */
static const char *path_of(const struct zt_run *run)
{
	const char *path = run->log.path;
	char *real = strstr(path, "..") ? realpath(path, NULL) : NULL;

	if (!real)
		return path;
	path = cli_strdup(real);
	free(real);
	return path;
}

static void name_runs(struct zt_runs *runs)
{
	for (unsigned parts = 1; parts < MOST_PARTS; parts++) {
		bool common = false;

		for (size_t i = 0; i < runs->n; i++) {
			const char *path = path_of(&runs->run[i]);

			common |= parts == 1 && is_common(name_of(path, 1)) &&
				  strcmp(name_of(path, 1), name_of(path, 2)) != 0;
			runs->run[i].name = name_of(path, parts);
		}
		if (!common && are_distinct(runs))
			return;
	}
	for (size_t i = 0; i < runs->n; i++)	/* one file, given twice */
		runs->run[i].name = cli_format("%s #%zu", runs->run[i].name, i + 1);
}

/* ---- numbers ---- */

static double last_of(const struct log_series *s)
{
	return s && s->n ? s->value[s->n - 1] : NAN;
}

static double sum_of(const struct log_series *s)
{
	return s && s->n ? log_sum(s) : NAN;
}

static void sum_loss(struct zt_run *run)
{
	const struct log_series *loss = log_find(&run->log, "loss");

	run->loss = last_of(loss);
	run->loss_at = loss && loss->n ? loss->step[loss->n - 1] : 0;
	run->loss_n = loss ? loss->n : 0;
	for (size_t i = 0; loss && i < loss->n; i++) {
		if (isfinite(loss->value[i]))
			continue;
		run->lost_at = run->lost++ ? run->lost_at : loss->step[i];
	}
}

static void sum_run(struct zt_run *run)
{
	const struct run_log *log = &run->log;
	const struct log_series *eval = log_find(log, "eval_loss");
	const struct log_series *skipped = log_find(log, "skipped");
	const int64_t best = eval ? log_least(eval) : -1;

	sum_loss(run);
	run->best_eval = best >= 0 ? eval->value[best] : NAN;
	run->best_at = best >= 0 ? eval->step[best] : 0;
	run->skipped = skipped ? (uint64_t)log_sum(skipped) : 0;
	run->tokens = sum_of(log_find(log, "tokens"));
	if (isnan(run->tokens))
		run->tokens = last_of(log_find(log, "num_input_tokens_seen"));
	run->seconds = sum_of(log_find(log, "seconds"));
	if (isnan(run->seconds) && log->runtime > 0)
		run->seconds = log->runtime;
	run->rate = run->seconds > 0 ? run->tokens / run->seconds : NAN;
}

/* ---- what is unusual ---- */

__attribute__((format(printf, 2, 3)))
static void note(struct zt_run *run, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	words_add(&run->notes, cli_strdup(text));
}

static void note_file(struct zt_run *run)
{
	const struct run_log *log = &run->log;
	const bool lines = log->kind == LOG_LINES;

	if (!log->entries)
		note(run, log->torn ? "no complete entry yet" :
		     lines ? "the log is empty" : "log_history is empty");
	if (log->torn)
		note(run, "the log ends within %s, which is left out (%" PRIu64 " byte%s): the run "
		     "was killed there, or is still writing", lines ? "a line" : "its JSON",
		     log->torn_bytes, zt_plural(log->torn_bytes));
	if (log->bad)
		note(run, "%" PRIu64 " %s%s left out, without \"step\" or damaged; the first is "
		     "number %" PRIu64, log->bad, lines ? "line" : "object",
		     log->bad == 1 ? " is" : "s are", log->first_bad);
	if (log->replaced)
		note(run, "steps were logged again after a restart: %" PRIu64 " earlier value%s "
		     "replaced by later ones", log->replaced, log->replaced == 1 ? " is" : "s are");
	if (log->max_steps > log->last && log->entries)
		note(run, "the log ends at step %" PRId64 " of %" PRId64, log->last,
		     log->max_steps);
}

static void note_numbers(struct zt_run *run)
{
	if (run->lost && run->lost == run->loss_n)
		note(run, "the loss is not a finite number at any step");
	else if (run->lost)
		note(run, "the loss is not a finite number at %" PRIu64 " of %" PRIu64
		     " steps, the first is step %" PRId64, run->lost, run->loss_n, run->lost_at);
	if (run->skipped)
		note(run, "%" PRIu64 " step%s skipped because of an overflow", run->skipped,
		     run->skipped == 1 ? " was" : "s were");
	if (run->log.entries && !run->loss_n)
		note(run, "no entry has \"loss\"");
}

int zt_runs_read(struct zt_runs *runs, const struct words *paths, const char *program)
{
	char why[LOG_WHY];

	runs->run = cli_alloc(paths->n * sizeof(*runs->run));
	for (size_t i = 0; i < paths->n; i++) {
		if (log_read(paths->list[i], &runs->run[i].log, why)) {
			zt_say_error(program, "%s", why);
			return -1;
		}
		runs->n++;
		sum_run(&runs->run[i]);
		note_file(&runs->run[i]);
		note_numbers(&runs->run[i]);
	}
	name_runs(runs);
	return 0;
}

void zt_runs_release(struct zt_runs *runs)
{
	for (size_t i = 0; i < runs->n; i++)
		log_release(&runs->run[i].log);
	cli_free(runs->run);
	*runs = (struct zt_runs){ 0 };
}
