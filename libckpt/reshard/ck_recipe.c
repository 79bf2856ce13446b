/* ck_recipe.c -- see ck_recipe.h. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_ds_config.h"
#include "libckpt/reshard/ck_recipe.h"

#define DEFAULT_VERSION "0.19.8"	/* the newest that docs/formats/deepspeed.md knows */

static bool flag(const struct ck_val *dict, const char *key)
{
	int64_t v = 0;

	return ck_val_int(ck_val_get(dict, key), &v) && v;
}

/* The caller's number, else the configuration's ("auto" is none), else 'otherwise'. */
static double number(double given, const struct ck_val *v, double otherwise)
{
	double n;

	if (!isnan(given))
		return given;
	return ck_val_num(v, &n) ? n : otherwise;
}

/*
 * The rate that DeepSpeed's schedulers give an optimizer when they are made, NaN for others; a
 * resumed step has it in its param groups.
 */
static double scheduled(const struct ck_val *scheduler)
{
	static const struct {
		const char *type, *param;
		double otherwise;
	} known[] = {
		{ "WarmupLR", "warmup_min_lr", 0 }, { "WarmupDecayLR", "warmup_min_lr", 0 },
		{ "WarmupCosineLR", NULL, 0 }, { "OneCycle", "cycle_min_lr", NAN },
		{ "LRRangeTest", "lr_range_test_min_lr", 1e-3 },
	};
	const struct ck_val *type = ck_val_get(scheduler, "type");
	const struct ck_val *params = ck_val_get(scheduler, "params");

	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++)
		if (ck_val_is_str(type, known[i].type))
			return number(NAN, known[i].param ? ck_val_get(params, known[i].param) :
				      NULL, known[i].otherwise);
	return NAN;
}

static int take_optimizer(const struct ckpt_shard_opts *opts, const struct ck_val *config,
			  struct ck_shard_want *out, double *decay_out, struct ckpt_err *err)
{
	const struct ck_val *opt = ck_val_get(config, "optimizer");
	const struct ck_val *p = ck_val_get(opt, "params");
	const char *type = ck_val_str(ck_val_get(opt, "type"));
	const struct ck_val *betas = ck_val_get(p, "betas");

	if (type && strcasecmp(type, "adam") && strcasecmp(type, "adamw"))
		return ck_fail(err, CKPT_E_UNSUPPORTED, opts->ds_config_path, CKPT_NO_OFFSET,
			       "unsupported optimizer \"%.80s\"; zckpt makes states for Adam "
			       "and AdamW only", type);
	/* DeepSpeed's "Adam" is AdamW unless adam_w_mode says otherwise */
	out->l2 = type && !strcasecmp(type, "adam") && ck_val_get(p, "adam_w_mode") &&
		  !flag(p, "adam_w_mode");
	out->first_lr = number(opts->first_lr, NULL, scheduled(ck_val_get(config, "scheduler")));
	out->lr = number(opts->lr, ck_val_get(p, "lr"), out->first_lr);
	if (isnan(out->first_lr))
		out->first_lr = out->lr;
	out->beta1 = number(opts->beta1, ck_val_at(betas, 0), 0.9);
	out->beta2 = number(opts->beta2, ck_val_at(betas, 1), 0.999);
	out->eps = number(opts->eps, ck_val_get(p, "eps"), 1e-8);
	out->clip = number(NAN, ck_val_get(config, "gradient_clipping"), 0);
	*decay_out = number(opts->weight_decay, ck_val_get(p, "weight_decay"), 0);
	if (isnan(out->lr))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no learning rate, which DeepSpeed takes from the checkpoint "
			       "that it resumes; give --lr, or a --ds-config with "
			       "optimizer.params.lr");
	return 0;
}

static int take_dtype(const struct ckpt_shard_opts *opts, const struct ck_val *config,
		      enum ckpt_dtype stored, struct ck_shard_want *out, struct ckpt_err *err)
{
	out->dtype = opts->dtype ? opts->dtype :
		     flag(ck_val_get(config, "bf16"), "enabled") ? CKPT_BF16 :
		     flag(ck_val_get(config, "fp16"), "enabled") ? CKPT_F16 : stored;
	if (out->dtype != CKPT_BF16 && out->dtype != CKPT_F16 && out->dtype != CKPT_F32)
		return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "DeepSpeed does not train weights of type %s; --dtype bf16, fp16 "
			       "or fp32 casts them", ckpt_dtype_name(out->dtype));
	return 0;
}

