/* cli_say.c -- a line on stderr. */
#include <stdarg.h>
#include <stdlib.h>

#include "cli.h"

static int (*keep)(const char *line);
static char last[400];		/* an error */

const char *cli_said_last(void)
{
	return last;
}

void cli_say_through(int (*keeps)(const char *line))
{
	keep = keeps;
}

/* "zckpt: " and the line; 'look' is of the name. */
static void print(const char *line, enum term_look look)
{
	size_t n;
	const enum term_look first = term_look_of(line, &n);

	fflush(stdout);
	fprintf(stderr, "%szckpt:%s %s%.*s%s%s\n", term_on(stderr, look), term_off(stderr, look),
		term_on(stderr, first), (int)n, line, term_off(stderr, first), line + n);
}

__attribute__((format(printf, 2, 0)))
static void say(enum term_look look, const char *fmt, va_list ap)
{
	char *line = NULL;
	size_t size;
	FILE *f = open_memstream(&line, &size);
	const char *text;

	if (f) {
		vfprintf(f, fmt, ap);
		fclose(f);
	}
	/* Texts of files are in it: nothing of them reaches the terminal as it is. */
	text = line ? out_text(line) : NULL;
	if (text && look == TERM_ERROR)
		snprintf(last, sizeof(last), "%s", text);
	if (text && !(keep && keep(text)))
		print(text, look);
	free(line);
}

void cli_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(TERM_PLAIN, fmt, ap);
	va_end(ap);
}

void cli_say_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(TERM_ERROR, fmt, ap);
	va_end(ap);
}
