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
#include "tests/engine/te_recorded.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/ref/en_whole.h"

#define STEP_ROWS 8u

/* What a recorded run says about itself. */
struct plan {
	struct te_recorded r;
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

static void plan_read(struct plan *p, const struct te_recorded *r)
{
	const cJSON *run = r->run, *config = cJSON_GetObjectItem(run, "config");
	const char *dtype = te_text(run, "dtype");
	const bool old = strstr(te_text(run, "engine"), "0.16") != NULL;

	*p = (struct plan){ .r = *r };
	p->type = !strcmp(dtype, "bf16") ? KN_BF16 : !strcmp(dtype, "fp16") ? KN_F16 : KN_F32;
	p->world = (uint32_t)te_number(run, "world");
	p->micro = (uint32_t)te_number(run, "micro_batch");
	p->accumulation = (uint32_t)te_number(run, "gradient_accumulation_steps");
	p->token_mean = !strcmp(te_text(run, "averaging"), "token_mean");
	p->one_group = !strcmp(te_text(run, "param_groups"), "one");
	p->clip = te_number(r->hyper, "max_grad_norm");
	if (config && !cJSON_GetObjectItem(config, "gradient_clipping") && old)
		p->clip = 0;
	p->labels = te_samples(te_text(run, "labels"));
	assert_int_equal(p->world * p->micro * p->accumulation, STEP_ROWS);
}

static void state_open(struct state *s, const struct plan *p)
{
	const struct en_exec_opts opts = { .rows = p->micro, .tokens = TE_TOKENS, .type = p->type,
					   .threads = 2 };
	struct ckpt_err err = { 0 };

	*s = (struct state){ 0 };
	te_model_open(&s->m, p->r.model);
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

	return (struct en_batch){ p->micro, TE_TOKENS, te_samples("input_ids") + row * TE_TOKENS,
				  p->labels + row * TE_TOKENS, NULL, NULL };
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
	const cJSON *betas = cJSON_GetObjectItem(p->r.hyper, "betas");
	struct kn_adam how = { .rule = KN_ADAM_TORCH, .decoupled = 1, .bias_correction = 1,
			       .step = ++s->updates, .lr = lr,
			       .beta1 = betas->child->valuedouble,
			       .beta2 = betas->child->next->valuedouble,
			       .eps = te_number(p->r.hyper, "eps"), .grad_scale = (float)factor };

	for (uint32_t i = 0; i < s->m.model->nparams; i++) {
		const struct en_param *q = &s->m.model->param[i];
		const size_t at = q->offset, size = kn_type_size(p->type);

		how.decay = q->decay || p->one_group ? te_number(p->r.hyper, "weight_decay") : 0;
		kn_adam(&how, (float *)s->m.weight.block[q->block] + at,
			(float *)s->exp_avg.block[q->block] + at,
			(float *)s->exp_avg_sq.block[q->block] + at,
			(float *)s->sum.block[q->block] + at, q->numel,
			(char *)s->weight.block[q->block] + at * size, p->type);
	}
}

/* One step; the worst deviations go up. */
static void one_step(struct state *s, const struct plan *p, uint32_t i, const cJSON *step,
		     struct te_deviation *worst)
{
	const bool scaled = p->type == KN_F16;
	const double scale = scaled ? te_number(step, "loss_scale") : 1;
	const double after = scaled ? te_number(step, "scale_after") : 1;
	const double lr = te_number(step, "lr"), want = te_number(step, "grad_norm");
	const double loss = gradient(s, p, i, scale);
	const int good = all_finite(s);
	double n, c = 1;

	worst->loss = te_most(worst->loss, fabs(loss - te_number(step, "loss")));
	if (scaled)
		assert_int_equal(good, !cJSON_IsTrue(cJSON_GetObjectItem(step, "overflow")));
	assert_true(good || scaled);
	if (!good)
		return;
	/* on a growth step DeepSpeed divides by the new scale */
	n = norm(s) / after;
	if (!isnan(want) && !(scaled && after != scale))
		worst->norm = te_most(worst->norm, fabs(n / want - 1));
	if (p->clip > 0 && n + 1e-6 > p->clip)
		c = p->clip / (n + 1e-6);
	update(s, p, lr, c / after);
}

static void final_norms(const struct state *s, const struct plan *p, struct te_deviation *d)
{
	for (uint32_t i = 0; i < s->m.model->nparams; i++) {
		const struct en_param *q = &s->m.model->param[i];

		te_deviation_of(d, &p->r, q, (float *)s->m.weight.block[q->block] + q->offset);
	}
}

/* The weights that torch had after the run, where they were kept. */
static void final_weights(const struct state *s, const struct plan *p)
{
	char *part = t_fmt("train/%s.final_fp32.safetensors", p->r.model), *path = te_path(part);
	double worst = 0;
	struct t_st st;

	if (!strcmp(p->r.name, "torch_fp32_full") && t_exists(path)) {
		if (t_st_open(&st, path))
			t_die("%s: %s", path, st.err);
		for (uint32_t i = 0; i < s->m.model->nparams; i++) {
			const struct en_param *q = &s->m.model->param[i];
			const struct t_st_tensor *t = t_st_find(&st, q->name);

			assert_non_null(t);
			worst = te_most(worst, te_max_abs((float *)s->m.weight.block[q->block] +
							       q->offset,
						       (const float *)(const void *)t->data,
						       q->numel));
		}
		printf("%-12s   final weights, max abs %.1e (limit 2e-5)\n", p->r.model, worst);
		assert_true(worst <= 2e-5);
		t_st_close(&st);
	}
	free(path);
	free(part);
}

static void one_run(const struct te_recorded *r, unsigned n, void *arg)
{
	struct te_deviation d = { 0 };
	const cJSON *step;
	struct plan p;
	struct state s;
	uint32_t i = 0;

	(void)n;
	(void)arg;
	plan_read(&p, r);
	state_open(&s, &p);
	cJSON_ArrayForEach(step, cJSON_GetObjectItem(r->run, "steps"))
		one_step(&s, &p, i++, step, &d);
	assert_int_equal(i, TE_STEPS);
	final_norms(&s, &p, &d);
	printf("%-12s %-44s loss %.1e  norm %.1e  l2 %.1e  k_proj.bias %.1e\n", r->model, r->name,
	       d.loss, d.norm, d.l2, d.l2_k_bias);
	final_weights(&s, &p);
	state_close(&s);
	te_deviation_check(&d, p.type == KN_F32);
}

static void runs_of(const char *model, unsigned want)
{
	te_recorded_each(model, want, one_run, NULL);
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
	int rc;

	te_recorded_begin();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	te_recorded_end();
	return rc;
}
