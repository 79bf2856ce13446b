/* en_model_read.c -- the weights of a model from an open checkpoint. */
#include <stdio.h>
#include <string.h>

#include "engine/model/en_model.h"
#include "engine/model/en_model_priv.h"

static bool is_float(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F32 || dtype == CKPT_F64 || dtype == CKPT_F16 || dtype == CKPT_BF16;
}

static bool ends_with(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Tensors that files hold besides the parameters. */
static bool is_known_extra(const struct en_model *model, const struct ckpt_tensor_info *t)
{
	return (model->config.tied && (!strcmp(t->name, "lm_head.weight") ||
				       !strcmp(t->name, en_model_tied_name(model)))) ||
	       ends_with(t->name, ".rotary_emb.inv_freq");
}

/*
 * The master of a training step, which the weight was rounded from, else the weight; else the first
 * state there is.  '*found' is its number.
 */
static int find_state(const struct ckpt *ck, uint64_t tensor, uint32_t nstates, uint32_t *found,
		      struct ckpt_state_info *info, struct ckpt_err *err)
{
	static const char *const names[] = { "master", "weight" };

	for (size_t k = 0; k < 2; k++)
		for (uint32_t s = 0; s < nstates; s++)
			if (!ckpt_state_get(ck, tensor, s, info, NULL) &&
			    !strcmp(info->name, names[k])) {
				*found = s;
				return 0;
			}
	*found = 0;
	return ckpt_state_get(ck, tensor, 0, info, err);
}

int en_model_tensor(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		    uint64_t *tensor_out, struct ckpt_err *err)
{
	const struct en_param *p = &model->param[param];

	if (p->plain && p->plain != p->name && ckpt_tensor_find(ck, p->name, tensor_out, NULL))
		return ckpt_tensor_find(ck, p->plain, tensor_out, err);
	return ckpt_tensor_find(ck, p->name, tensor_out, err);
}

/* 'step': frozen parameters may be missing. */
static int match_one(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		     bool step, const char *path, struct ckpt_err *err)
{
	const struct en_param *p = &model->param[param];
	const bool lacks = p->frozen && !p->held;
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	uint64_t number;
	uint32_t state;
	int rc;

	if (en_model_tensor(model, param, ck, &number, NULL))
		return !p->plain || (step && lacks) ? 0 :
		       en_model_fail(err, CKPT_E_MISMATCH, path,
				     "missing tensor %s, which config.json requires", p->plain);
	rc = ckpt_tensor_get(ck, number, &t, err);
	if (!rc && step && lacks && !t.nstates)
		return 0;
	if (!rc)
		rc = find_state(ck, number, t.nstates, &state, &s, err);
	if (rc)
		return rc;
	if (t.ndim != p->ndim || memcmp(t.shape, p->shape, p->ndim * sizeof(*t.shape)))
		return en_model_fail(
			err, CKPT_E_MISMATCH, path,
			"%s has %llu elements in %u dimensions; config.json requires [%llu, %llu] "
			"(is it the config.json of these weights?)",
			p->name, (unsigned long long)t.numel, t.ndim,
			(unsigned long long)p->shape[0], (unsigned long long)p->shape[1]);
	if ((strcmp(s.name, "weight") && strcmp(s.name, "master")) || !is_float(s.dtype))
		return en_model_fail(err, CKPT_E_MISMATCH, path,
				     "%s is %s of type %s, expected floating-point weights",
				     p->name, s.name, ckpt_dtype_name(s.dtype));
	return 0;
}

/* By one of its two names. */
static bool is_of(const struct en_model *model, const char *name)
{
	for (uint32_t i = 0; i < model->nparams; i++)
		if (!strcmp(model->param[i].name, name) ||
		    (model->param[i].plain && !strcmp(model->param[i].plain, name)))
			return true;
	return false;
}

/* Of a run that trained adapters, where this one has none: its first name says so. */
static int refuse_adapters(const struct en_model *model, const struct ckpt *ck,
			   const struct ckpt_info *info, struct ckpt_err *err)
{
	struct ckpt_tensor_info t;

	for (uint64_t i = 0; !model->lora.r && i < info->ntensors; i++)
		if (!ckpt_tensor_get(ck, i, &t, NULL) && strstr(t.name, ".lora_A.") &&
		    t.ndim == 2)
			return en_model_fail(err, CKPT_E_MISMATCH, info->path,
					     "%.160s: an adapter of rank %llu; train it with "
					     "--lora r=%llu,alpha=...,target=...", t.name,
					     (unsigned long long)t.shape[0],
					     (unsigned long long)t.shape[0]);
	return 0;
}

static int match_all(const struct en_model *model, const struct ckpt *ck, bool step,
		     struct ckpt_err *err)
{
	struct ckpt_info info;
	int rc;

	ckpt_info_get(ck, &info);
	rc = refuse_adapters(model, ck, &info, err);
	for (uint32_t i = 0; !rc && i < model->nparams; i++)
		rc = match_one(model, i, ck, step, info.path, err);
	for (uint64_t i = 0; !rc && i < info.ntensors; i++) {
		struct ckpt_tensor_info t;

		rc = ckpt_tensor_get(ck, i, &t, err);
		if (!rc && !is_of(model, t.name) && !is_known_extra(model, &t))
			rc = en_model_fail(err, CKPT_E_MISMATCH, info.path,
					   "%.200s is not a parameter of the %s in config.json",
					   t.name, en_arch_name(model->config.arch));
	}
	return rc;
}

int en_model_match(const struct en_model *model, const struct ckpt *ck, struct ckpt_err *err)
{
	return match_all(model, ck, false, err);
}

int en_model_match_step(const struct en_model *model, const struct ckpt *ck, struct ckpt_err *err)
{
	return match_all(model, ck, true, err);
}

int en_model_read(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		  struct ckpt_load_checks *checks, uint64_t first, uint64_t count,
		  enum kn_type type, void *out, struct ckpt_err *err)
{
	const enum ckpt_dtype dtype = type == KN_F32 ? CKPT_F32 : type == KN_BF16 ? CKPT_BF16 :
				      type == KN_F16 ? CKPT_F16 : CKPT_F64;
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	struct ckpt_load_range range = {
		.first = first, .count = count, .dtype = dtype, .dst = out,
	};
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1 };
	const struct ckpt_load_opts opts = {
		.size = sizeof(opts), .run = &run, .checks = checks,
	};
	uint32_t state;
	int rc = en_model_tensor(model, param, ck, &range.tensor, err);

	if (!rc)
		rc = ckpt_tensor_get(ck, range.tensor, &t, err);
	if (!rc)
		rc = find_state(ck, range.tensor, t.nstates, &state, &s, err);
	range.state = s.name;
	return rc ? rc : ckpt_load(ck, &range, 1, &opts, NULL, err);
}
