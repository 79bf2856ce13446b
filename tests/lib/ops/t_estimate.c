/* t_estimate.c -- see t_estimate.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_estimate.h"

struct ckpt_model *t_est_model(const char *text)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/config.json", dir), *json = t_fmt("%s", text);
	struct ckpt_model *model = NULL;
	struct ckpt_err err = { 0 };

	for (char *p = json; *p; p++)
		*p = *p == '\'' ? '"' : *p;
	t_file_write(path, json, strlen(json));
	if (ckpt_model_from_config(path, &model, &err))
		t_die("%s: %s", err.where, err.msg);
	t_dir_remove(dir);
	free(json);
	free(path);
	free(dir);
	return model;
}

struct ckpt_model *t_est_named(const char *name)
{
	struct ckpt_model *model;

	if (ckpt_model_from_name(name, &model, NULL))
		t_die("there is no model %s", name);
	return model;
}

struct ckpt_model *t_est_counted(uint64_t params)
{
	struct ckpt_model *model;

	if (ckpt_model_from_count(params, &model, NULL))
		t_die("there is no model of %llu parameters", (unsigned long long)params);
	return model;
}

struct ckpt_estimate *t_est_of(const struct ckpt_model *model, struct ckpt_setup setup)
{
	struct ckpt_estimate *est = t_alloc(sizeof(*est));
	struct ckpt_err err = { 0 };

	setup.size = sizeof(setup);
	if (ckpt_estimate(model, &setup, est, &err))
		t_die("%s", err.msg);
	return est;
}

uint64_t t_est_term(const struct ckpt_estimate *est, enum ckpt_place place, const char *name,
		    unsigned phases)
{
	const struct ckpt_term *found = NULL;

	for (uint32_t i = 0; i < est->nterms; i++) {
		if (est->term[i].place != place || strcmp(est->term[i].name, name))
			continue;
		if (found)
			t_die("the term %s is there twice", name);
		found = &est->term[i];
	}
	if (!found)
		t_die("there is no term %s", name);
	if (found->phases != phases)
		t_die("the term %s is in phases %u, not %u", name, found->phases, phases);
	return found->bytes;
}

uint64_t t_est_gpu(const struct ckpt_estimate *est, const char *name, unsigned phases)
{
	return t_est_term(est, CKPT_PLACE_GPU, name, phases);
}

bool t_est_has(const struct ckpt_estimate *est, enum ckpt_place place, const char *name)
{
	for (uint32_t i = 0; i < est->nterms; i++)
		if (est->term[i].place == place && !strcmp(est->term[i].name, name))
			return true;
	return false;
}
