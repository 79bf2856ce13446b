/*
 * What convert writes. If it is wrong, a user trains on, or publishes, weights that are not the
 * ones that were saved, in a type that was not asked, or without some of the tensors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

static char *dir;	/* fresh for each test */
static char *src, *dst;
static struct ckpt_convert_opts opts;
static struct ckpt_select sel;
static struct ckpt_report report;
static struct ckpt_err err;

static char *fixture(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/%s", root ? root : "build/fixtures", name);
}

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	src = t_fmt("%s/in.safetensors", dir);
	dst = t_fmt("%s/out", dir);
	memset(&opts, 0, sizeof(opts));
	memset(&sel, 0, sizeof(sel));
	memset(&report, 0, sizeof(report));
	opts.size = sizeof(opts);
	sel.size = sizeof(sel);
	opts.select = &sel;
	return 0;
}

static int end(void **state)
{
	(void)state;
	ckpt_report_free(&report);
	t_dir_remove(dir);
	free(src);
	free(dst);
	free(dir);
	return 0;
}

static const struct t_part small[] = {
	{ .name = "b.bias", .dtype = "BF16", .rows = 5 },
	{ .name = "a.weight", .dtype = "F32", .rows = 3, .cols = 4 },
	{ .name = "steps", .dtype = "I64", .rows = 2 },
	{ .name = "c.half", .dtype = "F16", .rows = 7, .cols = 3 },
	{ .name = NULL },
};

static void same_bytes(const struct t_st *a, const struct t_st *b, const char *name)
{
	const struct t_st_tensor *x = t_st_find(a, name), *y = t_st_find(b, name);

	assert_non_null(x);
	assert_non_null(y);
	assert_int_equal(x->nbytes, y->nbytes);
	assert_memory_equal(x->data, y->data, x->nbytes);
}

static void kept_types_give_the_same_bytes_back(void **state)
{
	struct t_st a, b;

	(void)state;
	t_convert_source(src, small);
	opts.dtype = CKPT_KEEP;
	t_convert(src, dst, &opts, 0, &report, NULL);
	t_convert_result(&a, src, NULL);
	t_convert_result(&b, dst, "model.safetensors");
	assert_int_equal(b.n_tensors, 4);
	for (size_t i = 0; i < b.n_tensors; i++) {
		assert_string_equal(a.tensors[i].dtype, b.tensors[i].dtype);
		same_bytes(&a, &b, a.tensors[i].name);
	}
	assert_string_equal(t_st_meta(&b, "format"), "pt");
	assert_int_equal(report.ntensors, 4);
	assert_int_equal(report.nfiles, 1);
	assert_int_equal(report.files[0].bytes, b.size);
	assert_int_equal(report.written_bytes, b.size);
	t_st_close(&a);
	t_st_close(&b);
}

static void floats_become_fp32_exactly_and_integers_stay(void **state)
{
	struct t_st a, b;
	const struct t_st_tensor *from, *to;

	(void)state;
	t_convert_source(src, small);
	t_convert(src, dst, &opts, 0, &report, NULL);
	t_convert_result(&a, src, NULL);
	t_convert_result(&b, dst, "model.safetensors");
	from = t_convert_tensor(&a, "b.bias", "BF16 [5]");
	to = t_convert_tensor(&b, "b.bias", "F32 [5]");
	for (int i = 0; i < 5; i++) {	/* bf16 is the upper half of fp32 */
		assert_int_equal(to->data[4 * i] | to->data[4 * i + 1], 0);
		assert_memory_equal(to->data + 4 * i + 2, from->data + 2 * i, 2);
	}
	t_convert_tensor(&b, "c.half", "F32 [7,3]");
	t_convert_tensor(&b, "steps", "I64 [2]");
	same_bytes(&a, &b, "steps");
	same_bytes(&a, &b, "a.weight");
	assert_int_equal(report.no_master, 2);	/* the two that were 16-bit */
	t_st_close(&a);
	t_st_close(&b);
}

