/*
 * ds_target_z0.c -- what a step of stage 0 looks like, by the precision of the run, the version of
 * DeepSpeed and the optimizer.
 *
 *   fp32                        the torch optimizer's own dictionary
 *   fp16, bf16 (0.18.5 on)      a wrapper around it with the masters: a flat one for each group
 *                               (FP16_Optimizer, of DeepSpeed's FusedAdam), else one for each
 *                               parameter (FP16_UnfusedOptimizer)
 *   bf16, 0.6.2 to 0.17.5       BF16_Optimizer, with shards as at stage 1
 *   bf16 in between             lost by a bug of DeepSpeed
 */
#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ds_target.h"
#include "libckpt/base/ck_err.h"

static uint32_t number_of(const uint32_t *v)
{
	return v[0] ? UINT32_MAX : v[1] * 1000 + v[2];
}

static bool is_wrapped(const uint32_t *version)
{
	return number_of(version) >= 18005;
}

bool ck_ds_trained_type(const struct ck_step *step, const struct ck_index *ix,
			enum ckpt_dtype *out)
{
	*out = step->weight_dtype;
	if (*out)
		return true;
	for (uint32_t g = 0; g < step->ngroups; g++)
		for (uint32_t i = 0; i < step->group[g].nparams; i++) {
			uint32_t tensor, s = CK_NONE;

			if (ck_index_find(ix, step->group[g].param[i].name, &tensor))
				s = ck_index_state_find(ix, tensor, "weight");
			if (s == CK_NONE)
				continue;
			if (*out && *out != (enum ckpt_dtype)ix->state[s].dtype)
				return false;
			*out = (enum ckpt_dtype)ix->state[s].dtype;
		}
	return *out != 0;
}

static bool is_bf16_config(const struct ck_step *step)
{
	const struct ck_val *config = ck_val_get(step->model, "ds_config");
	int64_t enabled = 0;

	ck_val_int(ck_val_get(ck_val_get(config, "bf16"), "enabled"), &enabled);
	if (!enabled)
		ck_val_int(ck_val_get(ck_val_get(config, "bfloat16"), "enabled"), &enabled);
	return enabled != 0;
}

bool ck_ds_z0_stays(const struct ck_step *step, const struct ck_reshard_want *want)
{
	uint32_t v[3];

	if (step->stage || step->shards || want->target != step->format || want->stage > 0 ||
	    want->reset || want->drop)
		return false;
	if (!want->version || !is_bf16_config(step))
		return true;
	return sscanf(want->version, "%u.%u.%u", &v[0], &v[1], &v[2]) == 3 && is_wrapped(v);
}

bool ck_ds_is_fused(const struct ck_val *group)
{
	static const char *const others[] = {
		"amsgrad", "max_coeff", "max_grad_norm", "grad_averaging", "foreach",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(others); i++)
		if (ck_val_get(group, others[i]))
			return false;
	return ck_val_get(group, "bias_correction") != NULL;
}

static int refuse(const struct ck_step *step, const char *why, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET, "%s", why);
}

/* A 16-bit master is not what stage 0 keeps. */
static bool has_wide_masters(const struct ck_step *step, const struct ck_index *ix)
{
	for (uint32_t g = 0; g < step->ngroups; g++)
		for (uint32_t i = 0; i < step->group[g].nparams; i++) {
			uint32_t tensor, s = CK_NONE;

			if (ck_index_find(ix, step->group[g].param[i].name, &tensor))
				s = ck_index_state_find(ix, tensor, "master");
			if (s != CK_NONE && ix->state[s].dtype != CKPT_F32)
				return false;
		}
	return true;
}

static int choose_bf16(const struct ck_step *step, struct tg_layout *t, struct ckpt_err *err)
{
	const uint32_t version = number_of(t->version);

	if (is_wrapped(t->version))
		return 0;
	if (version >= 17006)
		return refuse(step,
			      "DeepSpeed 0.17.6 to 0.18.4 loses the optimizer of bf16 runs at "
			      "stage 0, so they cannot resume from a step",
			      err);
	if (version < 6002)
		return refuse(step, "DeepSpeed before 0.6.2 has no bf16 without ZeRO", err);
	t->stage = 1;
	t->bf16_optimizer = true;
	return 0;
}

int ck_ds_target_z0(const struct ck_step *step, const struct ck_index *ix,
		    const struct ck_reshard_want *want, struct tg_layout *t, struct ckpt_err *err)
{
	const struct ck_val *group = step->ngroups ? step->group[0].hyper : NULL;
	enum ckpt_dtype type;

	t->z0 = TG_Z0_KEPT;
	if (ck_ds_z0_stays(step, want))
		return 0;
	if (ck_val_get(group, "use_muon"))
		return refuse(step, "Muon's momentum at stage 0 differs from its momentum "
			"with ZeRO, so it cannot be re-partitioned", err);
	if (!ck_ds_trained_type(step, ix, &type))
		return refuse(step, "its trained weights have several types, but stage 0 "
			"has one: fp32, fp16 or bf16", err);
	if (!has_wide_masters(step, ix))
		return refuse(step, "its masters have 16 bits, but stage 0 needs 32", err);
	t->z0 = ck_ds_is_fused(group) ? TG_Z0_FLAT : TG_Z0_WHOLE;
	if (type == CKPT_BF16)
		return choose_bf16(step, t, err);
	if (type == CKPT_F16)
		return 0;
	t->z0 = TG_Z0_TORCH;
	return type == CKPT_F32 ? 0 :
	       refuse(step, "its weights are neither fp32, fp16 nor bf16", err);
}
