/*
 * The index. If this fails, elements that no file holds, or two files hold, get into a tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/tensor/ck_index.h"
#include "tests/lib/fs/t_dir.h"

static struct ck_index ix;
static uint32_t source;

static int set_up(void **state)
{
	struct ck_src *src;

	(void)state;
	if (ck_index_init(&ix, 1 << 20, NULL) || ck_src_mem("0123456789", 10, "mem", &src, NULL))
		return -1;
	return ck_index_add_source(&ix, "mem", src, 3, &source, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	ck_index_release(&ix);
	return 0;
}

static struct ck_extent extent(uint64_t first, uint64_t count, uint64_t runs)
{
	return (struct ck_extent){
		.first = first, .count = count, .runs = runs, .source = source,
		.member = CK_NONE, .view = CK_NONE, .dtype = CKPT_F32,
	};
}

static int add_state(uint32_t tensor, const char *name, const struct ck_extent *e, size_t n,
		     uint32_t *out, struct ckpt_err *err)
{
	assert_int_equal(ck_index_state_begin(&ix, tensor, name, CKPT_F32, 0, NULL), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(ck_index_state_extent(&ix, &e[i], NULL), 0);
	return ck_index_state_end(&ix, out, err);
}

static void a_name_is_there_once(void **state)
{
	const uint64_t shape[] = { 2, 3 };
	uint32_t t = 9, u = 9;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "a", shape, 2, CKPT_ROLE_PLAIN, &t, NULL), 0);
	assert_int_equal(ck_index_add_tensor(&ix, "a", shape, 1, CKPT_ROLE_PLAIN, &u, NULL), 1);
	assert_int_equal(t, u);
	assert_int_equal(ix.ntensors, 1);
	assert_int_equal(ix.tensor[t].numel, 6);
	assert_true(ck_index_find(&ix, "a", &u));
	assert_false(ck_index_find(&ix, "b", &u));
	assert_int_equal(ck_index_add_tensor(&ix, "0-dim", NULL, 0, CKPT_ROLE_PLAIN, &t, NULL), 0);
	assert_int_equal(ix.tensor[t].numel, 1);
}

static void a_shape_beyond_63_bits_is_refused(void **state)
{
	const uint64_t shape[] = { (uint64_t)1 << 32, (uint64_t)1 << 31 };
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "big", shape, 2, CKPT_ROLE_PLAIN, &t, NULL),
			 -CKPT_E_LIMIT);
	assert_false(ck_index_find(&ix, "big", &t));
}

static void extents_must_cover_every_element_once(void **state)
{
	static const struct {
		uint64_t at[3][3];
		int n, ok;
	} of[] = {
		{ { { 0, 4, 1 }, { 4, 2, 3 } }, 2, 1 },
		{ { { 0, 10, 1 } }, 1, 1 },
		{ { { 0, 5, 1 }, { 5, 0, 1 }, { 5, 5, 1 } }, 3, 1 },
		{ { { 0, 4, 1 }, { 5, 5, 1 } }, 2, 0 },		/* a gap */
		{ { { 0, 6, 1 }, { 5, 5, 1 } }, 2, 0 },		/* twice */
		{ { { 0, 9, 1 } }, 1, 0 },			/* short */
		{ { { 0, 11, 1 } }, 1, 0 },			/* long */
		{ { { 0, 10, 2 } }, 1, 0 },
		{ { { 1, 9, 1 } }, 1, 0 },
		{ { { 0 } }, 0, 0 },
	};
	const uint64_t shape[] = { 10 };

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		const uint64_t before = ix.nextents, states = ix.nstates;
		struct ck_extent e[3];
		struct ckpt_err err = { 0 };
		char name[8];
		uint32_t t, s = 99;
		int rc;

		snprintf(name, sizeof(name), "t%d", (int)i);
		rc = ck_index_add_tensor(&ix, name, shape, 1, CKPT_ROLE_PLAIN, &t, NULL);
		assert_int_equal(rc, 0);
		for (int k = 0; k < of[i].n; k++)
			e[k] = extent(of[i].at[k][0], of[i].at[k][1], of[i].at[k][2]);
		rc = add_state(t, "weight", e, (size_t)of[i].n, &s, &err);
		assert_int_equal(rc, of[i].ok ? 0 : -CKPT_E_MISMATCH);
		if (!rc)
			continue;
		assert_string_equal(err.where, name);
		assert_int_equal(s, 99);
		assert_int_equal(ix.nextents, before);
		assert_int_equal(ix.nstates, states);
		assert_int_equal(ck_index_state_find(&ix, t, "weight"), CK_NONE);
	}
}

