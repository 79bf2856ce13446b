/*
 * Calls that cannot be meant: options of no version, numbers of no enum, nothing where something
 * must be. Each is CKPT_E_USAGE with a sentence, before anything is read or written. If this
 * fails, a program built against another version does something else than it asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ckpt.h>

static struct ckpt *ck;
static char dir[900], dst[1000];
static struct ckpt_err err;

static int setup(void **state)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES"), *tmp = getenv("TMPDIR");
	char path[1024];
	const char *paths[] = { path };

	(void)state;
	snprintf(dir, sizeof(dir), "%s/zckpt-test-XXXXXX", tmp ? tmp : "/tmp");
	if (!fixtures || !mkdtemp(dir))
		return -1;
	snprintf(dst, sizeof(dst), "%s/out", dir);
	snprintf(path, sizeof(path), "%s/deepspeed/ds0.19.8-z2-bf16-w2/ckpt", fixtures);
	return ckpt_open(paths, 1, NULL, &ck, NULL);
}

static int teardown(void **state)
{
	(void)state;
	ckpt_close(ck);
	assert_int_equal(rmdir(dir), 0);	/* a wrong call has made nothing in it */
	return 0;
}

static void wrong(int rc, const char *words, int line)
{
	if (rc != -CKPT_E_USAGE || !strstr(err.msg, words))
		fail_msg("line %d: %d, '%s' lacks '%s'", line, rc, err.msg, words);
	memset(&err, 0, sizeof(err));
}
#define WRONG(call, words) wrong(call, words, __LINE__)

static void a_size_that_is_not_set_is_a_wrong_call(void **state)
{
	const struct ckpt_open_opts none = { .size = 0 };
	const struct ckpt_limits limits = { .size = 0 };
	const struct ckpt_open_opts bad_limits = { .size = sizeof(bad_limits), .limits = &limits };
	const struct ckpt_run_opts run = { .size = 1 };
	const struct ckpt_convert_opts convert = { .size = sizeof(convert), .run = &run };
	const struct ckpt_verify_opts verify = { .size = sizeof(verify), .run = &run };
	const struct ckpt_load_opts load = { .size = sizeof(load), .run = &run };
	const char *path = dir;
	struct ckpt_audit audit;
	struct ckpt_verified v;
	struct ckpt *other = NULL;

	(void)state;
	WRONG(ckpt_open(&path, 1, &none, &other, &err), "the size of ");
	WRONG(ckpt_open(&path, 1, &bad_limits, &other, &err), "the size of limits is not set");
	WRONG(ckpt_audit(&path, 1, &limits, &audit, &err), "the size of limits is not set");
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err), "the size of run options is not set");
	WRONG(ckpt_verify(ck, &verify, &v, &err), "the size of run options is not set");
	WRONG(ckpt_load(ck, NULL, 0, &load, NULL, &err), "the size of run options is not set");
	assert_null(other);
}

static void options_of_a_later_version_are_not_passed_over(void **state)
{
	struct {
		struct ckpt_convert_opts o;
		uint64_t more;
	} later = { .o.size = sizeof(later) };
	struct ckpt_report report;

	(void)state;
	later.more = 1;
	WRONG(ckpt_convert(ck, dst, &later.o, &report, &err), "uses a field after the");
}

