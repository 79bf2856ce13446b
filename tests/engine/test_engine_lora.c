/*
 * test_engine_lora.c -- a layer with adapters, or with frozen parameters, next to the plain one.
 *
 * With W' = W + s B A the plain layer has the same output, and its gradient of W' gives those of
 * the adapter: dA = s B^T dW', dB = s dW' A^T.  If this fails, adapters that are trained here are
 * others elsewhere.  What remains trained beside frozen parameters has the gradients that it had.
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

#include "engine/model/en_adapt.h"
#include "tests/engine/te_model.h"
#include "tests/engine/te_numbers.h"
#include "tests/lib/fs/t_dir.h"

#define ROWS 2u
#define TOKENS 23u
#define R 3u
#define LAYER 1u
#define LIMIT 1e-5

static const enum en_slot matrix[EN_LINEARS] = { EN_Q, EN_K, EN_V, EN_O, EN_GATE, EN_UP, EN_DOWN };

/* A model, the parameters and gradients of one layer, and what comes of it. */
struct side {
	struct en_model *model;
	struct en_exec *exec;
	const struct en_block *block;
	float *params, *grads, *y, *dx, *saved;
};

static float *numbers(size_t n, uint64_t stream, double deviation)
{
	float *p = t_alloc(n * sizeof(*p));

	kn_random_normal(p, n, 7, stream, 0, 0, deviation);
	return p;
}

static void side_open(struct side *s, const struct en_model_config *config,
		      const struct en_adapt *adapt)
{
	const struct en_exec_opts eo = { .rows = ROWS, .tokens = TOKENS, .type = KN_F32,
					 .threads = 2 };
	const size_t n = ROWS * TOKENS * config->hidden;

	assert_int_equal(en_model_new_adapted(config, adapt, &s->model, NULL), 0);
	assert_int_equal(en_exec_new(s->model, &eo, &s->exec, NULL), 0);
	en_exec_layer(s->exec, LAYER);
	s->block = &s->model->block[LAYER + 1];
	s->params = t_alloc(en_block_span(s->block) * sizeof(float));
	s->grads = t_alloc((s->block->numel + 1) * sizeof(float));
	s->y = t_alloc(n * sizeof(float));
	s->dx = t_alloc(n * sizeof(float));
	s->saved = t_alloc(en_saved_floats(s->exec, ROWS, TOKENS) * sizeof(float));
}

static void side_close(struct side *s)
{
	en_exec_free(s->exec);
	en_model_free(s->model);
	free(s->params);
	free(s->grads);
	free(s->y);
	free(s->dx);
	free(s->saved);
}

static const struct en_param *param_of(const struct side *s, enum en_slot slot)
{
	for (uint32_t i = 0; i < s->block->count; i++)
		if (s->model->param[s->block->first + i].slot == slot)
			return &s->model->param[s->block->first + i];
	return NULL;
}

static float *at(const struct side *s, enum en_slot slot)
{
	return s->params + s->block->at[slot];
}

/* The same numbers in both; adapters of their own. */
static void fill(struct side *s)
{
	for (uint32_t i = 0; i < s->block->count; i++) {
		const struct en_param *p = &s->model->param[s->block->first + i];

		kn_random_normal(at(s, p->slot), p->numel, 5, p->slot, 0, p->ndim == 1, 0.15);
	}
}

static void merge(const struct side *lora, struct side *plain, uint32_t i)
{
	const struct en_param *w = param_of(plain, matrix[i]);
	const float *a = at(lora, EN_LORA_A + i), *b = at(lora, EN_LORA_B + i);

	for (uint64_t o = 0; o < w->shape[0]; o++)
		for (uint64_t k = 0; k < w->shape[1]; k++) {
			double sum = 0;

			for (uint32_t r = 0; r < R; r++)
				sum += (double)b[o * R + r] * (double)a[r * w->shape[1] + k];
			at(plain, matrix[i])[o * w->shape[1] + k] +=
				(float)((double)lora->model->scale * sum);
		}
}

static void run_layer(struct side *s, const float *x, const float *dy, unsigned flags)
{
	const struct en_batch batch = { .rows = ROWS, .tokens = TOKENS };

	en_layer_forward(s->exec, &batch, s->params, x, s->y, s->saved);
	en_layer_backward(s->exec, &batch, s->params, x, s->saved, dy, s->dx, s->grads, flags);
}

/* dA = s B^T dW, dB = s dW A^T. */
static double compare_adapter(const struct side *lora, const struct side *plain, uint32_t i)
{
	const struct en_param *w = param_of(plain, matrix[i]);
	const uint64_t out = w->shape[0], in = w->shape[1];
	const float *a = at(lora, EN_LORA_A + i), *b = at(lora, EN_LORA_B + i);
	const float *dw = plain->grads + plain->block->grad[matrix[i]];
	const double s = (double)lora->model->scale;
	float *da = t_alloc(R * in * sizeof(float)), *db = t_alloc(R * out * sizeof(float));
	double worst, other;

	for (uint32_t r = 0; r < R; r++) {
		for (uint64_t k = 0; k < in; k++) {
			double sum = 0;

			for (uint64_t o = 0; o < out; o++)
				sum += (double)b[o * R + r] * (double)dw[o * in + k];
			da[r * in + k] = (float)(s * sum);
		}
		for (uint64_t o = 0; o < out; o++) {
			double sum = 0;

			for (uint64_t k = 0; k < in; k++)
				sum += (double)dw[o * in + k] * (double)a[r * in + k];
			db[o * R + r] = (float)(s * sum);
		}
	}
	worst = te_rel_l2(lora->grads + lora->block->grad[EN_LORA_A + i], da, R * in);
	other = te_rel_l2(lora->grads + lora->block->grad[EN_LORA_B + i], db, R * out);
	free(da);
	free(db);
	return worst > other ? worst : other;
}

