/*
 * Values of a step by path. If this fails, a run that resumes takes another count of steps, another
 * learning rate, loss scale or random state than it saved, or does not find its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_step.h"

#define DEPTH 8

static struct ckpt_values *open_values(struct ckpt *ck, uint32_t rank)
{
	struct ckpt_values *v = NULL;
	struct ckpt_err err = { 0 };

	if (ckpt_values_open(ck, rank, 0, &v, &err))
		fail_msg("%s: %s", err.where, err.msg);
	return v;
}

static struct ckpt_value get(struct ckpt_values *v, const char *path)
{
	struct ckpt_value out = { .n = 0 };
	struct ckpt_err err = { 0 };

	if (ckpt_value_get(v, path, &out, &err))
		fail_msg("%s: %s", path, err.msg);
	return out;
}

static bool is_text(struct ckpt_value v, const char *text)
{
	return v.bytes && !strcmp(v.bytes, text);
}

/* ---------------------------------------------------------------- the same as the facts say */

/* "group.0.lr" of facts is param_groups.0.lr, and so on; false for facts of another kind. */
static bool path_of(const char *fact, char out[200])
{
	static const struct {
		const char *fact, *path;
	} begins[] = {
		{ "group.", "param_groups." }, { "scheduler.", "lr_scheduler." },
		{ "loss_scaler.", "loss_scaler." }, { "loss_scale", "loss_scaler.cur_scale" },
		{ "global_s", "model.global_s" }, { "skipped_steps", "skipped_steps" },
		{ "train_", "ds_config.train_" }, { "dp_world", "dp_world" },
	};
	const char *dot = strrchr(fact, '.');

	if (!strncmp(fact, "group.", 6) && dot && !strcmp(dot, ".step"))
		return false;
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		const size_t n = strlen(begins[i].fact);

		if (strncmp(fact, begins[i].fact, n))
			continue;
		snprintf(out, 200, "%s%s", begins[i].path, fact + n);
		dot = strrchr(out, '.');
		if (dot && !strncmp(dot, ".group_", 7))
			memmove(out + (dot - out) + 1, dot + 7, strlen(dot + 7) + 1);
		return true;
	}
	return false;
}

static unsigned compare_with_facts(struct ckpt *ck, struct ckpt_values *v, const char *name)
{
	const char *key, *value;
	unsigned same = 0;
	char path[200];

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++) {
		double want, is;
		char *end;

		want = strtod(value, &end);
		if (*end || !*value || !path_of(key, path))
			continue;
		if (ckpt_value_float(v, path, &is, NULL) || is != want)
			fail_msg("%s: %s is not %s", name, path, value);
		same++;
	}
	return same;
}

static void steps_of_every_stage(void **state)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *dir = t_fmt("%s/deepspeed", root && *root ? root : "build/fixtures");
	char **names = t_dir_list(dir, NULL);
	unsigned same = 0, opened = 0;

	(void)state;
	for (char **n = names; *n; n++) {
		char *path = t_fmt("%s/%s/ckpt", dir, *n);
		const char *one = path;
		struct ckpt_info info;
		struct ckpt *ck = NULL;

		if (!ckpt_open(&one, 1, NULL, &ck, NULL)) {
			struct ckpt_values *v = NULL;

			ckpt_info_get(ck, &info);
			for (uint32_t r = 0; r < info.world; r++) {
				if (ckpt_values_open(ck, r, 0, &v, NULL))
					continue;
				same += compare_with_facts(ck, v, *n);
				opened++;
				ckpt_values_close(v);
			}
		}
		ckpt_close(ck);
		free(path);
	}
	assert_true(opened >= 300 && same >= 5000);
	t_list_free(names);
	free(dir);
}

/* ---------------------------------------------------------------- the same in every form */

static void same_value(const struct ckpt_value *a, const struct ckpt_value *b, const char *path)
{
	if (a->kind != b->kind || a->i != b->i || a->n != b->n || a->numel != b->numel ||
	    a->dtype != b->dtype || a->ndim != b->ndim || memcmp(&a->f, &b->f, sizeof(a->f)) ||
	    !a->bytes != !b->bytes)
		fail_msg("%s is another value", path);
	for (uint32_t d = 0; d < a->ndim; d++)
		assert_int_equal(a->shape[d], b->shape[d]);
	if (a->bytes && a->kind != CKPT_VALUE_OBJECT && a->kind != CKPT_VALUE_NAME)
		assert_memory_equal(a->bytes, b->bytes, a->n);
	else if (a->bytes)
		assert_string_equal(a->bytes, b->bytes);
}