static void flags_and_numbers_that_nobody_knows(void **state)
{
	struct ckpt_run_opts run = { .size = sizeof(run), .sync = (enum ckpt_sync)9 };
	struct ckpt_select select = { .size = sizeof(select), .tied = (enum ckpt_tied)9 };
	struct ckpt_convert_opts convert = { .size = sizeof(convert), .run = &run };
	struct ckpt_reshard_opts reshard = { .size = sizeof(reshard), .world = 2,
					     .flags = 1u << 30 };
	struct ckpt_shard_opts shard = { .size = sizeof(shard), .world = 2, .stage = 9 };
	struct ckpt_digest_opts digest = { .size = sizeof(digest), .select = &select };
	struct ckpt_diff_opts diff = { .size = sizeof(diff), .flags = 1u << 30 };
	struct ckpt_verify_opts verify = { .size = sizeof(verify), .flags = 1u << 30 };
	struct ckpt_load_opts load = { .size = sizeof(load), .flags = 1u << 30 };
	struct ckpt_diff_result result;
	struct ckpt_digests digests;
	struct ckpt_verified v;
	struct ckpt_values *values = NULL;
	struct ckpt_value value = { .n = 0 };
	const char *step;

	(void)state;
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err),
	      "sync is 9, which is not a value of enum ckpt_sync");
	WRONG(ckpt_load(ck, NULL, 0, &load, NULL, &err), "flags 0x40000000");
	WRONG(ckpt_load(ck, NULL, 1, NULL, NULL, &err), "no ranges are given");
	WRONG(ckpt_load(NULL, NULL, 0, NULL, NULL, &err), "no checkpoint");
	WRONG(ckpt_values_open(ck, 0, 0, NULL, &err), "the pointer to its values is NULL");
	WRONG(ckpt_values_open(ck, 0, 1u << 30, &values, &err), "flags 0x40000000");
	WRONG(ckpt_value_get(NULL, "", &value, &err), "no values");
	WRONG(ckpt_value_step(NULL, "", 0, &step, &err), "no values");
	WRONG(ckpt_value_int(NULL, "", &value.i, &err), "no values");
	WRONG(ckpt_value_float(NULL, "", &value.f, &err), "no values");
	convert = (struct ckpt_convert_opts){ .size = sizeof(convert), .select = &select };
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err),
	      "tied is 9, which is not a value of enum ckpt_tied");
	convert = (struct ckpt_convert_opts){ .size = sizeof(convert), .flags = 1u << 30 };
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err),
	      "unknown flags 0x40000000: a wrong value, or the program was built for a newer "
	      "library");
	convert = (struct ckpt_convert_opts){ .size = sizeof(convert), .part = 2, .nparts = 2 };
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err), "part 2 of 2 does not exist: parts");
	convert = (struct ckpt_convert_opts){ .size = sizeof(convert), .nparts = 65536 };
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err), "at most 65535");
	convert = (struct ckpt_convert_opts){ .size = sizeof(convert), .dtype = CKPT_BOOL };
	WRONG(ckpt_convert(ck, dst, &convert, NULL, &err), "cannot convert to element type");
	WRONG(ckpt_reshard(ck, dst, &reshard, NULL, &err), "flags 0x40000000, stage 0");
	reshard.flags = 0;
	reshard.world = 4097;
	WRONG(ckpt_reshard(ck, dst, &reshard, NULL, &err), "1 to 4096 are possible");
	WRONG(ckpt_shard(ck, dst, &shard, NULL, &err), "stage 9");
	WRONG(ckpt_digest(ck, &digest, &digests, &err),
	      "tied is 9, which is not a value of enum ckpt_tied");
	WRONG(ckpt_diff(ck, ck, &diff, &result, &err), "unknown flags 0x40000000");
	WRONG(ckpt_verify(ck, &verify, &v, &err), "flags 0x40000000 or sync 0");
	WRONG(ckpt_commit(dst, 0, (enum ckpt_sync)9, &err), "sync is not a value of");
	WRONG(ckpt_latest_set(dir, "a", 0, (enum ckpt_sync)9, &err),
	      "sync is 9, which is not a value of enum ckpt_sync");
}

static int take_bytes(void *arg, const void *p, size_t n, struct ckpt_err *e)
{
	(void)arg;
	(void)p;
	(void)n;
	(void)e;
	return 0;
}

static void forms_and_types_of_a_stream(void **state)
{
	struct ckpt_cat_opts cat = { .size = sizeof(cat), .form = (enum ckpt_cat_form)9 };

	(void)state;
	WRONG(ckpt_cat(ck, 0, &cat, take_bytes, NULL, NULL, &err), "form 9");
	cat = (struct ckpt_cat_opts){ .size = sizeof(cat), .dtype = (enum ckpt_dtype)999 };
	WRONG(ckpt_cat(ck, 0, &cat, take_bytes, NULL, NULL, &err), "type 999");
	WRONG(ckpt_cat(ck, 0, NULL, NULL, NULL, NULL, &err), "no callback is given");
}

