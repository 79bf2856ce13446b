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
#include "tests/lib/t_arch.h"
#include "tests/lib/t_dir.h"
#include "tests/lib/t_step.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_that_was_changed_with_its_crc_is_named),
		cmocka_unit_test(what_is_no_sum_is_not_compared),
	};

	return cmocka_run_group_tests_name("sums", tests, NULL, NULL);
}
