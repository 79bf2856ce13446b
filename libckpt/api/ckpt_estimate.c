/* ckpt_estimate.c -- estimates: arguments checked, then called down; DeepSpeed's estimators. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/estimate/ck_estimate.h"

#define MAX_PARAMS ((uint64_t)1 << 46)	/* 18 x of it is a whole number to a double */
#define MAX_COUNT (1u << 20)

static int nothing(const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "no %s is given, or the result pointer is NULL", what);
}

/* ---- models ---- */

int ckpt_model_from_config(const char *path, struct ckpt_model **out, struct ckpt_err *err)
{
	struct ck_shape shape;
	struct ckpt_model *m;
	int rc;

	if (!path || !out)
		return nothing("path", err);
	rc = ck_shape_read(path, &shape, err);
	if (rc)
		return rc;
	m = ck_model_new(shape.type);
	rc = m ? ck_model_add_shape(m, &shape, err) : ck_fail_nomem(err, "a model", sizeof(*m));
	if (rc) {
		ck_model_free(m);
		return rc;
	}
	ck_model_sum(m);
	*out = m;
	return 0;
}

int ckpt_model_lora(struct ckpt_model *model, const char *text, struct ckpt_err *err)
{
	return model && text ? ck_model_lora(model, text, err) : nothing("model or text", err);
}

int ckpt_model_from_ckpt(const struct ckpt *ck, const char *config_path, struct ckpt_model **out,
			 struct ckpt_err *err)
{
	struct ck_shape shape;
	struct ckpt_model *m;
	int rc = 0;

	if (!ck || !out)
		return nothing("checkpoint", err);
	if (config_path)
		rc = ck_shape_read(config_path, &shape, err);
	if (rc)
		return rc;
	m = ck_model_new(ck->ix.format ? ck->ix.format : "a checkpoint");
	rc = m ? ck_model_index(&ck->ix, m, err) : ck_fail_nomem(err, "a model", sizeof(*m));
	if (rc) {
		ck_model_free(m);
		return rc;
	}
	if (config_path)
		ck_model_take_arch(m, &shape);
	ck_model_sum(m);
	*out = m;
	return 0;
}

int ckpt_model_freeze_tower(struct ckpt_model *model, struct ckpt_err *err)
{
	if (!model)
		return nothing("model", err);
	if (!model->info.tower)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "none of the %" PRIu64 " parameters is of a vision tower",
			       model->info.params);
	ck_model_freeze_tower(model);
	return 0;
}

int ckpt_model_from_count(uint64_t params, struct ckpt_model **out, struct ckpt_err *err)
{
	return out ? ck_model_count(params, out, err) : nothing("number", err);
}

int ckpt_model_from_name(const char *name, struct ckpt_model **out, struct ckpt_err *err)
{
	return name && out ? ck_model_named(name, out, err) : nothing("name", err);
}

void ckpt_model_get(const struct ckpt_model *model, struct ckpt_model_info *out)
{
	*out = model->info;
}

void ckpt_model_free(struct ckpt_model *model)
{
	ck_model_free(model);
}

/* ---- estimates ---- */

int ckpt_setup_read(const char *path, struct ckpt_setup *setup, unsigned *said_out,
		    struct ckpt_err *err)
{
	struct ckpt_setup mine;
	unsigned said;
	int rc;

	if (!path || !setup)
		return nothing("path", err);
	rc = ck_opts_take(&mine, sizeof(mine), setup, "a setup", err);
	if (!rc)
		rc = ck_setup_read(path, &mine, &said, err);
	if (rc)
		return rc;
	mine.size = setup->size;
	memcpy(setup, &mine, setup->size < sizeof(mine) ? setup->size : sizeof(mine));
	if (said_out)
		*said_out = said;
	return 0;
}

int ckpt_estimate(const struct ckpt_model *model, const struct ckpt_setup *setup,
		  struct ckpt_estimate *out, struct ckpt_err *err)
{
	return model && setup && out ? ck_estimate(model, setup, out, err) :
				       nothing("model, setup", err);
}

int ckpt_rank_share(const struct ckpt_model *model, const struct ckpt_setup *setup, uint32_t rank,
		    struct ckpt_rank_share *out, struct ckpt_err *err)
{
	return model && setup && out ? ck_rank_share(model, setup, rank, out, err) :
				       nothing("model, setup", err);
}

const char *ckpt_phase_name(unsigned phase)
{
	switch (phase) {
	case CKPT_PHASE_LOSS:
		return "at the start of the backward pass";
	case CKPT_PHASE_LAYER:
		return "in the last layer's backward pass";
	case CKPT_PHASE_END:
		return "in the first layer's backward pass";
	case CKPT_PHASE_STEP:
		return "in the optimizer's step";
	default:
		return "always";
	}
}

/* ---- DeepSpeed's estimators ---- */

/*
 * Python's arithmetic: whole numbers as long as nothing but whole numbers meets, then double in
 * the order of its expressions, and int() cuts off.  Below 2^53 a double holds what Python's
 * integer is.
 */
static int is_sane(uint64_t params, uint32_t gpus, uint32_t nodes, double factor)
{
	return params <= MAX_PARAMS && gpus && nodes && gpus <= MAX_COUNT &&
	       nodes <= MAX_COUNT && factor >= 0 && factor <= 1000;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

int ckpt_ds_zero2(uint64_t params, uint32_t gpus_per_node, uint32_t nodes, int cpu_offload,
		  double factor, struct ckpt_ds_estimate *out)
{
	const double p = (double)params, total = (double)gpus_per_node * nodes;
	struct ckpt_ds_estimate made = { 0 };

	if (!out || !is_sane(params, gpus_per_node, nodes, factor))
		return -CKPT_E_USAGE;
	if (cpu_offload) {
		made.gpu_bytes = 2 * params;
		made.cpu_bytes = (uint64_t)(p * larger(4 * total, 16) * factor);
	} else {
		made.gpu_bytes = 2 * params + (uint64_t)(18 * p / total);
		made.cpu_bytes = (uint64_t)(p * 4 * gpus_per_node * factor);
	}
	*out = made;
	return 0;
}

int ckpt_ds_zero3(uint64_t params, uint64_t largest_layer, uint32_t gpus_per_node,
		  uint32_t nodes, int cpu_offload, int cpu_offload_params, int zero_init,
		  double factor, struct ckpt_ds_estimate *out)
{
	const double p = (double)params, total = (double)gpus_per_node * nodes;
	const double share = 1.0 / nodes, bytes = cpu_offload_params ? 18 : 16;
	struct ckpt_ds_estimate made = { .largest_layer_bytes = 4 * largest_layer };

	if (!out || !is_sane(params, gpus_per_node, nodes, factor) || largest_layer > params)
		return -CKPT_E_USAGE;
	made.gpu_bytes = made.largest_layer_bytes;
	if (cpu_offload) {
		if (!cpu_offload_params)
			made.gpu_bytes += (uint64_t)(2 * p / total);
		made.cpu_bytes = zero_init ?
			(uint64_t)(p * bytes * share * factor) :
			(uint64_t)(p * larger(4.0 * gpus_per_node, bytes * share) * factor);
	} else {
		made.gpu_bytes += (uint64_t)(18 * p / total);
		made.cpu_bytes = (uint64_t)((double)(zero_init ? largest_layer : params) * 4 *
					    gpus_per_node * factor);
	}
	*out = made;
	return 0;
}
