/* Where output goes and when there must be none. If this fails, a user loses a
 * file that stood at the destination, or finds half a file under its name.
 *
 * usage: test_destination [FILTER]
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt). */
#define _GNU_SOURCE
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *source;	/* a sound checkpoint of stage 2 */
static char *work;	/* fresh for each test */
static int bad;		/* failures in this test */

static char *in_work(const char *name)
{
	return t_fmt("%s/%s", work, name);
}

static void wrong(const char *what, const struct t_run *run)
{
	printf("     %s: exit %d signal %d, stderr: %s\n", what, run->exit,
	       run->signal, run->err);
	bad++;
}

/* A call that must end with CODE (or CODE_TOO) and say why on stderr only. */
static void refused(const struct t_run *run, int code, int code_too)
{
	if (run->timed_out || (run->exit != code && run->exit != code_too))
		wrong("wrong exit code", run);
	if (!run->err_n)
		wrong("stderr is empty", run);
	if (run->out_n)
		wrong("stdout is not empty", run);
}

static void only(const char *name)
{
	char **left = t_dir_list(work, NULL);

	if (name ? !left[0] || left[1] || strcmp(left[0], name) : left[0] != NULL) {
		printf("     wanted %s alone in the folder, first there is %s\n",
		       name ? name : "nothing", left[0] ? left[0] : "nothing");
		bad++;
	}
	t_list_free(left);
}

static void holds(const char *path, const char *text)
{
	size_t n = 0;
	uint8_t *b = t_file_read(path, &n);

	if (!b || n != strlen(text) || memcmp(b, text, n)) {
		printf("     %s was changed\n", path);
		bad++;
	}
	free(b);
}

static void is_model(const char *path)
{
	struct t_st st;

	if (t_st_open(&st, path) < 0 || !st.n_tensors) {
		printf("     %s: %s\n", path, st.err);
		bad++;
	}
	t_st_close(&st);
}

static void a_file_is_not_overwritten(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run;

	t_file_write(dst, "mine", 4);
	t_run_zckpt(&run, "convert", source, dst, NULL);
	refused(&run, 2, 2);
	holds(dst, "mine");
	only("model.safetensors");
	t_run_free(&run);
	free(dst);
}

static void force_replaces_a_file(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run;

	t_file_write(dst, "mine", 4);
	t_run_zckpt(&run, "convert", "--force", source, dst, NULL);
	if (run.exit)
		wrong("--force", &run);
	is_model(dst);
	only("model.safetensors");
	t_run_free(&run);
	free(dst);
}

static void a_folder_is_not_overwritten(void)
{
	char *dst = in_work("hf"), *inside = in_work("hf/model.safetensors");
	struct t_run run;

	t_dir_make(dst);
	t_file_write(inside, "mine", 4);
	t_run_zckpt(&run, "convert", source, dst, NULL);
	refused(&run, 2, 2);
	holds(inside, "mine");
	only("hf");
	t_run_free(&run);
	free(inside);
	free(dst);
}

static void force_replaces_a_folder(void)
{
	char *dst = in_work("hf"), *inside = in_work("hf/model.safetensors");
	struct t_run run;

	t_dir_make(dst);
	t_file_write(inside, "mine", 4);
	t_run_zckpt(&run, "convert", "--force", source, dst, NULL);
	if (run.exit)
		wrong("--force", &run);
	is_model(inside);
	only("hf");
	t_run_free(&run);
	free(inside);
	free(dst);
}

static void a_failure_under_force_keeps_the_old_file(void)
{
	char *dst = in_work("model.safetensors"), *src = in_work("nothing");
	struct t_run run;

	t_file_write(dst, "mine", 4);
	t_run_zckpt(&run, "convert", "--force", src, dst, NULL);
	refused(&run, 3, 2);
	holds(dst, "mine");
	only("model.safetensors");
	t_run_free(&run);
	free(src);
	free(dst);
}

