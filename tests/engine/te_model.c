/* te_model.c -- see te_model.h. */
#include "tests/engine/te_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/ref/en_whole.h"

char *te_path(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/model/%s", root ? root : "build/fixtures", name);
}

void te_need_fixtures(void)
{
	char *path = te_path("models");

	if (!t_is_dir(path)) {
		fprintf(stderr, "no fixtures at %s: make fixtures\n", path);
		exit(77);
	}
	free(path);
}

cJSON *te_json(const char *name)
{
	char *path = te_path(name);
	size_t n;
	char *text = (char *)t_file_read(path, &n);
	cJSON *o = text ? cJSON_Parse(text) : NULL;

	if (!o)
		t_die("%s: cannot be read", path);
	free(text);
	free(path);
	return o;
}

struct te_buffers te_buffers_new(const struct en_model *model, enum kn_type type)
{
	struct te_buffers b = { .n = model->nblocks };

	b.block = t_alloc(b.n * sizeof(*b.block));
	for (uint32_t i = 0; i < b.n; i++) {
		const size_t bytes = model->block[i].numel * kn_type_size(type);

		b.block[i] = t_alloc(bytes);
		memset(b.block[i], 0, bytes);
	}
	return b;
}

void te_buffers_free(struct te_buffers *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		free(b->block[i]);
	free(b->block);
	*b = (struct te_buffers){ 0 };
}

struct te_buffers te_buffers_cast(const struct en_model *model, const struct te_buffers *from,
				  enum kn_type type)
{
	struct te_buffers b = te_buffers_new(model, type);

	for (uint32_t i = 0; i < b.n; i++)
		kn_cast(b.block[i], type, from->block[i], KN_F32, model->block[i].numel, NULL);
	return b;
}

__attribute__((noreturn)) static void die_of(const struct ckpt_err *err)
{
	t_die("%s: %s", err->where, err->msg);
}

void te_model_open(struct te_model *m, const char *name)
{
	char *part = t_fmt("models/%s", name), *dir = te_path(part);
	char *config = t_fmt("%s/config.json", dir);
	const char *paths[1] = { dir };
	struct en_model_config c;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (en_model_config_read(config, &c, &err) || en_model_new(&c, &m->model, &err) ||
	    ckpt_open(paths, 1, NULL, &ck, &err) || en_model_match(m->model, ck, &err))
		die_of(&err);
	m->weight = te_buffers_new(m->model, KN_F32);
	for (uint32_t i = 0; i < m->model->nparams; i++) {
		const struct en_param *p = &m->model->param[i];
		float *to = (float *)m->weight.block[p->block] + p->offset;

		if (en_model_read(m->model, i, ck, NULL, 0, p->numel, KN_F32, to, &err))
			die_of(&err);
	}
	ckpt_close(ck);
	free(config);
	free(dir);
	free(part);
}

void te_model_close(struct te_model *m)
{
	te_buffers_free(&m->weight);
	en_model_free(m->model);
	*m = (struct te_model){ 0 };
}

static const struct t_st_tensor *find(const struct te_ref *ref, const char *name)
{
	const struct t_st_tensor *t = t_st_find(&ref->st, name);

	if (!t)
		t_die("the reference has no %s", name);
	return t;
}

void te_ref_open(struct te_ref *ref, const char *name)
{
	char *part = t_fmt("ref/%s.safetensors", name), *path = te_path(part);
	const struct t_st_tensor *ids;

	if (t_st_open(&ref->st, path))
		t_die("%s: %s", path, ref->st.err);
	ids = find(ref, "input_ids");
	ref->batch = (struct en_batch){
		.rows = (uint32_t)ids->shape[0], .tokens = (uint32_t)ids->shape[1],
		.ids = (const int32_t *)(const void *)ids->data,
		.labels = (const int32_t *)(const void *)find(ref, "labels")->data,
	};
	free(path);
	free(part);
}

void te_ref_close(struct te_ref *ref)
{
	t_st_close(&ref->st);
}

const float *te_ref_f32(const struct te_ref *ref, const char *name)
{
	const struct t_st_tensor *t = find(ref, name);

	if (strcmp(t->dtype, "F32"))
		t_die("%s is %s", name, t->dtype);
	return (const float *)(const void *)t->data;
}

const float *te_ref_grad(const struct te_ref *ref, const char *name)
{
	char *full = t_fmt("grad.%s", name);
	const float *p = te_ref_f32(ref, full);

	free(full);
	return p;
}

void te_run(struct te_run *out, const struct en_model *model, const struct te_buffers *weight,
	    const struct en_batch *batch, const struct te_how *how, float scale)
{
	const struct en_exec_opts opts = { .rows = batch->rows, .tokens = batch->tokens,
					   .type = how->type, .threads = how->threads };
	const size_t n = (size_t)batch->rows * batch->tokens;
	struct ckpt_err err = { 0 };
	struct en_exec *exec;
	struct en_whole *whole;

	if (en_exec_new(model, &opts, &exec, &err) || en_batch_check(exec, batch, &err) ||
	    en_whole_new(exec, how->whole, &whole, &err))
		die_of(&err);
	out->grad = te_buffers_new(model, KN_F32);
	out->token_loss = t_alloc(n * sizeof(float));
	out->logits = t_alloc(n * model->config.vocab * sizeof(float));
	en_whole_run(whole, batch, (const void *const *)weight->block,
		     (float *const *)(void *)out->grad.block,
		     scale / (float)en_batch_count(batch), how->flags, out->token_loss, out->logits,
		     &out->loss);
	out->mean = (float)(out->loss.sum / (double)out->loss.count);
	en_whole_free(whole);
	en_exec_free(exec);
}

void te_run_free(struct te_run *run)
{
	te_buffers_free(&run->grad);
	free(run->token_loss);
	free(run->logits);
}

double te_max_abs(const float *a, const float *b, size_t n)
{
	double most = 0;

	for (size_t i = 0; i < n; i++) {
		const double d = fabs((double)a[i] - (double)b[i]);

		if (!(d <= most))
			most = d;
	}
	return most;
}

double te_rel_l2(const float *a, const float *b, size_t n)
{
	double dd = 0, bb = 0;

	for (size_t i = 0; i < n; i++) {
		const double d = (double)a[i] - (double)b[i];

		dd += d * d;
		bb += (double)b[i] * (double)b[i];
	}
	return bb > 0 ? sqrt(dd / bb) : sqrt(dd);
}
