/* cli_opt_help.c -- see cli_opt.h: lists of options. */
#include <string.h>

#include "cli_opt.h"
#include "cli_term.h"

#define NARROW 25	/* columns of a help's text, at least */
#define BELOW 8

void opt_wrap(FILE *out, const char *text, size_t column, size_t indent, size_t width)
{
	width = term_fit(out, width);
	while (*text) {
		size_t n = strcspn(text, " \n");

		if (column > indent && column + 1 + n > width) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			fputc(' ', out);
			column++;
		}
		fprintf(out, "%.*s", (int)n, text);
		column += n;
		text += n;
		if (*text == '\n') {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		}
		text += *text != 0;
	}
	fputc('\n', out);
}

static void help_option(const struct opt *opt, const struct opt_style *style, FILE *out)
{
	const size_t room = term_fit(out, (size_t)style->width);
	/* on a narrow terminal the help is below the option */
	const size_t column = room < (size_t)style->column + NARROW ? BELOW : (size_t)style->column;
	char left[80];
	int n = 0;

	if (style->letters)
		n = snprintf(left, sizeof(left), "  %c%c%s", opt->letter ? '-' : ' ',
			     opt->letter ? opt->letter : ' ', opt->letter ? ", " : "  ");
	else
		n = snprintf(left, sizeof(left), "  ");
	n += snprintf(left + n, sizeof(left) - (size_t)n, "--%s%s%s", opt->name,
		      opt->value ? " " : "", opt->value ? opt->value : "");
	fputs(left, out);
	if ((size_t)(n + style->gap) > column)
		fprintf(out, "\n%*s", (int)column, "");
	else
		fprintf(out, "%*s", (int)column - n, "");
	opt_wrap(out, opt->help, column, column, (size_t)style->width);
}

static int is_listed(const struct opt *opt, enum opt_list list)
{
	if (opt->kind == OPT_HEADING || opt->flags & OPT_HIDDEN)
		return 0;
	return list == OPT_LIST_ALL || (list == OPT_LIST_RARE) == !!(opt->flags & OPT_RARE);
}

static void put_heading(const char *text, FILE *out)
{
	fputc('\n', out);
	term_put(out, TERM_HEADING, text);
	fputc('\n', out);
}

void opt_help(const struct opt *table, const struct opt_style *style, FILE *out)
{
	const char *heading = NULL;	/* printed with the first option below it */
	const struct opt *opt;

	for (opt = table; opt->kind; opt++) {
		if (opt->kind == OPT_HEADING)
			heading = opt->help;
		if (!is_listed(opt, style->list))
			continue;
		if (heading)
			put_heading(heading, out);
		heading = NULL;
		help_option(opt, style, out);
	}
	if (opt > table && opt[-1].kind == OPT_HEADING)	/* of the table that follows */
		put_heading(heading, out);
}

unsigned opt_count(const struct opt *const *tables, enum opt_list list)
{
	unsigned n = 0;

	for (; *tables; tables++)
		for (const struct opt *opt = *tables; opt->kind; opt++)
			n += (unsigned)is_listed(opt, list);
	return n;
}

int opt_help_all(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[argc - 1], "--all");
}
