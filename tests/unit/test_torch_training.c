/*
 * Training files whose values are shared or many. If this fails, a file of a few hundred bytes,
 * or one of a large model, keeps whoever looks at it busy for hours.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libckpt/include/ckpt.h"
#include "libckpt/include/ckpt_convert.h"
#include "libckpt/include/ckpt_reshard.h"
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"

#define LEVELS 14	/* of eight: 4,398,046,511,104 paths */
#define MANY 20000

/* [[...], the same, ...]: lists of eight that are one list. */
static void put_shared(struct t_pkl *b)
{
	T_PKL_PUT(b, "]q\x01K\x01" "a");
	for (int i = 0; i < LEVELS; i++)
		T_PKL_PUT(b, "0](h\x01h\x01h\x01h\x01h\x01h\x01h\x01h\x01" "eq\x01");
}

/* The archive of 'b' is opened as a file. */
static struct ckpt *opened(struct t_pkl *b)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/t.pt", dir);
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	struct t_pt o;

	t_pt_open(&o, b, NULL);
	t_file_write(path, o.zip.p, o.zip.n);
	t_pt_close(&o);
	assert_int_equal(ckpt_open((const char *const *)&path, 1, NULL, &ck, &err), 0);
	free(path);
	t_dir_end(dir);
	return ck;
}

/* {"model": {NAME: ...: what follows is the value, and "u" ends the model. */
static void put_model(struct t_pkl *b, const char *name)
{
	T_PKL_PUT(b, "\x80\x02}(");
	t_pt_str(b, "model");
	T_PKL_PUT(b, "}(");
	t_pt_str(b, name);
}

static void shared_lists_of_an_empty_model_take_no_time(void **state)
{
	struct t_pkl b = { 0 };

	(void)state;
	put_model(&b, "x");
	put_shared(&b);
	T_PKL_PUT(&b, "uu.");
	ckpt_close(opened(&b));
}

static void shared_lists_beside_a_model_take_no_time(void **state)
{
	struct t_pkl b = { 0 };

	(void)state;
	put_model(&b, "w");
	t_pt_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	T_PKL_PUT(&b, "u");
	t_pt_str(&b, "callbacks");
	put_shared(&b);
	T_PKL_PUT(&b, "u.");
	ckpt_close(opened(&b));
}

/* {"model": {"w"}, "optimizer": {"state": {0: {"m"}}, "param_groups": [group, the same, ...]}} */
static void groups_name_no_more_parameters_than_there_are(void **state)
{
	struct ckpt_finding f = { .text = "" };
	struct t_pkl b = { 0 };
	struct ckpt *ck;

	(void)state;
	put_model(&b, "w");
	t_pt_tensor(&b, "0", 24, 0, 1, 6, 6, 1);
	T_PKL_PUT(&b, "u");
	t_pt_str(&b, "optimizer");
	T_PKL_PUT(&b, "}(");
	t_pt_str(&b, "state");
	T_PKL_PUT(&b, "}(K\x00}(");
	t_pt_str(&b, "m");
	t_pt_tensor(&b, "0", 24, 6, 1, 6, 6, 1);
	T_PKL_PUT(&b, "uu");
	t_pt_str(&b, "param_groups");
	T_PKL_PUT(&b, "]K\x00q\x01" "0");
	t_pt_str(&b, "w");
	T_PKL_PUT(&b, "q\x02" "0}(");
	t_pt_str(&b, "params");
	T_PKL_PUT(&b, "](");
	for (int i = 0; i < MANY; i++)
		T_PKL_PUT(&b, "h\x01");
	T_PKL_PUT(&b, "e");
	t_pt_str(&b, "param_names");
	T_PKL_PUT(&b, "](");
	for (int i = 0; i < MANY; i++)
		T_PKL_PUT(&b, "h\x02");
	T_PKL_PUT(&b, "euq\x03" "0(");
	for (int i = 0; i < MANY; i++)
		T_PKL_PUT(&b, "h\x03");
	T_PKL_PUT(&b, "euu.");
	ck = opened(&b);
	for (uint64_t i = 0; !strstr(f.text, "left out: its groups"); i++)
		assert_int_equal(ckpt_finding_get(ck, i, &f, NULL), 0);
	ckpt_close(ck);
}

/* ---- what the caller says ---- */

