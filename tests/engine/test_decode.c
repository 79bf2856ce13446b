/*
 * Token after token with keys and values kept: the logits are those of the whole forward pass, and
 * of transformers; draws follow their rules.  If this fails, what a model says here is not what
 * it was trained to say.
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

#include "engine/model/en_decode.h"
#include "engine/model/en_sample.h"
#include "engine/model/en_weights.h"
#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"

static const char *const names[] = { "llama3", "llama3_tied", "qwen25", "qwen25_tied", "qwen3",
				     "qwen3_tied" };
#define NMODEL (sizeof(names) / sizeof(names[0]))

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		fail_msg("%s: %s: %s", ckpt_code_name((enum ckpt_code)-rc), err->where, err->msg);
}

static void row(const char *model, const char *what, double got, double limit)
{
	printf("%-14s %-36s %10.2e  limit %.0e%s\n", model, what, got, limit,
	       got <= limit ? "" : "  TOO MUCH");
	assert_true(got <= limit);
}

/* All tokens of a row, 'step' at a time; logits of the last of each step into their places. */
static void decode(const struct te_model *m, const struct te_buffers *w, enum kn_type type,
		   uint32_t threads, const int32_t *ids, uint32_t n, uint32_t step, float *logits)
{
	const struct en_decode_opts o = { .tokens = n, .type = type, .threads = threads };
	const size_t vocab = m->model->config.vocab;
	struct ckpt_err err = { 0 };
	struct en_decode *d;
	const float *got;

	must(en_decode_new(m->model, &o, (const void *const *)w->block, &d, &err), &err);
	for (uint32_t at = 0; at < n;) {
		const uint32_t part = n - at < step ? n - at : step;

		must(en_decode_feed(d, ids + at, part, &got, &err), &err);
		at += part;
		assert_int_equal(en_decode_at(d), at);
		memcpy(logits + (at - 1) * vocab, got, vocab * sizeof(float));
	}
	en_decode_free(d);
}

/* The worst difference at the positions that 'step' gives. */
static double worst(const float *got, const float *want, uint32_t n, uint32_t step, size_t vocab)
{
	double most = 0;

	for (uint32_t at = 0; at < n;) {
		at += n - at < step ? n - at : step;
		most = fmax(most, te_max_abs(got + (at - 1) * vocab, want + (at - 1) * vocab,
					     vocab));
	}
	return most;
}

static void each_model(const char *name, uint32_t step)
{
	const struct te_how how = { .type = KN_F32, .threads = 1 };
	struct te_model m;
	struct te_ref ref;
	struct te_run run;
	double whole = 0, theirs = 0;
	float *logits;
	size_t vocab, n;

	te_model_open(&m, name);
	te_ref_open(&ref, name);
	te_run(&run, m.model, &m.weight, &ref.batch, &how, 1);
	vocab = m.model->config.vocab;
	n = ref.batch.tokens;
	logits = t_alloc(n * vocab * sizeof(float));
	for (uint32_t r = 0; r < ref.batch.rows; r++) {
		const size_t at = r * n * vocab;

		decode(&m, &m.weight, KN_F32, 1, ref.batch.ids + r * n, (uint32_t)n, step, logits);
		whole = fmax(whole, worst(logits, run.logits + at, (uint32_t)n, step, vocab));
		theirs = fmax(theirs, worst(logits, te_ref_f32(&ref, "logits") + at, (uint32_t)n,
					    step, vocab));
	}
	printf("%u at a time: ", step);
	row(name, "fp32 logits, the whole pass, max abs", whole, 3e-5);
	row(name, "fp32 logits, transformers, max abs", theirs, 3e-5);
	free(logits);
	te_run_free(&run);
	te_ref_close(&ref);
	te_model_close(&m);
}

static void one_by_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODEL; i++)
		each_model(names[i], 1);
}

static void several_at_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < NMODEL; i++) {
		each_model(names[i], 7);
		each_model(names[i], 33);
	}
}

