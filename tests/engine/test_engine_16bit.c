/*
 * test_engine_16bit.c -- computation in bf16 and fp16 against fp32.
 *
 * If this is wrong, training in 16 bits drifts, or overflow is not seen.  bf16 is compared with
 * transformers' fp32 by the limits of the fixtures; fp16, which has eight times the precision,
 * by limits that are an eighth.
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

#include "engine/model/en_exec_priv.h"
#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"

static const char *const names[] = { "llama3", "llama3_tied", "qwen25", "qwen25_tied", "qwen3",
				     "qwen3_tied" };
#define NMODEL (sizeof(names) / sizeof(names[0]))

static void row(const char *model, const char *what, double got, double limit)
{
	printf("%-12s %-44s %9.2e  limit %.1e%s\n", model, what, got, limit,
	       got <= limit ? "" : "  TOO MUCH");
	assert_true(got <= limit);
}

/* Each result is a number of the type. */
static void holds(const float *x, size_t n, enum kn_type type)
{
	float *y = t_alloc(n * sizeof(*y));

	memcpy(y, x, n * sizeof(*y));
	kn_round(y, n, type);
	assert_memory_equal(x, y, n * sizeof(*y));
	free(y);
}

static void gradients(const char *name, const char *what, const struct en_model *m,
		      const struct te_run *run, const struct te_ref *ref, enum kn_type type,
		      double limit)
{
	double worst = 0;

	for (uint32_t i = 0; i < m->nparams; i++) {
		const struct en_param *p = &m->param[i];
		const float *g = (float *)run->grad.block[p->block] + p->offset;
		const double e = te_rel_l2(g, te_ref_grad(ref, p->name), p->numel);

		holds(g, p->numel, type);
		if (!(e <= worst))
			worst = e;
	}
	row(name, what, worst, limit);
}

/* 'part' 1: the limits of bf16; 8: an eighth of them. */
static void compare(const char *name, enum kn_type type, double part)
{
	const struct te_how how = { .type = type, .threads = 2 }, fp32 = { KN_F32, 2, 0, 0 };
	struct te_model m;
	struct te_ref ref;
	struct te_run run, same;
	struct te_buffers w, rounded;
	size_t n;

	te_model_open(&m, name);
	te_ref_open(&ref, name);
	n = (size_t)ref.batch.rows * ref.batch.tokens * m.model->config.vocab;
	w = te_buffers_cast(m.model, &m.weight, type);
	rounded = te_buffers_new(m.model, KN_F32);
	for (uint32_t b = 0; b < m.model->nblocks; b++)
		kn_cast(rounded.block[b], KN_F32, w.block[b], type, m.model->block[b].numel, NULL);
	te_run(&run, m.model, &w, &ref.batch, &how, 1);
	te_run(&same, m.model, &rounded, &ref.batch, &fp32, 1);
	holds(run.logits, n, type);
	row(name, "logits, fp32 of the same weights, rel l2", te_rel_l2(run.logits, same.logits, n),
	    0.03 / part);
	row(name, "logits, transformers' fp32, rel l2",
	    te_rel_l2(run.logits, te_ref_f32(&ref, "logits"), n), 0.03 / part);
	row(name, "logits, transformers' fp32, max abs",
	    te_max_abs(run.logits, te_ref_f32(&ref, "logits"), n), 0.2 / part);
	row(name, "loss, transformers' fp32", te_max_abs(&run.mean, te_ref_f32(&ref, "loss"), 1),
	    0.01 / part);
	gradients(name, "gradients, transformers' fp32, worst rel l2", m.model, &run, &ref, type,
		  0.1 / part);
	te_run_free(&run);
	te_run_free(&same);
	te_buffers_free(&w);
	te_buffers_free(&rounded);
	te_ref_close(&ref);
	te_model_close(&m);
}

static void bf16_is_near(void **state)
{
	(void)state;
	printf("bf16\n");
	for (size_t i = 0; i < NMODEL; i++)
		compare(names[i], KN_BF16, 1);
}

static void fp16_is_near(void **state)
{
	(void)state;
	printf("fp16\n");
	for (size_t i = 0; i < NMODEL; i++)
		compare(names[i], KN_F16, 8);
}

/* A folder saved in bf16 has the weights of qwen3, rounded; transformers' loss of it is known. */
static void a_bf16_folder_is_read(void **state)
{
	const struct te_how how = { .type = KN_F32, .threads = 1 };
	struct te_model a, b;
	struct te_buffers w;
	struct te_ref ref;
	struct te_run run;
	cJSON *o = te_json("ref/qwen3_bf16.json"), *loss = cJSON_GetObjectItem(o, "loss");
	const double want = cJSON_GetObjectItem(loss, "fp32")->valuedouble;

	(void)state;
	te_model_open(&a, "qwen3");
	te_model_open(&b, "qwen3_bf16");
	te_ref_open(&ref, "qwen3");
	assert_int_equal(b.model->config.type, KN_BF16);
	assert_int_equal(a.model->config.type, KN_F32);
	w = te_buffers_cast(a.model, &a.weight, KN_BF16);
	for (uint32_t i = 0; i < w.n; i++) {
		const uint64_t n = a.model->block[i].numel;

		kn_cast(a.weight.block[i], KN_F32, w.block[i], KN_BF16, n, NULL);
		assert_memory_equal(a.weight.block[i], b.weight.block[i], n * sizeof(float));
	}
	te_run(&run, b.model, &b.weight, &ref.batch, &how, 1);
	assert_true(fabs((double)run.mean - want) <= 1e-5);
	te_run_free(&run);
	te_buffers_free(&w);
	te_ref_close(&ref);
	te_model_close(&a);
	te_model_close(&b);
	cJSON_Delete(o);
}

