/*
 * zt_log.c -- ztrain log --tensorboard: logs as TensorBoard's event files; see zt_log.h and
 * docs/formats/tensorboard-events.md.
 */
#include "engine/main/zt_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/log/en_events.h"
#include "engine/main/zt_opt.h"
#include "engine/main/zt_report.h"
#include "engine/main/zt_say.h"
#include "tools/shared/cli_text.h"

#define NAME "ztrain log"
#define FILE_NAME "events.out.tfevents.0.ztrain"
#define HALF_NAME "ztrain.partial"	/* TensorBoard reads names with "tfevents" */
#define PIECE ((size_t)1 << 20)
#define MOST ((size_t)256 << 20)	/* of PIECE and one record */

static struct {
	const char *tensorboard;
	int help, color;
} args;

static const struct opt options[] = {
	ZT_TEXT("tensorboard", "DIR", args.tensorboard,
		"write an event file for each log: DIR/RUN/" FILE_NAME),
	{ "color", 0, OPT_CHOICE, &args.color, TERM_COLORS,
	  "colour errors, warnings and headings (default: on a terminal)", 0 },
	{ "help", 'h', OPT_FLAG, &args.help, NULL, "", OPT_HIDDEN | OPT_LAST },
	{ 0 },
};

const struct opt *const *zt_log_tables(void)
{
	static const struct opt *const tables[] = { options, NULL };

	return tables;
}

static void print_help(void)
{
	static const struct opt_style style = { .list = OPT_LIST_ALL, .column = 26, .gap = 1,
						.width = 79 };

	puts("usage: ztrain log --tensorboard DIR LOG...\n"
	     "\n"
	     "Writes logs of runs as event files for TensorBoard. LOG is the file of\n"
	     "ztrain --log, a trainer_state.json, or a folder with either. The same call\n"
	     "replaces the files that it wrote before.\n"
	     "\n"
	     "examples:\n"
	     "  ztrain log --tensorboard tb run/log.jsonl\n"
	     "  ztrain log --tensorboard tb run1/log.jsonl run2/log.jsonl\n"
	     "\n"
	     "options:");
	opt_help(options, &style, stdout);
	puts("\nExit status: 0 done, 1 failed, 2 usage error.");
}

/* -1 when help was printed. */
static int parse(int argc, char **argv, struct words *logs)
{
	const struct opt_call call = {
		.tables = zt_log_tables(), .rest = logs, .wrong = zt_wrong_call, .arg = NAME,
	};
	const int rc = opt_parse(&call, argc - 1, argv + 1);

	if (rc)
		return rc;
	if (args.help) {
		print_help();
		return -1;
	}
	if (!args.tensorboard)
		return zt_wrong_call(NAME, "--tensorboard DIR is required; `ztrain report LOG` "
				     "shows a log");
	return logs->n ? 0 : zt_wrong_call(NAME, "no log is given: name the file of ztrain --log, "
					   "or a trainer_state.json");
}

/* ---- tags ---- */

/* The last part of "rank_memory_bytes/3". */
static const char *rank_of(const char *name, const char *key)
{
	const size_t n = strlen(key);

	return !strncmp(name, key, n) && name[n] == '/' ? name + n + 1 : NULL;
}

/* Protocol buffers want UTF-8: what is none becomes U+FFFD. */
static const char *as_utf8(const char *text)
{
	char *out = cli_alloc(3 * strlen(text) + 1), *to = out;
	size_t n;

	for (const char *s = text; *s; s += n ? n : 1) {
		n = text_sequence(s);
		memcpy(to, n ? s : "\xef\xbf\xbd", n ? n : 3);
		to += n ? n : 3;
	}
	return out;
}

/* NULL: none. */
static const char *tag_of(const char *name)
{
	static const char *const known[][2] = {
		{ "time", NULL }, { "resumed", NULL }, { "seconds", "perf/seconds_per_step" },
		{ "tokens_per_second", "perf/tokens_per_second" },
		{ "samples_per_hour", "perf/samples_per_hour" },
		{ "seconds_left", "perf/seconds_left" }, { "memory_bytes", "memory/counted" },
	};
	const char *rank = rank_of(name, "rank_memory_bytes");
	const char *device = rank_of(name, "rank_device_bytes");

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i][0]))
			return known[i][1];
	if (rank)
		return cli_format("memory/rank%s", rank);
	if (device)
		return cli_format("memory/device%s", device);
	if (!strncmp(name, "eval_", 5) && name[5])
		return cli_format("eval/%s", as_utf8(name + 5));
	return cli_format("%s%s", strchr(name, '/') ? "" : "train/", as_utf8(name));
}

/* ---- values, step by step ---- */

struct cursor {
	const struct log_series *s;
	const char *tag;
	size_t at;
};

struct cursors {
	struct cursor *cursor;
	size_t n;
	const struct log_series *time, *seconds;
	size_t time_at, seconds_at;
	double left;		/* seconds of the steps that follow */
	double changed;		/* when the file was */
};

static bool has_tag(const struct cursors *c, const char *tag)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->cursor[i].tag, tag))
			return true;
	return false;
}

static void begin_cursors(struct cursors *c, const struct run_log *log)
{
	struct stat st;

	*c = (struct cursors){
		.cursor = cli_alloc((log->nseries + 1) * sizeof(*c->cursor)),
		.time = log_find(log, "time"), .seconds = log_find(log, "seconds"),
	};
	for (size_t i = 0; i < log->nseries; i++) {
		const char *tag = tag_of(log->series[i].name);

		if (tag && !has_tag(c, tag))
			c->cursor[c->n++] = (struct cursor){ &log->series[i], tag, 0 };
	}
	c->left = c->seconds ? log_sum(c->seconds) : 0;
	c->changed = stat(log->path, &st) ? 0 : (double)st.st_mtim.tv_sec;
}

