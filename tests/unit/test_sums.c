/*
 * test_sums.c -- checksums that archives hold, held against the bytes by the verbs that read.
 *
 * If this fails, weights with flipped bits or of another tensor are written into a new file, where
 * no checksum tells any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_arch.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define STEP "ds0.19.8-z2-bf16-w2"
#define SHARD "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"

/* A copy of a step, and one of its files as an archive. */
struct one {
	char *dir, *ckpt, *path;
	struct t_arch a;
};

static void begin(struct one *o, const char *step, const char *file)
{
	size_t n;
	uint8_t *p;

	o->dir = t_step_copy(step);
	o->ckpt = t_fmt("%s/ckpt", o->dir);
	o->path = t_fmt("%s/%s", o->ckpt, file);
	p = t_file_read(o->path, &n);
	assert_non_null(p);
	assert_true(t_arch_parse(&o->a, p, n));
}

static void put(const struct one *o)
{
	t_file_write(o->path, o->a.p, o->a.n);
}

static void end(struct one *o)
{
	free(o->a.p);
	free(o->path);
	free(o->ckpt);
	t_dir_end(o->dir);
}

static int is_said(const struct one *o, const char *id)
{
	struct ckpt *ck = t_step_open(o->ckpt, NULL);
	const int said = t_step_finding(ck, id, "") != NULL;

	ckpt_close(ck);
	return said;
}

static void a_record_that_was_changed_with_its_crc_is_named(void **state)
{
	struct t_arch_member *m;
	struct one o;

	(void)state;
	begin(&o, STEP, SHARD);
	assert_true(t_arch_has_id(&o.a));
	m = t_arch_find(&o.a, "data/2");
	o.a.p[m->data + m->n / 2] ^= 1;
	put(&o);
	assert_false(is_said(&o, "CRC_SUM_WRONG"));	/* the directory is as it was */
	t_arch_fix_crcs(&o.a);
	put(&o);
	assert_true(is_said(&o, "CRC_SUM_WRONG"));
	t_arch_fix_id(&o.a);
	put(&o);
	assert_false(is_said(&o, "CRC_SUM_WRONG"));
	end(&o);
}

/* What other writers put there is no sum, and packing anew is no damage. */
static void what_is_no_sum_is_not_compared(void **state)
{
	static const char *const digits[] = {
		"00000000000000000000", "18446744073709551616", "99999999999999999999",
		"1234567890123456789x",
	};
	struct t_arch_member *id;
	struct one o;

	(void)state;
	begin(&o, STEP, SHARD);
	id = t_arch_find(&o.a, ".data/serialization_id");
	for (size_t i = 0; i < sizeof(digits) / sizeof(digits[0]); i++) {
		memcpy(o.a.p + id->data + 20, digits[i], 20);
		t_arch_fix_crcs(&o.a);
		put(&o);
		assert_false(is_said(&o, "CRC_SUM_WRONG"));
	}
	memcpy(o.a.p + id->data + 20, "18446744073709551615", 20);
	put(&o);	/* its own CRC is wrong: nothing is read from it */
	assert_false(is_said(&o, "CRC_SUM_WRONG"));
	t_arch_fix_crcs(&o.a);
	put(&o);
	assert_true(is_said(&o, "CRC_SUM_WRONG"));
	for (size_t i = 0; i < o.a.count; i++)	/* as if a zip program had written it */
		o.a.p[o.a.m[i].central + 8] &= (uint8_t)~8;
	put(&o);
	assert_false(is_said(&o, "CRC_SUM_WRONG"));
	end(&o);
}

/* ------------------------------------------------------------- what a verb reads */

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 2, .sync = CKPT_SYNC_NONE,
};

static int convert(const char *path, const char *dst, const char *const *include,
		   const char *const *as_warning, struct ckpt_err *err)
{
	const struct ckpt_open_opts open = { .size = sizeof(open), .as_warning = as_warning };
	const struct ckpt_select select = { .size = sizeof(select), .include = include };
	const struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run, .select = &select,
	};
	struct ckpt *ck;
	int rc;

	memset(err, 0, sizeof(*err));
	assert_int_equal(ckpt_open(&path, 1, &open, &ck, NULL), 0);
	rc = ckpt_convert(ck, dst, &opts, NULL, err);
	ckpt_close(ck);
	return rc;
}

static int reshard(const char *path, const char *dst, struct ckpt_err *err)
{
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .run = &run, .world = 3, .stage = -1, .round_robin = -1,
	};
	struct ckpt *ck = t_step_open(path, NULL);
	const int rc = ckpt_reshard(ck, dst, &opts, NULL, err);

	ckpt_close(ck);
	return rc;
}

