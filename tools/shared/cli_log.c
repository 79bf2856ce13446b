/* cli_log.c -- see cli_log.h: files, entries, and series of their numbers. */
#include "cli_log.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cJSON.h>

#include "cli_mem.h"

#define PIECE ((size_t)1 << 16)
#define MOST_SERIES 20000
#define STEP_MOST 9007199254740992.0	/* 2^53 */

struct reader {
	struct run_log *log;
	size_t next;		/* series of the key that probably follows */
	int64_t before;		/* step of the entry before */
	int has_list;		/* log_history */
};

/* ---- series ---- */

static struct log_series *series_of(struct reader *r, const char *name)
{
	struct run_log *log = r->log;
	struct log_series *more;

	for (size_t i = 0; i < log->nseries; i++) {
		const size_t at = (r->next + i) % log->nseries;

		if (strcmp(log->series[at].name, name) != 0)
			continue;
		r->next = at + 1;
		return &log->series[at];
	}
	if (log->nseries >= MOST_SERIES)
		return NULL;
	if (log->nseries == log->room) {
		log->room = log->room ? log->room * 2 : 16;
		more = cli_alloc(log->room * sizeof(*more));
		if (log->nseries)
			memcpy(more, log->series, log->nseries * sizeof(*more));
		cli_free(log->series);
		log->series = more;
	}
	r->next = log->nseries + 1;
	log->series[log->nseries] = (struct log_series){ .name = cli_strdup(name) };
	return &log->series[log->nseries++];
}

static void series_add(struct log_series *s, int64_t step, double value)
{
	int64_t *steps;
	double *values;

	if (s->n == s->room) {
		s->room = s->room ? s->room * 2 : 64;
		steps = cli_alloc(s->room * sizeof(*steps));
		values = cli_alloc(s->room * sizeof(*values));
		if (s->n) {
			memcpy(steps, s->step, s->n * sizeof(*steps));
			memcpy(values, s->value, s->n * sizeof(*values));
		}
		cli_free(s->step);
		cli_free(s->value);
		s->step = steps;
		s->value = values;
	}
	s->step[s->n] = step;
	s->value[s->n++] = value;
}

struct point {
	int64_t step;
	size_t at;
	double value;
};

static int by_step(const void *a, const void *b)
{
	const struct point *p = a, *q = b;

	if (p->step != q->step)
		return p->step < q->step ? -1 : 1;
	return p->at < q->at ? -1 : p->at > q->at;
}

/* In order of steps, the last value of each.  How many others went. */
static uint64_t series_settle(struct log_series *s)
{
	const size_t had = s->n;
	struct point *p;
	size_t i = 1, n = 0;

	while (i < s->n && s->step[i] > s->step[i - 1])
		i++;
	if (i >= s->n)
		return 0;
	p = cli_alloc(s->n * sizeof(*p));
	for (i = 0; i < s->n; i++)
		p[i] = (struct point){ s->step[i], i, s->value[i] };
	qsort(p, s->n, sizeof(*p), by_step);
	for (i = 0; i < s->n; i++) {
		if (i + 1 < s->n && p[i + 1].step == p[i].step)
			continue;
		s->step[n] = p[i].step;
		s->value[n++] = p[i].value;
	}
	s->n = n;
	cli_free(p);
	return had - n;
}

/* ---- entries ---- */

/* 0 = it is no number. */
static int number_of(const cJSON *item, double *out)
{
	static const struct {
		const char *word;
		double value;
	} words[] = {
		{ "NaN", NAN }, { "nan", NAN }, { "Infinity", INFINITY }, { "inf", INFINITY },
		{ "-Infinity", -INFINITY }, { "-inf", -INFINITY },
	};

	if (cJSON_IsNumber(item) || cJSON_IsBool(item)) {
		*out = cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valuedouble;
		return 1;
	}
	for (size_t i = 0; cJSON_IsString(item) && i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(item->valuestring, words[i].word)) {
			*out = words[i].value;
			return 1;
		}
	return 0;
}

static void take_value(struct reader *r, int64_t step, const char *name, const cJSON *item)
{
	struct log_series *s;
	double value;

	if (!number_of(item, &value))
		return;
	s = series_of(r, name);
	if (s)
		series_add(s, step, value);
}