/* Root may write everywhere, so for root it is a folder of the kernel. */
static void a_read_only_destination_is_an_io_error(void)
{
	char *dir = in_work("locked");
	char *dst = getuid() ? t_fmt("%s/model.safetensors", dir)
			     : t_fmt("/proc/model.safetensors");
	struct t_run run;

	t_dir_make(dir);
	chmod(dir, 0555);
	t_run_zckpt(&run, "convert", source, dst, NULL);
	refused(&run, 3, 3);
	chmod(dir, 0755);
	if (rmdir(dir) < 0) {
		printf("     something was left in %s\n", dir);
		bad++;
	}
	t_run_free(&run);
	free(dst);
	free(dir);
}

static void a_destination_below_a_file_is_refused(void)
{
	char *file = in_work("file"), *dst = in_work("file/model.safetensors");
	struct t_run run;

	t_file_write(file, "mine", 4);
	t_run_zckpt(&run, "convert", source, dst, NULL);
	refused(&run, 3, 2);
	holds(file, "mine");
	only("file");
	t_run_free(&run);
	free(dst);
	free(file);
}

static void a_trainers_file_as_destination_is_a_wrong_call(void)
{
	char *dst = in_work("m.ckpt");
	struct t_run run;

	t_run_zckpt(&run, "convert", source, dst, NULL);
	refused(&run, 2, 2);
	only(NULL);
	t_run_free(&run);
	free(dst);
}

static void an_unknown_option_is_a_wrong_call(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run;

	t_run_zckpt(&run, "convert", "--no-such-option", source, dst, NULL);
	refused(&run, 2, 2);
	if (!strstr(run.err, "--no-such-option"))
		wrong("stderr does not name the option", &run);
	only(NULL);
	t_run_free(&run);
	free(dst);
}

static void bad_values_are_wrong_calls(void)
{
	static const char *const pairs[][2] = {
		{ "--dtype", "fp7" }, { "--tied", "maybe" }, { "--only", "some" },
		{ "--threads", "-1" }, { "--threads", "many" }, { "--sync", "often" },
		{ "--mem-limit", "lots" }, { "--max-shard-size", "big" },
	};
	char *dst = in_work("model.safetensors");

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct t_run run;

		t_run_zckpt(&run, "convert", pairs[i][0], pairs[i][1], source, dst,
			    NULL);
		if (run.exit != 2)
			printf("     %s %s:\n", pairs[i][0], pairs[i][1]);
		refused(&run, 2, 2);
		only(NULL);
		t_run_free(&run);
	}
	free(dst);
}

static void missing_arguments_are_wrong_calls(void)
{
	struct t_run run;

	t_run_zckpt(&run, "convert", NULL);
	refused(&run, 2, 2);
	t_run_free(&run);
	t_run_zckpt(&run, "convert", source, NULL);
	refused(&run, 2, 2);
	t_run_free(&run);
	t_run_zckpt(&run, "no-such-verb", source, NULL);
	refused(&run, 2, 2);
	t_run_free(&run);
	only(NULL);
}

static void a_source_that_is_not_there_is_named(void)
{
	char *src = in_work("nothing-here"), *dst = in_work("model.safetensors");
	struct t_run run;

	t_run_zckpt(&run, "convert", src, dst, NULL);
	refused(&run, 3, 2);
	if (!strstr(run.err, "nothing-here"))
		wrong("stderr does not name the source", &run);
	only(NULL);
	t_run_free(&run);
	free(src);
	free(dst);
}

static void an_empty_folder_is_no_checkpoint(void)
{
	char *src = in_work("empty"), *dst = in_work("model.safetensors");
	struct t_run run;

	t_dir_make(src);
	t_run_zckpt(&run, "convert", src, dst, NULL);
	refused(&run, 3, 3);
	only("empty");
	t_run_free(&run);
	free(src);
	free(dst);
}

static void a_tag_that_is_not_there_is_named(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run;

	t_run_zckpt(&run, "convert", "--tag", "global_step77", source, dst, NULL);
	refused(&run, 3, 2);
	if (!strstr(run.err, "global_step77"))
		wrong("stderr does not name the tag", &run);
	only(NULL);
	t_run_free(&run);
	free(dst);
}

