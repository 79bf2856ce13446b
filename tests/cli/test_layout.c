/*
 * How the ranks that wrote a checkpoint divided the model: what readers give as the fact "layout"
 * must be what inspect, doctor and map say.  If it is lost, a user resumes with other sizes.  The
 * step here is a native one whose manifest gets the fact, and its sum again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#define LIST "\"facts\": ["
#define FACT "\n[\"layout\", \"tp 2 x pp 2 x ep 4 x dp 8\"],"
#define SUM "\n\"sum\": \""

static void run_and_find(const char *verb, const char *json, const char *path, const char *text)
{
	struct t_run run;

	t_run_zckpt(&run, verb, path, json, NULL);
	if (run.exit || (text && !strstr(run.out, text)) || (!text && strstr(run.out, "layout")))
		fail_msg("%s: exit %d, without %s:\n%s%s", verb, run.exit, text ? text : "...",
			 run.out, run.err);
	t_run_free(&run);
}

/* The manifest with one more fact. */
static void add_layout(const char *path)
{
	size_t n;
	char *text = (char *)t_file_read(path, &n), *whole = t_fmt("%.*s", (int)n, text), *at, *out;
	char *facts = strstr(whole, LIST), *sum;
	struct ck_hash128 hash;

	assert_non_null(facts);
	facts += strlen(LIST);
	out = t_fmt("%.*s" FACT "%s", (int)(facts - whole), whole, facts);
	sum = strstr(out, SUM);
	assert_non_null(sum);
	hash = ck_hash128(out, (size_t)(sum + 1 - out));
	at = t_fmt("%.*s%016llx%016llx\"\n}\n", (int)(sum + strlen(SUM) - out), out,
		   (unsigned long long)hash.hi, (unsigned long long)hash.lo);
	t_file_write(path, at, strlen(at));
	free(at);
	free(out);
	free(whole);
	free(text);
}

static void inspect_doctor_and_map_say_how_the_ranks_divide_the_model(void **state)
{
	char *src = t_fmt("%s/deepspeed/ds0.19.8-z2-bf16-w3/ckpt", getenv("ZCKPT_FIXTURES"));
	char *dir = t_dir_new(), *dst = t_fmt("%s/run", dir);
	char *manifest = t_fmt("%s/global_step3/manifest.json", dst);
	struct t_run run;

	(void)state;
	t_run_zckpt(&run, "reshard", "-q", "--to", "native", src, dst, NULL);
	assert_int_equal(run.exit, 0);
	t_run_free(&run);
	run_and_find("inspect", "--json", dst, NULL);
	run_and_find("doctor", "-v", dst, NULL);
	add_layout(manifest);
	run_and_find("inspect", "-v", dst, "\nlayout       tp 2 x pp 2 x ep 4 x dp 8\n");
	run_and_find("inspect", "--json", dst, "\"layout\": \"tp 2 x pp 2 x ep 4 x dp 8\"");
	run_and_find("doctor", "-v", dst, ", 3 ranks, tp 2 x pp 2 x ep 4 x dp 8, step 3");
	run_and_find("map", NULL, dst, ": native, tp 2 x pp 2 x ep 4 x dp 8, stage 2");
	run_and_find("map", "--json", dst, "\"layout\": \"tp 2 x pp 2 x ep 4 x dp 8\"");
	/* the ranks of another form are others */
	free(dst);
	dst = t_fmt("%s/again", dir);
	free(src);
	src = t_fmt("%s/run", dir);
	t_run_zckpt(&run, "reshard", "-q", "--to", "native", "--world", "2", src, dst, NULL);
	assert_int_equal(run.exit, 0);
	t_run_free(&run);
	run_and_find("inspect", "--json", dst, NULL);
	t_dir_remove(dir);
	free(manifest);
	free(dst);
	free(dir);
	free(src);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inspect_doctor_and_map_say_how_the_ranks_divide_the_model),
	};

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