static void one_lora(const char *name, unsigned targets)
{
	const struct en_adapt adapt = { .lora = { .r = R, .alpha = 5, .rslora = targets & 1,
						  .targets = targets }, .ranks = 3 };
	const struct en_adapt none = { .ranks = 1 };
	struct side lora, plain;
	struct te_model m;
	float *x, *dy;
	size_t n;
	double e = 0;

	te_model_open(&m, name);
	side_open(&lora, &m.model->config, &adapt);
	side_open(&plain, &m.model->config, &none);
	fill(&lora);
	fill(&plain);
	n = ROWS * TOKENS * m.model->config.hidden;
	x = numbers(n, 1, 1);
	dy = numbers(n, 2, 1);
	for (uint32_t i = 0; i < EN_LINEARS; i++)
		if (targets & 1u << i)
			merge(&lora, &plain, i);
	run_layer(&lora, x, dy, 0);
	run_layer(&plain, x, dy, 0);
	assert_true(te_rel_l2(lora.y, plain.y, n) <= LIMIT);
	assert_true(te_rel_l2(lora.dx, plain.dx, n) <= LIMIT);
	for (uint32_t i = 0; i < EN_LINEARS; i++)
		if (targets & 1u << i)
			e = fmax(e, compare_adapter(&lora, &plain, i));
	printf("%-14s modules 0x%02x: gradients of adapters, worst rel l2 %.1e\n", name, targets,
	       e);
	assert_true(e <= LIMIT);
	free(x);
	free(dy);
	side_close(&lora);
	side_close(&plain);
	te_model_close(&m);
}

static void adapters_are_parts_of_their_matrices(void **state)
{
	(void)state;
	one_lora("llama3", 0x7f);
	one_lora("qwen25", 0x7f);
	one_lora("qwen3_tied", 0x7f);
	for (uint32_t i = 0; i < EN_LINEARS; i++)
		one_lora(i & 1 ? "qwen25" : "qwen3", 1u << i);
}

/* Gradients of what is trained, as if all were; with EN_LOWEST the same without dx. */
static void one_frozen(const char *name, const char *pattern, unsigned flags)
{
	const struct en_adapt adapt = { .freeze = &pattern, .nfreeze = 1, .ranks = 2 };
	const struct en_adapt none = { .ranks = 1 };
	struct side some, plain;
	struct te_model m;
	float *x, *dy;
	size_t n;
	uint32_t compared = 0;

	te_model_open(&m, name);
	side_open(&some, &m.model->config, &adapt);
	side_open(&plain, &m.model->config, &none);
	fill(&some);
	fill(&plain);
	n = ROWS * TOKENS * m.model->config.hidden;
	x = numbers(n, 1, 1);
	dy = numbers(n, 2, 1);
	run_layer(&some, x, dy, flags);
	run_layer(&plain, x, dy, 0);
	/* gate and up apart are summed in another order */
	assert_true(te_rel_l2(some.y, plain.y, n) <= LIMIT);
	if (!flags)
		assert_true(te_rel_l2(some.dx, plain.dx, n) <= LIMIT);
	for (uint32_t i = 0; i < some.block->count; i++) {
		const struct en_param *p = &some.model->param[some.block->first + i];

		if (p->frozen)
			continue;
		assert_true(te_rel_l2(some.grads + some.block->grad[p->slot],
				      plain.grads + plain.block->grad[p->slot], p->numel) <=
			    LIMIT);
		compared++;
	}
	assert_int_equal(compared < some.block->count, 1);
	free(x);
	free(dy);
	side_close(&some);
	side_close(&plain);
	te_model_close(&m);
}

static void what_is_trained_beside_is_as_it_was(void **state)
{
	static const char *const patterns[] = {
		"*norm*", "*.q_proj.*", "*.v_proj.weight", "*.o_proj.*", "*gate_proj*", "*up_proj*",
		"*down_proj*", "*self_attn*", "*mlp*",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		one_frozen(i & 1 ? "qwen25" : "qwen3", patterns[i], 0);
		one_frozen(i & 1 ? "qwen3_tied" : "llama3", patterns[i], EN_LOWEST);
	}
}

/* ---- names, places, random numbers ---- */