static void sixteen_bits(void **state)
{
	static const enum kn_type types[] = { KN_BF16, KN_F16 };

	(void)state;
	for (size_t i = 0; i < NMODEL * 2; i++) {
		const enum kn_type type = types[i % 2];
		const struct te_how how = { .type = type, .threads = 1 };
		struct te_buffers w;
		struct te_model m;
		struct te_ref ref;
		struct te_run run;
		float *logits;
		size_t all;

		te_model_open(&m, names[i / 2]);
		te_ref_open(&ref, names[i / 2]);
		w = te_buffers_cast(m.model, &m.weight, type);
		te_run(&run, m.model, &w, &ref.batch, &how, 1);
		all = (size_t)ref.batch.tokens * m.model->config.vocab;
		logits = t_alloc(all * sizeof(float));
		decode(&m, &w, type, 1, ref.batch.ids, ref.batch.tokens, 1, logits);
		row(names[i / 2], type == KN_BF16 ? "bf16, the whole pass, rel l2" :
		    "fp16, the whole pass, rel l2", te_rel_l2(logits, run.logits, all),
		    type == KN_BF16 ? 0.015 : 0.002);
		if (type == KN_BF16)
			row(names[i / 2], "bf16, fp32 of transformers, rel l2",
			    te_rel_l2(logits, te_ref_f32(&ref, "logits"), all), 0.03);
		free(logits);
		te_run_free(&run);
		te_buffers_free(&w);
		te_ref_close(&ref);
		te_model_close(&m);
	}
}

/* More tokens than one strip of attention has rows, in every position of it. */
static void long_rows(void **state)
{
	const uint32_t n = 150;
	const struct te_how how = { .type = KN_F32, .threads = 1 };
	int32_t ids[150];
	const struct en_batch batch = { 1, n, ids, ids, NULL, NULL };
	struct te_model m;
	struct te_run run;
	float *logits;
	size_t vocab;

	(void)state;
	te_model_open(&m, "llama3");
	vocab = m.model->config.vocab;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = (int32_t)((i * 7919 + 13) % vocab);
	te_run(&run, m.model, &m.weight, &batch, &how, 1);
	logits = t_alloc(n * vocab * sizeof(float));
	for (uint32_t step = 1; step <= n; step += step < 60 ? 59 : 30) {
		decode(&m, &m.weight, KN_F32, 1, ids, n, step, logits);
		row("llama3", "150 tokens, max abs",
		    worst(logits, run.logits, n, step, vocab), 3e-5);
	}
	free(logits);
	te_run_free(&run);
	te_model_close(&m);
}

static void bits_do_not_depend_on_threads(void **state)
{
	struct te_model m;
	struct te_ref ref;
	float *a, *b;
	size_t all;

	(void)state;
	te_model_open(&m, "qwen3_tied");
	te_ref_open(&ref, "qwen3_tied");
	all = (size_t)ref.batch.tokens * m.model->config.vocab;
	a = t_alloc(all * sizeof(float));
	b = t_alloc(all * sizeof(float));
	decode(&m, &m.weight, KN_F32, 1, ref.batch.ids, ref.batch.tokens, 1, a);
	for (uint32_t threads = 2; threads <= 7; threads += 5) {
		decode(&m, &m.weight, KN_F32, threads, ref.batch.ids, ref.batch.tokens, 1, b);
		assert_memory_equal(a, b, all * sizeof(float));
	}
	free(a);
	free(b);
	te_ref_close(&ref);
	te_model_close(&m);
}