static void an_extent_beyond_64_bits_is_refused(void **state)
{
	const uint64_t shape[] = { 10 };
	struct ck_extent e = extent(0, 10, 1);
	struct ckpt_err err = { 0 };
	uint32_t t;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "t", shape, 1, CKPT_ROLE_PLAIN, &t, NULL), 0);
	assert_int_equal(ck_index_state_begin(&ix, t, "weight", CKPT_F32, 0, NULL), 0);
	e.off = UINT64_MAX - 20;
	assert_int_equal(ck_index_state_extent(&ix, &e, &err), -CKPT_E_CORRUPT);
	assert_string_equal(err.where, "mem");
	e = extent(0, 1, 3);
	e.src_stride = (uint64_t)1 << 63;
	assert_int_equal(ck_index_state_extent(&ix, &e, NULL), -CKPT_E_CORRUPT);
	ck_index_state_cancel(&ix);
	ck_index_state_cancel(&ix);
}

static void states_are_kept_in_order_and_a_second_copy_is_a_replica(void **state)
{
	const uint64_t shape[] = { 10 };
	const struct ck_extent e = extent(0, 10, 1);
	uint32_t t, a, b, copy, derived;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "t", shape, 1, CKPT_ROLE_PLAIN, &t, NULL), 0);
	assert_int_equal(add_state(t, "master", &e, 1, &a, NULL), 0);
	assert_int_equal(add_state(t, "exp_avg", &e, 1, &b, NULL), 0);
	assert_int_equal(add_state(t, "master", &e, 1, &copy, NULL), 0);
	assert_int_equal(ck_index_state_derive(&ix, a, "weight", CKPT_BF16, NULL), 0);
	derived = ck_index_state_find(&ix, t, "weight");
	assert_int_equal(ix.tensor[t].nstates, 3);
	assert_int_equal(ck_index_state_find(&ix, t, "master"), a);
	assert_int_equal(ck_index_state_find(&ix, t, "exp_avg"), b);
	assert_int_equal(ix.state[a].nreplicas, 1);
	assert_int_equal(ix.state[a].replica, copy);
	assert_int_equal(ix.state[a].next, b);
	assert_int_equal(ix.state[b].next, derived);
	assert_int_equal(ix.state[derived].stored, ix.state[a].stored);
	assert_int_equal(ix.state[derived].nstored, ix.state[a].nstored);
	assert_int_equal(ix.state[derived].flags, CKPT_STATE_DERIVED);
	assert_int_equal(ix.state[derived].dtype, CKPT_BF16);
	assert_ptr_equal(ix.state[copy].name, ix.state[a].name);
}

static void every_element_finds_its_extent(void **state)
{
	const uint64_t shape[] = { 100 };
	struct ck_extent e[100];
	uint64_t at = 0, k = 0;
	size_t n = 0;
	uint32_t t, s;

	(void)state;
	assert_int_equal(ck_index_add_tensor(&ix, "t", shape, 1, CKPT_ROLE_PLAIN, &t, NULL), 0);
	while (at < 100) {
		const uint64_t len = n % 4 < 100 - at ? n % 4 : 100 - at;

		e[n] = extent(at, len, 1);
		e[n].off = n;
		n++;
		at += len;
	}
	assert_int_equal(add_state(t, "weight", e, n, &s, NULL), 0);
	for (uint64_t i = 0; i < 100; i++) {
		while (e[k].first + e[k].count <= i)
			k++;
		assert_int_equal(ck_extent_at(&ix, &ix.state[s], i).off, k);
	}
}

static void facts_keep_their_whole_text(void **state)
{
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[2999] = 0;
	assert_int_equal(ck_index_add_fact(&ix, NULL, "long", "%s", text), 0);
	assert_int_equal(ck_index_add_fact(&ix, NULL, "n", "%d", 5), 0);
	assert_string_equal(ck_index_fact(&ix, "long"), text);
	assert_string_equal(ck_index_fact(&ix, "n"), "5");
	assert_null(ck_index_fact(&ix, "other"));
}

static void the_index_stops_at_its_limit(void **state)
{
	const uint64_t shape[] = { 1 };
	struct ckpt_err err = { 0 };
	uint32_t t;
	int rc = 0, n;

	(void)state;
	for (n = 0; !rc && n < 100000; n++) {
		char *name = t_fmt("tensor %d", n);

		rc = ck_index_add_tensor(&ix, name, shape, 1, CKPT_ROLE_PLAIN, &t, &err);
		free(name);
	}
	assert_int_equal(rc, -CKPT_E_LIMIT);
	assert_in_range(n, 1 << 12, 1 << 14);
	assert_non_null(strstr(err.msg, "1048576"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_name_is_there_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_shape_beyond_63_bits_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(extents_must_cover_every_element_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_extent_beyond_64_bits_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			states_are_kept_in_order_and_a_second_copy_is_a_replica, set_up, tear_down),
		cmocka_unit_test_setup_teardown(every_element_finds_its_extent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(facts_keep_their_whole_text, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_index_stops_at_its_limit, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