static void names_are_those_of_peft(void **state)
{
	const struct en_adapt adapt = { .lora = { .r = 2, .alpha = 4,
						  .targets = 1u << EN_LINEAR_Q |
							     1u << EN_LINEAR_DOWN } };
	static const char *const want[] = {
		"base_model.model.model.embed_tokens.weight",
		"base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight",
		"base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias",
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
		"base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight",
		"base_model.model.model.layers.0.self_attn.k_proj.weight",
	};
	struct en_model *model;
	struct te_model m;
	uint64_t trained = 0;

	(void)state;
	te_model_open(&m, "qwen25");
	assert_int_equal(en_model_new_adapted(&m.model->config, &adapt, &model, NULL), 0);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		assert_string_equal(model->param[i].name, want[i]);
	assert_string_equal(model->param[1].plain, "model.layers.0.self_attn.q_proj.weight");
	for (uint32_t i = 0; i < model->nparams; i++) {
		const struct en_param *p = &model->param[i];

		assert_int_equal(p->frozen, p->plain != NULL);
		if (p->plain)
			assert_true(en_model_find(m.model, p->plain) >= 0);
		trained += p->plain ? 0 : p->numel;
	}
	assert_int_equal(model->trained, trained);
	assert_int_equal(model->numel, m.model->numel + trained);
	assert_int_equal(model->lowest, 1);
	en_model_free(model);
	te_model_close(&m);
}

/* A between the bounds of torch's kaiming_uniform_, B zero, the rest as without adapters. */
static void random_numbers_are_those_of_peft(void **state)
{
	const struct en_adapt adapt = { .lora = { .r = 4, .alpha = 4, .targets = 0x7f } };
	float got[512], want[512];
	struct en_model *model;
	struct te_model m;
	float most = 0;

	(void)state;
	te_model_open(&m, "qwen3");
	assert_int_equal(en_model_new_adapted(&m.model->config, &adapt, &model, NULL), 0);
	for (uint32_t i = 0; i < model->nparams; i++) {
		const struct en_param *p = &model->param[i];
		const uint64_t n = p->numel < 64 ? p->numel : 64;
		const float bound = (float)(1 / sqrt((double)p->shape[1]));

		en_model_init(model, i, 3, 0, n, got);
		if (p->plain)
			en_model_init(m.model, (uint32_t)en_model_find(m.model, p->plain), 3, 0, n,
				      want);
		for (uint64_t k = 0; k < n; k++)
			if (p->plain)
				assert_true(got[k] == want[k]);
			else if (p->init == EN_INIT_ZERO)
				assert_true(got[k] == 0);
			else
				most = fmaxf(most, fabsf(got[k]) / bound);
	}
	assert_true(most <= 1 && most > 0.9f);
	en_model_free(model);
	te_model_close(&m);
}

static void texts_are_read(void **state)
{
	struct en_lora l = { .r = 0 };
	char text[EN_LORA_TEXT];
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(en_lora_parse("r=16,alpha=32,target=q_proj,mlp.up_proj+o_proj,rslora",
				       &l, NULL), 0);
	en_lora_text(&l, text);
	assert_string_equal(text, "r=16,alpha=32,rslora,target=q_proj+o_proj+up_proj");
	l = (struct en_lora){ .r = 0 };
	assert_int_equal(en_lora_parse("", &l, NULL), 0);
	en_lora_text(&l, text);
	assert_string_equal(text, "r=8,alpha=8,target=q_proj+v_proj");
	assert_int_equal(en_lora_parse("target=all-linear,dropout=0.0", &l, NULL), 0);
	assert_int_equal(l.targets, 0x7f);
	assert_int_equal(en_lora_parse("target=all_linear", &l, NULL), 0);
	assert_int_equal(l.targets, (1u << EN_LINEARS) - 1);
	assert_int_equal(en_lora_parse("target=mlp.up-proj", &l, NULL), 0);
	assert_int_equal(l.targets, 1u << EN_LINEAR_UP);
	assert_int_equal(en_lora_parse("target=q_pro", &l, NULL), -CKPT_E_UNSUPPORTED);
	assert_int_equal(en_lora_parse("target=q_projs", &l, NULL), -CKPT_E_UNSUPPORTED);
	assert_int_equal(en_lora_parse("r=0", &l, &err), -CKPT_E_USAGE);
	assert_int_equal(en_lora_parse("alpha=x", &l, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_lora_parse("q_proj", &l, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_lora_parse("dropout=1", &l, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_lora_parse("dropout=-0.1", &l, NULL), -CKPT_E_USAGE);
	l = (struct en_lora){ .r = 0 };
	assert_int_equal(en_lora_parse("dropout=0.05,r=4", &l, NULL), 0);
	assert_true(l.dropout == 0.05);
	en_lora_text(&l, text);
	assert_string_equal(text, "r=4,alpha=8,dropout=0.05,target=q_proj+v_proj");
	assert_int_equal(en_lora_parse("target=lm_head", &l, NULL), -CKPT_E_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adapters_are_parts_of_their_matrices),
		cmocka_unit_test(what_is_trained_beside_is_as_it_was),
		cmocka_unit_test(names_are_those_of_peft),
		cmocka_unit_test(random_numbers_are_those_of_peft),
		cmocka_unit_test(texts_are_read),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