static void going_back_and_what_cannot_be(void **state)
{
	const struct en_decode_opts o = { .tokens = 5, .type = KN_F32, .threads = 1 };
	static const int32_t ids[6] = { 3, 4, 5, 6, 7, 8 }, outside[1] = { 257 }, below[1] = { -1 };
	struct ckpt_err err = { 0 };
	struct te_model m;
	struct en_decode *d;
	const float *got;
	float *first;
	size_t vocab;

	(void)state;
	te_model_open(&m, "llama3");
	vocab = m.model->config.vocab;
	must(en_decode_new(m.model, &o, (const void *const *)m.weight.block, &d, &err), &err);
	must(en_decode_feed(d, ids, 3, &got, &err), &err);
	must(en_decode_feed(d, ids + 3, 1, &got, &err), &err);
	first = t_alloc(vocab * sizeof(float));
	memcpy(first, got, vocab * sizeof(float));
	must(en_decode_feed(d, ids + 4, 1, &got, &err), &err);
	en_decode_back(d, 3);
	must(en_decode_feed(d, ids + 3, 1, &got, &err), &err);
	assert_memory_equal(got, first, vocab * sizeof(float));
	assert_int_equal(en_decode_feed(d, ids, 2, &got, &err), -CKPT_E_LIMIT);
	assert_int_equal(en_decode_feed(d, outside, 1, &got, NULL), -CKPT_E_MISMATCH);
	assert_int_equal(en_decode_feed(d, below, 1, &got, NULL), -CKPT_E_MISMATCH);
	assert_int_equal(en_decode_at(d), 4);
	en_decode_free(d);
	free(first);
	te_model_close(&m);
}

/* ---- draws ---- */

#define N 5u
static const float logits[N] = { 1, 3, 2, 3, -1 };	/* 0.05 0.40 0.15 0.40 0.01 */

static void counts(const struct en_sample_how *how, unsigned *count, unsigned draws)
{
	struct en_sample_entry work[N];
	double logprob;

	memset(count, 0, N * sizeof(*count));
	for (unsigned i = 0; i < draws; i++)
		count[en_sample(how, logits, N, i, work, &logprob)]++;
}

static void the_likeliest(void **state)
{
	static const float nan_first[3] = { NAN, 1, 2 }, infinite[2] = { 1, INFINITY };
	const struct en_sample_how greedy = { .top_p = 1 }, warm = { .temperature = 1, .top_p = 1 };
	struct en_sample_entry work[N];
	double logprob, sum = 0;

	(void)state;
	assert_int_equal(en_sample(&greedy, logits, N, 0, work, &logprob), 1);
	for (unsigned i = 0; i < N; i++)
		sum += exp(logits[i]);
	assert_true(fabs(logprob - (3 - log(sum))) < 1e-12);
	assert_int_equal(en_sample(&greedy, nan_first, 3, 0, work, &logprob), 2);
	assert_int_equal(en_sample(&warm, infinite, 2, 0, work, &logprob), 1);
	for (unsigned i = 0; i < 100; i++)
		assert_int_not_equal(en_sample(&warm, nan_first, 3, i, work, &logprob), 0);
}

static void draws_follow_the_probabilities(void **state)
{
	const struct en_sample_how how = { .temperature = 1, .top_p = 1, .seed = 5 };
	const struct en_sample_how cold = { .temperature = 0.1, .top_p = 1, .seed = 5 };
	unsigned count[N], again[N];
	double sum = 0;

	(void)state;
	for (unsigned i = 0; i < N; i++)
		sum += exp(logits[i]);
	counts(&how, count, 20000);
	for (unsigned i = 0; i < N; i++) {
		const double p = exp(logits[i]) / sum, s = sqrt(20000 * p * (1 - p));

		if (fabs(count[i] - 20000 * p) > 4 * s)
			fail_msg("token %u: %u of 20000, %.4f expected", i, count[i], p);
	}
	counts(&how, again, 20000);
	assert_memory_equal(count, again, sizeof(count));
	counts(&cold, count, 1000);
	assert_int_equal(count[1] + count[3], 1000);
}

static void top_k_and_top_p(void **state)
{
	const struct en_sample_how k1 = { .temperature = 1, .top_k = 1, .top_p = 1 };
	const struct en_sample_how k3 = { .temperature = 1, .top_k = 3, .top_p = 1 };
	const struct en_sample_how p = { .temperature = 1, .top_p = 0.8 };
	const struct en_sample_how least = { .temperature = 1, .top_p = 1e-9 };
	const struct en_sample_how both = { .temperature = 1, .top_k = 2, .top_p = 0.6 };
	unsigned count[N];

	(void)state;
	counts(&k1, count, 200);
	assert_int_equal(count[1], 200);
	counts(&k3, count, 2000);
	assert_true(count[1] && count[2] && count[3] && !count[0] && !count[4]);
	counts(&p, count, 2000);	/* two have 0.79 */
	assert_true(count[1] && count[2] && count[3] && !count[0] && !count[4]);
	counts(&least, count, 200);
	assert_int_equal(count[1], 200);
	counts(&both, count, 2000);	/* half each of two: one is less than 0.6 */
	assert_true(count[1] && count[3] && count[1] + count[3] == 2000);
}

