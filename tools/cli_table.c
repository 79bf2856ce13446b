/*
 * cli_table.c -- tables for people.
 *
 * On a terminal a table is no wider than the screen: the widest column of words gives way, the
 * last one in further lines where it is text, any other in the middle of its names, whose two ends
 * tell them apart.  In a pipe or a file nothing is cut.
 */
#include <ctype.h>
#include <string.h>

#include "cli.h"

/* Columns that a text and a name keep if there is room, and at least. */
#define TEXT 24
#define NAME 28
#define LEAST_TEXT 12
#define LEAST_NAME 18

/* Columns on the screen, one a character. */
static size_t width_of(const char *text, size_t bytes)
{
	size_t n = 0;

	for (; bytes; bytes--, text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static size_t width(const char *text)
{
	return width_of(text, strlen(text));
}

/* Bytes of the first 'n' characters. */
static size_t bytes_of(const char *text, size_t n)
{
	const char *at = text;

	while (*at && n) {
		at++;
		while (((unsigned char)*at & 0xc0) == 0x80)
			at++;
		n--;
	}
	return (size_t)(at - text);
}

void table_add(struct table *table, const char *const *cells)
{
	size_t n = table->columns = strlen(table->align);

	/* the room doubles whenever a power of two of rows is full */
	if (!(table->cells / n & (table->cells / n + 1))) {
		size_t rows = (table->cells / n + 1) * 2;
		char **bigger = cli_alloc(rows * n * sizeof(*bigger));

		if (table->cells)
			memcpy(bigger, table->cell, table->cells * sizeof(*bigger));
		cli_free(table->cell);
		table->cell = bigger;
	}
	for (size_t i = 0; i < n; i++)
		table->cell[table->cells++] = cli_strdup(cells[i]);
}

/* ---------------------------------------------------------------- fitting */

/* Whether the last column is text, which may have further lines, and not names. */
static int ends_with_text(const struct table *table)
{
	const size_t n = table->columns;

	for (size_t i = n - 1; i < table->cells && table->align[n - 1] == 'l'; i += n)
		if (strchr(table->cell[i], ' '))
			return 1;
	return 0;
}

/* Makes columns of words narrower, the widest first, until all fit or have their least. */
static void narrow(const struct table *table, size_t from, size_t end, size_t least, size_t *widths,
		   size_t *too_much)
{
	while (*too_much) {
		size_t widest = end;

		for (size_t i = from; i < end; i++)
			if (table->align[i] == 'l' && widths[i] > least &&
			    (widest == end || widths[i] > widths[widest]))
				widest = i;
		if (widest == end)
			return;
		widths[widest]--;
		--*too_much;
	}
}

/* A text gives way first, as nothing of it is lost; columns of dates and types never do. */
static void fit(const struct table *table, int text, size_t *widths, size_t room)
{
	const size_t n = table->columns, names = n - (size_t)text;
	size_t all = 2 * (n - 1);

	for (size_t i = 0; i < n; i++)
		all += widths[i];
	all = all > room ? all - room : 0;
	narrow(table, names, n, TEXT, widths, &all);
	narrow(table, 0, names, NAME, widths, &all);
	narrow(table, names, n, LEAST_TEXT, widths, &all);
	narrow(table, 0, names, LEAST_NAME, widths, &all);
}

/* "model.layers.0.mlp.weight" in 'room' columns: "model.la...p.weight". */
static void shorten(char **cell, size_t room)
{
	const size_t all = width(*cell), head = (room - 3) / 2, tail = room - 3 - head;
	char *shorter;

	if (all <= room)
		return;
	shorter = cli_format("%.*s...%s", (int)bytes_of(*cell, head), *cell,
			     *cell + bytes_of(*cell, all - tail));
	cli_free(*cell);
	*cell = shorter;
}

/* ---------------------------------------------------------------- printing */

static int is_heading(const struct table *table, size_t row)
{
	const char *first = table->cell[0];

	if (row || table->heading)
		return !row;
	for (size_t i = 0; i < table->columns; i++)
		for (const char *at = table->cell[i]; *at; at++)
			if (islower((unsigned char)*at))
				return 0;
	return isupper((unsigned char)*first);
}

static enum term_look look_of(const char *cell)
{
	return !strcmp(cell, "NO") ? TERM_ERROR : !strcmp(cell, "yes") ? TERM_GOOD : TERM_PLAIN;
}

/* The last column of a row: what does not fit is below it, from 'column' on. */
static void print_text(FILE *out, const char *text, size_t column, size_t room)
{
	size_t used = 0;

	while (*text) {
		const size_t n = strcspn(text, " "), wide = width_of(text, n);

		if (used && used + 1 + wide > room) {
			fprintf(out, "\n%*s", (int)column, "");
			used = 0;
		}
		fprintf(out, "%s%.*s", used ? " " : "", (int)n, text);
		used += wide + (used > 0);
		text += n + (text[n] == ' ');
	}
}

static void print_row(const struct table *table, size_t row, const size_t *widths, size_t indent,
		      FILE *out)
{
	const enum term_look whole = is_heading(table, row) ? TERM_HEADING : TERM_PLAIN;
	size_t n = table->columns, column = indent;

	while (n && !table->cell[row * table->columns + n - 1][0])
		n--;	/* no blanks at the end of a line */

	for (size_t i = 0; i < n; i++) {
		const char *text = table->cell[row * table->columns + i];
		const enum term_look look = whole ? whole : look_of(text);
		const int pad = width(text) < widths[i] ? (int)(widths[i] - width(text)) : 0;

		if (i)
			fputs("  ", out);
		if (table->align[i] == 'r')
			fprintf(out, "%*s", pad, "");
		if (width(text) > widths[i])
			print_text(out, text, column, widths[i]);
		else
			term_put(out, look, text);
		if (table->align[i] != 'r' && i + 1 < n)
			fprintf(out, "%*s", pad, "");
		column += widths[i] + 2;
	}
	fputc('\n', out);
}

/* Prints and empties it. */
void table_print(struct table *table, FILE *out, const char *indent)
{
	const size_t n = table->columns, room = term_width(out), before = strlen(indent);
	size_t *widths = cli_alloc((n + 1) * sizeof(*widths));

	for (size_t i = 0; i < table->cells; i++)
		if (width(table->cell[i]) > widths[i % n])
			widths[i % n] = width(table->cell[i]);
	if (room > before && table->cells) {
		const int text = ends_with_text(table);

		fit(table, text, widths, room - before);
		for (size_t i = 0; i < table->cells; i++)
			if (table->align[i % n] == 'l' && !(text && i % n == n - 1))
				shorten(&table->cell[i], widths[i % n]);
	}
	for (size_t row = 0; row < table->cells / (n ? n : 1); row++) {
		fputs(indent, out);
		print_row(table, row, widths, before, out);
	}
	for (size_t i = 0; i < table->cells; i++)
		cli_free(table->cell[i]);
	cli_free(table->cell);
	cli_free(widths);
	table->cell = NULL;
	table->cells = 0;
}