static void values_too_large_for_fp16_are_counted_once_each(void **state)
{
	const float v[] = { 1.0f, 65504.0f, 65519.0f, 65520.0f, -1e10f, INFINITY, NAN, 1e-8f };
	const struct t_part part[] = {
		{ .name = "w", .dtype = "F32", .rows = 8, .bytes = v }, { .name = NULL },
	};
	const uint16_t want[] = { 0x3c00, 0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x7c00 };
	struct t_st b;

	(void)state;
	t_convert_source(src, part);
	opts.dtype = CKPT_F16;
	t_convert(src, dst, &opts, 0, &report, NULL);
	assert_int_equal(report.overflows, 2);
	t_convert_result(&b, dst, "model.safetensors");
	assert_memory_equal(t_convert_tensor(&b, "w", "F16 [8]")->data, want, sizeof(want));
	t_st_close(&b);
}

static void first_rule_that_matches_chooses_the_type(void **state)
{
	const struct ckpt_rule rules[] = {
		{ "a.*", "keep" }, { "*.weight", "fp16" }, { "b.bias", "fp16" }, { NULL, NULL },
	};
	struct t_st b;

	(void)state;
	t_convert_source(src, small);
	opts.dtype = CKPT_BF16;
	opts.dtype_rules = rules;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	t_convert_result(&b, dst, "model.safetensors");
	t_convert_tensor(&b, "a.weight", "F32 [3,4]");
	t_convert_tensor(&b, "b.bias", "F16 [5]");
	t_convert_tensor(&b, "c.half", "BF16 [7,3]");
	t_convert_tensor(&b, "steps", "I64 [2]");
	t_st_close(&b);
}

static void rule_of_an_unknown_type_is_a_wrong_call(void **state)
{
	const struct ckpt_rule rules[] = { { "*", "int8" }, { NULL, NULL } };

	(void)state;
	t_convert_source(src, small);
	opts.dtype_rules = rules;
	t_convert(src, dst, &opts, CKPT_E_USAGE, NULL, NULL);
	assert_false(t_exists(dst));
}

static void one_file_has_the_reference_order_and_sorted_metadata(void **state)
{
	char *file = t_fmt("%s/out.safetensors", dir);
	struct t_st b;
	const char *h, *at;

	(void)state;
	t_convert_source(src, small);
	opts.dtype = CKPT_KEEP;
	t_convert(src, file, &opts, 0, NULL, NULL);
	t_convert_result(&b, file, NULL);
	h = (const char *)b.bytes + 8;
	assert_ptr_equal(strstr(h, "{\"__metadata__\":{\"format\":\"pt\","), h);
	at = h;		/* widest type first, then by name */
	for (const char *const *p = (const char *const[]){ "\"steps\"", "\"a.weight\"",
	     "\"b.bias\"", "\"c.half\"", NULL }; *p; p++) {
		const char *next = strstr(h, *p);

		assert_non_null(next);
		assert_true(next > at);
		at = next;
	}
	t_st_close(&b);
	free(file);
}

static void shards_hold_every_tensor_once_and_the_index_names_them(void **state)
{
	const struct t_part parts[] = {
		{ .name = "l0", .dtype = "F32", .rows = 25 },	/* 100 bytes */
		{ .name = "l1", .dtype = "F32", .rows = 25 },
		{ .name = "big", .dtype = "F32", .rows = 100 },	/* 400 */
		{ .name = "l2", .dtype = "F32", .rows = 1 },
		{ .name = NULL },
	};
	/* l2 fits behind l0 and l1; big has a shard of its own */
	static const struct { const char *name, *file; } want[] = {
		{ "big", "model-00001-of-00002.safetensors" },
		{ "l0", "model-00002-of-00002.safetensors" },
		{ "l1", "model-00002-of-00002.safetensors" },
		{ "l2", "model-00002-of-00002.safetensors" },
	};
	struct t_st b;
	size_t n;
	char *path = t_fmt("%s/model.safetensors.index.json", dst), *text, *pair;

	(void)state;
	t_convert_source(src, parts);
	opts.max_shard_bytes = 204;
	t_convert(src, dst, &opts, 0, &report, NULL);
	assert_int_equal(report.nfiles, 3);
	text = (char *)t_file_read(path, &n);
	assert_non_null(text);
	assert_non_null(strstr(text, "\"total_size\": 604"));
	for (size_t i = 0; i < 4; i++) {
		pair = t_fmt("\"%s\": \"%s\"", want[i].name, want[i].file);
		assert_non_null(strstr(text, pair));
		t_convert_result(&b, dst, want[i].file);
		assert_non_null(t_st_find(&b, want[i].name));
		assert_int_equal(b.n_tensors, i ? 3 : 1);
		t_st_close(&b);
		free(pair);
	}
	free(text);
	free(path);
}