static bool has_items(const struct ckpt_value *v)
{
	return v->kind == CKPT_VALUE_LIST || v->kind == CKPT_VALUE_DICT ||
	       v->kind == CKPT_VALUE_OBJECT;
}

/* All below 'path', by the steps of 'a', and by place; the number of values. */
static uint64_t same_tree(struct ckpt_values *a, struct ckpt_values *b, const char *path, int depth)
{
	const struct ckpt_value x = get(a, path), y = get(b, path);
	uint64_t count = 1;

	same_value(&x, &y, path);
	for (uint64_t i = 0; depth && has_items(&x) && i < x.n && i < 40; i++) {
		const char *step = NULL;
		char *below, *place;
		struct ckpt_value z, w;

		assert_int_equal(ckpt_value_step(a, path, i, &step, NULL), 0);
		below = t_fmt("%s.%s", path, step);
		place = t_fmt("%s.#%" PRIu64, path, i);
		z = get(a, below);
		w = get(a, place);
		same_value(&z, &w, place);
		count += same_tree(a, b, below, depth - 1);
		free(place);
		free(below);
	}
	return count;
}

/* The client's own keys, and what DeepSpeed keeps of a run. */
static const char *const roots[] = {
	"lr_scheduler", "global_steps", "global_samples", "skipped_steps", "epoch", "args",
	"np_rng_state", "random_rng_state", "torch_rng_state", "trainer", "slotted", "metrics",
	"big", "neg", "cplx", "bytes", "set", "np_scalar", "np_array", "when", "size", "dev",
	"tensor", "param", "odict", "slice", "ds_config",
};

static void compare_forms(const char *from, const char *to)
{
	struct ckpt *a = t_step_open(from, NULL), *b = t_step_open(to, NULL);
	uint64_t count = 0;

	for (uint32_t rank = 0; rank < 5; rank++) {
		struct ckpt_values *x = open_values(a, rank), *y = open_values(b, rank);
		const struct ckpt_value g = get(x, "param_groups");

		for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
			if (!ckpt_value_get(x, roots[i], &(struct ckpt_value){ .n = 0 }, NULL))
				count += same_tree(x, y, roots[i], DEPTH);
		count += same_tree(x, y, "loss_scaler", DEPTH);
		for (uint64_t i = 0; i < g.n; i++) {
			char *lr = t_fmt("param_groups.%" PRIu64 ".lr", i);
			char *betas = t_fmt("param_groups.%" PRIu64 ".betas", i);

			count += same_tree(x, y, lr, DEPTH) + same_tree(x, y, betas, DEPTH);
			free(betas);
			free(lr);
		}
		ckpt_values_close(x);
		ckpt_values_close(y);
	}
	assert_true(count > 200);
	ckpt_close(a);
	ckpt_close(b);
}

static void the_same_in_every_form(void **state)
{
	static const char *const names[] = {
		"ds0.19.8-z2-bf16-w2-client", "ds0.19.8-z3-bf16-w2-client",
		"ds0.19.8-z2-fp16-w2-overflow", "ds0.19.8-z2-bf16-w2-torchsched",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *dir = t_step_copy(names[i]), *from = t_fmt("%s/ckpt", dir);
		char *nat = t_fmt("%s/nat", dir), *uni = t_fmt("%s/uni", dir);
		char *pack = t_fmt("%s/step.tar.zst", dir);

		t_load_reshard(from, nat, CKPT_TO_NATIVE, 2);
		t_load_reshard(from, uni, CKPT_TO_UNIVERSAL, 2);
		compare_forms(from, from);
		compare_forms(from, nat);
		compare_forms(from, uni);
		if (ckpt_has_packs()) {
			struct ckpt *ck = t_step_open(from, NULL);

			assert_int_equal(ckpt_pack(ck, pack, NULL, NULL, NULL), 0);
			ckpt_close(ck);
			compare_forms(from, pack);
		}
		free(pack);
		free(uni);
		free(nat);
		free(from);
		t_dir_end(dir);
	}
}

