/*
 * zt_report_text.c -- logs of runs as a table, and a sparkline for each series; see zt_report.h.
 *
 * A column of a sparkline is the mean of the values of its steps; a cross marks a column that has
 * a value that is no finite number.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/main/zt_report.h"
#include "engine/main/zt_say.h"
#include "tools/shared/cli_term.h"
#include "tools/shared/cli_text.h"

#define COLUMNS 32	/* of a sparkline */
#define TEXT 64

static char *slot(void)
{
	static char slots[8][TEXT];
	static unsigned next;

	return slots[next++ % 8];
}

const char *zt_number(double v)
{
	char *out = slot();

	if (isnan(v))
		return "-";
	if (v != 0 && isfinite(v) && (fabs(v) < 1e-3 || fabs(v) >= 1e7))
		snprintf(out, TEXT, "%.3e", v);
	else
		snprintf(out, TEXT, fabs(v) < 10 ? "%.4f" : "%.2f", v);
	return out;
}

const char *zt_count(double v)
{
	static const char *const unit[] = { "", "k", "M", "G", "T", "P" };
	char *out = slot();
	int u = 0;

	if (isnan(v))
		return "-";
	for (; v >= 999.5 && u < 5; u++)
		v /= 1000;
	snprintf(out, TEXT, "%.*f%s", !u || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v, unit[u]);
	return out;
}

const char *zt_duration(double s)
{
	char *out = slot();
	const int64_t n = isfinite(s) ? (int64_t)(s + 0.5) : 0;

	if (!isfinite(s))
		return "-";
	if (s < 99.95)
		snprintf(out, TEXT, "%.1f s", s);
	else if (n < 86400)
		snprintf(out, TEXT, "%" PRId64 ":%02" PRId64 ":%02" PRId64, n / 3600, n / 60 % 60,
			 n % 60);
	else
		snprintf(out, TEXT, "%" PRId64 "d %02" PRId64 ":%02" PRId64, n / 86400,
			 n / 3600 % 24, n / 60 % 60);
	return out;
}

/* ---- the table ---- */

#define CELLS 7

struct row {
	char cell[CELLS][TEXT];
	const char *name;
};

static void fill(struct row *row, const struct zt_run *r)
{
	const struct run_log *log = &r->log;

	row->name = out_name(r->name);
	snprintf(row->cell[0], TEXT, !log->entries ? "-" : log->first == log->last ? "%" PRId64 :
		 "%" PRId64 "-%" PRId64, log->first, log->last);
	snprintf(row->cell[1], TEXT, "%s",
		 r->loss_n && isnan(r->loss) ? "NaN" : zt_number(r->loss));
	snprintf(row->cell[2], TEXT, isnan(r->best_eval) ? "%s" : "%s at %" PRId64,
		 zt_number(r->best_eval), r->best_at);
	snprintf(row->cell[3], TEXT, "%s", zt_count(r->tokens));
	snprintf(row->cell[4], TEXT, "%s", zt_count(r->rate));
	snprintf(row->cell[5], TEXT, "%s", zt_duration(r->seconds));
	snprintf(row->cell[6], TEXT, "%" PRIu64, log->restarts);
}

static void put_row(FILE *out, const struct row *row, const size_t *width)
{
	for (int c = 0; c < CELLS; c++)
		fprintf(out, "%*s  ", (int)width[c], row->cell[c]);
	fprintf(out, "%s\n", row->name);
}

static void put_table(const struct zt_runs *runs, FILE *out)
{
	static const struct row head = {
		{ "STEPS", "LOSS", "BEST EVAL", "TOKENS", "TOKENS/S", "TIME", "RESTARTS" }, "RUN",
	};
	struct row *row = cli_alloc((runs->n + 1) * sizeof(*row));
	size_t width[CELLS] = { 0 };

	row[0] = head;
	for (size_t i = 0; i < runs->n; i++)
		fill(&row[i + 1], &runs->run[i]);
	for (size_t i = 0; i <= runs->n; i++)
		for (int c = 0; c < CELLS; c++)
			if (strlen(row[i].cell[c]) > width[c])
				width[c] = strlen(row[i].cell[c]);
	fputs(term_on(out, TERM_HEADING), out);
	put_row(out, &row[0], width);
	fputs(term_off(out, TERM_HEADING), out);
	for (size_t i = 1; i <= runs->n; i++)
		put_row(out, &row[i], width);
	cli_free(row);
}

/* ---- sparklines ---- */

struct columns {
	double mean[COLUMNS];
	uint64_t n[COLUMNS];
	bool lost[COLUMNS];
	size_t count;
};