/* {"model": {"a", "b", "c"}, "optimizer": {"state": {0: {"m"}, 1: {"m"}}, ...}}, of one shape. */
static void put_twins(struct t_pkl *b)
{
	put_model(b, "a");
	t_pt_tensor(b, "0", 24, 0, 1, 6, 6, 1);
	t_pt_str(b, "b");
	t_pt_tensor(b, "0", 24, 6, 1, 6, 6, 1);
	t_pt_str(b, "c");
	t_pt_tensor(b, "0", 24, 12, 1, 6, 6, 1);
	T_PKL_PUT(b, "u");
	t_pt_str(b, "optimizer");
	T_PKL_PUT(b, "}(");
	t_pt_str(b, "state");
	T_PKL_PUT(b, "}(K\x00}(");
	t_pt_str(b, "m");
	t_pt_tensor(b, "0", 24, 18, 1, 6, 6, 1);
	T_PKL_PUT(b, "uK\x01}(");
	t_pt_str(b, "m");
	t_pt_tensor(b, "0", 24, 18, 1, 6, 6, 1);
	T_PKL_PUT(b, "uu");
	t_pt_str(b, "param_groups");
	T_PKL_PUT(b, "]}(");
	t_pt_str(b, "params");
	T_PKL_PUT(b, "](K\x00K\x01" "eua" "uu.");
}

/* Which of the three have states, "bc"; or "" where opening fails, and 'err' says why. */
static void owners(const char *path, const struct ckpt_open_opts *opts, char out[4],
		   struct ckpt_err *err)
{
	struct ckpt_tensor_info t;
	struct ckpt *ck = NULL;
	size_t n = 0;

	*err = (struct ckpt_err){ 0 };
	if (!ckpt_open(&path, 1, opts, &ck, err))
		for (uint64_t i = 0; i < 3; i++) {
			assert_int_equal(ckpt_tensor_get(ck, i, &t, NULL), 0);
			if (t.nstates > 1)
				out[n++] = t.name[0];
		}
	out[n] = 0;
	ckpt_close(ck);
}

static void the_caller_says_whose_states_they_are(void **state)
{
	static const char *const first[] = { "a", NULL }, *const last[] = { "c*", NULL };
	static const char *const none[] = { "x", NULL };
	const struct {
		const char *order;
		const char *const *frozen, *const *buffers;
		const char *has;
		enum ckpt_code code;
	} cases[] = {
		{ NULL, NULL, NULL, "", 0 }, { NULL, first, NULL, "bc", 0 },
		{ NULL, NULL, last, "ab", 0 }, { "c\na\n", NULL, NULL, "ac", 0 },
		{ "b\r\n\nc", first, NULL, "bc", 0 },
		{ "a\nc", first, NULL, "", CKPT_E_MISMATCH },
		{ "a", NULL, NULL, "", CKPT_E_MISMATCH },
		{ "a\na", NULL, NULL, "", CKPT_E_MISMATCH },
		{ "a\nx", NULL, NULL, "", CKPT_E_MISMATCH },
		{ "a\nb\nc", NULL, NULL, "", CKPT_E_MISMATCH },
		{ NULL, none, NULL, "", CKPT_E_USAGE }, { NULL, NULL, none, "", CKPT_E_USAGE },
		{ NULL, first, last, "", 0 },
	};
	char *dir = t_dir_new(), *path = t_fmt("%s/t.pt", dir), *order = t_fmt("%s/order", dir);
	struct t_pkl b = { 0 };
	struct ckpt_err err;
	struct t_pt o;
	char has[4];

	(void)state;
	put_twins(&b);
	t_pt_open(&o, &b, NULL);
	t_file_write(path, o.zip.p, o.zip.n);
	t_pt_close(&o);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct ckpt_open_opts opts = {
			.size = sizeof(opts), .order_path = cases[i].order ? order : NULL,
			.frozen = cases[i].frozen, .buffers = cases[i].buffers,
		};

		if (cases[i].order)
			t_file_write(order, cases[i].order, strlen(cases[i].order));
		owners(path, &opts, has, &err);
		assert_string_equal(has, cases[i].has);
		assert_int_equal(err.code, cases[i].code);
	}
	free(order);
	free(path);
	t_dir_end(dir);
}

/* ---- damage ---- */

