/*
 * test_engine_train.c -- 20 training steps against torch and DeepSpeed.
 *
 * If this is wrong, a run that is moved here goes another way.  Every recorded run is made again
 * from the same weights and samples: units (micro-batches of all ranks) one after another, their
 * gradients averaged, clipped, and given to AdamW in fp32, with the recorded learning rates and
 * loss scales.  Limits are those of the fixtures.  Runs whose rope frequencies were rounded to bf16
 * (DeepSpeed 0.16) are left out.
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
#include "tests/ref/en_whole.h"

#define STEP_ROWS 8u
#define TOKENS 33u

static struct t_st data;

/* What a recorded run says about itself. */
struct plan {
	const char *model, *name;
	const cJSON *run, *hyper;
	enum kn_type type;
	uint32_t world, micro, accumulation;
	bool token_mean, one_group;
	double clip;
	const int32_t *labels;
};

struct state {
	struct te_model m;
	struct en_exec *exec;
	struct en_whole *whole;
	struct te_buffers grad, rank, sum, exp_avg, exp_avg_sq, weight;
	uint64_t updates;
};

static double number(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

static const char *text_of(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

static const int32_t *samples(const char *name)
{
	const struct t_st_tensor *t = t_st_find(&data, name);

	if (!t)
		t_die("train/data.safetensors has no %s", name);
	return (const int32_t *)(const void *)t->data;
}

static bool plan_read(struct plan *p, const cJSON *file, const char *model, const cJSON *run)
{
	const cJSON *config = cJSON_GetObjectItem(run, "config");
	const cJSON *rope = cJSON_GetObjectItem(run, "rope_buffer_dtype");
	const char *dtype = text_of(run, "dtype");
	const bool old = strstr(text_of(run, "engine"), "0.16") != NULL;

	*p = (struct plan){ .model = model, .name = run->string, .run = run,
			    .hyper = cJSON_GetObjectItem(file, "hyper") };
	if (rope && strcmp(rope->child->valuestring, "torch.float32"))
		return false;
	p->type = !strcmp(dtype, "bf16") ? KN_BF16 : !strcmp(dtype, "fp16") ? KN_F16 : KN_F32;
	p->world = (uint32_t)number(run, "world");
	p->micro = (uint32_t)number(run, "micro_batch");
	p->accumulation = (uint32_t)number(run, "gradient_accumulation_steps");
	p->token_mean = !strcmp(text_of(run, "averaging"), "token_mean");
	p->one_group = !strcmp(text_of(run, "param_groups"), "one");
	p->clip = number(p->hyper, "max_grad_norm");
	if (config && !cJSON_GetObjectItem(config, "gradient_clipping") && old)
		p->clip = 0;
	p->labels = samples(text_of(run, "labels"));
	assert_int_equal(p->world * p->micro * p->accumulation, STEP_ROWS);
	return true;
}

static void state_open(struct state *s, const struct plan *p)
{
	const struct en_exec_opts opts = { .rows = p->micro, .tokens = TOKENS, .type = p->type,
					   .threads = 2 };
	struct ckpt_err err = { 0 };

	*s = (struct state){ 0 };
	te_model_open(&s->m, p->model);
	if (en_exec_new(s->m.model, &opts, &s->exec, &err) ||
	    en_whole_new(s->exec, 0, &s->whole, &err))
		t_die("%s", err.msg);
	s->grad = te_buffers_new(s->m.model, KN_F32);
	s->rank = te_buffers_new(s->m.model, KN_F32);
	s->sum = te_buffers_new(s->m.model, KN_F32);
	s->exp_avg = te_buffers_new(s->m.model, KN_F32);
	s->exp_avg_sq = te_buffers_new(s->m.model, KN_F32);
	s->weight = te_buffers_cast(s->m.model, &s->m.weight, p->type);
}

static void state_close(struct state *s)
{
	te_buffers_free(&s->weight);
	te_buffers_free(&s->exp_avg_sq);
	te_buffers_free(&s->exp_avg);
	te_buffers_free(&s->sum);
	te_buffers_free(&s->rank);
	te_buffers_free(&s->grad);
	en_whole_free(s->whole);
	en_exec_free(s->exec);
	te_model_close(&s->m);
}

static void zero(const struct en_model *m, struct te_buffers *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		memset(b->block[i], 0, m->block[i].numel * sizeof(float));
}

/* to = R(to + scale from) */
static void add(const struct en_model *m, struct te_buffers *to, struct te_buffers *from,
		float scale, enum kn_type type)
{
	for (uint32_t i = 0; i < to->n; i++) {
		kn_scale(from->block[i], from->block[i], scale, m->block[i].numel);
		kn_round(from->block[i], m->block[i].numel, type);
		kn_add(to->block[i], to->block[i], from->block[i], m->block[i].numel, type);
	}
}

static struct en_batch unit_batch(const struct plan *p, uint32_t step, uint32_t rank,
				  uint32_t micro)
{
	const size_t row = STEP_ROWS * step + (micro * p->world + rank) * p->micro;

	return (struct en_batch){ p->micro, TOKENS, samples("input_ids") + row * TOKENS,
				  p->labels + row * TOKENS };
}

static uint64_t step_tokens(const struct plan *p, uint32_t step)
{
	uint64_t n = 0;

	for (uint32_t u = 0; u < p->world * p->accumulation; u++) {
		const struct en_batch b = unit_batch(p, step, u % p->world, u / p->world);

		n += en_batch_count(&b);
	}
	return n;
}

/* The step's gradient times 'scale' into s->sum; returns its loss.  16-bit sums as DeepSpeed's. */
static double gradient(struct state *s, const struct plan *p, uint32_t step, double scale)
{
	const uint32_t units = p->world * p->accumulation;
	const enum kn_type sums = p->type == KN_F16 ? KN_F16 : KN_F32;
	const uint64_t tokens = step_tokens(p, step);
	double loss = 0;

	zero(s->m.model, &s->sum);
	for (uint32_t r = 0; r < p->world; r++) {
		zero(s->m.model, &s->rank);
		for (uint32_t m = 0; m < p->accumulation; m++) {
			const struct en_batch b = unit_batch(p, step, r, m);
			const double n = (double)en_batch_count(&b);
			const double part = p->token_mean ? 1 / (double)tokens : 1 / n / units;
			struct en_loss l;

			en_whole_run(s->whole, &b, (const void *const *)s->weight.block,
				     (float *const *)(void *)s->grad.block,
				     (float)(part * p->world * scale), 0, NULL, NULL, &l);
			loss += l.sum * part;
			add(s->m.model, &s->rank, &s->grad, 1, sums);
		}
		add(s->m.model, &s->sum, &s->rank, 1 / (float)p->world, sums);
	}
	return loss;
}

static double norm(const struct state *s)
{
	double sum = 0;

	for (uint32_t i = 0; i < s->sum.n; i++) {
		const size_t n = s->m.model->block[i].numel, chunks = (n + 1023) / 1024;
		double *part = t_alloc(chunks * sizeof(*part));

		kn_sumsq(part, s->sum.block[i], n, 1024);
		sum += kn_tree_sum(part, chunks);
		free(part);
	}
	return sqrt(sum);
}

static int all_finite(const struct state *s)
{
	int all = 1;

	for (uint32_t i = 0; i < s->sum.n; i++)
		all &= kn_all_finite(s->sum.block[i], s->m.model->block[i].numel);
	return all;
}

static void update(struct state *s, const struct plan *p, double lr, double factor)
{
	const cJSON *betas = cJSON_GetObjectItem(p->hyper, "betas");
	struct kn_adam how = { .rule = KN_ADAM_TORCH, .decoupled = 1, .bias_correction = 1,
			       .step = ++s->updates, .lr = lr,
			       .beta1 = betas->child->valuedouble,
			       .beta2 = betas->child->next->valuedouble,
			       .eps = number(p->hyper, "eps"), .grad_scale = (float)factor };

	for (uint32_t i = 0; i < s->m.model->nparams; i++) {
		const struct en_param *q = &s->m.model->param[i];
		const size_t at = q->offset, size = kn_type_size(p->type);

		how.decay = q->decay || p->one_group ? number(p->hyper, "weight_decay") : 0;
		kn_adam(&how, (float *)s->m.weight.block[q->block] + at,
			(float *)s->exp_avg.block[q->block] + at,
			(float *)s->exp_avg_sq.block[q->block] + at,
			(float *)s->sum.block[q->block] + at, q->numel,
			(char *)s->weight.block[q->block] + at * size, p->type);
	}
}

struct deviation {
	double loss, norm;	/* the worst of all steps: absolute; relative */
	double l2, l2_k_bias;	/* of the final weights' norms, relative */
};

static double most(double a, double b)
{
	return b <= a ? a : b;
}

/* One step; the worst deviations go up. */
static void one_step(struct state *s, const struct plan *p, uint32_t i, const cJSON *step,
		     struct deviation *worst)
{
	const bool scaled = p->type == KN_F16;
	const double scale = scaled ? number(step, "loss_scale") : 1;
	const double after = scaled ? number(step, "scale_after") : 1;
	const double lr = number(step, "lr"), want = number(step, "grad_norm");
	const double loss = gradient(s, p, i, scale);
	const int good = all_finite(s);
	double n, c = 1;

	worst->loss = most(worst->loss, fabs(loss - number(step, "loss")));
	if (scaled)
		assert_int_equal(good, !cJSON_IsTrue(cJSON_GetObjectItem(step, "overflow")));
	assert_true(good || scaled);
	if (!good)
		return;
	/* on a growth step DeepSpeed divides by the new scale */
	n = norm(s) / after;
	if (!isnan(want) && !(scaled && after != scale))
		worst->norm = most(worst->norm, fabs(n / want - 1));
	if (p->clip > 0 && n + 1e-6 > p->clip)
		c = p->clip / (n + 1e-6);
	update(s, p, lr, c / after);
}

static void final_norms(const struct state *s, const struct plan *p, struct deviation *d)
{
	const cJSON *want = cJSON_GetObjectItem(p->run, "final");

	for (uint32_t i = 0; i < s->m.model->nparams; i++) {
		const struct en_param *q = &s->m.model->param[i];
		const float *w = (float *)s->m.weight.block[q->block] + q->offset;
		const double l2 = number(cJSON_GetObjectItemCaseSensitive(want, q->name), "l2");
		double sum = 0, e;

		for (uint64_t j = 0; j < q->numel; j++)
			sum += (double)w[j] * (double)w[j];
		e = fabs(sqrt(sum) / l2 - 1);
		if (strstr(q->name, "k_proj.bias"))
			d->l2_k_bias = most(d->l2_k_bias, e);
		else
			d->l2 = most(d->l2, e);
	}
}

/* The weights that torch had after the run, where they were kept. */
static void final_weights(const struct state *s, const struct plan *p)
{
	char *part = t_fmt("train/%s.final_fp32.safetensors", p->model), *path = te_path(part);
	double worst = 0;
	struct t_st st;

	if (!strcmp(p->name, "torch_fp32_full") && t_exists(path)) {
		if (t_st_open(&st, path))
			t_die("%s: %s", path, st.err);
		for (uint32_t i = 0; i < s->m.model->nparams; i++) {
			const struct en_param *q = &s->m.model->param[i];
			const struct t_st_tensor *t = t_st_find(&st, q->name);

			assert_non_null(t);
			worst = most(worst, te_max_abs((float *)s->m.weight.block[q->block] +
							       q->offset,
						       (const float *)(const void *)t->data,
						       q->numel));
		}
		printf("%-12s   final weights, max abs %.1e (limit 2e-5)\n", p->model, worst);
		assert_true(worst <= 2e-5);
		t_st_close(&st);
	}
	free(path);
	free(part);
}

static void one_run(const struct plan *p)
{
	const struct deviation limit = p->type == KN_F32 ?
		(struct deviation){ 2e-5, 1e-5, 1e-6, 1e-3 } :
		(struct deviation){ 0.01, 0.03, 0.005, 0.1 };
	struct deviation d = { 0 };
	const cJSON *step;
	struct state s;
	uint32_t i = 0;

	state_open(&s, p);
	cJSON_ArrayForEach(step, cJSON_GetObjectItem(p->run, "steps"))
		one_step(&s, p, i++, step, &d);
	assert_int_equal(i, 20);
	final_norms(&s, p, &d);
	printf("%-12s %-44s loss %.1e  norm %.1e  l2 %.1e  k_proj.bias %.1e\n", p->model, p->name,
	       d.loss, d.norm, d.l2, d.l2_k_bias);
	final_weights(&s, p);
	state_close(&s);
	assert_true(d.loss <= limit.loss);
	assert_true(d.norm <= limit.norm);
	assert_true(d.l2 <= limit.l2);
	assert_true(d.l2_k_bias <= limit.l2_k_bias);
}

static void runs_of(const char *model, size_t want)
{
	char *name = t_fmt("train/%s.json", model);
	cJSON *file = te_json(name);
	const cJSON *run;
	size_t n = 0;

	cJSON_ArrayForEach(run, cJSON_GetObjectItem(file, "runs")) {
		struct plan p;

		if (plan_read(&p, file, model, run)) {
			one_run(&p);
			n++;
		}
	}
	assert_int_equal(n, want);
	cJSON_Delete(file);
	free(name);
}

static void llama3(void **state)
{
	(void)state;
	runs_of("llama3", 24);
	runs_of("llama3_tied", 4);
}

static void qwen25(void **state)
{
	(void)state;
	runs_of("qwen25", 4);
	runs_of("qwen25_tied", 18);
}

static void qwen3(void **state)
{
	(void)state;
	runs_of("qwen3", 4);
	runs_of("qwen3_tied", 21);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama3),
		cmocka_unit_test(qwen25),
		cmocka_unit_test(qwen3),
	};
	char *path;
	int rc;

	te_need_fixtures();
	path = te_path("train/data.safetensors");
	if (t_st_open(&data, path))
		t_die("%s: %s", path, data.err);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	t_st_close(&data);
	free(path);
	return rc;
}