/* A DCP folder has no objects and no values of ranks: steps without such ones are equal there. */
static void the_same_in_a_dcp_folder(void **state)
{
	static const char *const names[] = {
		"ds0.19.8-z2-fp16-w2-overflow", "ds0.19.8-z2-bf16-w2-torchsched",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *dir = t_step_copy(names[i]), *from = t_fmt("%s/ckpt", dir);
		char *folder = t_fmt("%s/dcp", dir), *pack = t_fmt("%s/step.tar.zst", dir);
		struct ckpt *ck;
		struct ckpt_values *v;
		int64_t n;
		double step;

		t_load_reshard(from, folder, CKPT_TO_DCP, 3);
		compare_forms(from, folder);
		ck = t_step_open(folder, NULL);
		v = open_values(ck, 0);
		assert_int_equal(ckpt_value_int(v, "global_steps", &n, NULL), 0);
		assert_int_equal(ckpt_value_float(v, "optimizer.state.norm\\.bias.step", &step,
						  NULL), 0);
		assert_true(step > 0 && step <= (double)n);
		assert_int_equal(get(v, "param_groups.0.params").kind, CKPT_VALUE_LIST);
		ckpt_values_close(v);
		if (ckpt_has_packs()) {
			assert_int_equal(ckpt_pack(ck, pack, NULL, NULL, NULL), 0);
			compare_forms(folder, pack);
		}
		ckpt_close(ck);
		free(pack);
		free(folder);
		free(from);
		t_dir_end(dir);
	}
}

/* ---------------------------------------------------------------- every kind */

/* What tests/interop had the client save (and Python says that it is). */
static void every_kind_of_value(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2-client"), *path = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_values *v = open_values(ck, 1), *zero = open_values(ck, 0);
	struct ckpt_value x;
	double f[5];

	(void)state;
	assert_int_equal(get(v, "lr_scheduler").kind, CKPT_VALUE_NONE);
	assert_int_equal(get(v, "epoch").i, 3);
	x = get(v, "neg");
	assert_true(x.kind == CKPT_VALUE_INT && x.i == -1099511627776);
	x = get(v, "big");	/* 2^80 */
	assert_true(x.kind == CKPT_VALUE_BIGINT && x.n == 11);
	assert_memory_equal(x.bytes, "\0\0\0\0\0\0\0\0\0\0\1", 11);
	x = get(v, "bytes");
	assert_true(x.kind == CKPT_VALUE_BYTES && x.n == 3 && !memcmp(x.bytes, "ab\0", 3));
	x = get(v, "set");
	assert_true(x.kind == CKPT_VALUE_LIST && x.n == 2 && get(v, "set.0").i == 1);
	assert_int_equal(get(v, "frozen.0").i, 3);
	x = get(v, "args");
	assert_true(x.kind == CKPT_VALUE_OBJECT && is_text(x, "argparse.Namespace") && x.n == 4);
	assert_true(get(v, "args.lr").f == 0.01);
	assert_true(is_text(get(v, "args.name"), "run \xc3\xbc"));
	assert_true(is_text(get(v, "args.dtype"), "torch.bfloat16"));
	assert_int_equal(get(v, "args.dtype").kind, CKPT_VALUE_NAME);
	assert_int_equal(get(v, "args.nested.a").i, 1);
	assert_int_equal(get(v, "slotted").kind, CKPT_VALUE_OBJECT);
	assert_true(get(v, "slotted").n > 0);
	x = get(v, "metrics");
	assert_true(x.kind == CKPT_VALUE_DICT && get(v, "metrics.loss.0").f == 0.5);
	x = get(v, "size");
	assert_true(x.kind == CKPT_VALUE_LIST && x.n == 2 && get(v, "size.1").i == 3);
	assert_int_equal(get(v, "cplx.().1").f, 2);
	assert_true(get(v, "odict").kind == CKPT_VALUE_DICT && get(v, "odict").n == 2);
	assert_int_equal(get(v, "odict.#1").i, 2);
	assert_int_equal(get(v, "np_array.{}").kind, CKPT_VALUE_LIST);
	assert_int_equal(get(v, "checkpoint_parallel_dimensions.pp_degree").i, 1);
	/* tensors, and names with dots */
	x = get(v, "tensor");
	assert_true(x.kind == CKPT_VALUE_TENSOR && x.dtype == CKPT_F64 && x.numel == 5);
	assert_int_equal(x.n, 40);
	memcpy(f, x.bytes, sizeof(f));
	for (int i = 0; i < 5; i++)
		assert_true(f[i] == i);
	assert_int_equal(get(v, "param").kind, CKPT_VALUE_TENSOR);
	x = get(v, "torch_rng_state");
	assert_true(x.kind == CKPT_VALUE_TENSOR && x.dtype == CKPT_U8 && x.n == x.numel && x.bytes);
	assert_int_equal(get(v, "module.norm\\.bias").kind, CKPT_VALUE_TENSOR);
	/* random states are each rank's own */
	assert_int_equal(get(v, "np_rng_state.1.{}").kind, CKPT_VALUE_LIST);
	assert_int_equal(get(v, "random_rng_state.1").n, get(zero, "random_rng_state.1").n);
	assert_true(get(v, "random_rng_state.1.1").i != get(zero, "random_rng_state.1.1").i);
	ckpt_values_close(zero);
	zero = open_values(ck, 3);	/* 3 mod 2 */
	assert_true(get(v, "random_rng_state.1.1").i == get(zero, "random_rng_state.1.1").i);
	/* numbers of any kind */
	assert_int_equal(ckpt_value_float(v, "tensor", &f[0], NULL), -CKPT_E_MISMATCH);
	assert_int_equal(ckpt_value_float(v, "args.lr", &f[0], NULL), 0);
	assert_int_equal(ckpt_value_int(v, "args.lr", &x.i, NULL), -CKPT_E_MISMATCH);
	assert_int_equal(ckpt_value_int(v, "args.name", &x.i, NULL), -CKPT_E_MISMATCH);
	assert_int_equal(ckpt_value_int(v, "big", &x.i, NULL), -CKPT_E_MISMATCH);
	assert_int_equal(ckpt_value_int(v, "module.seen", &x.i, NULL), 0);
	assert_int_equal(x.i, 3);
	ckpt_values_close(zero);
	ckpt_values_close(v);
	ckpt_close(ck);
	free(path);
	t_dir_end(dir);
}

