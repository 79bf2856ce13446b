/* shelf_log.c -- what readers met: lines on stderr, and kept for those who ask later. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shelf.h"

#define MOST_LINES 1000

/* Without the time. */
static const char *said(const char *line)
{
	return strchr(line, ' ') + 1;
}

static int is_last(const struct shelf *shelf, const char *line)
{
	return shelf->log.n && !strcmp(said(shelf->log.list[shelf->log.n - 1]), line);
}

static void keep(struct shelf *shelf, const char *line)
{
	const time_t now = time(NULL);
	char text[40] = "-";
	struct tm tm;

	if (gmtime_r(&now, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (shelf->log.n >= MOST_LINES)
		shelf->log_lost++;
	else
		words_add(&shelf->log, cli_format("%s %s", text, line));
}

/* Names come from files.  out_text() has a buffer that a page may be using. */
static void make_plain(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

void shelf_log(struct shelf *shelf, const struct shelf_step *step, const struct ckpt_err *err)
{
	char *line;

	pthread_mutex_lock(&shelf->lock);
	line = cli_format("%s%s%s%s%s", step ? step->name : "", step && step->name[0] ? ": " : "",
			  err->where, err->where[0] ? ": " : "", err->msg);
	make_plain(line);
	if (!is_last(shelf, line)) {
		keep(shelf, line);
		if (!shelf->log_quiet)
			cli_say("error: %s", line);
	}
	cli_free(line);
	pthread_mutex_unlock(&shelf->lock);
}

char *shelf_log_text(struct shelf *shelf)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return strdup("");
	pthread_mutex_lock(&shelf->lock);
	if (!shelf->log.n)
		fputs("no damage was found in what was read so far\n", out);
	for (size_t i = 0; i < shelf->log.n; i++)
		fprintf(out, "%s\n", shelf->log.list[i]);
	if (shelf->log_lost)
		fprintf(out, "%llu more lines were not kept\n",
			(unsigned long long)shelf->log_lost);
	pthread_mutex_unlock(&shelf->lock);
	fclose(out);
	return text;
}