static void sharded_result_converts_back_to_the_same_file(void **state)
{
	char *one = t_fmt("%s/one.safetensors", dir), *two = t_fmt("%s/two.safetensors", dir);
	struct t_st a, b;

	(void)state;
	t_convert_source(src, small);
	opts.dtype = CKPT_KEEP;
	opts.max_shard_bytes = 50;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	t_convert(src, one, &opts, 0, NULL, NULL);
	t_convert(dst, two, &opts, 0, NULL, NULL);
	t_convert_result(&a, one, NULL);
	t_convert_result(&b, two, NULL);
	assert_int_equal(a.n_tensors, b.n_tensors);
	for (size_t i = 0; i < a.n_tensors; i++)
		same_bytes(&a, &b, a.tensors[i].name);
	t_st_close(&a);
	t_st_close(&b);
	free(one);
	free(two);
}

/* ------------------------------------------------------------ real checkpoints */

static void master_and_moments_come_out_by_name(void **state)
{
	const char *all[] = { "all", NULL }, *one[] = { "exp_avg", NULL };
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");
	struct t_st w, m;

	(void)state;
	opts.states = all;
	t_convert(ds, dst, &opts, 0, &report, NULL);
	assert_int_equal(report.nfiles, 4);
	t_convert_result(&w, dst, "weight.safetensors");
	t_convert_result(&m, dst, "exp_avg_sq.safetensors");
	t_convert_tensor(&w, "emb.weight", "BF16 [61,12]");
	t_convert_tensor(&m, "emb.weight", "F32 [61,12]");
	assert_null(t_st_find(&m, "table"));	/* a buffer has no moments */
	assert_non_null(t_st_find(&w, "table"));
	assert_string_equal(t_st_meta(&m, "zckpt.group.0.lr"), "0.01");
	assert_string_equal(t_st_meta(&m, "zckpt.group.0.step"), "3");
	assert_string_equal(t_st_meta(&m, "zckpt.stage"), "2");
	assert_string_equal(t_st_meta(&m, "head.weight"), "emb.weight");
	t_st_close(&w);
	t_st_close(&m);
	t_dir_remove(dst);
	opts.states = one;
	opts.dtype = CKPT_BF16;
	t_convert(ds, dst, &opts, 0, NULL, NULL);
	t_convert_result(&m, dst, "exp_avg.safetensors");
	t_convert_tensor(&m, "emb.weight", "BF16 [61,12]");
	t_st_close(&m);
	free(ds);
}

static void unknown_state_is_refused_with_those_that_there_are(void **state)
{
	const char *states[] = { "momentum", NULL };
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");

	(void)state;
	opts.states = states;
	t_convert(ds, dst, &opts, CKPT_E_USAGE, NULL, &err);
	assert_non_null(strstr(err.msg, "exp_avg_sq"));
	assert_false(t_exists(dst));
	free(ds);
}

static void several_states_do_not_go_into_one_file(void **state)
{
	const char *states[] = { "master", "exp_avg", NULL };
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");
	char *file = t_fmt("%s/x.safetensors", dir);

	(void)state;
	opts.states = states;
	t_convert(ds, file, &opts, CKPT_E_USAGE, NULL, NULL);
	assert_false(t_exists(file));
	free(file);
	free(ds);
}