static void a_dry_run_writes_nothing(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run;

	t_run_zckpt(&run, "convert", "--dry-run", source, dst, NULL);
	if (run.exit)
		wrong("--dry-run", &run);
	if (!run.out_n && !run.err_n)
		wrong("a dry run that says nothing", &run);
	only(NULL);
	t_run_free(&run);
	free(dst);
}

static void a_stream_has_the_bytes_of_the_file(void)
{
	char *dst = in_work("model.safetensors");
	struct t_run run, file;
	size_t n = 0;
	uint8_t *b;

	/* its header goes before the sums in it could be known */
	t_run_zckpt(&file, "convert", "--no-sums", source, dst, NULL);
	t_run_zckpt(&run, "convert", source, "-o", "-", NULL);
	b = t_file_read(dst, &n);
	if (run.exit || !b || run.out_n != n || memcmp(run.out, b, n))
		wrong("the stream differs from the file", &run);
	only("model.safetensors");
	free(b);
	t_run_free(&run);
	t_run_free(&file);
	free(dst);
}

static void a_full_device_is_an_io_error(void)
{
	const char *const argv[] = { "/bin/sh", "-c",
		"exec \"$1\" convert \"$2\" -o - > /dev/full", "sh", t_zckpt(),
		source, NULL };
	struct t_run run;

	t_run(&run, argv, 30);
	refused(&run, 3, 3);
	only(NULL);
	t_run_free(&run);
}

/* A file-size limit stands for a full disk: writes fail in the middle. */
static void a_disk_that_fills_leaves_nothing(void)
{
	char *dst = in_work("model.safetensors");
	const char *const argv[] = { "/bin/sh", "-c", "trap '' XFSZ; ulimit -f 8; "
		"exec \"$1\" convert --threads 1 \"$2\" \"$3\"", "sh", t_zckpt(),
		source, dst, NULL };
	struct t_run run;

	t_run(&run, argv, 30);
	refused(&run, 3, 3);
	only(NULL);
	t_run_free(&run);
	free(dst);
}

static const struct {
	const char *name;
	void (*run)(void);
} table[] = {
#define TEST(f) { #f, f }
	TEST(a_file_is_not_overwritten),
	TEST(force_replaces_a_file),
	TEST(a_folder_is_not_overwritten),
	TEST(force_replaces_a_folder),
	TEST(a_failure_under_force_keeps_the_old_file),
	TEST(a_read_only_destination_is_an_io_error),
	TEST(a_destination_below_a_file_is_refused),
	TEST(a_trainers_file_as_destination_is_a_wrong_call),
	TEST(an_unknown_option_is_a_wrong_call),
	TEST(bad_values_are_wrong_calls),
	TEST(missing_arguments_are_wrong_calls),
	TEST(a_source_that_is_not_there_is_named),
	TEST(an_empty_folder_is_no_checkpoint),
	TEST(a_tag_that_is_not_there_is_named),
	TEST(a_dry_run_writes_nothing),
	TEST(a_stream_has_the_bytes_of_the_file),
	TEST(a_full_device_is_an_io_error),
	TEST(a_disk_that_fills_leaves_nothing),
};

int main(int argc, char **argv)
{
	const char *root = getenv("ZCKPT_FIXTURES"), *filter = argc > 1 ? argv[1] : "";
	int passed = 0, failed = 0;

	source = t_fmt("%s/deepspeed/ds0.19.8-z2-bf16-w2/ckpt",
		       root && *root ? root : "build/fixtures");
	if (!t_is_dir(source))
		t_die("no fixture %s; set ZCKPT_FIXTURES", source);
	if (!t_exists(t_zckpt()))
		t_die("there is no program %s; set ZCKPT", t_zckpt());
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (!strstr(table[i].name, filter))
			continue;
		bad = 0;
		work = t_dir_new();
		table[i].run();
		t_dir_remove(work);
		free(work);
		failed += bad != 0;
		passed += bad == 0;
		printf("%s %s\n", bad ? "FAIL" : "ok  ", table[i].name);
		fflush(stdout);
	}
	free(source);
	if (passed)
		printf("[  PASSED  ] %d test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed;
}
