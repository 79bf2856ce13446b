/*
 * test_engine_shapes.c -- models of odd shapes against the laws in double; batches; adding up.
 *
 * If this is wrong, a shape that no fixture has trains wrongly: one token, rows beyond a block of
 * attention, one key/value head for all or one for each, logits in several chunks, heads whose
 * sizes do not add up to the hidden size.
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

#include "tests/engine/te_law.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/ref/en_whole.h"

struct shape {
	const char *name;
	enum en_arch arch;
	uint32_t vocab, hidden, inter, layers, heads, kv_heads, head_dim;
	bool tied;
	uint32_t rows, tokens;
};

static const struct shape shapes[] = {
	{ "one token a row", EN_LLAMA, 11, 8, 5, 1, 2, 1, 4, false, 3, 1 },
	{ "two tokens", EN_QWEN2, 11, 8, 5, 2, 2, 2, 4, true, 1, 2 },
	{ "smallest", EN_QWEN3, 2, 1, 1, 1, 1, 1, 2, false, 1, 3 },
	{ "one kv head", EN_LLAMA, 50, 24, 40, 2, 6, 1, 10, true, 2, 20 },
	{ "a kv head each", EN_QWEN3, 50, 24, 40, 2, 3, 3, 6, false, 2, 20 },
	{ "beyond a block", EN_LLAMA, 30, 20, 17, 1, 2, 1, 6, false, 2, 131 },
	{ "exactly a block", EN_QWEN2, 30, 20, 17, 1, 2, 1, 6, false, 1, 64 },
	{ "a block and one", EN_QWEN3, 30, 20, 17, 1, 2, 1, 6, true, 1, 65 },
	{ "logits in chunks", EN_LLAMA, 70001, 6, 9, 1, 1, 1, 4, false, 3, 37 },
	{ "tied, in chunks", EN_QWEN2, 70001, 6, 9, 1, 1, 1, 4, true, 3, 37 },
	{ "products in pieces", EN_QWEN3, 300, 96, 200, 1, 4, 2, 24, false, 4, 50 },
};
#define NSHAPE (sizeof(shapes) / sizeof(shapes[0]))

static struct en_model *model_of(const struct shape *s)
{
	const struct en_model_config c = {
		.arch = s->arch, .vocab = s->vocab, .hidden = s->hidden, .inter = s->inter,
		.layers = s->layers, .heads = s->heads, .kv_heads = s->kv_heads,
		.head_dim = s->head_dim, .norm_eps = 1e-6, .init_range = 0.3, .tied = s->tied,
		.rope = { .theta = 10000 },
	};
	struct ckpt_err err = { 0 };
	struct en_model *m;

	if (en_model_new(&c, &m, &err))
		t_die("%s: %s", s->name, err.msg);
	return m;
}

/* Random, vectors too, lest norms be 1 and biases 0. */
static struct te_buffers weights_of(const struct en_model *m)
{
	struct te_buffers w = te_buffers_new(m, KN_F32);

	for (uint32_t i = 0; i < m->nparams; i++) {
		const struct en_param *p = &m->param[i];
		float *to = (float *)w.block[p->block] + p->offset;

		en_model_init(m, i, 9, 0, p->numel, to);
		if (p->ndim == 1)
			kn_random_normal(to, p->numel, 9, i, 0, p->init == EN_INIT_ONE, 0.2);
	}
	return w;
}

static struct en_batch batch_of(const struct shape *s, int32_t *ids, int32_t *labels)
{
	const size_t n = (size_t)s->rows * s->tokens;

	for (size_t i = 0; i < n; i++) {
		ids[i] = (int32_t)((i * 7919 + 3) % s->vocab);
		labels[i] = i % 5 == 3 ? -100 : (int32_t)((i * 104729 + 1) % s->vocab);
	}
	return (struct en_batch){ s->rows, s->tokens, ids, labels, NULL, NULL };
}

static double worst_gradient(const struct en_model *m, const struct te_buffers *got,
			     const struct te_buffers *want)
{
	double worst = 0;

	for (uint32_t i = 0; i < m->nparams; i++) {
		const struct en_param *p = &m->param[i];
		const float *g = (float *)got->block[p->block] + p->offset;
		const double *w = (double *)want->block[p->block] + p->offset;
		double dd = 0, ww = 0, e;

		for (uint64_t j = 0; j < p->numel; j++) {
			dd += ((double)g[j] - w[j]) * ((double)g[j] - w[j]);
			ww += w[j] * w[j];
		}
		/* what is zero in theory is noise around it: below 1e-7 of a gradient of 1 */
		e = ww > 1e-14 ? sqrt(dd / ww) : sqrt(dd) * 10;
		if (!(e <= worst))
			worst = e;
	}
	return worst;
}

