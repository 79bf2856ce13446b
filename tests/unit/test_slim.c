/*
 * Torch files with unused storage, second copies and moments, slimmed. If this fails, a smaller
 * copy has other values than the file it was made of, two tensors that shared elements no longer
 * do, or the copy is as large as before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define NUMEL 10000	/* floats of each of two storages: 0, 1, ... and the same */
#define F 4u

static char *dir;

/* A tensor "name" in a storage. */
struct view {
	const char *name, *key;
	int offset, d0, d1, s0, s1;
};

static void put_views(struct t_pkl *b, const struct view *v, size_t n)
{
	T_PKL_PUT(b, "(");
	for (size_t i = 0; i < n && v[i].name; i++) {
		t_pt_str(b, v[i].name);
		t_pt_tensor(b, v[i].key, NUMEL, v[i].offset, v[i].d0, v[i].d1, v[i].s0, v[i].s1);
	}
	T_PKL_PUT(b, "d");
}

static char *save(struct t_pkl *b, const char *name, int second_differs)
{
	char *path = t_fmt("%s/%s", dir, name);
	float *data = t_alloc(NUMEL * sizeof(*data));
	struct t_zip zip = { 0 };

	T_PKL_PUT(b, ".");
	for (int i = 0; i < NUMEL; i++)
		data[i] = (float)i;
	t_zip_add(&zip, "m/data.pkl", b->p, b->n);
	t_zip_add(&zip, "m/version", "3\n", 2);
	t_zip_add(&zip, "m/data/0", data, NUMEL * sizeof(*data));
	if (second_differs)
		data[199] = 7;
	t_zip_add(&zip, "m/data/1", data, NUMEL * sizeof(*data));
	t_zip_end(&zip);
	t_file_write(path, zip.p, zip.n);
	free(zip.p);
	free(data);
	free(b->p);
	*b = (struct t_pkl){ 0 };
	return path;
}