/* ---------------------------------------------------------------- elements of tensors */

/* Those of a flat dictionary, held against ckpt_cat(); how many. */
static unsigned compare_tensors(struct ckpt *ck, const struct ck_pt *pt)
{
	struct ck_val *const *item;
	uint64_t n = 0, tensor;
	unsigned same = 0;

	if (!ck_val_pairs(pt->doc.root, &item, &n))
		return 0;
	for (uint64_t i = 0; i < n; i++) {
		const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);
		const char *name = ck_val_str(item[2 * i]);
		uint8_t *is = NULL, *want;
		size_t bytes = 0;

		if (!t || !name || ckpt_tensor_find(ck, name, &tensor, NULL) ||
		    ck_pt_tensor_bytes(pt, t, 1 << 20, &is, NULL) || !is)
			continue;
		want = t_load_cat(ck, tensor, "weight", 0, &bytes);
		if (want) {
			assert_int_equal(bytes, t->numel * (ckpt_dtype_bits(t->dtype) / 8));
			assert_memory_equal(is, want, bytes);
			same++;
		}
		ck_free(is);
		free(want);
	}
	return same;
}

/* Views, deflated records, other byte orders, legacy streams. */
static void elements_of_torch_files(void **state)
{
	static const char *const kinds[] = { "torch", "legacy", "zip" };
	const char *root = getenv("ZCKPT_FIXTURES");
	struct ckpt_limits limits;
	unsigned same = 0;

	(void)state;
	ck_limits_fill(NULL, &limits);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		char *dir = t_fmt("%s/formats/%s", root ? root : "build/fixtures", kinds[k]);
		char **names = t_dir_list(dir, NULL);

		for (char **n = names; *n; n++) {
			char *path = t_fmt("%s/%s", dir, *n);
			struct ck_fdpool *pool = ck_fdpool_new(0);
			struct ck_src *src = NULL;
			struct ck_pt *pt = NULL;
			struct ckpt *ck = NULL;
			const char *one = path;

			if (!ckpt_open(&one, 1, NULL, &ck, NULL) &&
			    !ck_src_open(pool, path, &src, NULL) &&
			    !ck_pt_open(src, &limits, 0, NULL, &pt, NULL))
				same += compare_tensors(ck, pt);
			ck_pt_close(pt);
			ck_src_close(src);
			ck_fdpool_free(pool);
			ckpt_close(ck);
			free(path);
		}
		t_list_free(names);
		free(dir);
	}
	assert_true(same >= 200);
}

/* ---------------------------------------------------------------- wrong paths */

