/* cli_term.c -- see cli_term.h. */
#include "cli_term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NARROWEST 20	/* columns */

static enum term_color wanted;

static int is_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value;
}

static void color_set(const char *word)
{
	if (!strcmp(word, "auto"))
		wanted = TERM_AUTO;
	else if (!strcmp(word, "always"))
		wanted = TERM_ALWAYS;
	else if (!strcmp(word, "never"))
		wanted = TERM_NEVER;
}

void term_read(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strncmp(argv[i], "--color=", 8))
			color_set(argv[i] + 8);
		else if (!strcmp(argv[i], "--color") && i + 1 < argc)
			color_set(argv[++i]);
	}
}

int term_is_screen(FILE *out)
{
	const char *term = getenv("TERM");

	return isatty(fileno(out)) && (!term || strcmp(term, "dumb") != 0);
}

static int is_colored(FILE *out)
{
	const char *force = getenv("CLICOLOR_FORCE");

	if (wanted != TERM_AUTO)
		return wanted == TERM_ALWAYS;
	if (is_set("NO_COLOR"))
		return 0;
	return (force && *force && strcmp(force, "0") != 0) || term_is_screen(out);
}

const char *term_on(FILE *out, enum term_look look)
{
	static const char *const escapes[] = {
		[TERM_PLAIN] = "", [TERM_ERROR] = "\033[1;31m", [TERM_WARNING] = "\033[33m",
		[TERM_GOOD] = "\033[32m", [TERM_HEADING] = "\033[1m",
	};

	return is_colored(out) ? escapes[look] : "";
}

const char *term_off(FILE *out, enum term_look look)
{
	return look && is_colored(out) ? "\033[0m" : "";
}

void term_put(FILE *out, enum term_look look, const char *text)
{
	fprintf(out, "%s%s%s", term_on(out, look), text, term_off(out, look));
}

enum term_look term_look_of(const char *line, size_t *length_out)
{
	static const struct {
		const char *word;
		enum term_look look;
	} words[] = {
		{ "error:", TERM_ERROR }, { "warning:", TERM_WARNING }, { "hint:", TERM_HEADING },
		{ "try:", TERM_HEADING },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		*length_out = strlen(words[i].word);
		if (!strncmp(line, words[i].word, *length_out))
			return words[i].look;
	}
	*length_out = 0;
	return TERM_PLAIN;
}

size_t term_width(FILE *out)
{
	const char *columns = getenv("COLUMNS");
	const long stated = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize size = { 0 };
	size_t width;

	if (!isatty(fileno(out)))
		return 0;
	if (stated > 0)
		width = (size_t)stated;
	else if (ioctl(fileno(out), TIOCGWINSZ, &size))
		width = 0;
	else
		width = size.ws_col;
	return width && width < NARROWEST ? NARROWEST : width;
}

size_t term_fit(FILE *out, size_t width)
{
	const size_t has = term_width(out);

	return has && has < width ? has : width;
}