/* {"model": {"w"}, "optimizer": {"state": {0: {"exp_avg"}}, "param_groups": [...]}, "epoch": 2} */
static void put_step_of(struct t_pkl *b, bool scaled)
{
	put_model(b, "w");
	t_pt_tensor(b, "0", 24, 0, 1, 6, 6, 1);
	T_PKL_PUT(b, "u");
	t_pt_str(b, "optimizer");
	T_PKL_PUT(b, "}(");
	t_pt_str(b, "state");
	T_PKL_PUT(b, "}(K\x00}(");
	t_pt_str(b, "step");
	T_PKL_PUT(b, "K\x05");
	t_pt_str(b, "exp_avg");
	t_pt_tensor(b, "0", 24, 6, 1, 6, 6, 1);
	T_PKL_PUT(b, "uu");
	t_pt_str(b, "param_groups");
	T_PKL_PUT(b, "](}(");
	t_pt_str(b, "lr");
	T_PKL_PUT(b, "K\x01");
	t_pt_str(b, "params");
	T_PKL_PUT(b, "](K\x00" "eueu");
	if (scaled) {
		t_pt_str(b, "scaler");
		T_PKL_PUT(b, "}(");
		t_pt_str(b, "scale");
		T_PKL_PUT(b, "K\x02");
		t_pt_str(b, "growth_factor");
		T_PKL_PUT(b, "K\x02");
		t_pt_str(b, "backoff_factor");
		T_PKL_PUT(b, "K\x01");
		t_pt_str(b, "growth_interval");
		T_PKL_PUT(b, "K\x02");
		t_pt_str(b, "_growth_tracker");
		T_PKL_PUT(b, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f" "u");
	}
	t_pt_str(b, "epoch");
	T_PKL_PUT(b, "K\x02u.");
}

static void put_step(struct t_pkl *b)
{
	put_step_of(b, false);
}

/* Opened and planned as a step of two ranks, and as a training file again. */
static int planned(const char *path, int to, struct ckpt_err *err)
{
	struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = 2, .stage = to ? -1 : 2, .round_robin = -1, .to = to,
		.flags = CKPT_WRITE_DRY_RUN,
	};
	char *dst = t_fmt("%s.out%s", path, to ? ".pth" : "");
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&path, 1, NULL, &ck, err);

	if (!rc)
		rc = ckpt_reshard(ck, dst, &opts, NULL, err);
	assert_true(rc <= 0 && (!rc || err->code == (enum ckpt_code)-rc));
	ckpt_close(ck);
	free(dst);
	return rc;
}

/* A flip of any bit of the pickle, or an end anywhere, is an answer; most are refused. */
static void any_flip_is_an_answer(void **state)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/t.pt", dir);
	struct t_pkl whole = { 0 };
	unsigned refused = 0, n;

	(void)state;
	put_step(&whole);
	n = (unsigned)whole.n;
	for (unsigned i = 0; i <= 2 * n; i++) {
		struct ckpt_err err = { 0 };
		struct t_pkl b = { 0 };
		struct t_pt o;
		int rc;

		put_step(&b);
		if (i < n)
			b.p[i] ^= (uint8_t)(1u << i % 8);
		else if (i < 2 * n)
			b.n = i - n;
		t_pt_open(&o, &b, NULL);
		t_file_write(path, o.zip.p, o.zip.n);
		t_pt_close(&o);
		rc = planned(path, i % 2 ? CKPT_TO_DEEPSPEED : CKPT_TO_TORCH_TRAINING, &err);
		refused += rc != 0;
		if (i == 2 * n)
			assert_int_equal(rc, 0);
		else if (i >= n)
			assert_int_not_equal(rc, 0);
	}
	assert_true(refused > n);
	free(whole.p);
	free(path);
	t_dir_end(dir);
}

/* 2^63 - 1 steps without an overflow are none that were counted. */
static void a_count_that_cannot_be_is_an_answer(void **state)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/t.pt", dir);
	struct ckpt_err err = { 0 };
	struct t_pkl b = { 0 };
	struct t_pt o;

	(void)state;
	put_step_of(&b, true);
	t_pt_open(&o, &b, NULL);
	t_file_write(path, o.zip.p, o.zip.n);
	t_pt_close(&o);
	assert_int_equal(planned(path, CKPT_TO_DEEPSPEED, &err), 0);
	assert_int_equal(planned(path, CKPT_TO_TORCH_TRAINING, &err), 0);
	free(path);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_lists_of_an_empty_model_take_no_time),
		cmocka_unit_test(shared_lists_beside_a_model_take_no_time),
		cmocka_unit_test(groups_name_no_more_parameters_than_there_are),
		cmocka_unit_test(the_caller_says_whose_states_they_are),
		cmocka_unit_test(any_flip_is_an_answer),
		cmocka_unit_test(a_count_that_cannot_be_is_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
