/*
 * Pages of HTML in one file.
 *
 * If they are wrong, a name in a checkpoint or a log runs as a script in the browser of whoever
 * opens the report, a full disk leaves half a page, or -o overwrites a file that is no report.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cJSON.h>

#include "tests/lib/fs/t_dir.h"
#include "tools/shared/cli_page.h"

static char *dir, *path, why[PAGE_WHY];

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	path = t_fmt("%s/page.html", dir);
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(path);
	t_dir_end(dir);
	return 0;
}

static char *text_of_page(void)
{
	size_t n;

	return (char *)t_file_read(path, &n);
}

static void names_stay_text(void **state)
{
	static const struct {
		const char *text, *html;
	} names[] = {
		{ "plain", "plain" },
		{ "<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;" },
		{ "\" onload='x' &amp;", "&quot; onload=&#39;x&#39; &amp;amp;" },
		{ "\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80" },
		{ "a\xff" "b\xc3", "a\xef\xbf\xbd" "b\xef\xbf\xbd" },
		{ "a\nb\x1b[31m\x7f", "a\\nb\xef\xbf\xbd[31m\xef\xbf\xbd" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *text = NULL;
		size_t n;
		FILE *f = open_memstream(&text, &n);

		page_text(f, names[i].text);
		fclose(f);
		assert_string_equal(text, names[i].html);
		free(text);
	}
}

static void no_name_ends_an_island(void **state)
{
	static const char json[] = "{\"a\": \"</script><!--<script>\", \"b<\": [1, \"x\\\"<\"]}";
	char *text = NULL, *from, *to;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	cJSON *a = cJSON_Parse(json), *b;

	(void)state;
	page_island(f, "data", json, sizeof(json) - 1);
	fclose(f);
	from = strchr(text, '>') + 1;
	to = strchr(from, '<');
	assert_string_equal(to, "</script>\n");
	*to = 0;
	b = cJSON_Parse(from);
	assert_true(b && cJSON_Compare(a, b, 1));
	cJSON_Delete(a);
	cJSON_Delete(b);
	free(text);
}

static void a_page_loads_nothing_and_appears_whole(void **state)
{
	struct page page;
	struct stat st;
	char *text;
	size_t n;

	(void)state;
	assert_int_equal(page_open(&page, path, "a <b> title", 0, why), 0);
	fputs("<main>x</main>\n", page.out);
	page_script(page.out, page_chart_js);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(page_close(&page, why), 0);
	text = text_of_page();
	assert_non_null(strstr(text, "<title>a &lt;b&gt; title</title>"));
	assert_non_null(strstr(text, "content=\"default-src 'none'; style-src 'unsafe-inline'; "
			       "script-src 'unsafe-inline'; img-src data:\">"));
	assert_null(strstr(text, "src="));
	assert_null(strstr(text, "url("));
	assert_null(strstr(text, "@import"));
	assert_string_equal(text + strlen(text) - 16, "</body>\n</html>\n");
	free(text);
	/* Its own page is replaced; a dropped one changes nothing. */
	assert_int_equal(page_open(&page, path, "second", 0, why), 0);
	page_discard(&page);
	text = text_of_page();
	assert_null(strstr(text, "second"));
	free(text);
	t_list_free(t_dir_list(dir, &n));
	assert_int_equal(n, 1);
}

static void other_files_are_kept_unless_forced(void **state)
{
	struct page page;
	char *text;

	(void)state;
	t_file_write(path, "<!doctype html>\n<p>mine", 23);
	assert_int_equal(page_open(&page, path, "x", 0, why), -1);
	assert_non_null(strstr(why, "exists and is not a report"));
	text = text_of_page();
	assert_string_equal(text, "<!doctype html>\n<p>mine");
	free(text);
	assert_int_equal(page_open(&page, path, "x", 1, why), 0);
	assert_int_equal(page_close(&page, why), 0);
	text = text_of_page();
	assert_non_null(strstr(text, "<title>x</title>"));
	free(text);
	assert_int_equal(page_open(&page, dir, "x", 1, why), -1);
	assert_int_equal(page_open(&page, "/nonexistent/x.html", "x", 0, why), -1);
	assert_non_null(strstr(why, "No such file"));
}

static void a_full_disk_is_reported(void **state)
{
	struct page page;

	(void)state;
	if (access("/dev/full", W_OK))
		skip();
	assert_int_equal(page_open(&page, "/dev/full", "x", 0, why), 0);
	assert_int_equal(page_close(&page, why), -1);
	assert_non_null(strstr(why, "No space left"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_stay_text),
		cmocka_unit_test(no_name_ends_an_island),
		cmocka_unit_test(a_page_loads_nothing_and_appears_whole),
		cmocka_unit_test(other_files_are_kept_unless_forced),
		cmocka_unit_test(a_full_disk_is_reported),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
