/*
 * zt_report_page.c -- logs of runs as a page of HTML; see zt_report.h.
 *
 * The page has a table, the notes, and JSON of what zchart() draws.  Which series is in which
 * chart is decided here.  A color is of a run, or of a series where there is one run.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt.h>

#include "engine/main/zt_page.h"
#include "engine/main/zt_report.h"
#include "engine/main/zt_say.h"
#include "tools/shared/cli_page.h"
#include "tools/shared/cli_text.h"

#define COLORS 10
#define MOST_OTHER 60	/* charts of other keys */
#define MOST_RANKS 16	/* lines of ranks; more become their least, mean and most */
#define MOST_POINTS 20000	/* of a series; put_notes() names it */

struct drawing {
	const struct zt_runs *runs;
	FILE *out;		/* JSON */
	unsigned charts, series;	/* written; series of the chart in work */
	bool thinned;
};

/* ---- series ---- */

static void put_value(FILE *out, double v)
{
	if (isfinite(v))
		fprintf(out, "%.7g", v);
	else
		fprintf(out, "\"%s\"", isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
}

/*
 * Which points of many are written: in each of MOST_POINTS / 4 parts the first, the least, the
 * largest, and one that is no finite number.  Marks them in 'keep'.
 */
static void choose_points(const struct log_series *s, bool *keep)
{
	const size_t parts = MOST_POINTS / 4;

	for (size_t p = 0; p < parts; p++) {
		const size_t from = s->n * p / parts, to = s->n * (p + 1) / parts;
		size_t least = from, most = from, lost = to;

		for (size_t i = from; i < to; i++) {
			const double v = s->value[i];

			if (!isfinite(v))
				lost = i;
			else if (!isfinite(s->value[least]) || v < s->value[least])
				least = i;
			if (isfinite(v) && (!isfinite(s->value[most]) || v > s->value[most]))
				most = i;
		}
		keep[from] = keep[least] = keep[most] = true;
		if (lost < to)
			keep[lost] = true;
	}
	keep[s->n - 1] = true;
}

static void put_list(FILE *out, const struct log_series *s, const bool *keep, bool steps)
{
	const char *comma = "";

	fputc('[', out);
	for (size_t i = 0; i < s->n; i++) {
		if (keep && !keep[i])
			continue;
		fputs(comma, out);
		comma = ",";
		if (steps)
			fprintf(out, "%" PRId64, s->step[i]);
		else
			put_value(out, s->value[i]);
	}
	fputc(']', out);
}

/* 'color', 'dash' and 'until' as zchart() has them. */
static void put_series(struct drawing *d, const struct log_series *s, const char *name,
		       unsigned color, unsigned dash, int64_t until)
{
	bool *keep = NULL;

	if (s->n > MOST_POINTS) {
		keep = cli_alloc(s->n * sizeof(*keep));
		choose_points(s, keep);
		d->thinned = true;
	}
	fprintf(d->out, "%s{\"name\":", d->series++ ? "," : "");
	json_quote(d->out, name);
	fprintf(d->out, ",\"color\":%u,\"dash\":%u,\"until\":%" PRId64 ",\"x\":", color % COLORS,
		dash, until);
	put_list(d->out, s, keep, true);
	fputs(",\"y\":", d->out);
	put_list(d->out, s, keep, false);
	fputs("}\n", d->out);
	cli_free(keep);
}

/* ---- charts ---- */

struct chart {
	const char *title, *unit, *options;	/* more members, as JSON: ",\"log\":true" */
	const char *key[4];	/* that it shows; ends with NULL */
	const char *name[4];	/* of lines, after the run's */
};

static const struct chart charts[] = {
	{ "Loss", "", ",\"wide\":true,\"smooth\":true", { "loss", "eval_loss" },
	  { "", "evaluation" } },
	{ "Gradient norm", "", ",\"smooth\":true", { "grad_norm" }, { "" } },
	{ "Learning rate", "", "", { "lr" }, { "" } },
	{ "Loss scale", "", ",\"step\":true,\"log\":true", { "loss_scale" }, { "" } },
	{ "Skipped steps", "", ",\"zero\":true,\"note\":\"1: the step overflowed and was skipped\"",
	  { "skipped" }, { "" } },
	{ "Tokens per second", "", ",\"zero\":true,\"smooth\":true", { "tokens_per_second" },
	  { "" } },
	{ "Seconds of a step", "s", ",\"zero\":true,\"smooth\":true", { "seconds" }, { "" } },
};

/* Of no chart: the step itself, what only grows, and what a table says. */
static const char *const silent[] = {
	"step", "samples", "tokens", "epoch", "time", "resumed", "memory_bytes", "total_steps",
	"percentage", "num_input_tokens_seen", "total_flos",
};

/* "run", "run: evaluation", or of one run "evaluation". */
static const char *line_name(const struct drawing *d, const struct zt_run *run, const char *of,
			     const char *title)
{
	if (d->runs->n == 1)
		return *of ? of : title;
	return *of ? cli_format("%s: %s", run->name, of) : run->name;
}

static void begin_chart(struct drawing *d, const char *title, const char *unit,
			const char *options)
{
	fprintf(d->out, "%s{\"title\":", d->charts++ ? "," : "");
	json_quote(d->out, title);
	fprintf(d->out, ",\"unit\":\"%s\"%s,\"series\":[\n", unit, options);
	d->series = 0;
}

static void end_chart(struct drawing *d)
{
	fputs("]}\n", d->out);
}

/* A chart that would show nothing, or zeros alone, says nothing. */
static bool says_something(const struct drawing *d, const struct chart *c)
{
	const bool zeros = !strcmp(c->key[0], "skipped");

	for (size_t i = 0; i < d->runs->n; i++)
		for (const char *const *key = c->key; *key; key++) {
			const struct log_series *s = log_find(&d->runs->run[i].log, *key);

			if (s && s->n && (!zeros || log_sum(s) > 0))
				return true;
		}
	return false;
}

static void draw_chart(struct drawing *d, const struct chart *c)
{
	if (!says_something(d, c))
		return;
	begin_chart(d, c->title, c->unit, c->options);
	for (size_t i = 0; i < d->runs->n; i++)
		for (unsigned k = 0; c->key[k]; k++) {
			const struct zt_run *run = &d->runs->run[i];
			const struct log_series *s = log_find(&run->log, c->key[k]);

			if (s && s->n)
				put_series(d, s, line_name(d, run, c->name[k], c->title),
					   (unsigned)(d->runs->n == 1 ? k : i),
					   d->runs->n == 1 ? 0 : k, run->log.last);
		}
	end_chart(d);
}

/* ---- memory ---- */

static bool is_of(const char *name, const char *key)
{
	const size_t n = strlen(key);

	return !strncmp(name, key, n) && name[n] == '/';
}

static size_t ranks_of(const struct run_log *log, const char *key)
{
	size_t n = 0;

	for (size_t i = 0; i < log->nseries; i++)
		n += is_of(log->series[i].name, key) && log->series[i].n;
	return n;
}

/* The value that holds at 'step': that of the last entry until then; NAN = none yet. */
static double value_at(const struct log_series *s, int64_t step, size_t *at)
{
	while (*at < s->n && s->step[*at] <= step)
		++*at;
	return *at ? s->value[*at - 1] : NAN;
}

/* Over the ranks: 0 the least, 1 the mean, 2 the most. */
static double over_ranks(const struct log_series *const *rank, size_t *at, size_t n, int64_t step,
			 int which)
{
	double least = INFINITY, most = -INFINITY, sum = 0;

	for (size_t i = 0; i < n; i++) {
		const double v = value_at(rank[i], step, &at[i]);

		least = fmin(least, v);
		most = fmax(most, v);
		sum += isnan(v) ? 0 : v;
	}
	return which == 0 ? least : which == 1 ? sum / (double)n : most;
}

static void draw_many_ranks(struct drawing *d, const struct zt_run *run,
			    const struct log_series *const *rank, size_t n, unsigned color)
{
	static const char *const names[] = { "least of %zu ranks", "mean of %zu ranks",
					     "most of %zu ranks" };
	const struct log_series *like = rank[0];
	struct log_series s = { .n = like->n, .step = like->step };
	size_t *at = cli_alloc(n * sizeof(*at));

	s.value = cli_alloc(s.n * sizeof(*s.value));
	for (int which = 0; which < 3; which++) {
		char name[64];

		memset(at, 0, n * sizeof(*at));
		for (size_t i = 0; i < s.n; i++)
			s.value[i] = over_ranks(rank, at, n, s.step[i], which);
		snprintf(name, sizeof(name), which == 0 ? "least of %zu ranks" : which == 1 ?
			 "mean of %zu ranks" : "most of %zu ranks", n);
		put_series(d, &s, line_name(d, run, name, names[which]),
			   d->runs->n == 1 ? (unsigned)which : color, (unsigned)which,
			   run->log.last);
	}
	cli_free(s.value);
	cli_free(at);
}

/* A line has all ranks: where rank 0 has a later value, this rank is one no more. */
static int64_t end_of_rank(const struct log_series *first, const struct log_series *s,
			   int64_t last)
{
	for (size_t i = 0; i < first->n; i++)
		if (first->step[i] > s->step[s->n - 1])
			return first->step[i];
	return last;
}

static void draw_ranks_of(struct drawing *d, const struct zt_run *run, const char *key,
			  unsigned color)
{
	const size_t n = ranks_of(&run->log, key);
	const struct log_series **rank = cli_alloc((n + 1) * sizeof(const struct log_series *));
	size_t k = 0;

	for (size_t i = 0; i < run->log.nseries; i++)
		if (is_of(run->log.series[i].name, key) && run->log.series[i].n)
			rank[k++] = &run->log.series[i];
	if (n > MOST_RANKS) {
		draw_many_ranks(d, run, rank, n, color);
	} else {
		for (k = 0; k < n; k++) {
			const char *of = cli_format("rank %s", strrchr(rank[k]->name, '/') + 1);

			put_series(d, rank[k], line_name(d, run, of, of),
				   d->runs->n == 1 ? (unsigned)k : color,
				   d->runs->n == 1 ? (unsigned)k / COLORS : (unsigned)k % 4,
				   end_of_rank(rank[0], rank[k], run->log.last));
		}
	}
	cli_free(rank);
}

/* A line where the values of ranks hold until they change. */
static void draw_ranks(struct drawing *d, const char *key, const char *title, const char *note)
{
	bool any = false;
	char *options;

	for (size_t i = 0; i < d->runs->n; i++)
		any |= ranks_of(&d->runs->run[i].log, key) > 0;
	if (!any)
		return;
	options = cli_format(",\"zero\":true,\"step\":true,\"note\":\"%s\"", note);
	begin_chart(d, title, "bytes", options);
	for (size_t i = 0; i < d->runs->n; i++)
		draw_ranks_of(d, &d->runs->run[i], key, (unsigned)i);
	end_chart(d);
}

static void draw_memory(struct drawing *d)
{
	static const struct chart counted = {
		"Memory that rank 0 counts", "bytes", ",\"zero\":true,\"step\":true,\"note\":\""
		"peak of parameters, gradients, optimizer states, activations and buffers\"",
		{ "memory_bytes" }, { "" },
	};

	draw_ranks(d, "rank_memory_bytes", "Memory of each rank", "peak of its process");
	draw_ranks(d, "rank_device_bytes", "Device memory of each rank",
		   "peak on its GPU, as the engine counts it");
	draw_chart(d, &counted);
}

/* ---- other keys ---- */

static bool is_drawn(const char *name)
{
	for (size_t c = 0; c < sizeof(charts) / sizeof(charts[0]); c++)
		for (const char *const *key = charts[c].key; *key; key++)
			if (!strcmp(name, *key))
				return true;
	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
		if (!strcmp(name, silent[i]))
			return true;
	return is_of(name, "rank_memory_bytes") || is_of(name, "rank_device_bytes");
}

/* Each key once, at the first run that has it. */
static bool is_first(const struct zt_runs *runs, size_t run, const char *name)
{
	for (size_t i = 0; i < run; i++)
		if (log_find(&runs->run[i].log, name))
			return false;
	return true;
}

static void draw_others(struct drawing *d)
{
	unsigned n = 0;

	for (size_t i = 0; i < d->runs->n; i++) {
		const struct run_log *log = &d->runs->run[i].log;

		for (size_t k = 0; k < log->nseries && n < MOST_OTHER; k++) {
			const char *name = log->series[k].name;
			const struct chart chart = {
				name, "", ",\"other\":true", { name }, { "" },
			};

			if (is_drawn(name) || !is_first(d->runs, i, name))
				continue;
			n++;
			draw_chart(d, &chart);
		}
	}
}

static void draw_all(struct drawing *d)
{
	fputs("{\"charts\":[", d->out);
	for (size_t i = 0; i < sizeof(charts) / sizeof(charts[0]); i++)
		draw_chart(d, &charts[i]);
	draw_memory(d);
	draw_others(d);
	fputs("]}", d->out);
}

/* ---- the page ---- */

static void put_cell(FILE *out, const char *text)
{
	fputs("<td class=\"num\">", out);
	page_text(out, text);
	fputs("</td>", out);
}

static void put_run(FILE *out, const struct zt_run *r, size_t i)
{
	const struct run_log *log = &r->log;
	char text[96];

	fprintf(out, "<tr><td class=\"name\"><span class=\"key s%zu\"></span>", i % COLORS);
	page_text(out, r->name);
	fputs("<br><span class=\"mono muted\">", out);
	page_text(out, log->path);
	fputs("</span></td>", out);
	snprintf(text, sizeof(text), log->entries ? "%" PRId64 " to %" PRId64 : "-", log->first,
		 log->last);
	put_cell(out, text);
	put_cell(out, r->loss_n && isnan(r->loss) ? "NaN" : zt_number(r->loss));
	snprintf(text, sizeof(text), isnan(r->best_eval) ? "%s" : "%s at %" PRId64,
		 zt_number(r->best_eval), r->best_at);
	put_cell(out, text);
	put_cell(out, zt_count(r->tokens));
	put_cell(out, zt_count(r->rate));
	put_cell(out, zt_duration(r->seconds));
	snprintf(text, sizeof(text), "%" PRIu64, log->restarts);
	put_cell(out, text);
	fputs("</tr>\n", out);
}

static void put_table(FILE *out, const struct zt_runs *runs)
{
	fputs("<div class=\"scroll\"><table><thead><tr><th>run</th><th class=\"num\">steps</th>"
	      "<th class=\"num\">final loss</th><th class=\"num\">best evaluation</th>"
	      "<th class=\"num\">tokens</th><th class=\"num\">tokens/s</th>"
	      "<th class=\"num\">time of steps</th><th class=\"num\">restarts</th></tr></thead>"
	      "<tbody>\n", out);
	for (size_t i = 0; i < runs->n; i++)
		put_run(out, &runs->run[i], i);
	fputs("</tbody></table></div>\n", out);
}

static void put_notes(FILE *out, const struct zt_runs *runs, bool thinned)
{
	bool any = thinned;

	for (size_t i = 0; i < runs->n; i++)
		any |= runs->run[i].notes.n > 0;
	if (!any)
		return;
	fputs("<ul class=\"notes\">\n", out);
	for (size_t i = 0; i < runs->n; i++)
		for (size_t k = 0; k < runs->run[i].notes.n; k++) {
			fputs("<li>", out);
			if (runs->n > 1) {
				page_text(out, runs->run[i].name);
				fputs(": ", out);
			}
			page_text(out, runs->run[i].notes.list[k]);
			fputs("</li>\n", out);
		}
	if (thinned)
		fputs("<li>Series of more than 20,000 points are thinned out; the smallest and "
		      "largest values are kept.</li>\n", out);
	fputs("</ul>\n", out);
}

static void put_body(struct page *page, const struct zt_runs *runs, const char *title,
		     const char *json, size_t size, bool thinned)
{
	FILE *out = page->out;

	fputs("<header><h1>", out);
	page_text(out, title);
	fputs("</h1></header>\n<main>\n", out);
	put_table(out, runs);
	put_notes(out, runs, thinned);
	fputs("<noscript><p>The charts need JavaScript; the page loads nothing from elsewhere."
	      "</p></noscript>\n"
	      "<section hidden><h2>Charts</h2><p class=\"muted noprint\">Drag to zoom, double "
	      "click to show all. Click a name to hide its line. With the keyboard: arrow keys "
	      "read values, + and - zoom, 0 shows all, L is the log scale.</p>"
	      "<div class=\"charts\" id=\"main\"></div></section>\n"
	      "<section hidden><h2>Other values</h2><div class=\"charts\" id=\"other\"></div>"
	      "</section>\n</main>\n<footer>A red cross marks a value that is not a finite number. "
	      "Written by ztrain " CKPT_VERSION_STRING ".</footer>\n", out);
	page_island(out, "charts", json, size);
	page_script(out, page_chart_js);
	page_script(out, page_training_js);
}

int zt_report_page(const struct zt_runs *runs, const char *path, const char *title, int force)
{
	struct drawing d = { .runs = runs };
	char why[PAGE_WHY], *json = NULL;
	struct page page;
	size_t size = 0;
	int rc = -1;

	if (page_open(&page, path, title, force, why)) {
		zt_say_error("ztrain report: ", "%s", why);
		return -1;
	}
	d.out = open_memstream(&json, &size);
	if (d.out)
		draw_all(&d);
	if (!d.out || fclose(d.out)) {
		zt_say_error("ztrain report: ", "no memory for the charts");
		page_discard(&page);
	} else {
		put_body(&page, runs, title, json, size, d.thinned);
		rc = page_close(&page, why);
		if (rc)
			zt_say_error("ztrain report: ", "%s", why);
	}
	free(json);
	return rc;
}