static char *slim(const char *from, unsigned what, struct ckpt_slimmed *done)
{
	const struct ckpt_slim_opts opts = { .size = sizeof(opts), .what = what };
	char *to = t_fmt("%s/slim.pt", dir);
	struct ckpt *ck = t_step_open(from, NULL);
	struct ckpt_err err = { 0 };

	t_dir_remove(to);
	if (ckpt_slim(ck, to, &opts, done, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	return to;
}

/* Every tensor of 'a' is in 'b' with its elements, and names that were tied are. */
static void same_values(const char *a, const char *b)
{
	struct ckpt *x = t_step_open(a, NULL), *y = t_step_open(b, NULL);
	struct ckpt_info ix, iy;

	ckpt_info_get(x, &ix);
	ckpt_info_get(y, &iy);
	assert_int_equal(ix.ntensors, iy.ntensors);
	for (uint64_t i = 0; i < ix.ntensors; i++) {
		struct ckpt_tensor_info t, u;
		float p[NUMEL], q[NUMEL];
		uint64_t k;

		assert_int_equal(ckpt_tensor_get(x, i, &t, NULL), 0);
		assert_int_equal(ckpt_tensor_find(y, t.name, &k, NULL), 0);
		assert_int_equal(ckpt_tensor_get(y, k, &u, NULL), 0);
		assert_int_equal(t.role, u.role);
		assert_int_equal(t.ndim, u.ndim);
		assert_memory_equal(t.shape, u.shape, t.ndim * sizeof(*t.shape));
		if (!t.nstates)
			continue;
		assert_int_equal(ckpt_read(x, i, 0, 0, t.numel, 0, p, t.numel * F, NULL), 0);
		assert_int_equal(ckpt_read(y, k, 0, 0, t.numel, 0, q, t.numel * F, NULL), 0);
		assert_memory_equal(p, q, t.numel * F);
	}
	ckpt_close(x);
	ckpt_close(y);
}

static void storages_end_where_their_tensors_do(void **state)
{
	static const struct {
		const char *what;
		struct view view[5];
		unsigned floats;	/* that stay */
	} rows[] = {
		{ "the first", { { "a", "0", 0, 10, 10, 10, 1 } }, 100 },
		{ "the last", { { "a", "0", 9999, 1, 1, 1, 1 } }, 1 },
		{ "all of it", { { "a", "0", 0, 100, 100, 100, 1 } }, 10000 },
		{ "two far apart", { { "a", "0", 8000, 5, 5, 5, 1 },
				     { "b", "0", 100, 3, 3, 3, 1 } }, 34 },
		{ "two that meet", { { "a", "0", 100, 1, 50, 50, 1 },
				     { "b", "0", 150, 1, 50, 50, 1 } }, 100 },
		{ "two that overlap", { { "a", "0", 100, 1, 50, 50, 1 },
					{ "b", "0", 120, 1, 50, 50, 1 } }, 70 },
		{ "one in the other", { { "a", "0", 100, 1, 500, 500, 1 },
					{ "b", "0", 120, 1, 5, 5, 1 },
					{ "c", "0", 9000, 1, 5, 5, 1 } }, 505 },
		{ "a column", { { "a", "0", 7, 100, 1, 100, 1 } }, 100 },
		{ "a transposed part", { { "a", "0", 7, 3, 20, 1, 100 } }, 60 },
		{ "two columns: what lies between", { { "a", "0", 7, 10, 1, 100, 1 },
						      { "b", "0", 9, 10, 1, 100, 1 } }, 903 },
		{ "one row many times", { { "a", "0", 50, 40, 20, 0, 1 } }, 20 },
		{ "nothing", { { "a", "0", 50, 0, 20, 20, 1 }, { "b", "1", 3, 1, 1, 1, 1 } }, 1 },
		{ "tied", { { "a", "0", 50, 2, 20, 20, 1 }, { "b", "0", 50, 2, 20, 20, 1 } }, 40 },
		{ "of both", { { "a", "0", 50, 2, 20, 20, 1 }, { "b", "1", 70, 2, 20, 20, 1 },
			       { "c", "1", 0, 1, 1, 1, 1 } }, 81 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ckpt_slimmed done = { 0 };
		struct t_pkl b = { 0 };
		unsigned storages = 1;
		char *from, *to;

		put_views(&b, rows[i].view, 5);
		for (size_t k = 0; k < 5 && rows[i].view[k].name; k++)
			storages += rows[i].view[k].key[0] == '1' && storages == 1;
		from = save(&b, "m.pt", 0);
		to = slim(from, 0, &done);
		if (done.views_bytes != (storages * NUMEL - rows[i].floats) * F)
			fail_msg("%s: %u bytes go", rows[i].what, (unsigned)done.views_bytes);
		assert_int_equal(done.files, 1);
		assert_int_equal(done.nkept, 0);
		assert_true(done.views_bytes ? done.after_bytes < rows[i].floats * F + 4096 :
			    done.after_bytes == done.before_bytes);
		same_values(from, to);
		ckpt_slimmed_free(&done);
		free(to);
		to = slim(from, CKPT_SLIM_FROZEN, &done);
		assert_int_equal(done.views_bytes, 0);
		assert_int_equal(done.after_bytes, done.before_bytes);
		ckpt_slimmed_free(&done);
		free(from);
		free(to);
	}
}

static void put_model(struct t_pkl *b, const char *second, int offset)
{
	const struct view first = { "w", "0", 100, 10, 10, 10, 1 };
	const struct view copy = { "w", second, offset, 10, 10, 10, 1 };

	T_PKL_PUT(b, "(");
	t_pt_str(b, "module");
	put_views(b, &first, 1);
	t_pt_str(b, "frozen_param_fragments");
	put_views(b, &copy, 1);
	T_PKL_PUT(b, "d");
}

static void a_second_copy_goes_if_it_is_one(void **state)
{
	struct ckpt_slimmed done = { 0 };
	struct t_pkl b = { 0 };
	char *from, *to;

	(void)state;
	put_model(&b, "1", 100);
	from = save(&b, "m.pt", 0);
	to = slim(from, CKPT_SLIM_FROZEN, &done);
	assert_int_equal(done.frozen_bytes, NUMEL * F);
	assert_int_equal(done.views_bytes, 0);
	ckpt_slimmed_free(&done);
	free(to);
	to = slim(from, 0, &done);
	assert_int_equal(done.frozen_bytes, NUMEL * F);
	assert_int_equal(done.views_bytes, (NUMEL - 100) * F);
	ckpt_slimmed_free(&done);
	free(from);
	free(to);
	/* its last element differs, or it is another part of the same storage */
	for (int i = 0; i < 2; i++) {
		put_model(&b, i ? "0" : "1", i ? 300 : 100);
		from = save(&b, "m.pt", !i);
		to = slim(from, 0, &done);
		assert_int_equal(done.frozen_bytes, 0);
		assert_int_equal(done.views_bytes, ((i ? NUMEL : 2 * NUMEL) - 200) * F);
		same_values(from, to);
		ckpt_slimmed_free(&done);
		free(from);
		free(to);
	}
}

/* An optimizer's dictionary, wherever it stands; counts and masters of its own stay. */
static void moments_go_and_nothing_else(void **state)
{
	static const char text[] =
		"{ 'optimizer' { 'state' { 0 { 'step' <f32 1> 'exp_avg' <f32 50 50> "
		"  'momentum' None 'master_param' <f32 20> } 1 { 'exp_avg' <f32 60 50> 'n' 3 } } "
		"  'param_groups' [ { 'lr' 0.5 'exp_avg' <f32 2> } ] } "
		"'state' { 0 { 'exp_avg' <f32 9> } } 'exp_avg' <f32 7> "
		"'base_optimizer_state' [ { 'step' 4 'exp_avg_sq' <f32 500> } ] }";
	static const char *const stay[] = {
		"optimizer.state.0.step", "optimizer.state.0.master_param",
		"optimizer.param_groups.0.exp_avg", "state.0.exp_avg", "exp_avg",
	};
	char *from = t_fmt("%s/opt.pt", dir), *to;
	struct ckpt_slimmed done = { 0 };
	struct ckpt_info info;
	struct ckpt *ck;

	(void)state;
	t_pkl_save(from, text);
	to = slim(from, CKPT_SLIM_MOMENTS, &done);
	assert_int_equal(done.moments_bytes, (2500 + 3000 + 500) * F);
	assert_int_equal(done.views_bytes, 0);
	ck = t_step_open(to, NULL);
	ckpt_info_get(ck, &info);
	assert_int_equal(info.ntensors, sizeof(stay) / sizeof(stay[0]));
	for (size_t i = 0; i < sizeof(stay) / sizeof(stay[0]); i++)
		t_step_tensor(ck, stay[i]);
	ckpt_close(ck);
	ckpt_slimmed_free(&done);
	free(from);
	free(to);
}

/* What is compressed stays so, and the caller hears of it. */
static void what_cannot_be_written_is_left_as_it_is(void **state)
{
	char *from = t_fmt("%s/m.pt", dir), *to;
	struct ckpt_slimmed done = { 0 };
	uint8_t *a, *b;
	size_t na, nb;

	(void)state;
	t_pkl_save(from, "{ 'a' <f32 30> 'optimizer' { 'state' { 0 { 'x' <f32 900> } } "
			 "'param_groups' [ ] } }");
	t_pkl_deflate(from);
	to = slim(from, CKPT_SLIM_MOMENTS, &done);
	assert_int_equal(done.nkept, 1);
	assert_string_equal(done.kept[0].path, from);
	assert_string_equal(done.kept[0].why, "it is compressed");
	assert_int_equal(done.moments_bytes, 0);
	a = t_file_read(from, &na);
	b = t_file_read(to, &nb);
	assert_int_equal(na, nb);
	assert_memory_equal(a, b, na);
	free(a);
	free(b);
	ckpt_slimmed_free(&done);
	free(from);
	free(to);
}

static void wrong_calls_are_refused(void **state)
{
	struct ckpt_slim_opts opts = { .size = sizeof(opts) };
	char *from = t_fmt("%s/m.pt", dir);
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	(void)state;
	t_pkl_save(from, "{ 'a' <f32 30> }");
	ck = t_step_open(from, NULL);
	assert_int_equal(ckpt_slim(NULL, "x", &opts, NULL, &err), -CKPT_E_USAGE);
	assert_int_equal(ckpt_slim(ck, NULL, &opts, NULL, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_slim(ck, "", &opts, NULL, NULL), -CKPT_E_USAGE);
	opts.what = 8;
	assert_int_equal(ckpt_slim(ck, "x", &opts, NULL, NULL), -CKPT_E_USAGE);
	opts.what = 0;
	opts.flags = 1u << 20;
	assert_int_equal(ckpt_slim(ck, "x", &opts, NULL, NULL), -CKPT_E_USAGE);
	opts.flags = CKPT_WRITE_DRY_RUN;
	assert_int_equal(ckpt_slim(ck, NULL, &opts, NULL, NULL), 0);
	ckpt_close(ck);
	free(from);
}

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storages_end_where_their_tensors_do),
		cmocka_unit_test(a_second_copy_goes_if_it_is_one),
		cmocka_unit_test(moments_go_and_nothing_else),
		cmocka_unit_test(what_cannot_be_written_is_left_as_it_is),
		cmocka_unit_test(wrong_calls_are_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