static void take_item(struct reader *r, int64_t step, const cJSON *item)
{
	const char *name = !strcmp(item->string, "learning_rate") ? "lr" : item->string;
	const cJSON *entry;
	char numbered[256];
	unsigned i = 0;

	if (!cJSON_IsArray(item)) {
		take_value(r, step, name, item);
		return;
	}
	cJSON_ArrayForEach(entry, item) {
		snprintf(numbered, sizeof(numbered), "%.200s/%u", name, i++);
		take_value(r, step, numbered, entry);
	}
}

static const cJSON *step_item(const cJSON *entry)
{
	static const char *const keys[] = { "step", "current_steps", "global_step" };
	const cJSON *item = NULL;

	for (size_t i = 0; !item && i < sizeof(keys) / sizeof(keys[0]); i++)
		item = cJSON_GetObjectItemCaseSensitive(entry, keys[i]);
	return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= STEP_MOST ?
		       item : NULL;
}

/* What the Trainer adds at the end of a call: numbers of the whole call, not of that step. */
static int is_summary(struct run_log *log, const cJSON *entry)
{
	const cJSON *runtime = cJSON_GetObjectItemCaseSensitive(entry, "train_runtime");

	if (log->kind != LOG_TRAINER || !cJSON_IsNumber(runtime))
		return 0;
	log->runtime = runtime->valuedouble;
	return 1;
}

static void take_entry(struct reader *r, const cJSON *entry, const cJSON *at)
{
	struct run_log *log = r->log;
	const int64_t step = (int64_t)at->valuedouble;
	const cJSON *item;

	if (is_summary(log, entry))
		return;
	item = cJSON_GetObjectItemCaseSensitive(entry, "resumed");
	/* The Trainer has an entry for the loss and one for an evaluation at the same step. */
	if (log->entries && (cJSON_IsTrue(item) ||
			     (log->kind == LOG_LINES ? step <= r->before : step < r->before)))
		log->restarts++;
	log->first = !log->entries || step < log->first ? step : log->first;
	log->last = !log->entries || step > log->last ? step : log->last;
	log->entries++;
	r->before = step;
	r->next = 0;
	cJSON_ArrayForEach(item, entry) {
		if (item != at && item->string)
			take_item(r, step, item);
	}
}

static void take_text(void *arg, const char *text, size_t n, uint64_t number)
{
	struct reader *r = arg;
	cJSON *entry = text ? cJSON_ParseWithLength(text, n) : NULL;
	const cJSON *step = cJSON_IsObject(entry) ? step_item(entry) : NULL;

	if (step)
		take_entry(r, entry, step);
	else if ((!text || strspn(text, " \t\r") < n) && !r->log->bad++)
		r->log->first_bad = number;
	cJSON_Delete(entry);
}

static void take_scalar(void *arg, const char *key, const char *value)
{
	struct reader *r = arg;

	r->has_list |= !strcmp(key, "log_history");
	if (!strcmp(key, "max_steps"))
		r->log->max_steps = strtoll(value, NULL, 10);
}

/* ---- files ---- */

/* Pretty-printed, or on one line with its list of entries. */
static enum log_kind kind_of(const char *bytes, size_t n)
{
	static const char key[] = "\"log_history\"";
	const char *end = memchr(bytes, '\n', n);
	const size_t line = end ? (size_t)(end - bytes) : n;
	size_t used = line;

	while (used && (bytes[used - 1] == '\r' || bytes[used - 1] == ' '))
		used--;
	if (used == 1 && bytes[0] == '{')
		return LOG_TRAINER;
	return memmem(bytes, line, key, sizeof(key) - 1) ? LOG_TRAINER : LOG_LINES;
}

static int fail(char *why, const char *path, const char *what)
{
	snprintf(why, LOG_WHY, "%.300s: %s", path, what);
	return -1;
}

/* '*is_log_out': it has entries, or is as a log without any is. */
static int read_stream(struct run_log *log, FILE *f, int *is_log_out, char *why)
{
	struct reader r = { .log = log };
	char begins = 0;
	const struct log_taker taker = { take_text, take_scalar, &r };
	struct log_cut *cut = NULL;
	char *piece = cli_alloc(PIECE);
	uint64_t bad, first_bad;
	size_t n;

	while ((n = fread(piece, 1, PIECE, f)) > 0) {
		if (!cut) {
			begins = piece[0];
			log->kind = kind_of(piece, n);
			cut = log_cut_new(log->kind, &taker);
		}
		log_cut_feed(cut, piece, n);
	}
	cli_free(piece);
	bad = log->bad;
	first_bad = log->first_bad;
	log->torn = cut && log_cut_end(cut, &log->torn_bytes);
	if (ferror(f))
		return fail(why, log->path, "read failed");
	/* A last line that lacks no more than its newline counts. */
	if (log->kind == LOG_LINES && log->bad == bad) {
		log->torn_bytes = 0;
		log->torn = 0;
	}
	log->bad = bad;
	log->first_bad = first_bad;
	/* A run that was killed within its first line has a log with the beginning of one. */
	*is_log_out = log->entries || r.has_list ||
		      (log->kind == LOG_LINES && !log->bad && (!log->torn || begins == '{'));
	return 0;
}