static void fails(struct ckpt_values *v, const char *path, int code, const char *words, int line)
{
	struct ckpt_value x = { .n = 77 };
	struct ckpt_err err = { 0 };
	const int rc = ckpt_value_get(v, path, &x, &err);

	if (rc != -code || !strstr(err.msg, words) || x.n != 77)
		fail_msg("line %d: %d, '%s' lacks '%s'", line, rc, err.msg, words);
}
#define FAILS(path, code, words) fails(v, path, code, words, __LINE__)

static void paths_that_lead_nowhere(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z1-bf16-w2-bf16opt"), *path = t_fmt("%s/ckpt", dir);
	char *gone = t_fmt("%s/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", path);
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_values *v = open_values(ck, 0);
	struct ckpt_err err = { 0 };
	const char *step;

	(void)state;
	FAILS("no_such_key", CKPT_E_NOTFOUND, "\"no_such_key\" (byte 0 of the path) does not");
	FAILS("param_groups.99", CKPT_E_NOTFOUND, "\"99\" (byte 13");
	FAILS("param_groups.#99", CKPT_E_NOTFOUND, "there is a list of");
	FAILS("param_groups.0.lr.more", CKPT_E_NOTFOUND, "there is nothing");
	FAILS("param_groups.18446744073709551616", CKPT_E_NOTFOUND, "does not exist");
	FAILS("global_steps.()", CKPT_E_NOTFOUND, "does not exist");
	FAILS("loss_scaler", CKPT_E_NOTFOUND, "was saved without one");
	FAILS("global_steps.", CKPT_E_USAGE, "ends with a dot");
	FAILS("a..b", CKPT_E_NOTFOUND, "\"a\"");
	FAILS("ds_config..b", CKPT_E_USAGE, "empty component at byte 10");
	FAILS(".a", CKPT_E_USAGE, "empty component at byte 0");
	FAILS("a\\", CKPT_E_USAGE, "ends with a backslash");
	assert_int_equal(get(v, NULL).kind, CKPT_VALUE_DICT);
	assert_int_equal(get(v, "").n, get(v, "model").n);
	assert_int_equal(ckpt_value_step(v, "global_steps", 0, &step, &err), -CKPT_E_USAGE);
	assert_int_equal(ckpt_value_step(v, "", 9999, &step, NULL), -CKPT_E_USAGE);
	assert_int_equal(ckpt_values_open(ck, 0, 4, &v, NULL), -CKPT_E_USAGE);
	ckpt_values_close(v);
	ckpt_values_close(NULL);
	ckpt_close(ck);
	/* A damaged step gives its values only to who wants them all the same. */
	t_dir_remove(gone);
	ck = t_step_open(path, NULL);
	assert_int_equal(ckpt_values_open(ck, 0, 0, &v, NULL), -CKPT_E_INCOMPLETE);
	assert_int_equal(ckpt_values_open(ck, 0, CKPT_LOAD_DESPITE_FINDINGS, &v, NULL), 0);
	assert_int_equal(get(v, "global_steps").i, 3);
	ckpt_values_close(v);
	ckpt_close(ck);
	free(gone);
	free(path);
	t_dir_end(dir);
}

static void weights_alone_have_none(void **state)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *dir = t_fmt("%s/formats/hf", root && *root ? root : "build/fixtures");
	char **names = t_dir_list(dir, NULL);
	unsigned refused = 0;

	(void)state;
	for (char **n = names; *n; n++) {
		char *path = t_fmt("%s/%s", dir, *n);
		const char *one = path;
		struct ckpt_values *v = NULL;
		struct ckpt *ck = NULL;

		if (!ckpt_open(&one, 1, NULL, &ck, NULL))
			refused += ckpt_values_open(ck, 0, CKPT_LOAD_DESPITE_FINDINGS, &v, NULL) ==
				   -CKPT_E_UNSUPPORTED;
		assert_null(v);
		ckpt_close(ck);
		free(path);
	}
	assert_true(refused > 0);
	t_list_free(names);
	free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_value),
		cmocka_unit_test(paths_that_lead_nowhere),
		cmocka_unit_test(weights_alone_have_none),
		cmocka_unit_test(elements_of_torch_files),
		cmocka_unit_test(the_same_in_every_form),
		cmocka_unit_test(the_same_in_a_dcp_folder),
		cmocka_unit_test(steps_of_every_stage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
