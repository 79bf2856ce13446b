/*
 * Looking at values. If this fails, hyper-parameters and shapes are read wrongly, or a small
 * hostile file keeps the program busy for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libckpt/tensor/ck_val.h"

static struct ck_val num(int64_t i)
{
	return (struct ck_val){ .kind = CK_VAL_INT, .u.i = i };
}

static struct ck_val real(double f)
{
	return (struct ck_val){ .kind = CK_VAL_FLOAT, .u.f = f };
}

static struct ck_val text(const char *s, uint64_t n)
{
	return (struct ck_val){ .kind = CK_VAL_STR, .u.str = { s, n } };
}

static struct ck_val seq(enum ck_val_kind kind, struct ck_val **item, uint64_t n)
{
	return (struct ck_val){ .kind = (uint8_t)kind, .u.seq = { item, n, n } };
}

static void numbers_are_taken_where_they_are_whole(void **state)
{
	struct ck_val v = num(-5), yes = { .kind = CK_VAL_BOOL, .u.b = true };
	int64_t i = 77;
	double f;

	(void)state;
	assert_true(ck_val_int(&v, &i) && i == -5);
	assert_true(ck_val_int(&yes, &i) && i == 1);
	v = real(3.0);
	assert_true(ck_val_int(&v, &i) && i == 3);
	i = 77;
	v = real(3.5);
	assert_false(ck_val_int(&v, &i));
	v = real(1e30);
	assert_false(ck_val_int(&v, &i));
	assert_true(ck_val_num(&v, &f) && f == 1e30);
	v = real(NAN);
	assert_false(ck_val_int(&v, &i) || ck_val_int(NULL, &i));
	v = text("3", 1);
	assert_false(ck_val_num(&v, &f));
	assert_int_equal(i, 77);
}

static void strings_with_nul_inside_are_no_names(void **state)
{
	struct ck_val a = text("a\0b", 3), b = text("ab", 2);

	(void)state;
	assert_null(ck_val_str(&a));
	assert_string_equal(ck_val_str(&b), "ab");
	assert_true(ck_val_is_str(&b, "ab"));
	assert_false(ck_val_is_str(&a, "a") || ck_val_is_str(NULL, ""));
}

static void the_last_pair_of_a_key_counts(void **state)
{
	struct ck_val k1 = text("k", 1), k2 = text("k", 1);
	struct ck_val five = num(5), one = num(1), two = num(2);
	struct ck_val *item[] = { &k1, &one, &five, &two, &k2, &two };
	struct ck_val dict = seq(CK_VAL_DICT, item, 6);

	(void)state;
	assert_ptr_equal(ck_val_get(&dict, "k"), &two);
	assert_null(ck_val_get(&dict, "x"));
	assert_null(ck_val_get(&five, "k"));
	assert_ptr_equal(ck_val_get_int(&dict, 5), &two);
	assert_null(ck_val_get_int(&dict, 1));
}

static void sequences_are_seen_through_torch_size(void **state)
{
	struct ck_val fn = { .kind = CK_VAL_GLOBAL, .u.global = { "torch", "Size" } };
	struct ck_val two = num(2), three = num(3);
	struct ck_val *dims[] = { &two, &three };
	struct ck_val inner = seq(CK_VAL_TUPLE, dims, 2), *arg[20], args[20], size[20];
	struct ck_obj obj[20];
	struct ck_val *const *item;
	uint64_t n;

	(void)state;
	memset(obj, 0, sizeof(obj));
	for (int i = 0; i < 20; i++) {
		arg[i] = i ? &size[i - 1] : &inner;
		args[i] = seq(CK_VAL_TUPLE, &arg[i], 1);
		obj[i].fn = &fn;
		obj[i].args = &args[i];
		size[i] = (struct ck_val){ .kind = CK_VAL_OBJECT, .u.obj = &obj[i] };
	}
	assert_true(ck_val_seq(&size[0], &item, &n) && n == 2);
	assert_ptr_equal(ck_val_at(&size[0], 1), &three);
	assert_null(ck_val_at(&size[0], 2));
	assert_true(ck_val_seq(&size[5], &item, &n));
	assert_false(ck_val_seq(&size[19], &item, &n));	/* too deep to be meant */
	assert_false(ck_val_seq(&two, &item, &n) || ck_val_seq(NULL, &item, &n));
	assert_true(ck_val_is_call(&size[0], "torch", "Size"));
	assert_false(ck_val_is_call(&size[0], "torch", "size"));
}

static void equality_is_of_values_and_bits(void **state)
{
	struct ck_val a = num(1), b = num(1), zero = real(0.0), minus = real(-0.0);
	struct ck_val nan1 = real(NAN), nan2 = nan1, t = { .kind = CK_VAL_BOOL, .u.b = true };
	struct ck_val *x[] = { &a, &nan1 }, *y[] = { &b, &nan2 };
	struct ck_val l1 = seq(CK_VAL_LIST, x, 2), l2 = seq(CK_VAL_LIST, y, 2);
	struct ck_val tuple = seq(CK_VAL_TUPLE, y, 2), shorter = seq(CK_VAL_LIST, y, 1);

	(void)state;
	assert_true(ck_val_equal(&l1, &l2, 2));
	assert_false(ck_val_equal(&l1, &l2, 1));
	assert_false(ck_val_equal(&l1, &tuple, 9));
	assert_false(ck_val_equal(&l1, &shorter, 9));
	assert_false(ck_val_equal(&zero, &minus, 9));
	assert_false(ck_val_equal(&a, &t, 9));
	assert_true(ck_val_equal(NULL, NULL, 9));
	assert_false(ck_val_equal(&a, NULL, 9));
}

/* Sixty lists, each holding the one before twice: 2^60 nodes to a walker. */
static void shared_references_do_not_make_it_walk_for_ever(void **state)
{
	struct ck_val list[2][60], leaf[2] = { num(1), num(1) };
	struct ck_val *item[2][60][2];

	(void)state;
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < 60; i++) {
			item[k][i][0] = item[k][i][1] = i ? &list[k][i - 1] : &leaf[k];
			list[k][i] = seq(CK_VAL_LIST, item[k][i], 2);
		}
	assert_true(ck_val_equal(&list[0][9], &list[1][9], 100));
	assert_false(ck_val_equal(&list[0][59], &list[1][59], 100));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_taken_where_they_are_whole),
		cmocka_unit_test(strings_with_nul_inside_are_no_names),
		cmocka_unit_test(the_last_pair_of_a_key_counts),
		cmocka_unit_test(sequences_are_seen_through_torch_size),
		cmocka_unit_test(equality_is_of_values_and_bits),
		cmocka_unit_test(shared_references_do_not_make_it_walk_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
