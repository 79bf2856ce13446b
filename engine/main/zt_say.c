/* zt_say.c -- see zt_say.h. */
#include "engine/main/zt_say.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/cli_term.h"

/* One byte: of C1 controls, which UTF-8 writes as c2 80 to c2 9f, both are escaped. */
static void put(FILE *f, const unsigned char *s, unsigned char before)
{
	if (*s == '\n')
		fputs("\\n", f);
	else if (*s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0) ||
		 (before == 0xc2 && *s < 0xa0))
		fprintf(f, "\\x%02x", *s);
	else
		fputc(*s, f);
}

/* The name of the program in that look, and the first word of the text in its own. */
static void put_line(FILE *f, FILE *out, enum term_look look, const char *prefix, const char *text)
{
	size_t n;
	const enum term_look first = term_look_of(text, &n);

	fprintf(f, "%s%s%s%s%.*s%s", term_on(out, look), prefix, term_off(out, look),
		term_on(out, first), (int)n, text, term_off(out, first));
	for (size_t i = n; text[i]; i++)
		put(f, (const unsigned char *)text + i, i ? (unsigned char)text[i - 1] : 0);
	fputc('\n', f);
}

/* Written at once: lines of ranks that share a terminal are not mixed. */
static void say(FILE *out, enum term_look look, const char *prefix, const char *text)
{
	char *line = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&line, &size);

	if (!f)
		return;
	put_line(f, out, look, prefix, text ? text : "");
	fclose(f);
	if (line)
		fwrite(line, 1, size, out);
	free(line);
}

__attribute__((format(printf, 3, 0)))
static void say_args(enum term_look look, const char *prefix, const char *fmt, va_list ap)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (f) {
		vfprintf(f, fmt, ap);
		fclose(f);
	}
	say(stderr, look, prefix, text);
	free(text);
}

void zt_say(const char *prefix, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_args(TERM_PLAIN, prefix, fmt, ap);
	va_end(ap);
}

void zt_say_error(const char *prefix, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_args(TERM_ERROR, prefix, fmt, ap);
	va_end(ap);
}

void zt_say_line(FILE *out, const char *text)
{
	say(out, TERM_PLAIN, "", text);
}
