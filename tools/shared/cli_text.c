/* cli_text.c -- see cli_text.h. */
#include "cli_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 8	/* results of out_word() that are lent at a time */

/* Bytes of the UTF-8 character at 's', 0 if it is none (RFC 3629). */
static size_t utf8_length(const unsigned char *s)
{
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 :
		   s[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

/* Whether a byte is no part of a printable character: a control, C1 too, or no UTF-8. */
static int is_control(const unsigned char *s, size_t n)
{
	return !n || *s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0);
}

size_t text_sequence(const char *s)
{
	return utf8_length((const unsigned char *)s);
}

int text_is_control(const char *s, size_t n)
{
	return is_control((const unsigned char *)s, n);
}

void json_quote(FILE *out, const char *text)
{
	static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
	const unsigned char *s = (const unsigned char *)text;
	const char *at;
	size_t n;

	fputc('"', out);
	for (; *s; s += n) {
		n = utf8_length(s);
		at = strchr(plain, *s);
		if (!n) {
			fputs("\\ufffd", out);
			n = 1;
		} else if (at) {
			fprintf(out, "\\%c", letter[at - plain]);
		} else if (*s < 0x20 || *s == 0x7f) {
			fprintf(out, "\\u%04x", *s);
		} else if (*s == 0xc2 && s[1] < 0xa0) {	/* C1 controls */
			fprintf(out, "\\u%04x", s[1]);
		} else {
			fwrite(s, 1, n, out);
		}
	}
	fputc('"', out);
}

/* Whether a terminal would do something else than print it. */
static int is_garbled(const char *name)
{
	const unsigned char *s = (const unsigned char *)name;

	for (; *s; s++)
		if (*s < 0x20 || *s == 0x7f || (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0))
			return 1;
	return 0;
}

/* Bytes of the UTF-8 sequence at 's'; 0 = it is not UTF-8. */
static size_t sequence(const unsigned char *s)
{
	size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 :
		   *s < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* The byte as Python and shells write it: \n, \x1b. */
static void put_escaped(FILE *f, unsigned char c)
{
	if (c == '\n')
		fputs("\\n", f);
	else if (c == '\t')
		fputs("\\t", f);
	else
		fprintf(f, "\\x%02x", c);
}

const char *out_text(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	static char *kept;
	size_t size, n;
	FILE *f;

	free(kept);
	kept = NULL;
	f = open_memstream(&kept, &size);
	if (!f)
		return "?";
	for (; *s; s += n ? n : 1) {
		n = sequence(s);
		for (size_t i = 0; i < n && !is_control(s, n); i++)
			fputc(s[i], f);
		for (size_t i = 0; i < (n ? n : 1) && is_control(s, n); i++)
			put_escaped(f, s[i]);
	}
	return fclose(f) || !kept ? "?" : kept;
}

const char *out_name(const char *name)
{
	static char *kept[4];
	static unsigned next;
	size_t size;
	FILE *f;

	if (!is_garbled(name))
		return name;
	next = (next + 1) % 4;
	free(kept[next]);
	kept[next] = NULL;
	f = open_memstream(&kept[next], &size);
	if (!f)
		return "?";
	json_quote(f, name);
	return fclose(f) || !kept[next] ? "?" : kept[next];
}

static int is_plain(const char *path)
{
	static const char marks[] = "/._-+,:=@%";

	for (const unsigned char *s = (const unsigned char *)path; *s; s++)
		if (!isalnum(*s) && *s < 0x80 && !strchr(marks, *s))
			return 0;
	return *path && *path != '-';
}

static void put_quoted(FILE *f, const char *s)
{
	fputc('\'', f);
	for (; *s; s++) {
		if (*s == '\'')
			fputs("'\\''", f);
		else
			fputc(*s, f);
	}
	fputc('\'', f);
}

/* $'a\nb', as bash, zsh and ksh take it: a name that can be typed, and does nothing here. */
static void put_ansi(FILE *f, const unsigned char *s)
{
	size_t n;

	fputs("$'", f);
	for (; *s; s += n ? n : 1) {
		n = sequence(s);
		if (is_control(s, n)) {
			for (size_t i = 0; i < (n ? n : 1); i++)
				put_escaped(f, s[i]);
		} else {
			if (*s == '\'' || *s == '\\')
				fputc('\\', f);
			fwrite(s, 1, n, f);
		}
	}
	fputc('\'', f);
}

const char *out_word(const char *path)
{
	static char *ring[WORDS];
	static unsigned next;
	char **word = &ring[next++ % WORDS];
	size_t size;
	FILE *f;

	if (is_plain(path))
		return path;
	free(*word);
	*word = NULL;
	f = open_memstream(word, &size);
	if (!f)
		return "?";
	if (*path == '-')
		fputs("./", f);
	if (strcmp(out_text(path), path))
		put_ansi(f, (const unsigned char *)path);
	else
		put_quoted(f, path);
	return fclose(f) || !*word ? "?" : *word;
}

const char *cli_argument(const char *word)
{
	const char *at = word;

	while (isalnum((unsigned char)*at) || (*at && strchr("-_=,./:", *at)))
		at++;
	return *at || !*word ? out_word(word) : word;
}
