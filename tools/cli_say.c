/* cli_say.c -- a line on stderr. */
#include <stdarg.h>
#include <stdlib.h>

#include "cli.h"

static int (*keep)(const char *line);

void cli_say_through(int (*keeps)(const char *line))
{
	keep = keeps;
}

void cli_say(const char *fmt, ...)
{
	char *line = NULL;
	size_t size;
	FILE *f = open_memstream(&line, &size);
	const char *text;
	va_list ap;

	va_start(ap, fmt);
	if (f) {
		vfprintf(f, fmt, ap);
		fclose(f);
	}
	va_end(ap);
	/* Texts of files are in it: nothing of them reaches the terminal as it is. */
	text = line ? out_text(line) : NULL;
	if (text && !(keep && keep(text))) {
		fflush(stdout);
		fprintf(stderr, "zckpt: %s\n", text);
	}
	free(line);
}
