/* zt_say.c -- see zt_say.h. */
#include "engine/main/zt_say.h"

#include <stdarg.h>
#include <stdlib.h>

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

/* Written at once: lines of ranks that share a terminal are not mixed. */
static void say(FILE *out, const char *prefix, const char *text)
{
	char *line = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&line, &size);

	if (!f)
		return;
	fputs(prefix, f);
	for (size_t i = 0; text && text[i]; i++)
		put(f, (const unsigned char *)text + i, i ? (unsigned char)text[i - 1] : 0);
	fputc('\n', f);
	fclose(f);
	if (line)
		fwrite(line, 1, size, out);
	free(line);
}

void zt_say(const char *prefix, const char *fmt, ...)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	va_list ap;

	va_start(ap, fmt);
	if (f) {
		vfprintf(f, fmt, ap);
		fclose(f);
	}
	va_end(ap);
	say(stderr, prefix, text);
	free(text);
}

void zt_say_line(FILE *out, const char *text)
{
	say(out, "", text);
}