static void shapes_agree_with_the_laws(void **state)
{
	(void)state;
	for (size_t i = 0; i < NSHAPE; i++) {
		const struct shape *s = &shapes[i];
		const struct te_how how = { .type = KN_F32, .threads = 2,
					    .whole = i & 1 ? EN_RECOMPUTE : 0 };
		int32_t *ids = t_alloc((size_t)s->rows * s->tokens * 4);
		int32_t *labels = t_alloc((size_t)s->rows * s->tokens * 4);
		struct en_model *m = model_of(s);
		struct te_buffers w = weights_of(m), want = te_buffers_new(m, KN_F64);
		const struct en_batch b = batch_of(s, ids, labels);
		const uint64_t count = en_batch_count(&b);
		struct te_run run;
		double sum, e, g;

		te_run(&run, m, &w, &b, &how, count ? 1 : 0);
		/* nothing counts: the factor is not used, and gradients are 0 */
		sum = te_law(m, &w, &b, count ? (double)(1 / (float)count) : 0, &want);
		e = count ? fabs(run.loss.sum - sum) / (double)count : run.loss.sum;
		g = worst_gradient(m, &run.grad, &want);
		printf("%-20s loss %.1e  gradients %.1e\n", s->name, e, g);
		assert_int_equal(run.loss.count, count);
		assert_true(e <= 1e-5);
		/* with one number in a row its norm is +-1, and the rest is cancellation */
		assert_true(g <= (s->hidden == 1 ? 1e-3 : 2e-5));
		te_run_free(&run);
		te_buffers_free(&w);
		te_buffers_free(&want);
		en_model_free(m);
		free(ids);
		free(labels);
	}
}

/* EN_ADD: running twice into the same buffers is twice the gradient, in every block. */
static void gradients_add_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < NSHAPE; i++) {
		const struct shape *s = &shapes[i];
		const struct en_exec_opts opts = { s->rows, s->tokens, KN_F32, 2 };
		int32_t *ids = t_alloc((size_t)s->rows * s->tokens * 4);
		int32_t *labels = t_alloc((size_t)s->rows * s->tokens * 4);
		struct en_model *m = model_of(s);
		struct te_buffers w = weights_of(m), once = te_buffers_new(m, KN_F32);
		struct te_buffers twice = te_buffers_new(m, KN_F32);
		const struct en_batch b = batch_of(s, ids, labels);
		struct ckpt_err err = { 0 };
		struct en_exec *exec;
		struct en_whole *whole;
		struct en_loss loss;

		assert_int_equal(en_exec_new(m, &opts, &exec, &err), 0);
		assert_int_equal(en_whole_new(exec, 0, &whole, &err), 0);
		for (int j = 0; j < 3; j++)
			en_whole_run(whole, &b, (const void *const *)w.block,
				     (float *const *)(void *)(j ? twice : once).block, 0.5f,
				     j ? EN_ADD : 0, NULL, NULL, &loss);
		for (uint32_t k = 0; k < m->nblocks; k++) {
			const size_t n = m->block[k].numel;

			kn_scale(once.block[k], once.block[k], 2, n);
			assert_true(te_rel_l2(twice.block[k], once.block[k], n) < 1e-6);
		}
		en_whole_free(whole);
		en_exec_free(exec);
		te_buffers_free(&w);
		te_buffers_free(&once);
		te_buffers_free(&twice);
		en_model_free(m);
		free(ids);
		free(labels);
	}
}

/* A smaller batch in a handle for a larger one has the bits of a handle of its own. */
static void room_to_spare_changes_nothing(void **state)
{
	const struct shape *s = &shapes[5];
	const struct te_how how = { .type = KN_F32, .threads = 1 };
	const struct en_exec_opts opts = { 5, 200, KN_F32, 2 };
	int32_t ids[262], labels[262];
	struct en_model *m = model_of(s);
	struct te_buffers w = weights_of(m), grad = te_buffers_new(m, KN_F32);
	const struct en_batch b = batch_of(s, ids, labels);
	struct ckpt_err err = { 0 };
	struct en_exec *exec;
	struct en_whole *whole;
	struct en_loss loss;
	struct te_run run;

	(void)state;
	te_run(&run, m, &w, &b, &how, 1);
	assert_int_equal(en_exec_new(m, &opts, &exec, &err), 0);
	assert_int_equal(en_whole_new(exec, 0, &whole, &err), 0);
	assert_true(en_exec_bytes(exec) > 1000);
	en_whole_run(whole, &b, (const void *const *)w.block, (float *const *)(void *)grad.block,
		     1 / (float)en_batch_count(&b), 0, NULL, NULL, &loss);
	assert_true(loss.sum == run.loss.sum);
	for (uint32_t k = 0; k < m->nblocks; k++)
		assert_memory_equal(grad.block[k], run.grad.block[k], m->block[k].numel * 4);
	en_whole_free(whole);
	en_exec_free(exec);
	te_run_free(&run);
	te_buffers_free(&w);
	te_buffers_free(&grad);
	en_model_free(m);
}

