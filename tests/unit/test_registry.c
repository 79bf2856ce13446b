/*
 * Which driver reads a path.  If this is wrong, a file is read by a format that it is not of, or
 * a driver that is not in the table that was handed in takes part in the choice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/fs/t_dir.h"

#define MAGIC "TOY1"

static int low_bid(const struct ck_input *in)
{
	return !in->is_dir && in->head_len >= 4 && !memcmp(in->head, MAGIC, 4) ? 10 : 0;
}

static int high_bid(const struct ck_input *in)
{
	return 2 * low_bid(in);
}

static int no_memory(const struct ck_input *in)
{
	return low_bid(in) ? -CKPT_E_NOMEM : 0;
}

/* One tensor of as many elements as bytes follow the magic. */
static int toy_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	const uint64_t shape = in->bytes - 4;
	uint32_t tensor;

	(void)f;
	return ck_index_add_tensor(ix, "toy", &shape, 1, CKPT_ROLE_TRAINABLE, &tensor, err);
}

static const struct ck_format toy = { .name = "toy", .probe = low_bid, .index = toy_index };
static const struct ck_format twin = { .name = "twin", .probe = low_bid, .index = toy_index };
static const struct ck_format keen = {
	.name = "keen", .probe = high_bid, .index = toy_index, .has_subtrees = true,
};
static const struct ck_format poor = { .name = "poor", .probe = no_memory, .index = toy_index };

struct opened {
	int rc;
	char format[16];
	uint64_t elements;
	const struct ck_format *driver;
	struct ckpt_err err;
};

static struct opened open_text(const struct ck_formats *formats, const char *text,
			       const char *subtree)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/file", dir);
	struct ck_input in = {
		.path = (const char *const *)&path, .npaths = 1, .formats = formats,
		.subtree = subtree,
	};
	struct ck_findings f = { 0 };
	struct opened o = { 0 };
	struct ck_index ix;

	t_file_write(path, text, strlen(text));
	in.pool = ck_fdpool_new(4);
	ck_limits_fill(NULL, &in.limits);
	assert_int_equal(ck_index_init(&ix, in.limits.memory_bytes, NULL), 0);
	o.rc = ck_format_open(&in, &ix, &f, &o.err);
	o.driver = in.driver;
	if (!o.rc) {
		strncpy(o.format, ix.format, sizeof(o.format) - 1);
		assert_int_equal(ix.ntensors, 1);
		o.elements = ix.tensor[0].numel;
	}
	ck_index_release(&ix);
	ck_findings_release(&f);
	ck_fdpool_free(in.pool);
	t_dir_end(dir);
	free(path);
	return o;
}

static void a_driver_of_the_callers_table_reads_a_file(void **state)
{
	static const struct ck_format *const list[] = { &toy, NULL };
	static const struct ck_formats formats = { .reader = list };
	const struct opened o = open_text(&formats, MAGIC "abc", NULL);

	(void)state;
	assert_int_equal(o.rc, 0);
	assert_string_equal(o.format, "toy");
	assert_int_equal(o.elements, 3);
	assert_ptr_equal(o.driver, &toy);
}

static void no_driver_outside_of_the_table_is_asked(void **state)
{
	static const struct ck_format *const list[] = { &toy, NULL };
	static const struct ck_formats formats = { .reader = list };
	/* a whole safetensors file, and a driver that does not know it */
	const struct opened o = open_text(&formats, "\x02\x01\x01\x01\x01\x01\x01\x01{}", NULL);

	(void)state;
	assert_int_equal(o.rc, -CKPT_E_FORMAT);
	assert_null(o.driver);
}

static void the_highest_bid_wins_and_order_decides_between_equal_ones(void **state)
{
	static const struct ck_format *const list[] = { &twin, &toy, NULL };
	static const struct ck_format *const more[] = { &twin, &toy, &keen, NULL };
	static const struct ck_formats equal = { .reader = list }, outbid = { .reader = more };
	struct opened o = open_text(&equal, MAGIC "abc", NULL);

	(void)state;
	assert_int_equal(o.rc, 0);
	assert_ptr_equal(o.driver, &twin);
	o = open_text(&outbid, MAGIC "abc", NULL);
	assert_int_equal(o.rc, 0);
	assert_ptr_equal(o.driver, &keen);
}

static void a_subtree_is_refused_where_the_driver_has_none(void **state)
{
	static const struct ck_format *const list[] = { &toy, NULL };
	static const struct ck_format *const more[] = { &toy, &keen, NULL };
	static const struct ck_formats without = { .reader = list }, with = { .reader = more };
	struct opened o = open_text(&without, MAGIC "abc", "model");

	(void)state;
	assert_int_equal(o.rc, -CKPT_E_USAGE);
	assert_non_null(strstr(o.err.msg, "this is toy"));
	o = open_text(&with, MAGIC "abc", "model");
	assert_int_equal(o.rc, 0);
}

static void a_driver_without_memory_ends_the_search(void **state)
{
	static const struct ck_format *const list[] = { &keen, &poor, NULL };
	static const struct ck_formats formats = { .reader = list };
	const struct opened o = open_text(&formats, MAGIC "abc", NULL);

	(void)state;
	assert_int_equal(o.rc, -CKPT_E_NOMEM);
	assert_null(o.driver);
}

static int mounts;

static int count_mount(const struct ck_input *in, struct ckpt_err *err)
{
	(void)in;
	(void)err;
	mounts++;
	return 0;
}

static const struct ck_archive_format box = { .probe = low_bid, .mount = count_mount };

static void an_archive_is_mounted_unless_a_format_bids_as_much(void **state)
{
	static const struct ck_format *const none[] = { NULL }, *const list[] = { &toy, NULL };
	static const struct ck_formats alone = { .reader = none, .archive = &box };
	static const struct ck_formats both = { .reader = list, .archive = &box };

	(void)state;
	mounts = 0;
	open_text(&alone, MAGIC "abc", NULL);
	assert_int_equal(mounts, 1);
	assert_int_equal(open_text(&both, MAGIC "abc", NULL).rc, 0);
	assert_int_equal(mounts, 1);
	open_text(&alone, "other", NULL);
	assert_int_equal(mounts, 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_driver_of_the_callers_table_reads_a_file),
		cmocka_unit_test(no_driver_outside_of_the_table_is_asked),
		cmocka_unit_test(the_highest_bid_wins_and_order_decides_between_equal_ones),
		cmocka_unit_test(a_subtree_is_refused_where_the_driver_has_none),
		cmocka_unit_test(a_driver_without_memory_ends_the_search),
		cmocka_unit_test(an_archive_is_mounted_unless_a_format_bids_as_much),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