/* Defaults are DeepSpeed's: dynamic from 2^16, window 1000, hysteresis 2, at least 1. */
static void take_scaler(const struct ck_val *config, struct ck_shard_want *out)
{
	const struct ck_val *fp16 = ck_val_get(config, "fp16");
	const double fixed = number(NAN, ck_val_get(fp16, "loss_scale"), 0);

	out->dynamic = out->dtype == CKPT_F16 && fixed == 0;
	out->scale = out->dtype != CKPT_F16 ? 1 : fixed != 0 ? fixed :
		     exp2(number(NAN, ck_val_get(fp16, "initial_scale_power"), 16));
	out->window = (int64_t)number(NAN, ck_val_get(fp16, "loss_scale_window"), 1000);
	out->hysteresis = (int64_t)number(NAN, ck_val_get(fp16, "hysteresis"), 2);
	out->min_scale = number(NAN, ck_val_get(fp16, "min_loss_scale"), 1);
}

/* The names that DeepSpeed has for it. */
static bool is_fp32(const struct ck_val *v)
{
	static const char *const names[] = { "fp32", "float32", "float", "torch.float32" };

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (ck_val_is_str(v, names[i]))
			return true;
	return false;
}

/* With gradients in fp32 and no offload to the CPU, stage 1 of a bf16 run is BF16_Optimizer. */
static int take_layout(const struct ckpt_shard_opts *opts, const struct ck_val *config,
		       struct ck_shard_want *out, struct ckpt_err *err)
{
	const struct ck_val *zero = ck_val_get(config, "zero_optimization");
	const struct ck_val *types = ck_val_get(config, "data_types");
	int64_t stage = -1, size = 0;

	ck_val_int(ck_val_get(zero, "stage"), &stage);
	if (opts->stage < 0 && stage == 1 && out->dtype == CKPT_BF16 &&
	    is_fp32(ck_val_get(types, "grad_accum_dtype")) &&
	    !ck_val_is_str(ck_val_get(ck_val_get(zero, "offload_optimizer"), "device"), "cpu"))
		stage = 4;
	if (opts->stage >= 0)
		stage = opts->stage;
	if (stage < 1 || stage > 4)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no ZeRO stage: give --stage 1, 2, 3 or bf16, or a "
			       "--ds-config with one; a run without ZeRO starts from the "
			       "weights as they are");
	ck_val_int(ck_val_get(zero, "sub_group_size"), &size);
	out->step = (struct ck_reshard_want){
		.world = opts->world, .stage = (int)stage, .round_robin = opts->round_robin,
		.sub_group_size = opts->sub_group_size ? opts->sub_group_size :
				  size > 0 ? (uint64_t)size : 0,
		.tag = opts->tag ? opts->tag : "global_step0",
		.version = opts->ds_version ? opts->ds_version : DEFAULT_VERSION,
	};
	return 0;
}

/* The little that a reader of the step looks for where nobody gave a configuration. */
static const struct ck_val *small_config(struct ck_arena *a, const struct ck_shard_want *want)
{
	const int stage = want->step.stage == 4 ? 1 : want->step.stage;
	struct ck_val *zero = ck_val_dict_sets(a, ck_val_new_dict(a), "stage",
					       ck_val_new_int(a, stage));
	struct ck_val *on = ck_val_dict_sets(a, ck_val_new_dict(a), "enabled",
					     ck_val_new_bool(a, true));
	struct ck_val *d;

	if (want->step.round_robin >= 0 && stage != 3)
		zero = ck_val_dict_sets(a, zero, "round_robin_gradients",
					ck_val_new_bool(a, want->step.round_robin));
	if (want->step.sub_group_size && stage == 3)
		zero = ck_val_dict_sets(a, zero, "sub_group_size",
					ck_val_new_int(a, (int64_t)want->step.sub_group_size));
	d = ck_val_dict_sets(a, ck_val_new_dict(a), "zero_optimization", zero);
	if (want->dtype != CKPT_F32)
		d = ck_val_dict_sets(a, d, want->dtype == CKPT_BF16 ? "bf16" : "fp16", on);
	return d;
}

int ck_recipe_make(const struct ckpt_shard_opts *opts, const struct ckpt_limits *limits,
		   enum ckpt_dtype stored, struct ck_arena *arena, struct ck_shard_want *out,
		   double *weight_decay_out, struct ckpt_err *err)
{
	const struct ck_val *config = NULL;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (opts->ds_config_path)
		rc = ck_ds_config_read(opts->ds_config_path, limits->header_bytes, limits, arena,
				       &config, err);
	if (!rc)
		rc = take_optimizer(opts, config, out, weight_decay_out, err);
	if (!rc)
		rc = take_dtype(opts, config, stored, out, err);
	if (!rc)
		take_scaler(config, out);
	if (!rc)
		rc = take_layout(opts, config, out, err);
	if (!rc) {
		out->config = config ? config : small_config(arena, out);
		if (!out->config)
			rc = ck_fail_nomem(err, "a configuration", 0);
	}
	return rc;
}