static void sum_columns(const struct log_series *s, struct columns *c)
{
	const double first = (double)s->step[0], last = (double)s->step[s->n - 1];

	c->count = s->n < COLUMNS ? s->n : COLUMNS;
	for (size_t i = 0; i < s->n; i++) {
		/* few points have a column each, many one by their step */
		size_t at = s->n <= COLUMNS ? i :
			    (size_t)(((double)s->step[i] - first) / (last - first) * COLUMNS);

		at = at < c->count ? at : c->count - 1;
		if (!isfinite(s->value[i])) {
			c->lost[at] = true;
			continue;
		}
		c->n[at]++;
		c->mean[at] += (s->value[i] - c->mean[at]) / (double)c->n[at];
	}
}

static void put_spark(FILE *out, const struct log_series *s)
{
	static const char *const bar[] = { "\u2581", "\u2582", "\u2583", "\u2584",
					   "\u2585", "\u2586", "\u2587", "\u2588" };
	struct columns c = { 0 };
	double least = INFINITY, most = -INFINITY;

	sum_columns(s, &c);
	for (size_t i = 0; i < c.count; i++) {
		least = c.n[i] ? fmin(least, c.mean[i]) : least;
		most = c.n[i] ? fmax(most, c.mean[i]) : most;
	}
	for (size_t i = 0; i < COLUMNS; i++) {
		const double part = most > least ? (c.mean[i] - least) / (most - least) : 0;

		fputs(i >= c.count ? " " : c.lost[i] ? "\u00d7" : !c.n[i] ? " " :
		      bar[part >= 1 ? 7 : part > 0 ? (int)(part * 8) : 0], out);
	}
}

static const char *size_text(double v)
{
	char *out = slot();

	if (isnan(v))
		return "-";
	snprintf(out, TEXT, v < 1073741824 ? "%.1f MiB" : "%.2f GiB",
		 v / (v < 1073741824 ? 1048576 : 1073741824));
	return out;
}

static const char *plain_text(double v)
{
	return isnan(v) ? "NaN" : zt_number(v);
}

static void put_series(FILE *out, const struct run_log *log, const char *key, const char *name,
		       const char *(*text)(double))
{
	const struct log_series *s = log_find(log, key);
	const int64_t least = s ? log_least(s) : -1;
	int64_t most = least;

	if (!s || !s->n)
		return;
	for (size_t i = 0; i < s->n; i++)
		if (isfinite(s->value[i]) && s->value[i] > s->value[most])
			most = (int64_t)i;
	fprintf(out, "  %-12s", name);
	put_spark(out, s);
	if (s->n == 1)
		fprintf(out, "  %s\n", text(s->value[0]));
	else
		fprintf(out, "  %s to %s", text(s->value[0]), text(s->value[s->n - 1]));
	if (s->n > 1 && least >= 0 && s->value[least] < s->value[most])
		fprintf(out, ", least %s at %" PRId64 ", most %s at %" PRId64,
			text(s->value[least]), s->step[least], text(s->value[most]), s->step[most]);
	if (s->n > 1)
		fputc('\n', out);
}

/* The last value of each rank that the run still has, in one line. */
static void put_ranks(FILE *out, const struct run_log *log, const char *key, const char *name)
{
	double least = INFINITY, most = 0;
	int64_t step = -1;	/* of the last line with ranks */
	size_t n = 0;

	for (size_t i = 0; i < log->nseries; i++) {
		const struct log_series *s = &log->series[i];
		const size_t cut = strlen(key);

		if (strncmp(s->name, key, cut) || s->name[cut] != '/' || !s->n)
			continue;
		step = step < 0 ? s->step[s->n - 1] : step;
		if (s->step[s->n - 1] < step)
			continue;
		n++;
		least = fmin(least, s->value[s->n - 1]);
		most = fmax(most, s->value[s->n - 1]);
	}
	if (n > 1)
		fprintf(out, "  %-12s%s to %s on %zu ranks\n", name, size_text(least),
			size_text(most), n);
	else if (n)
		fprintf(out, "  %-12s%s\n", name, size_text(most));
}

static void put_run(const struct zt_run *r, FILE *out)
{
	const struct run_log *log = &r->log;

	fputc('\n', out);
	term_put(out, TERM_HEADING, out_name(r->name));
	fputc('\n', out);
	put_series(out, log, "loss", "loss", plain_text);
	put_series(out, log, "eval_loss", "eval loss", plain_text);
	put_series(out, log, "grad_norm", "grad norm", plain_text);
	put_series(out, log, "lr", "lr", plain_text);
	put_series(out, log, "loss_scale", "loss scale", zt_count);
	put_series(out, log, "tokens_per_second", "tokens/s", zt_count);
	put_series(out, log, "memory_bytes", "memory", size_text);
	put_ranks(out, log, "rank_memory_bytes", "rank memory");
	put_ranks(out, log, "rank_device_bytes", "GPU memory");
	for (size_t i = 0; i < r->notes.n; i++)
		fprintf(out, "  note: %s\n", r->notes.list[i]);
}

void zt_report_text(const struct zt_runs *runs, FILE *out)
{
	put_table(runs, out);
	for (size_t i = 0; i < runs->n; i++)
		put_run(&runs->run[i], out);
}