static int read_file(struct run_log *log, char *why)
{
	FILE *f = fopen(log->path, "rb");
	int rc, is_log = 0;

	if (!f)
		return fail(why, log->path, strerror(errno));
	rc = read_stream(log, f, &is_log, why);
	fclose(f);
	if (!rc && !is_log)
		return fail(why, log->path, "no line is a JSON object with \"step\": expected the "
			    "file of ztrain --log, or trainer_state.json");
	for (size_t i = 0; !rc && i < log->nseries; i++) {
		const uint64_t went = series_settle(&log->series[i]);

		/* The Trainer says the epoch of a step again with each evaluation. */
		log->replaced += strcmp(log->series[i].name, "epoch") ? went : 0;
	}
	return rc;
}

/* The number of "checkpoint-N", -1 for another name. */
static long long number_of_name(const char *name)
{
	static const char head[] = "checkpoint-";
	char *end;
	long long n;

	if (strncmp(name, head, sizeof(head) - 1) || strlen(name) < sizeof(head))
		return -1;
	n = strtoll(name + sizeof(head) - 1, &end, 10);
	return *end ? -1 : n;
}

/* "DIR/trainer_state.json" of DIR, or of its checkpoint with the largest number; or NULL. */
static char *state_in(const char *dir)
{
	char *path = cli_format("%s/trainer_state.json", dir);
	DIR *d = NULL;
	struct dirent *e;
	long long most = -1;
	struct stat st;

	if (!stat(path, &st))
		return path;
	cli_free(path);
	path = NULL;
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		char *here;

		if (number_of_name(e->d_name) <= most)
			continue;
		here = cli_format("%s/%s/trainer_state.json", dir, e->d_name);
		if (stat(here, &st)) {
			cli_free(here);
			continue;
		}
		most = number_of_name(e->d_name);
		cli_free(path);
		path = here;
	}
	if (d)
		closedir(d);
	return path;
}

static char *file_of(const char *path, char *why)
{
	struct stat st;
	char *file;

	if (stat(path, &st)) {
		fail(why, path, strerror(errno));
		return NULL;
	}
	if (!S_ISDIR(st.st_mode))
		return cli_strdup(path);
	file = state_in(path);
	if (file)
		return file;
	file = cli_format("%s/log.jsonl", path);
	if (!stat(file, &st))
		return file;
	cli_free(file);
	fail(why, path, "the folder has neither trainer_state.json nor log.jsonl: give the file "
	     "of ztrain --log");
	return NULL;
}

int log_read(const char *path, struct run_log *out, char *why)
{
	struct run_log log = { .path = file_of(path, why) };

	if (!log.path)
		return -1;
	if (read_file(&log, why)) {
		log_release(&log);
		return -1;
	}
	*out = log;
	return 0;
}

void log_release(struct run_log *log)
{
	for (size_t i = 0; i < log->nseries; i++) {
		cli_free(log->series[i].name);
		cli_free(log->series[i].step);
		cli_free(log->series[i].value);
	}
	cli_free(log->series);
	cli_free(log->path);
	*log = (struct run_log){ 0 };
}

const struct log_series *log_find(const struct run_log *log, const char *name)
{
	for (size_t i = 0; i < log->nseries; i++)
		if (!strcmp(log->series[i].name, name))
			return &log->series[i];
	return NULL;
}

int64_t log_least(const struct log_series *s)
{
	int64_t at = -1;

	for (size_t i = 0; i < s->n; i++)
		if (isfinite(s->value[i]) && (at < 0 || s->value[i] < s->value[at]))
			at = (int64_t)i;
	return at;
}

double log_sum(const struct log_series *s)
{
	double sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += isfinite(s->value[i]) ? s->value[i] : 0;
	return sum;
}
