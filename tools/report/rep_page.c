/* rep_page.c -- the page around the data: its head, its style and scripts. */
#include <stdlib.h>

#include "../shared/cli_page.h"
#include "rep_data.h"
#include "rep_page.h"

void rep_page_begin(FILE *out, const char *title)
{
	page_begin(out, title);
	fputs("<style>\n", out);
	fputs(page_report_css, out);
	fputs("</style>\n"
	      "<a class=\"skip\" href=\"#main\">Skip to the report</a>\n"
	      "<header id=\"head\"></header>\n<main id=\"main\" tabindex=\"-1\">"
	      "<noscript><p>This page draws its pictures with JavaScript, which is off."
	      "</p></noscript></main>\n"
	      "<script type=\"application/json\" id=\"data\">", out);
}

void rep_page_end(FILE *out)
{
	fputs("</script>\n", out);
	page_script(out, page_chart_js);
	page_script(out, page_report_js);
	page_script(out, page_lanes_js);
	page_script(out, page_tree_js);
	page_script(out, page_list_js);
	page_script(out, page_diff_js);
	page_script(out, "report(zdata(\"data\"));\n");
	page_end(out);
}

/* ---------------------------------------------------------------- the data */

/* '<' is in strings of JSON only, where \u003c is the same: so no text ends the script. */
static ssize_t write_data(void *cookie, const char *bytes, size_t n)
{
	FILE *out = cookie;

	for (size_t i = 0; i < n; i++) {
		if (bytes[i] == '<')
			fputs("\\u003c", out);
		else
			fputc(bytes[i], out);
	}
	return ferror(out) ? -1 : (ssize_t)n;
}

FILE *rep_page_data(FILE *out)
{
	return fopencookie(out, "w", (cookie_io_functions_t){ .write = write_data });
}
