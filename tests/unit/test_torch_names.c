/*
 * torch files: what in them is a tensor, and what it is called. If this is wrong, weights come
 * out under another's name, twice, or as the whole of what is a part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/lib/archive/t_pt.h"

static void paths_are_joined_by_dots_and_stay_apart(void **state)
{
	struct t_pkl b = { 0 };
	uint32_t t;
	struct t_pt o;

	(void)state;
	/* {"a.b": t0, "a": {"b": t1, 7: [t2], "x.y\\": t3}} */
	T_PKL_PUT(&b, "\x80\x02}(");
	t_pt_str(&b, "a.b");
	t_pt_tensor(&b, "0", 24, 0, 1, 1, 1, 1);
	t_pt_str(&b, "a");
	T_PKL_PUT(&b, "}(");
	t_pt_str(&b, "b");
	t_pt_tensor(&b, "0", 24, 1, 1, 1, 1, 1);
	t_pt_int(&b, 7);
	T_PKL_PUT(&b, "]");
	t_pt_tensor(&b, "0", 24, 2, 1, 1, 1, 1);
	T_PKL_PUT(&b, "a");
	t_pt_str(&b, "x.y\\");
	t_pt_tensor(&b, "0", 24, 3, 1, 1, 1, 1);
	T_PKL_PUT(&b, "uu.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.ix.ntensors, 4);
	assert_int_equal(t_pt_extent(&o, "a.x\\.y\\\\")->off, o.zip.entry[2].data + 12);
	assert_int_equal(t_pt_extent(&o, "a.b")->off, o.zip.entry[2].data);
	assert_int_equal(t_pt_extent(&o, "a.7.0")->off, o.zip.entry[2].data + 8);
	assert_true(ck_index_find(&o.ix, "a.b~2", &t));
	assert_int_equal(t_pt_extent(&o, "a.b~2")->off, o.zip.entry[2].data + 4);
	t_pt_close(&o);
}

static void tied_tensors_are_one_tensor_and_an_alias(void **state)
{
	struct t_pkl b = { 0 };
	uint32_t first, second, other;
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "\x80\x02}(");
	t_pt_str(&b, "emb");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	t_pt_str(&b, "head");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	t_pt_str(&b, "part");
	t_pt_tensor(&b, "0", 24, 0, 2, 6, 6, 1);
	T_PKL_PUT(&b, "u.");
	t_pt_open(&o, &b, NULL);
	assert_true(ck_index_find(&o.ix, "emb", &first));
	assert_true(ck_index_find(&o.ix, "head", &second));
	assert_true(ck_index_find(&o.ix, "part", &other));
	assert_int_equal(o.ix.tensor[first].role, CKPT_ROLE_PLAIN);
	assert_int_equal(o.ix.tensor[second].role, CKPT_ROLE_ALIAS);
	assert_int_equal(o.ix.tensor[second].alias_of, first);
	assert_int_equal(o.ix.tensor[other].role, CKPT_ROLE_PLAIN);
	t_pt_close(&o);
}

static void a_distributed_tensor_is_not_shown_as_the_full_one(void **state)
{
	struct t_pkl b = { 0 };
	struct t_pt o;

	(void)state;
	/* _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (...), {"_local": t}) */
	T_PKL_PUT(&b, "\x80\x02}");
	t_pt_str(&b, "w");
	T_PKL_PUT(&b, "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
		  "_rebuild_wrapper_subclass\nctorch.distributed.tensor\nDTensor\n(Nt}");
	t_pt_str(&b, "_local_tensor");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	T_PKL_PUT(&b, "stRs.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.ix.ntensors, 0);
	assert_int_equal(o.f.n, 2);	/* and the record that is packed is not used */
	assert_string_equal(o.f.list[1].id, "TENSOR_OPAQUE");
	assert_string_equal(o.f.list[1].where, "w");
	t_pt_close(&o);
}

/* Nothing in the corpus was written by a torch that old. */
static void a_tensor_of_the_time_before_1_0_is_read(void **state)
{
	struct t_pkl b = { 0 };
	const struct ck_extent *e;
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "\x80\x02}");
	t_pt_str(&b, "w");
	T_PKL_PUT(&b, "ctorch\nFloatTensor\n)\x81((");
	t_pt_str(&b, "storage");
	T_PKL_PUT(&b, "ctorch\nFloatStorage\n");
	t_pt_str(&b, "0");
	t_pt_str(&b, "cpu");
	t_pt_int(&b, 24);
	T_PKL_PUT(&b, "tQ");
	t_pt_int(&b, 2);
	t_pt_dims(&b, (const int[]){ 3, 2 }, 2);
	t_pt_dims(&b, (const int[]){ 2, 1 }, 2);
	T_PKL_PUT(&b, "tbs.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	e = t_pt_extent(&o, "w");
	assert_int_equal(e->off, o.zip.entry[2].data + 8);
	assert_int_equal(e->count, 6);
	assert_int_equal(e->dtype, CKPT_F32);
	t_pt_close(&o);
}

/* Twice 40,000 tensors of one path: numbered one after the other, and within seconds. */
static void names_that_clash_by_the_thousand_take_no_time(void **state)
{
	enum { N = 40000 };
	struct t_pkl b = { 0 };
	uint32_t t;
	struct t_pt o;

	(void)state;
	T_PKL_PUT(&b, "\x80\x02]q\x01");
	t_pt_tensor(&b, "0", 24, 3, 1, 1, 1, 1);
	T_PKL_PUT(&b, "q\x02" "a0}(");
	for (int i = 0; i < N; i++)
		T_PKL_PUT(&b, "F1\nh\x02I01\nh\x02");
	T_PKL_PUT(&b, "u.");
	t_pt_open(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.ix.ntensors, 2 * N);
	assert_true(ck_index_find(&o.ix, "True~40000", &t));
	t_pt_close(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_joined_by_dots_and_stay_apart),
		cmocka_unit_test(tied_tensors_are_one_tensor_and_an_alias),
		cmocka_unit_test(a_distributed_tensor_is_not_shown_as_the_full_one),
		cmocka_unit_test(a_tensor_of_the_time_before_1_0_is_read),
		cmocka_unit_test(names_that_clash_by_the_thousand_take_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