static void fp32_is_the_master_and_not_the_rounded_weight(void **state)
{
	const char *one[] = { "master", NULL };
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");
	char *states = t_fmt("%s/states", dir);
	struct t_st a, b;

	(void)state;
	t_convert(ds, dst, &opts, 0, NULL, NULL);
	opts.states = one;
	t_convert(ds, states, &opts, 0, NULL, NULL);
	t_convert_result(&a, dst, "model.safetensors");
	t_convert_result(&b, states, "master.safetensors");
	assert_true(b.n_tensors > 10);
	for (size_t i = 0; i < b.n_tensors; i++)
		same_bytes(&a, &b, b.tensors[i].name);
	t_st_close(&a);
	t_st_close(&b);
	free(states);
	free(ds);
}

static void sixteen_bits_of_the_master_are_the_saved_weight(void **state)
{
	char *ds = fixture("deepspeed/ds0.19.8-z3-bf16-w3/ckpt");
	char *keep = t_fmt("%s/keep", dir);
	struct t_st a, b;

	(void)state;
	opts.dtype = CKPT_BF16;
	t_convert(ds, dst, &opts, 0, NULL, NULL);
	opts.dtype = CKPT_KEEP;
	t_convert(ds, keep, &opts, 0, NULL, NULL);
	t_convert_result(&a, dst, "model.safetensors");
	t_convert_result(&b, keep, "model.safetensors");
	same_bytes(&a, &b, "emb.weight");
	same_bytes(&a, &b, "blocks.0.qkv.weight");
	t_st_close(&a);
	t_st_close(&b);
	free(keep);
	free(ds);
}

static void tied_names_are_metadata_or_copies_as_asked(void **state)
{
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");
	struct t_st b;

	(void)state;
	t_convert(ds, dst, &opts, 0, &report, NULL);
	assert_int_equal(report.aliases, 1);
	t_convert_result(&b, dst, "model.safetensors");
	assert_null(t_st_find(&b, "head.weight"));
	assert_string_equal(t_st_meta(&b, "head.weight"), "emb.weight");
	t_st_close(&b);
	t_dir_remove(dst);
	sel.tied = CKPT_TIED_DUP;
	t_convert(ds, dst, &opts, 0, NULL, NULL);
	t_convert_result(&b, dst, "model.safetensors");
	assert_null(t_st_meta(&b, "head.weight"));
	assert_memory_equal(t_convert_tensor(&b, "head.weight", "F32 [61,12]")->data,
			    t_convert_tensor(&b, "emb.weight", "F32 [61,12]")->data, 61 * 12 * 4);
	t_st_close(&b);
	t_dir_remove(dst);
	sel.tied = CKPT_TIED_DROP;
	t_convert(ds, dst, &opts, 0, NULL, NULL);
	t_convert_result(&b, dst, "model.safetensors");
	assert_null(t_st_meta(&b, "head.weight"));
	assert_null(t_st_find(&b, "head.weight"));
	t_st_close(&b);
	free(ds);
}

/* Turn a bit of the first byte of a tensor's stored weight. */
static void damage_weight(const char *step, const char *name)
{
	struct ckpt *ck = t_convert_open(step);
	struct ckpt_extent_info e;
	struct ckpt_state_info s;
	uint64_t t;
	uint32_t i = 0;
	FILE *f;
	int c;

	assert_int_equal(ckpt_tensor_find(ck, name, &t, NULL), 0);
	while (!ckpt_state_get(ck, t, i, &s, NULL) && strcmp(s.name, "weight"))
		i++;
	assert_int_equal(ckpt_extent_get(ck, t, i, 0, &e, NULL), 0);
	f = fopen(e.path, "r+b");
	assert_non_null(f);
	fseek(f, (long)e.offset, SEEK_SET);
	c = fgetc(f);
	fseek(f, (long)e.offset, SEEK_SET);
	fputc(c ^ 1, f);
	fclose(f);
	ckpt_close(ck);
}

