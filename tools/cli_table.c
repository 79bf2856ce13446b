/*
 * cli_table.c -- tables for people.
 *
 * On a terminal a table is no wider than the screen: the widest column of words gives way.  Text
 * gets further lines.  Names are cut in the middle where their two ends tell them apart, else they
 * get further lines too.  In a pipe or a file nothing is cut.
 */
#include <ctype.h>
#include <string.h>

#include "cli.h"

/* Columns that a text and a name keep if there is room, and at least. */
#define TEXT 24
#define NAME 28
#define LEAST_TEXT 12
#define LEAST_NAME 18
#define NEAR 64		/* rows above that a shortened name is compared with */

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

/* Whether the column is text, which may have further lines, and not names. */
static int is_text(const struct table *table, size_t column)
{
	const size_t n = table->columns;

	for (size_t i = n + column; i < table->cells && table->align[column] == 'l'; i += n)
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
	for (size_t i = 0; i < names; i++)
		if (is_text(table, i))
			narrow(table, i, i + 1, LEAST_TEXT, widths, &all);
}

/* "model.layers.0.mlp.weight" in 'room' columns, 'head' of them of its beginning. */
static char *shorter(const char *cell, size_t room, size_t head)
{
	const size_t all = width(cell), tail = room - 3 - head;

	if (all <= room || strchr(cell, ' '))	/* what has words gets further lines */
		return cli_strdup(cell);
	return cli_format("%.*s...%s", (int)bytes_of(cell, head), cell,
			  cell + bytes_of(cell, all - tail));
}

/* Shortens the names of a column; false, and nothing happens, if two would look alike then. */
static int shorten_to(struct table *table, size_t column, size_t room, size_t head)
{
	const size_t n = table->columns, rows = table->cells / n;
	char **cell = cli_alloc((rows + 1) * sizeof(*cell));
	int alike = 0;

	for (size_t i = 0; i < rows; i++)
		cell[i] = shorter(table->cell[i * n + column], room, head);
	for (size_t i = 0; i < rows && !alike; i++)
		for (size_t k = 0; k < i && i - k < NEAR && !alike; k++)
			alike = !strcmp(cell[i], cell[k]) &&
				strcmp(table->cell[i * n + column], table->cell[k * n + column]);
	for (size_t i = 0; i < rows; i++) {
		char **of_table = &table->cell[i * n + column];
		char *unused = alike ? cell[i] : *of_table;

		if (!alike)
			*of_table = cell[i];
		cli_free(unused);
	}
	cli_free(cell);
	return !alike;
}

/* Where names differ is found by trying; where all cuts fail they get further lines. */
static void shorten(struct table *table, size_t column, size_t room)
{
	const size_t shown = room - 3;

	(void)(shorten_to(table, column, room, shown / 2) ||
	       shorten_to(table, column, room, 0) ||
	       shorten_to(table, column, room, shown / 4) ||
	       shorten_to(table, column, room, shown * 3 / 4));
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

/* Bytes of the cell that are in this line: whole words where one fits, else what fits. */
static size_t line_of(const char *text, size_t room)
{
	size_t n = bytes_of(text, room), last = n;

	if (!text[n] || text[n] == ' ')
		return n;
	while (last && text[last - 1] != ' ')
		last--;
	return last ? last - 1 : n;
}

/* A line of a row: a piece of each cell, which steps on. */
static void print_line(const struct table *table, const char **cell, const size_t *widths,
		       enum term_look whole, FILE *out)
{
	size_t n = table->columns;

	while (n && !cell[n - 1][0])
		n--;	/* no blanks at the end of a line */
	for (size_t i = 0; i < n; i++) {
		const size_t bytes = line_of(cell[i], widths[i]);
		char *piece = cli_format("%.*s", (int)bytes, cell[i]);
		const int pad = width(piece) < widths[i] ? (int)(widths[i] - width(piece)) : 0;

		if (i)
			fputs("  ", out);
		if (table->align[i] == 'r')
			fprintf(out, "%*s", pad, "");
		term_put(out, whole ? whole : look_of(piece), piece);
		if (table->align[i] != 'r' && i + 1 < n)
			fprintf(out, "%*s", pad, "");
		cell[i] += bytes;
		cell[i] += cell[i][0] == ' ';
		cli_free(piece);
	}
	fputc('\n', out);
}

static void print_row(const struct table *table, size_t row, const size_t *widths,
		      const char *indent, FILE *out)
{
	const enum term_look whole = is_heading(table, row) ? TERM_HEADING : TERM_PLAIN;
	const char **cell = cli_alloc((table->columns + 1) * sizeof(*cell));
	int more = 1;

	for (size_t i = 0; i < table->columns; i++)
		cell[i] = table->cell[row * table->columns + i];
	while (more) {
		fputs(indent, out);
		print_line(table, cell, widths, whole, out);
		more = 0;
		for (size_t i = 0; i < table->columns; i++)
			more |= cell[i][0];
	}
	cli_free(cell);
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
		const int text = is_text(table, n - 1);

		fit(table, text, widths, room - before);
		for (size_t i = 0; i < n; i++)
			if (table->align[i] == 'l' && !(text && i == n - 1))
				shorten(table, i, widths[i]);
	}
	for (size_t row = 0; row < table->cells / (n ? n : 1); row++)
		print_row(table, row, widths, indent, out);
	for (size_t i = 0; i < table->cells; i++)
		cli_free(table->cell[i]);
	cli_free(table->cell);
	cli_free(widths);
	table->cell = NULL;
	table->cells = 0;
}
