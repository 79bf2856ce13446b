/*
 * Adapters: names of PEFT's tensors, and the sums of W + s B A. If this fails, a matrix is merged
 * into another module, or the result depends on threads, windows or shapes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/naming/ck_peft_name.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

#define PREFIX "base_model.model."

/* -------------------------------------------------------------------- names */

static void names_are_cut_into_module_part_and_adapter(void **state)
{
	static const struct {
		const char *name, *module, *adapter, *rest, *file;
		enum ck_peft_part part;
	} cases[] = {
		{ PREFIX "m.q.lora_A.default.weight", PREFIX "m.q", "default", "weight",
		  PREFIX "m.q.lora_A.weight", CK_PEFT_A },
		{ "module." PREFIX "m.q.lora_B.a-b.weight", "module." PREFIX "m.q", "a-b", "weight",
		  PREFIX "m.q.lora_B.weight", CK_PEFT_B },
		{ PREFIX "q.lora_B.weight", PREFIX "q", "", "weight", PREFIX "q.lora_B.weight",
		  CK_PEFT_B },
		{ PREFIX "q.lora_B.default.bias", PREFIX "q", "default", "bias",
		  PREFIX "q.lora_B.bias", CK_PEFT_B_BIAS },
		{ PREFIX "e.lora_embedding_A.default", PREFIX "e", "default", "",
		  PREFIX "e.lora_embedding_A", CK_PEFT_EMBED_A },
		{ PREFIX "e.lora_embedding_B", PREFIX "e", "", "", PREFIX "e.lora_embedding_B",
		  CK_PEFT_EMBED_B },
		{ PREFIX "q.lora_magnitude_vector.default.weight", PREFIX "q", "default", "weight",
		  PREFIX "q.lora_magnitude_vector", CK_PEFT_MAGNITUDE },
		{ PREFIX "h.modules_to_save.default.weight", PREFIX "h", "default", "weight",
		  PREFIX "h.weight", CK_PEFT_SAVED },
		{ PREFIX "h.modules_to_save.x.0.fc.bias", PREFIX "h", "x", "0.fc.bias",
		  PREFIX "h.0.fc.bias", CK_PEFT_SAVED },
		{ PREFIX "q.base_layer.bias", PREFIX "q.base_layer.bias", "", "",
		  PREFIX "q.base_layer.bias", CK_PEFT_NONE },
		{ "lora_Ab.weight", "lora_Ab.weight", "", "", PREFIX "lora_Ab.weight",
		  CK_PEFT_NONE },
		{ "m.lora_Around.weight", "m.lora_Around.weight", "", "",
		  PREFIX "m.lora_Around.weight", CK_PEFT_NONE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ck_arena arena = CK_ARENA_INIT;
		struct ck_peft_name p;

		ck_peft_name_parse(cases[i].name, &p);
		assert_int_equal(p.part, cases[i].part);
		assert_int_equal(p.module_len, strlen(cases[i].module));
		assert_memory_equal(p.module, cases[i].module, p.module_len);
		assert_int_equal(p.adapter_len, strlen(cases[i].adapter));
		assert_memory_equal(p.adapter, cases[i].adapter, p.adapter_len);
		assert_string_equal(p.rest, cases[i].rest);
		assert_string_equal(ck_peft_file_name(&arena, cases[i].name), cases[i].file);
		ck_arena_release(&arena);
	}
}

static void other_methods_have_their_names(void **state)
{
	static const char *const cases[][2] = {
		{ PREFIX "q.hada_w1_a.default", "LoHa" }, { PREFIX "q.ia3_l.default", "IA3" },
		{ PREFIX "q.lokr_w2.default", "LoKr" }, { PREFIX "q.lora_A.default", "AdaLoRA" },
		{ PREFIX "q.lora_E.default", "AdaLoRA" },
		{ "q.lora_A", "AdaLoRA or a LoRA that is not PEFT's" },
		{ "prompt_encoder.default.embedding.weight", "a prompt encoder" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ck_peft_name p;

		ck_peft_name_parse(cases[i][0], &p);
		assert_int_equal(p.part, CK_PEFT_OTHER);
		assert_string_equal(p.method, cases[i][1]);
	}
}

static void plain_names_have_no_wrappers(void **state)
{
	static const char *const cases[][2] = {
		{ "module." PREFIX "a.q.base_layer.weight", "a.q.weight" },
		{ "_orig_mod.module." PREFIX "a._orig_mod.b", "a.b" },
		{ PREFIX "h.original_module.weight", "h.weight" }, { "a.b", "a.b" }, { "", "" },
	};
	struct ck_arena arena = CK_ARENA_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(ck_peft_plain(&arena, cases[i][0], strlen(cases[i][0])),
				    cases[i][1]);
	assert_string_equal(ck_peft_plain(&arena, PREFIX "x", 4), "");
	ck_arena_release(&arena);
}

/* re.match("(.*\\.)?(KEY)$", MODULE) */
static void patterns_fit_ends_of_names(void **state)
{
	static const struct {
		const char *key, *module;
		bool fits, known;
	} cases[] = {
		{ "q_proj", "model.layers.0.q_proj", true, true },
		{ "q_proj", "model.layers.0.eq_proj", false, true },
		{ "q_proj", "q_proj", true, true },
		{ "layers.0.q_proj", "model.layers.0.q_proj", true, true },
		{ "layers.0.q_proj", "model.layers.10.q_proj", false, true },
		{ "^model.q", "model.q", true, true }, { "^q", "model.q", false, true },
		{ "a.b", "axb", true, true }, { "a\\.b", "a.b", true, true },
		{ "q$", "m.q", true, true },
		{ "layers.[01].q", "layers.0.q", false, false }, { ".*q", "m.q", false, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool known;

		assert_int_equal(ck_peft_pattern_fits(cases[i].key, cases[i].module, &known),
				 cases[i].fits);
		assert_int_equal(known, cases[i].known);
	}
}

/* --------------------------------------------------------------------- sums */

static char *dir, *base, *adapter, *one, *other;

static int begin(void **state)
{
	(void)state;
	dir = t_dir_new();
	base = t_fmt("%s/base.safetensors", dir);
	adapter = t_fmt("%s/adapter.safetensors", dir);
	one = t_fmt("%s/one.safetensors", dir);
	other = t_fmt("%s/other.safetensors", dir);
	return 0;
}

static int end(void **state)
{
	(void)state;
	t_dir_remove(dir);
	free(other);
	free(one);
	free(adapter);
	free(base);
	free(dir);
	return 0;
}

/* Numbers of many sizes, the same at each call. */
static float *numbers(uint64_t n, uint32_t seed)
{
	float *p = malloc(n * sizeof(*p) + 1);
	uint32_t x = seed * 2654435761u + 1;

	assert_non_null(p);
	for (uint64_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		p[i] = ldexpf((float)(int32_t)x / 2147483648.0f, -(int)(x >> 9 & 7));
	}
	return p;
}

static void merge(const char *to, double alpha, uint32_t threads, uint64_t mem, int dtype)
{
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = threads, .mem_limit = mem,
	};
	struct ckpt_peft_opts peft = { .size = sizeof(peft), .alpha = alpha };
	struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run, .peft = &peft, .dtype = dtype,
		.flags = CKPT_WRITE_FORCE,
	};

	peft.merge = t_convert_open(adapter);
	t_convert(base, to, &opts, 0, NULL, NULL);
	ckpt_close(peft.merge);
}

struct shape {
	uint64_t rows, cols, r;
	bool embedding;
};

/* One module: the result against sums in long double. */
static void check_shape(const struct shape *s)
{
	const uint64_t left = s->embedding ? s->cols : s->rows;
	const uint64_t right = s->embedding ? s->rows : s->cols;
	float *w = numbers(s->rows * s->cols, 1), *a = numbers(s->r * right, 2);
	float *b = numbers(left * s->r, 3), *got = numbers(s->rows * s->cols, 4);
	const struct t_part of_base[] = { { "m.weight", "F32", s->rows, s->cols, w }, { 0 } };
	const struct t_part of_adapter[] = {
		{ s->embedding ? PREFIX "m.lora_embedding_A" : PREFIX "m.lora_A.weight", "F32",
		  s->r, right, a },
		{ s->embedding ? PREFIX "m.lora_embedding_B" : PREFIX "m.lora_B.weight", "F32",
		  left, s->r, b },
		{ 0 },
	};
	struct t_st st;

	t_convert_source(base, of_base);
	t_convert_source(adapter, of_adapter);
	merge(one, 3, 1, 0, CKPT_KEEP);
	merge(other, 3, 2, (uint64_t)1 << 20, CKPT_KEEP);
	t_convert_same_files(one, other);
	t_convert_result(&st, dir, "one.safetensors");
	assert_int_equal(st.n_tensors, 1);
	memcpy(got, st.tensors[0].data, s->rows * s->cols * sizeof(*got));
	for (uint64_t i = 0; i < s->rows; i++)
		for (uint64_t j = 0; j < s->cols; j++) {
			const uint64_t row = s->embedding ? j : i, col = s->embedding ? i : j;
			long double sum = 0;
			float near;

			for (uint64_t k = 0; k < s->r; k++)
				sum += (long double)b[row * s->r + k] * a[k * right + col];
			sum = w[i * s->cols + j] + 3.0L / s->r * sum;
			near = (float)sum;
			assert_true(fabsl(got[i * s->cols + j] - sum) <=
				    fabsl(nextafterf(near, 2 * near + 1) - near) / 2 * 1.000001L +
				    1e-18L);
		}
	t_st_close(&st);
	free(got);
	free(b);
	free(a);
	free(w);
}

static void sums_are_rounded_once_at_every_shape(void **state)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, false }, { 3, 5, 1, false }, { 5, 3, 2, false }, { 17, 31, 4, false },
		{ 31, 17, 5, false }, { 4099, 1, 3, false }, { 1, 9001, 7, false },
		{ 257, 513, 8, false }, { 9, 40961, 2, false }, { 3, 2, 70001, false },
		{ 0, 4, 2, false }, { 1, 1, 1, true }, { 101, 7, 3, true }, { 7, 5003, 4, true },
		{ 5003, 9, 1, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		check_shape(&shapes[i]);
}

