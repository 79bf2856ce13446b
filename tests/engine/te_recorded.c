/* te_recorded.c -- see te_recorded.h. */
#include "tests/engine/te_recorded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/engine/te_model.h"
#include "tests/lib/fs/t_dir.h"

static struct t_st data;

void te_recorded_begin(void)
{
	char *path;

	te_need_fixtures();
	path = te_path("train/data.safetensors");
	if (t_st_open(&data, path))
		t_die("%s: %s", path, data.err);
	free(path);
}

void te_recorded_end(void)
{
	t_st_close(&data);
}

const int32_t *te_samples(const char *name)
{
	const struct t_st_tensor *t = t_st_find(&data, name);

	if (!t)
		t_die("train/data.safetensors has no %s", name);
	return (const int32_t *)(const void *)t->data;
}

double te_number(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

const char *te_text(const cJSON *o, const char *name)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

	return cJSON_IsString(v) ? v->valuestring : "";
}

void te_recorded_each(const char *model, unsigned want,
		      void (*one)(const struct te_recorded *r, unsigned n, void *arg), void *arg)
{
	char *name = t_fmt("train/%s.json", model);
	cJSON *file = te_json(name);
	const cJSON *run;
	unsigned n = 0;

	cJSON_ArrayForEach(run, cJSON_GetObjectItem(file, "runs")) {
		const struct te_recorded r = {
			.model = model, .name = run->string, .run = run,
			.hyper = cJSON_GetObjectItem(file, "hyper"),
		};
		const cJSON *rope = cJSON_GetObjectItem(run, "rope_buffer_dtype");

		if (!rope || !strcmp(rope->child->valuestring, "torch.float32"))
			one(&r, n++, arg);
	}
	assert_int_equal(n, want);
	cJSON_Delete(file);
	free(name);
}

double te_most(double a, double b)
{
	return b <= a ? a : b;
}

void te_deviation_of(struct te_deviation *d, const struct te_recorded *r, const struct en_param *p,
		     const float *w)
{
	const cJSON *want = cJSON_GetObjectItem(r->run, "final");
	const double l2 = te_number(cJSON_GetObjectItemCaseSensitive(want, p->name), "l2");
	double sum = 0, off;

	for (uint64_t j = 0; j < p->numel; j++)
		sum += (double)w[j] * (double)w[j];
	off = fabs(sqrt(sum) / l2 - 1);
	if (strstr(p->name, "k_proj.bias"))
		d->l2_k_bias = te_most(d->l2_k_bias, off);
	else
		d->l2 = te_most(d->l2, off);
}

void te_deviation_check(const struct te_deviation *d, bool fp32)
{
	const struct te_deviation limit = fp32 ? (struct te_deviation){ 2e-5, 1e-5, 1e-6, 1e-3 } :
						 (struct te_deviation){ 0.01, 0.03, 0.005, 0.1 };

	assert_true(d->loss <= limit.loss);
	assert_true(d->norm <= limit.norm);
	assert_true(d->l2 <= limit.l2);
	assert_true(d->l2_k_bias <= limit.l2_k_bias);
}