/* In fp16 a factor that is too large gives infinities that reach the gradients, not wrong ones. */
static void overflow_shows_in_the_gradients(void **state)
{
	const struct te_how how = { .type = KN_F16, .threads = 2 };
	struct te_model m;
	struct te_ref ref;
	struct te_run run;
	struct te_buffers w;

	(void)state;
	te_model_open(&m, "qwen3_tied");
	te_ref_open(&ref, "qwen3_tied");
	w = te_buffers_cast(m.model, &m.weight, KN_F16);
	for (int up = 0; up < 2; up++) {
		int finite = 1;

		te_run(&run, m.model, &w, &ref.batch, &how, up ? 0x1p26f : 0x1p10f);
		for (uint32_t i = 0; i < m.model->nblocks; i++)
			finite &= kn_all_finite(run.grad.block[i], m.model->block[i].numel);
		assert_int_equal(finite, !up);
		assert_true(isfinite(run.loss.sum));
		te_run_free(&run);
	}
	te_buffers_free(&w);
	te_ref_close(&ref);
	te_model_close(&m);
}

/* What a layer keeps, put away, forgotten, and fetched again. */
static void pack_layer(struct en_exec *exec, const struct en_batch *batch, float *x, float *saved,
		       unsigned flags)
{
	const size_t n = (size_t)batch->rows * batch->tokens, h = exec->model->config.hidden;
	const size_t floats = en_saved_floats(exec, batch->rows, batch->tokens);
	const size_t bytes = en_packed_bytes(exec, batch->rows, batch->tokens, flags);
	float *x_was = t_alloc(n * h * sizeof(*x)), *was = t_alloc(floats * sizeof(*saved));
	uint8_t *packed = t_alloc(bytes + 1);
	struct en_saved s, old;
	struct en_saved_part part[EN_SAVED_PARTS], part_was[EN_SAVED_PARTS];
	uint32_t parts;

	memcpy(x_was, x, n * h * sizeof(*x));
	memcpy(was, saved, floats * sizeof(*saved));
	packed[bytes] = 0x5a;
	en_pack(exec, batch, x, saved, packed, flags);
	assert_int_equal(packed[bytes], 0x5a);
	memset(x, 0x7b, n * h * sizeof(*x));
	memset(saved, 0x7b, floats * sizeof(*saved));
	en_unpack(exec, batch, packed, x, saved, flags);
	assert_memory_equal(x, x_was, n * h * sizeof(*x));
	en_saved_place(exec, n, saved, &s);
	en_saved_place(exec, n, was, &old);
	parts = en_saved_parts(exec, n, &s, part);
	en_saved_parts(exec, n, &old, part_was);
	for (uint32_t i = 0; i < parts && !flags; i++)
		if (part[i].n)
			assert_memory_equal(*part[i].p, *part_was[i].p,
					    part[i].n * sizeof(float));
	memcpy(saved, was, floats * sizeof(*saved));
	free(packed);
	free(was);
	free(x_was);
}

static void pack_model(const char *name, enum kn_type type)
{
	struct te_model m;
	struct te_ref ref;
	struct te_buffers w;
	struct en_exec *exec;
	struct en_exec_opts opts = { .type = type, .threads = 2 };
	struct en_exec_size size;
	float *x, *y, *saved;

	te_model_open(&m, name);
	te_ref_open(&ref, name);
	w = te_buffers_cast(m.model, &m.weight, type);
	opts.rows = ref.batch.rows;
	opts.tokens = ref.batch.tokens;
	en_exec_expect(m.model, &opts, &size);
	assert_int_equal(en_exec_new(m.model, &opts, &exec, NULL), 0);
	assert_int_equal(size.work, en_exec_bytes(exec));
	assert_int_equal(size.saved, en_saved_floats(exec, opts.rows, opts.tokens) * 4);
	assert_int_equal(size.packed, en_packed_bytes(exec, opts.rows, opts.tokens, 0));
	/* half, and what stays fp32 */
	assert_true(type == KN_F32 || 10 * size.packed < 7 * (size.saved + size.stream));
	x = t_alloc(size.stream);
	y = t_alloc(size.stream);
	saved = t_alloc(size.saved);
	en_embed_forward(exec, &ref.batch, w.block[0], x);
	for (uint32_t i = 0; i < m.model->config.layers; i++) {
		float *next = y;

		en_layer_forward(exec, &ref.batch, w.block[i + 1], x, y, saved);
		pack_layer(exec, &ref.batch, x, saved, 0);
		pack_layer(exec, &ref.batch, x, saved, EN_RECOMPUTE);
		y = x;
		x = next;
	}
	free(saved);
	free(y);
	free(x);
	en_exec_free(exec);
	te_buffers_free(&w);
	te_ref_close(&ref);
	te_model_close(&m);
}

/* If this fails, gradients depend on whether memory was saved. */
static void what_is_put_away_comes_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODEL; i++) {
		pack_model(names[i], KN_BF16);
		pack_model(names[i], KN_F16);
		pack_model(names[i], KN_F32);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bf16_is_near),
		cmocka_unit_test(fp16_is_near),
		cmocka_unit_test(a_bf16_folder_is_read),
		cmocka_unit_test(overflow_shows_in_the_gradients),
		cmocka_unit_test(what_is_put_away_comes_back),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
