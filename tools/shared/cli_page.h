/*
 * cli_page.h -- a page of HTML in one file, with its style, scripts and data in it.
 *
 *	if (page_open(&page, "report.html", "title", 0, why))
 *		...
 *	fputs("<main>...", page.out);
 *	page_text(page.out, name_from_a_file);
 *	page_island(page.out, "data", json, size);
 *	page_script(page.out, page_chart_js);
 *	page_close(&page, why);
 *
 * A page loads nothing: its Content-Security-Policy allows no request, only what is in the file.
 * The look is base.css: class "cards" and "card", "charts", "notes", "scroll" around a wide table,
 * "num" of cells, "good", "warn", "bad", "muted", "mono".  A script calls zchart() and zdata() of
 * chart.js.  The sources are in the folder page; tools/embed.awk makes strings of them.
 */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include <stddef.h>
#include <stdio.h>

#define PAGE_WHY 512

struct page {
	FILE *out;	/* what comes between page_open() and page_close() */
	char *path;	/* NULL: standard output */
	char *half;	/* the file beside 'path' that is renamed to it */
};

/* Of tools/shared/page. */
extern const char page_base_css[], page_chart_js[];

/*
 * Begin a page up to <body>; "-" is standard output.  A file at 'path' is replaced only if it is
 * such a page too, or with 'force'.  0, or -1 and 'why' (PAGE_WHY bytes) says what is wrong.
 */
int page_open(struct page *page, const char *path, const char *title, int force, char *why);
/* End it; the file appears whole.  0, or -1, 'why', and no file is left or changed. */
int page_close(struct page *page, char *why);
/* Drop what was written.  Does nothing after page_close(). */
void page_discard(struct page *page);

/*
 * Their parts: the file alone (-1 where one exists that is kept, -2 where it cannot be made), and
 * what is in it up to <body>, and after it.
 */
int page_file(struct page *page, const char *path, int force, char *why);
int page_finish(struct page *page, char *why);
void page_begin(FILE *out, const char *title);
void page_end(FILE *out);

/* Text of HTML, in elements and in attributes with quotes; bytes that are no UTF-8 are U+FFFD. */
void page_text(FILE *out, const char *text);
/* <script type="application/json" id=ID> with that JSON, in which nothing ends the element. */
void page_island(FILE *out, const char *id, const char *json, size_t size);
/* <script>; 'text' is a source of this tree, not a text of a file. */
void page_script(FILE *out, const char *text);

#endif