static void refused(const struct en_exec *exec, const struct en_batch *b, enum ckpt_code code,
		    const char *text)
{
	struct ckpt_err err = { 0 };

	assert_int_equal(en_batch_check(exec, b, &err), -(int)code);
	if (!strstr(err.msg, text))
		fail_msg("no \"%s\" in: %s", text, err.msg);
}

static void batches_are_checked(void **state)
{
	const struct en_exec_opts opts = { 2, 4, KN_F32, 1 };
	int32_t ids[8] = { 0, 1, 2, 3, 4, 5, 6, 10 }, labels[8] = { 0, 1, -100, 3, 4, 5, 6, 10 };
	struct en_batch b = { 2, 4, ids, labels, NULL, NULL };
	struct en_model *m = model_of(&shapes[0]);
	struct ckpt_err err = { 0 };
	struct en_exec *exec;

	(void)state;
	assert_int_equal(en_exec_new(m, &opts, &exec, &err), 0);
	assert_int_equal(en_batch_check(exec, &b, &err), 0);
	assert_int_equal(en_batch_count(&b), 5);
	ids[6] = 11;
	refused(exec, &b, CKPT_E_MISMATCH, "token 11 at row 1, position 2");
	ids[6] = -1;
	refused(exec, &b, CKPT_E_MISMATCH, "token -1 at row 1");
	ids[6] = 0;
	labels[3] = -99;
	refused(exec, &b, CKPT_E_MISMATCH, "label -99 at row 0, position 3");
	labels[3] = 11;
	refused(exec, &b, CKPT_E_MISMATCH, "label 11");
	labels[3] = 1;
	b.labels = NULL;
	assert_int_equal(en_batch_check(exec, &b, &err), 0);
	b = (struct en_batch){ 1, 5, ids, labels, NULL, NULL };
	refused(exec, &b, CKPT_E_LIMIT, "1 rows of 5 tokens");
	b = (struct en_batch){ 3, 3, ids, labels, NULL, NULL };
	refused(exec, &b, CKPT_E_LIMIT, "buffers hold 2 rows of 4");
	en_exec_free(exec);
	en_model_free(m);
}

static void options_are_checked(void **state)
{
	static const struct en_exec_opts bad[] = {
		{ 0, 4, KN_F32, 1 }, { 2, 0, KN_F32, 1 }, { 65536, 65536, KN_F32, 1 },
		{ 2, 4, KN_F64, 1 }, { 2, 4, 0, 1 },	  { 2, 4, KN_F32, 0 },
		{ 2, 4, KN_F32, 257 },
	};
	struct en_model *m = model_of(&shapes[0]);

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ckpt_err err = { 0 };
		struct en_exec *exec = NULL;

		assert_int_equal(en_exec_new(m, &bad[i], &exec, &err), -CKPT_E_USAGE);
		assert_true(err.msg[0]);
		assert_null(exec);
	}
	en_exec_free(NULL);
	en_whole_free(NULL);
	en_pool_free(NULL);
	en_model_free(m);
}

/* Any piece of a random parameter is that of the whole; norms are 1, biases 0. */
static void random_models(void **state)
{
	struct en_model *m = model_of(&shapes[6]);
	const int64_t q = en_model_find(m, "model.layers.0.self_attn.q_proj.weight");
	const int64_t b = en_model_find(m, "model.layers.0.self_attn.q_proj.bias");
	const int64_t n = en_model_find(m, "model.norm.weight");
	float whole[240], piece[240];

	(void)state;
	assert_true(q == 1 && b == 2 && n > 0);
	assert_true(m->param[q].decay && !m->param[b].decay && !m->param[n].decay);
	assert_int_equal(en_model_find(m, "lm_head.bias"), -1);
	en_model_init(m, (uint32_t)q, 5, 0, 240, whole);
	en_model_init(m, (uint32_t)q, 5, 77, 100, piece);
	assert_memory_equal(piece, whole + 77, 100 * sizeof(float));
	en_model_init(m, (uint32_t)b, 5, 0, 12, piece);
	en_model_init(m, (uint32_t)n, 5, 0, 20, piece + 12);
	for (size_t i = 0; i < 32; i++)
		assert_true(piece[i] == (i >= 12));
	en_model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes_agree_with_the_laws),
		cmocka_unit_test(gradients_add_up),
		cmocka_unit_test(room_to_spare_changes_nothing),
		cmocka_unit_test(batches_are_checked),
		cmocka_unit_test(options_are_checked),
		cmocka_unit_test(random_models),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
