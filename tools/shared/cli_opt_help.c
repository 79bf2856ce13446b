/* cli_opt_help.c -- see cli_opt.h: lists of options. */
#include <string.h>

#include "cli_opt.h"

void opt_wrap(FILE *out, const char *text, size_t column, size_t indent, size_t width)
{
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
	const size_t column = (size_t)style->column;
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
	if (n + style->gap > style->column)
		fprintf(out, "\n%*s", style->column, "");
	else
		fprintf(out, "%*s", style->column - n, "");
	opt_wrap(out, opt->help, column, column, (size_t)style->width);
}

void opt_help(const struct opt *table, const struct opt_style *style, FILE *out)
{
	for (const struct opt *opt = table; opt->kind; opt++) {
		if (opt->kind == OPT_HEADING)
			fprintf(out, "\n%s\n", opt->help);
		else if (!(opt->flags & OPT_HIDDEN))
			help_option(opt, style, out);
	}
}