static void weight_that_is_not_its_master_rounded_stops_every_writer(void **state)
{
	char *ds = fixture("deepspeed/ds0.19.8-z2-bf16-w2/ckpt");
	char *copy = t_fmt("%s/ckpt", dir);
	const char *as_warning[] = { "MASTER_WEIGHT_MISMATCH", NULL };
	const struct ckpt_open_opts lenient = {
		.size = sizeof(lenient), .as_warning = as_warning,
	};
	const struct ckpt_digest_opts dopts = { .size = sizeof(dopts) };
	struct ckpt_digests digests;
	struct ckpt *ck;

	(void)state;
	t_dir_copy(ds, copy);
	damage_weight(copy, "blocks.0.up.bias");
	t_convert(copy, dst, &opts, CKPT_E_MISMATCH, NULL, &err);
	assert_string_equal(err.where, "blocks.0.up.bias");
	assert_non_null(strstr(err.msg, "MASTER_WEIGHT_MISMATCH: element 0"));
	assert_false(t_exists(dst));
	ck = t_convert_open(copy);
	memset(&err, 0, sizeof(err));
	assert_int_equal(ckpt_digest(ck, &dopts, &digests, &err), -CKPT_E_MISMATCH);
	ckpt_close(ck);
	assert_int_equal(ckpt_open((const char *const *)&copy, 1, &lenient, &ck, NULL), 0);
	opts.flags = CKPT_WRITE_STRICT;
	assert_int_equal(ckpt_convert(ck, dst, &opts, NULL, NULL), -CKPT_E_MISMATCH);
	opts.flags = 0;
	assert_int_equal(ckpt_convert(ck, dst, &opts, NULL, NULL), 0);
	ckpt_close(ck);
	free(copy);
	free(ds);
}

/* --------------------------------------------------------------------- digests */

static void digests_of_one_state_are_equal_in_every_format(void **state)
{
	char *pt = fixture("formats/torch/v2.6/state-dict.pt");
	char *file = t_fmt("%s/x.safetensors", dir);
	const char *weight[] = { "weight", NULL };
	const struct ckpt_digest_opts dopts = { .size = sizeof(dopts), .states = weight };
	struct ckpt *ck = t_convert_open(pt);
	struct ckpt_digests a = { 0 }, b = { 0 };

	(void)state;
	assert_int_equal(ckpt_digest(ck, &dopts, &a, NULL), 0);
	opts.dtype = CKPT_KEEP;
	assert_int_equal(ckpt_convert(ck, file, &opts, NULL, NULL), 0);
	ckpt_close(ck);
	ck = t_convert_open(file);
	assert_int_equal(ckpt_digest(ck, &dopts, &b, NULL), 0);
	ckpt_close(ck);
	assert_true(a.nlines > 1);
	assert_int_equal(a.nlines, b.nlines);
	for (uint64_t i = 0; i < a.nlines; i++) {
		assert_string_equal(a.lines[i].name, b.lines[i].name);
		assert_string_equal(a.lines[i].hash, b.lines[i].hash);
		assert_true(!i || strcmp(a.lines[i - 1].name, a.lines[i].name) < 0);
	}
	assert_string_equal(a.root, b.root);
	ckpt_digests_free(&a);
	ckpt_digests_free(&b);
	free(file);
	free(pt);
}

static void digests_in_the_metadata_are_those_of_the_file(void **state)
{
	char *ds = fixture("deepspeed/ds0.19.8-z3-bf16-w3/ckpt");
	const struct ckpt_digest_opts dopts = { .size = sizeof(dopts) };
	struct ckpt_digests d = { 0 };
	struct ckpt *ck;
	struct t_st b;

	(void)state;
	opts.flags = CKPT_CONVERT_DIGEST;
	t_convert(ds, dst, &opts, 0, &report, NULL);
	ck = t_convert_open(dst);
	assert_int_equal(ckpt_digest(ck, &dopts, &d, NULL), 0);
	ckpt_close(ck);
	t_convert_result(&b, dst, "model.safetensors");
	assert_int_equal(d.nlines, report.ndigests);
	assert_int_equal(d.nlines, b.n_tensors);
	assert_string_equal(d.root, report.root);
	for (uint64_t i = 0; i < d.nlines; i++) {
		char *key = t_fmt("zckpt.digest.%s", d.lines[i].name);

		assert_string_equal(d.lines[i].hash, report.digests[i].hash);
		assert_string_equal(t_st_meta(&b, key), d.lines[i].hash);
		free(key);
	}
	t_st_close(&b);
	ckpt_digests_free(&d);
	free(ds);
}