static void is_refused(int rc, const struct ckpt_err *err, const char *dst)
{
	char *partial = t_fmt("%s.zckpt-partial", dst);

	assert_int_equal(rc, -CKPT_E_CORRUPT);
	assert_non_null(strstr(err->msg, "CRC_WRONG: "));
	assert_false(t_exists(dst));
	assert_false(t_exists(partial));
	free(partial);
}

/* A bit in the middle of every record of tensors: reshard reads all that matters, convert some. */
static void flipped_bits_are_not_copied(void **state)
{
	static const struct {
		const char *step, *file;
		int converted;	/* records that convert reads */
	} cases[] = {
		{ STEP, SHARD, 2 },
		{ STEP, "global_step3/mp_rank_00_model_states.pt", 3 },
		{ "ds0.19.8-z3-bf16-w2", SHARD, 2 },
		{ "ds0.19.8-z0-bf16-w2", "global_step3/mp_rank_00_model_states.pt", 24 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int converted = 0, resharded = 0;
		char *weights, *step;
		struct ckpt_err err;
		struct one o;

		begin(&o, cases[i].step, cases[i].file);
		weights = t_fmt("%s/m.safetensors", o.dir);
		step = t_fmt("%s/step", o.dir);
		for (size_t k = 0; k < o.a.count; k++) {
			const struct t_arch_member *m = &o.a.m[k];
			int rc;

			if (strncmp(m->rest, "data/", 5) || m->n < 12)
				continue;
			o.a.p[m->data + m->n / 2] ^= 1;
			put(&o);
			rc = convert(o.ckpt, weights, NULL, NULL, &err);
			if (rc && strncmp(err.msg, "MASTER", 6)) {
				is_refused(rc, &err, weights);
				converted++;
			}
			t_dir_remove(weights);
			memset(&err, 0, sizeof(err));
			rc = reshard(o.ckpt, step, &err);
			if (rc && strncmp(err.msg, "MASTER", 6)) {
				is_refused(rc, &err, step);
				resharded++;
			}
			t_dir_remove(step);
			o.a.p[m->data + m->n / 2] ^= 1;
		}
		put(&o);
		print_message("%s: %d records for convert, %d for reshard\n", cases[i].file,
			      converted, resharded);
		assert_true(converted >= cases[i].converted);
		assert_true(resharded >= converted);
		assert_int_equal(convert(o.ckpt, weights, NULL, NULL, &err), 0);
		end(&o);
		free(weights);
		free(step);
	}
}

/* Spans of strided runs, views that are gathered, and one tensor of many in a record. */
static void bits_between_what_is_wanted_count(void **state)
{
	static const char *const one[] = { "col", NULL }, *const warn[] = { "CRC_WRONG", NULL };
	const char *root = getenv("ZCKPT_FIXTURES");
	char *from = t_fmt("%s/formats/torch/v2.11/views.pt", root && *root ? root :
			   "build/fixtures");
	char *dir = t_dir_new(), *src = t_fmt("%s/m.pt", dir), *dst = t_fmt("%s/o.pt", dir);
	struct t_arch *a = t_alloc(sizeof(*a));
	struct t_arch_member *m;
	struct ckpt_err err;
	size_t n;
	uint8_t *p;

	(void)state;
	t_dir_copy(from, src);
	p = t_file_read(src, &n);
	assert_true(t_arch_parse(a, p, n));
	m = t_arch_find(a, "data/0");
	assert_int_equal(convert(src, dst, one, NULL, &err), 0);
	t_dir_remove(dst);
	for (size_t i = 0; i < m->n; i += 5) {
		p[m->data + i] ^= 0x10;
		t_file_write(src, p, n);
		is_refused(convert(src, dst, NULL, NULL, &err), &err, dst);
		is_refused(convert(src, dst, one, NULL, &err), &err, dst);
		p[m->data + i] ^= 0x10;
	}
	assert_int_equal(convert(src, dst, NULL, warn, &err), 0);
	free(a);
	free(p);
	free(src);
	free(dst);
	free(from);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_that_was_changed_with_its_crc_is_named),
		cmocka_unit_test(what_is_no_sum_is_not_compared),
		cmocka_unit_test(flipped_bits_are_not_copied),
		cmocka_unit_test(bits_between_what_is_wanted_count),
	};

	return cmocka_run_group_tests_name("sums", tests, NULL, NULL);
}
