/*
 * cli_page.c -- see cli_page.h.
 *
 * The JSON of an island has each '<' as \u003c: in JSON it is found in strings only, so the value
 * stays the same, and neither "</script>" nor "<!--" can be in it.
 */
#include "cli_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_mem.h"
#include "cli_text.h"

/* How each page begins: so one is recognized. */
static const char begins[] = "<!doctype html>\n<!-- a page of zckpt -->\n";

__attribute__((format(printf, 2, 3)))
static int fail(char *why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, PAGE_WHY, fmt, ap);
	va_end(ap);
	return -1;
}

/* Whether a file at 'path' may be replaced. */
static int check_place(const char *path, int force, char *why)
{
	char head[sizeof(begins)] = "";
	struct stat st;
	FILE *f;

	if (stat(path, &st))
		return 0;
	if (S_ISDIR(st.st_mode))
		return fail(why, "%.300s is a folder: give the name of a file in it", path);
	if (force || !S_ISREG(st.st_mode) || !st.st_size)
		return 0;
	f = fopen(path, "rb");
	if (!f)
		return fail(why, "%.300s: %s", path, strerror(errno));
	if (fread(head, 1, sizeof(begins) - 1, f) < sizeof(begins) - 1)
		head[0] = 0;
	fclose(f);
	return !strcmp(head, begins) ? 0 :
	       fail(why, "%.300s exists and is not a report: choose another name, or replace it "
		    "with --force", path);
}

/* A device or pipe is written in place. */
static int is_special(const char *path)
{
	struct stat st;

	return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static int open_file(struct page *page, const char *path, char *why)
{
	const int special = is_special(path);
	int fd;

	page->path = cli_strdup(path);
	page->half = special ? NULL : cli_format("%s.partial", path);
	fd = open(special ? path : page->half,
		  O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC | O_NOFOLLOW), 0666);
	page->out = fd < 0 ? NULL : fdopen(fd, "wb");
	if (page->out)
		return 0;
	fail(why, "%.300s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -2;
}

void page_begin(FILE *out, const char *title)
{
	fputs(begins, out);
	fputs("<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<link rel=\"icon\" href=\"data:,\">\n<title>", out);
	page_text(out, title);
	fputs("</title>\n<style>\n", out);
	fputs(page_base_css, out);
	fputs("</style>\n</head>\n<body>\n", out);
}

void page_end(FILE *out)
{
	fputs("</body>\n</html>\n", out);
}

int page_file(struct page *page, const char *path, int force, char *why)
{
	int rc;

	*page = (struct page){ .out = stdout };
	if (!strcmp(path, "-"))
		return 0;
	rc = check_place(path, force, why);
	if (!rc)
		rc = open_file(page, path, why);
	if (rc) {
		page->out = NULL;
		page_discard(page);
	}
	return rc;
}

int page_open(struct page *page, const char *path, const char *title, int force, char *why)
{
	if (page_file(page, path, force, why))
		return -1;
	page_begin(page->out, title);
	return 0;
}

int page_finish(struct page *page, char *why)
{
	int rc = 0;

	errno = 0;
	if (fflush(page->out) || ferror(page->out))
		rc = fail(why, "%.300s: write failed: %s", page->path ? page->path :
			  "standard output", errno ? strerror(errno) : "no reason given");
	if (page->path && fclose(page->out) && !rc)
		rc = fail(why, "%.300s: write failed: %s", page->path, strerror(errno));
	page->out = NULL;
	if (!rc && page->half && rename(page->half, page->path))
		rc = fail(why, "%.300s: rename failed: %s", page->path, strerror(errno));
	if (!rc) {
		cli_free(page->half);
		page->half = NULL;
	}
	page_discard(page);
	return rc;
}

int page_close(struct page *page, char *why)
{
	page_end(page->out);
	return page_finish(page, why);
}

void page_discard(struct page *page)
{
	if (page->out && page->path)
		fclose(page->out);
	if (page->half)
		unlink(page->half);
	cli_free(page->half);
	cli_free(page->path);
	*page = (struct page){ 0 };
}

void page_text(FILE *out, const char *text)
{
	static const char replacement[] = "\xef\xbf\xbd";	/* U+FFFD */
	const char *s = text;
	size_t n;

	for (; *s; s += n ? n : 1) {
		n = text_sequence(s);
		if (!n)
			fputs(replacement, out);
		else if (*s == '<')
			fputs("&lt;", out);
		else if (*s == '>')
			fputs("&gt;", out);
		else if (*s == '&')
			fputs("&amp;", out);
		else if (*s == '"')
			fputs("&quot;", out);
		else if (*s == '\'')
			fputs("&#39;", out);
		else if (text_is_control(s, n))
			fputs(*s == '\n' ? "\\n" : replacement, out);
		else
			fwrite(s, 1, n, out);
	}
}

void page_island(FILE *out, const char *id, const char *json, size_t size)
{
	fprintf(out, "<script type=\"application/json\" id=\"%s\">", id);
	for (size_t i = 0; i < size; i++) {
		if (json[i] == '<')
			fputs("\\u003c", out);
		else
			fputc(json[i], out);
	}
	fputs("</script>\n", out);
}

void page_script(FILE *out, const char *text)
{
	fputs("<script>\n", out);
	fputs(text, out);
	fputs("</script>\n", out);
}