/* ---- eos ---- */

static void eos(const char *generation, const char *config, int code, const char *want)
{
	char *dir = t_dir_new(), *a = t_fmt("%s/generation_config.json", dir);
	char *b = t_fmt("%s/config.json", dir), got[256] = "";
	int32_t ids[EN_EOS_MOST];
	struct ckpt_err err = { 0 };
	uint32_t n;

	if (generation)
		t_file_write(a, generation, strlen(generation));
	if (config)
		t_file_write(b, config, strlen(config));
	assert_int_equal(en_eos_read(dir, ids, &n, &err), -code);
	for (uint32_t i = 0; !code && i < n; i++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%d ", ids[i]);
	assert_string_equal(got, want);
	free(a);
	free(b);
	t_dir_end(dir);
}

static void what_ends_a_text(void **state)
{
	(void)state;
	eos(NULL, NULL, 0, "");
	eos("{\"eos_token_id\": 2}", "{\"eos_token_id\": 3}", 0, "2 ");
	eos("{\"eos_token_id\": [5, 7]}", NULL, 0, "5 7 ");
	eos("{\"eos_token_id\": null}", "{\"eos_token_id\": [3]}", 0, "3 ");
	eos("{}", "{\"eos_token_id\": 3}", 0, "3 ");
	eos(NULL, "{\"eos_token_id\": []}", 0, "");
	eos("{\"eos_token_id\": \"2\"}", NULL, CKPT_E_CORRUPT, "");
	eos("{\"eos_token_id\": [2, 1.5]}", NULL, CKPT_E_CORRUPT, "");
	eos("{\"eos_token_id\": -1}", NULL, CKPT_E_CORRUPT, "");
	eos("no", NULL, CKPT_E_CORRUPT, "");
}

/* ---- weights ---- */

static void weights_from_a_folder(void **state)
{
	static const char *const from[] = { "llama3", "llama3_sharded" };
	struct te_model m;

	(void)state;
	te_model_open(&m, "llama3");
	for (size_t i = 0; i < 2; i++) {
		char *name = t_fmt("models/%s", from[i]), *path = te_path(name);
		struct te_buffers bf16 = te_buffers_cast(m.model, &m.weight, KN_BF16);
		struct en_weights w = { 0 };
		struct ckpt_err err = { 0 };
		struct ckpt *ck;

		must(ckpt_open((const char *const *)&path, 1, NULL, &ck, &err), &err);
		must(en_weights_load(m.model, ck, KN_F32, 2, &w, &err), &err);
		for (uint32_t b = 0; b < m.model->nblocks; b++)
			assert_memory_equal(w.block[b], m.weight.block[b],
					    m.model->block[b].numel * 4);
		en_weights_free(&w);
		must(en_weights_load(m.model, ck, KN_BF16, 1, &w, &err), &err);
		assert_int_equal(w.bytes, m.model->numel * 2);
		for (uint32_t b = 0; b < m.model->nblocks; b++)
			assert_memory_equal(w.block[b], bf16.block[b],
					    m.model->block[b].numel * 2);
		en_weights_free(&w);
		ckpt_close(ck);
		te_buffers_free(&bf16);
		free(name);
		free(path);
	}
	te_model_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_by_one),
		cmocka_unit_test(several_at_once),
		cmocka_unit_test(sixteen_bits),
		cmocka_unit_test(long_rows),
		cmocka_unit_test(bits_do_not_depend_on_threads),
		cmocka_unit_test(going_back_and_what_cannot_be),
		cmocka_unit_test(the_likeliest),
		cmocka_unit_test(draws_follow_the_probabilities),
		cmocka_unit_test(top_k_and_top_p),
		cmocka_unit_test(what_ends_a_text),
		cmocka_unit_test(weights_from_a_folder),
	};

	te_need_fixtures();
	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