/* ---------------------------------------------------------------------- expect */

static void expected_names_shapes_and_types_are_held_against_the_result(void **state)
{
	const struct t_part other[] = {
		{ .name = "b.bias", .dtype = "BF16", .rows = 6 },
		{ .name = "a.weight", .dtype = "F16", .rows = 3, .cols = 4 },
		{ .name = "extra", .dtype = "I64", .rows = 2 },
		{ .name = "c.half", .dtype = "F16", .rows = 7, .cols = 3 },
		{ .name = NULL },
	};
	char *that = t_fmt("%s/that.safetensors", dir);

	(void)state;
	t_convert_source(src, small);
	t_convert_source(that, other);
	opts.dtype = CKPT_KEEP;
	opts.expect_path = that;
	t_convert(src, dst, &opts, CKPT_E_EXPECT, NULL, &err);
	assert_non_null(strstr(err.msg, "4 differences"));
	assert_non_null(strstr(err.msg, "extra would be missing"));
	assert_non_null(strstr(err.msg, "steps would be in the result, but is not expected"));
	assert_non_null(strstr(err.msg, "b.bias would have shape [5], expected [6]"));
	assert_non_null(strstr(err.msg, "a.weight would have type F32, expected F16"));
	assert_false(t_exists(dst));
	opts.expect_path = src;
	t_convert(src, dst, &opts, 0, NULL, NULL);
	free(that);
}

static void index_json_is_expected_by_its_names(void **state)
{
	static const char good[] = "{\"weight_map\":{\"b.bias\":\"x\",\"a.weight\":\"x\","
				   "\"steps\":\"x\",\"c.half\":\"y\"}}";
	static const char bad[] = "{\"weight_map\":{\"b.bias\":\"x\",\"a.weight\":\"x\","
				  "\"steps\":\"x\"}}";
	char *json = t_fmt("%s/m.index.json", dir);

	(void)state;
	t_convert_source(src, small);
	t_file_write(json, bad, sizeof(bad) - 1);
	opts.expect_path = json;
	t_convert(src, dst, &opts, CKPT_E_EXPECT, NULL, &err);
	assert_non_null(strstr(err.msg, "1 difference: c.half would be in the result, but"));
	t_file_write(json, good, sizeof(good) - 1);
	t_convert(src, dst, &opts, 0, NULL, NULL);
	free(json);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(kept_types_give_the_same_bytes_back),
		T(floats_become_fp32_exactly_and_integers_stay),
		T(values_too_large_for_fp16_are_counted_once_each),
		T(first_rule_that_matches_chooses_the_type),
		T(rule_of_an_unknown_type_is_a_wrong_call),
		T(one_file_has_the_reference_order_and_sorted_metadata),
		T(shards_hold_every_tensor_once_and_the_index_names_them),
		T(sharded_result_converts_back_to_the_same_file),
		T(master_and_moments_come_out_by_name),
		T(unknown_state_is_refused_with_those_that_there_are),
		T(several_states_do_not_go_into_one_file),
		T(fp32_is_the_master_and_not_the_rounded_weight),
		T(sixteen_bits_of_the_master_are_the_saved_weight),
		T(tied_names_are_metadata_or_copies_as_asked),
		T(weight_that_is_not_its_master_rounded_stops_every_writer),
		T(digests_of_one_state_are_equal_in_every_format),
		T(digests_in_the_metadata_are_those_of_the_file),
		T(expected_names_shapes_and_types_are_held_against_the_result),
		T(index_json_is_expected_by_its_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