/* The least step that is still to come; -1 = none. */
static int64_t next_step(const struct cursors *c)
{
	int64_t step = -1;

	for (size_t i = 0; i < c->n; i++) {
		const struct cursor *k = &c->cursor[i];

		if (k->at < k->s->n && (step < 0 || k->s->step[k->at] < step))
			step = k->s->step[k->at];
	}
	return step;
}

/* The value of that step, in a series whose steps are asked for in order. */
static double value_of(const struct log_series *s, size_t *at, int64_t step)
{
	while (s && *at < s->n && s->step[*at] < step)
		++*at;
	return s && *at < s->n && s->step[*at] == step ? s->value[*at] : NAN;
}

static double time_of(struct cursors *c, int64_t step)
{
	const double time = value_of(c->time, &c->time_at, step);
	const double seconds = value_of(c->seconds, &c->seconds_at, step);

	if (isfinite(seconds))
		c->left -= seconds;
	return isfinite(time) ? time : c->changed - fmax(c->left, 0);
}

/* ---- files ---- */

struct output {
	FILE *f;
	char *dir, *half, *path;
	uint64_t points, steps;
};

static int make_dirs(const char *dir)
{
	char *path = cli_strdup(dir);

	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (mkdir(path, 0777) && errno != EEXIST)
			return -1;
		*slash = '/';
	}
	return mkdir(path, 0777) && errno != EEXIST ? -1 : 0;
}

static int fail(const char *path, const char *what)
{
	zt_say_error(NAME ": ", "%s: %s", path, what);
	return -1;
}

/* DIR/RUN: the parts of the name are folders, and none of them leads out of DIR. */
static char *dir_of(const char *name)
{
	char *dir = cli_format("%s/%s", args.tensorboard, name), *part = dir;

	part += strlen(args.tensorboard) + 1;
	for (char *end = part; part; part = *end ? end + 1 : NULL) {
		end = part + strcspn(part, "/");
		for (char *p = part; end - part <= 2 && p < end; p++)
			if (*p == '.' && strspn(part, ".") == (size_t)(end - part))
				*p = '_';
	}
	return dir;
}

static int open_output(struct output *o, const char *name)
{
	o->dir = dir_of(name);
	o->half = cli_format("%s/" HALF_NAME, o->dir);
	o->path = cli_format("%s/" FILE_NAME, o->dir);
	if (make_dirs(o->dir))
		return fail(o->dir, strerror(errno));
	o->f = fopen(o->half, "wb");
	return o->f ? 0 : fail(o->half, strerror(errno));
}

static int write_out(struct output *o, struct ck_buf *buf)
{
	const bool good = fwrite(buf->p, 1, buf->len, o->f) == buf->len;

	buf->len = 0;
	return good ? 0 : fail(o->half, strerror(errno));
}

static int add_step(struct cursors *c, struct en_events_value *value, int64_t step,
		    struct output *o, struct ck_buf *buf)
{
	struct ckpt_err err = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		struct cursor *k = &c->cursor[i];

		if (k->at < k->s->n && k->s->step[k->at] == step)
			value[n++] = (struct en_events_value){ k->tag, k->s->value[k->at++] };
	}
	o->points += n;
	o->steps++;
	if (en_events_add(buf, time_of(c, step), step, value, n, &err))
		return fail(o->path, err.msg);
	return buf->len >= PIECE ? write_out(o, buf) : 0;
}

static int write_events(struct output *o, const struct run_log *log)
{
	struct ck_buf buf = CK_BUF_INIT(MOST);
	struct en_events_value *value;
	struct ckpt_err err = { 0 };
	struct cursors c;
	int rc = 0;

	begin_cursors(&c, log);
	value = cli_alloc((c.n + 1) * sizeof(*value));
	if (en_events_begin(&buf, c.time && c.time->n ? c.time->value[0] : c.changed - c.left,
			    &err))
		rc = fail(o->path, err.msg);
	for (int64_t step; !rc && (step = next_step(&c)) >= 0;)
		rc = add_step(&c, value, step, o, &buf);
	if (!rc)
		rc = write_out(o, &buf);
	ck_buf_release(&buf);
	cli_free(value);
	cli_free(c.cursor);
	return rc;
}

static int write_run(const struct zt_run *run)
{
	struct output o = { 0 };
	int rc = open_output(&o, run->name);

	if (!rc)
		rc = write_events(&o, &run->log);
	if (o.f && fclose(o.f) && !rc)
		rc = fail(o.half, strerror(errno));
	if (!rc && rename(o.half, o.path))
		rc = fail(o.path, strerror(errno));
	if (rc && o.f)
		unlink(o.half);
	if (!rc)
		printf("%s: %" PRIu64 " step%s, %" PRIu64 " value%s\n", out_name(o.path), o.steps,
		       zt_plural(o.steps), o.points, zt_plural(o.points));
	return rc;
}

int zt_log(int argc, char **argv)
{
	struct words logs = { 0 };
	struct zt_runs runs = { 0 };
	int rc = parse(argc, argv, &logs);

	if (rc)
		return rc < 0 ? 0 : rc;
	rc = zt_runs_read(&runs, &logs, NAME ": ");
	for (size_t i = 0; !rc && i < runs.n; i++) {
		for (size_t k = 0; k < runs.run[i].notes.n; k++)
			zt_say(NAME ": ", "%s: %s", runs.run[i].name, runs.run[i].notes.list[k]);
		rc = write_run(&runs.run[i]);
	}
	zt_runs_release(&runs);
	return rc ? 1 : 0;
}