static void nothing_where_something_must_be(void **state)
{
	struct ckpt_latest latest = { .path = NULL };
	struct ckpt_steps steps = { .nsteps = 0 };
	const struct ckpt_reshard_opts reshard = { .size = sizeof(reshard), .world = 2 };
	const struct ckpt_shard_opts shard = { .size = sizeof(shard), .world = 2 };
	const char *nothing = NULL, *empty = "";
	struct ckpt_audit audit;
	enum ckpt_dst_kind kind;
	struct ckpt *other = NULL;
	int settled = 7;

	(void)state;
	WRONG(ckpt_open(NULL, 0, NULL, &other, &err), "no path is given");
	WRONG(ckpt_open(&nothing, 1, NULL, &other, &err), "");
	WRONG(ckpt_open(&empty, 1, NULL, &other, &err), "");
	WRONG(ckpt_convert(NULL, dst, NULL, NULL, &err), "no checkpoint");
	WRONG(ckpt_convert(ck, NULL, NULL, NULL, &err), "no destination");
	WRONG(ckpt_convert(ck, "", NULL, NULL, &err), "");
	WRONG(ckpt_dst_kind("", &kind, &err), "an empty text");
	WRONG(ckpt_dst_kind("a.ckpt", &kind, &err), "zckpt does not write .ckpt");
	WRONG(ckpt_dst_kind("a", NULL, &err), "the pointer to its kind is NULL");
	WRONG(ckpt_reshard(ck, "", &reshard, NULL, &err), "destination");
	WRONG(ckpt_reshard(ck, dst, NULL, NULL, &err), "options");
	WRONG(ckpt_shard(NULL, dst, &shard, NULL, &err), "no weights");
	WRONG(ckpt_digest(ck, NULL, NULL, &err), "the pointer to the digests is NULL");
	WRONG(ckpt_diff(ck, NULL, NULL, NULL, &err), "two checkpoints");
	WRONG(ckpt_verify(ck, NULL, NULL, &err), "the result pointer is NULL");
	WRONG(ckpt_sizes_get(ck, NULL, &err), "the pointer to its sizes is NULL");
	WRONG(ckpt_commit(NULL, 0, CKPT_SYNC_NONE, &err), "no destination");
	WRONG(ckpt_settle(NULL, CKPT_SYNC_NONE, &settled, &err), "no destination");
	WRONG(ckpt_settle(dst, CKPT_SYNC_NONE, NULL, &err), "the result pointer is NULL");
	WRONG(ckpt_discard(NULL, &err), "no destination");
	WRONG(ckpt_latest_set("", "a", 0, CKPT_SYNC_NONE, &err), "no folder");
	WRONG(ckpt_latest_get("", NULL, &latest, &err), "no folder");
	WRONG(ckpt_latest_get(dir, NULL, NULL, &err), "the result pointer is NULL");
	WRONG(ckpt_steps_list(NULL, NULL, NULL, &steps, &err), "no folder");
	WRONG(ckpt_steps_list(dir, NULL, NULL, NULL, &err), "the result pointer is NULL");
	WRONG(ckpt_audit(NULL, 0, NULL, &audit, &err), "no path is given");
	WRONG(ckpt_audit(&empty, 1, NULL, &audit, &err), "no path is given");
	WRONG(ckpt_audit(&(const char *){ dir }, 1, NULL, NULL, &err),
	      "the pointer to the list is NULL");
	assert_int_equal(settled, 7);
	assert_null(other);
	assert_int_equal(ckpt_verify_open_finding(NULL, NULL), 0);
	assert_int_equal(ckpt_finding_known(NULL), 0);
}

static void a_read_of_no_type(void **state)
{
	uint8_t buf[8];

	(void)state;
	WRONG(ckpt_read(ck, 0, 0, 0, 1, (enum ckpt_dtype)999, buf, 1, &err),
	      "999 is not an element type");
}

/* What was never filled, or freed already, is freed by doing nothing. */
static void freeing_nothing_is_fine(void **state)
{
	struct ckpt_report report = { 0 };
	struct ckpt_audit audit = { 0 };
	struct ckpt_sizes sizes = { 0 };
	struct ckpt_digests digests = { 0 };
	struct ckpt_diff_result diff = { 0 };

	(void)state;
	ckpt_report_free(&report);
	ckpt_report_free(NULL);
	ckpt_audit_free(&audit);
	ckpt_audit_free(NULL);
	ckpt_sizes_free(&sizes);
	ckpt_sizes_free(NULL);
	ckpt_digests_free(&digests);
	ckpt_digests_free(NULL);
	ckpt_diff_free(&diff);
	ckpt_diff_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_size_that_is_not_set_is_a_wrong_call),
		cmocka_unit_test(options_of_a_later_version_are_not_passed_over),
		cmocka_unit_test(flags_and_numbers_that_nobody_knows),
		cmocka_unit_test(forms_and_types_of_a_stream),
		cmocka_unit_test(nothing_where_something_must_be),
		cmocka_unit_test(a_read_of_no_type),
		cmocka_unit_test(freeing_nothing_is_fine),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