/* Right factors of 1 MiB each where a quarter of that may be in memory: threads wait, and share. */
static void little_memory_and_many_threads_change_nothing(void **state)
{
	static const struct t_part of_base[] = {
		{ "a.weight", "BF16", 600, 4096, NULL }, { "b.weight", "BF16", 700, 4096, NULL },
		{ "c.weight", "BF16", 3, 4096, NULL }, { "norm", "BF16", 11, 0, NULL }, { 0 },
	};
	float *a = numbers(64 * 4096, 5), *b = numbers(700 * 64, 6);
	const struct t_part of_adapter[] = {
		{ PREFIX "a.lora_A.weight", "F32", 64, 4096, a },
		{ PREFIX "a.lora_B.weight", "F32", 600, 64, b },
		{ PREFIX "b.lora_A.weight", "F32", 64, 4096, a },
		{ PREFIX "b.lora_B.weight", "F32", 700, 64, b },
		{ PREFIX "c.lora_A.weight", "F32", 64, 4096, a },
		{ PREFIX "c.lora_B.weight", "F32", 3, 64, b }, { 0 },
	};

	(void)state;
	t_convert_source(base, of_base);
	t_convert_source(adapter, of_adapter);
	merge(one, 8, 1, 0, CKPT_F16);
	merge(other, 8, 8, (uint64_t)1 << 19, CKPT_F16);
	t_convert_same_files(one, other);
	merge(other, 8, 8, (uint64_t)8 << 20, CKPT_F16);
	t_convert_same_files(one, other);
	free(b);
	free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_cut_into_module_part_and_adapter),
		cmocka_unit_test(other_methods_have_their_names),
		cmocka_unit_test(plain_names_have_no_wrappers),
		cmocka_unit_test(patterns_fit_ends_of_names),
		cmocka_unit_test_setup_teardown(sums_are_rounded_once_at_every_shape, begin, end),
		cmocka_unit_test_setup_teardown(little_memory_and_many_threads_change_nothing,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
