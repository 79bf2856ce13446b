/*
 * test_engine_models.c -- logits, losses and every gradient against transformers.
 *
 * If this is wrong, a model that is trained here is another model elsewhere.  The limits are those
 * of the fixtures: about ten times what torch's own fp32 shows against float64.  The table that
 * is printed has the worst of each.
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

#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"

static const char *const names[] = { "llama3", "llama3_tied", "qwen25", "qwen25_tied", "qwen3",
				     "qwen3_tied" };
#define NMODEL (sizeof(names) / sizeof(names[0]))

static void row(const char *model, const char *what, double got, double limit)
{
	printf("%-14s %-30s %10.2e  limit %.0e%s\n", model, what, got, limit,
	       got <= limit ? "" : "  TOO MUCH");
	assert_true(got <= limit);
}

/* The worst relative error of a gradient tensor; '*at' is its name. */
static double worst_gradient(const struct en_model *m, const struct te_run *run,
			     const struct te_ref *ref, const char **at)
{
	double worst = -1;

	for (uint32_t i = 0; i < m->nparams; i++) {
		const struct en_param *p = &m->param[i];
		const double e = te_rel_l2((float *)run->grad.block[p->block] + p->offset,
					   te_ref_grad(ref, p->name), p->numel);

		if (!(e <= worst)) {
			worst = e;
			*at = p->name;
		}
	}
	return worst;
}

static void compare(const char *name, const struct te_model *m, const struct te_ref *ref,
		    const struct te_run *run)
{
	const size_t n = (size_t)ref->batch.rows * ref->batch.tokens, v = m->model->config.vocab;
	const char *at = "";
	double e;

	assert_int_equal(run->loss.count, 51);
	row(name, "fp32 logits, max abs", te_max_abs(run->logits, te_ref_f32(ref, "logits"), n * v),
	    3e-5);
	row(name, "fp32 token loss, max abs",
	    te_max_abs(run->token_loss, te_ref_f32(ref, "token_loss"), n), 3e-5);
	row(name, "fp32 loss", te_max_abs(&run->mean, te_ref_f32(ref, "loss"), 1), 1e-5);
	e = worst_gradient(m->model, run, ref, &at);
	row(name, "fp32 gradients, worst rel l2", e, 2e-5);
	printf("%-14s   in %s, of %u tensors\n", "", at, m->model->nparams);
}

static void fp32_agrees(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODEL; i++) {
		const struct te_how how = { .type = KN_F32, .threads = 1 };
		struct te_model m;
		struct te_ref ref;
		struct te_run run;

		te_model_open(&m, names[i]);
		te_ref_open(&ref, names[i]);
		te_run(&run, m.model, &m.weight, &ref.batch, &how, 1);
		compare(names[i], &m, &ref, &run);
		te_run_free(&run);
		te_ref_close(&ref);
		te_model_close(&m);
	}
}

static void shards_are_the_same_model(void **state)
{
	struct te_model one, three;

	(void)state;
	te_model_open(&one, "llama3");
	te_model_open(&three, "llama3_sharded");
	for (uint32_t b = 0; b < one.model->nblocks; b++)
		assert_memory_equal(one.weight.block[b], three.weight.block[b],
				    one.model->block[b].numel * sizeof(float));
	te_model_close(&three);
	te_model_close(&one);
}

/* The order of the gradients in the references is that of named_parameters(). */
static void order_is_that_of_named_parameters(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODEL; i++) {
		char *file = t_fmt("ref/%s.json", names[i]);
		cJSON *o = te_json(file);
		const cJSON *g = cJSON_GetObjectItem(o, "grads");
		struct te_model m;
		uint32_t n = 0;

		te_model_open(&m, names[i]);
		for (g = g->child; g; g = g->next, n++) {
			assert_true(n < m.model->nparams);
			assert_string_equal(g->string, m.model->param[n].name);
		}
		assert_int_equal(n, m.model->nparams);
		assert_int_equal((int)cJSON_GetObjectItem(o, "parameters")->valuedouble,
				 m.model->numel);
		te_model_close(&m);
		cJSON_Delete(o);
		free(file);
	}
}

/* ---------------------------------------------------------------- bits */

static void same_bits(const struct en_model *m, const struct te_run *a, const struct te_run *b,
		      size_t n)
{
	assert_memory_equal(a->logits, b->logits, n * m->config.vocab * sizeof(float));
	assert_memory_equal(a->token_loss, b->token_loss, n * sizeof(float));
	assert_true(a->loss.sum == b->loss.sum && a->loss.count == b->loss.count);
	for (uint32_t i = 0; i < m->nblocks; i++)
		assert_memory_equal(a->grad.block[i], b->grad.block[i],
				    m->block[i].numel * sizeof(float));
}

static void bits_do_not_depend_on_threads_or_recomputation(void **state)
{
	static const enum kn_type types[] = { KN_F32, KN_BF16, KN_F16 };
	static const uint32_t threads[] = { 1, 2, 3, 7 };

	(void)state;
	for (size_t i = 0; i < NMODEL * 3; i++) {
		struct te_how how = { .type = types[i / NMODEL], .threads = 1 };
		struct te_model m;
		struct te_buffers w;
		struct te_ref ref;
		struct te_run first, run;
		size_t n;

		te_model_open(&m, names[i % NMODEL]);
		te_ref_open(&ref, names[i % NMODEL]);
		n = (size_t)ref.batch.rows * ref.batch.tokens;
		w = te_buffers_cast(m.model, &m.weight, how.type);
		te_run(&first, m.model, &w, &ref.batch, &how, 1);
		for (size_t t = 0; t < 8; t++) {
			how.threads = threads[t % 4];
			how.whole = t < 4 ? 0 : EN_RECOMPUTE;
			te_run(&run, m.model, &w, &ref.batch, &how, 1);
			same_bits(m.model, &first, &run, n);
			te_run_free(&run);
		}
		te_run_free(&first);
		te_buffers_free(&w);
		te_ref_close(&ref);
		te_model_close(&m);
	}
}

/* Kernels give the same bits whatever the CPU; the matrix library's are its own on a CPU. */
static void bits_do_not_depend_on_features(void **state)
{
	const struct te_how how = { .type = KN_F32, .threads = 2 };
	struct te_model m;
	struct te_ref ref;
	struct te_run first, run;

	(void)state;
	te_model_open(&m, "qwen3");
	te_ref_open(&ref, "qwen3");
	te_run(&first, m.model, &m.weight, &ref.batch, &how, 1);
	for (unsigned mask = 0; mask <= KN_CPU_ALL; mask++) {
		kn_cpu_mask(mask);
		te_run(&run, m.model, &m.weight, &ref.batch, &how, 1);
		kn_cpu_mask(KN_CPU_ALL);
		same_bits(m.model, &first, &run, (size_t)ref.batch.rows * ref.batch.tokens);
		te_run_free(&run);
	}
	te_run_free(&first);
	te_ref_close(&ref);
	te_model_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fp32_agrees),
		cmocka_unit_test(shards_are_the_same_model),
		cmocka_unit_test(order_is_that_of_named_parameters),
		cmocka_unit_test(bits_do_not_depend_on_threads_or_recomputation),
		cmocka_unit_test(bits_do_not_depend_on_features),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
