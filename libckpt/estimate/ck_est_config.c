/* ck_est_config.c -- a setup from a DeepSpeed configuration. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_estimate.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/include/ckpt_zero.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_val.h"
#include "libckpt/step/ck_ds_config.h"

#define MAX_CONFIG_BYTES ((uint64_t)16 << 20)
#define MAX_ELEMENTS 1e12

struct reading {
	const char *path;
	const struct ck_val *config, *zero;
	struct ckpt_setup *s;
	unsigned said;
	struct ckpt_err *err;
};

static bool is_true(const struct ck_val *dict, const char *key)
{
	int64_t v = 0;

	return ck_val_int(ck_val_get(dict, key), &v) && v;
}

/* 5e8 is a number of elements too; "auto" is none. */
static bool number(const struct reading *r, const struct ck_val *v, uint64_t *out, int *rc)
{
	double n;

	if (!v || !ck_val_num(v, &n))
		return false;
	if (!(n >= 0) || n > MAX_ELEMENTS || n != floor(n)) {
		*rc = ck_fail(r->err, CKPT_E_CORRUPT, r->path, CKPT_NO_OFFSET,
			      "%g is not a number of elements or samples", n);
		return false;
	}
	*out = (uint64_t)n;
	return true;
}

/* Both spellings, as DeepSpeed takes them. */
static int bucket(const struct reading *r, const char *name, const char *other, uint64_t *out)
{
	const struct ck_val *v = ck_val_get(r->zero, name);
	int rc = 0;

	if (!v && other)
		v = ck_val_get(r->zero, other);
	if (ck_val_is_str(v, "auto"))
		*out = UINT64_MAX;
	else
		number(r, v, out, &rc);
	return rc;
}

static int take_buckets(struct reading *r)
{
	struct ckpt_setup *s = r->s;
	int rc = bucket(r, "reduce_bucket_size", NULL, &s->reduce_bucket);

	if (!rc)
		rc = bucket(r, "stage3_prefetch_bucket_size", "prefetch_bucket_size",
			    &s->prefetch_bucket);
	if (!rc)
		rc = bucket(r, "stage3_param_persistence_threshold", "param_persistence_threshold",
			    &s->persistence);
	if (!rc)
		rc = bucket(r, "stage3_max_reuse_distance", "max_reuse_distance", &s->max_reuse);
	if (!rc)
		rc = bucket(r, "sub_group_size", NULL, &s->sub_group);
	return rc;
}

/* 1 = offloaded, 0 = not, and an error for NVMe. */
static int offload(const struct reading *r, const char *name, const char *old, unsigned flag,
		   unsigned *flags)
{
	const struct ck_val *block = ck_val_get(r->zero, name), *device, *pin;
	int64_t pinned;

	device = ck_val_get(block, "device");
	if (ck_val_is_str(device, "nvme"))
		return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
			       "zckpt does not estimate %s to NVMe", name);
	if (ck_val_is_str(device, "cpu") || is_true(r->zero, old))
		*flags |= flag;
	pin = ck_val_get(block, "pin_memory");
	if ((*flags & flag) && flag == CKPT_OFFLOAD_OPTIMIZER && ck_val_int(pin, &pinned))
		r->s->no_pin = !pinned;
	return 0;
}

static int take_zero(struct reading *r)
{
	int64_t n;
	unsigned flags = 0;
	int rc;

	if (ck_val_int(ck_val_get(r->zero, "stage"), &n)) {
		if (n < 0 || n > 3)
			return ck_fail(r->err, CKPT_E_CORRUPT, r->path, CKPT_NO_OFFSET,
				       "ZeRO stages are 0 to 3, but the stage here is %" PRId64, n);
		r->s->stage = (uint32_t)n;
		r->said |= CKPT_SETUP_STAGE;
	}
	rc = offload(r, "offload_optimizer", "cpu_offload", CKPT_OFFLOAD_OPTIMIZER, &flags);
	if (!rc)
		rc = offload(r, "offload_param", "cpu_offload_param", CKPT_OFFLOAD_PARAMS, &flags);
	if (!rc && flags) {
		r->s->offload = flags;
		r->said |= CKPT_SETUP_OFFLOAD;
	}
	if (!rc && ck_val_int(ck_val_get(r->zero, "overlap_comm"), &n))
		r->s->overlap = n ? 1 : -1;
	return rc ? rc : take_buckets(r);
}

static void take_types(struct reading *r)
{
	const struct ck_val *grads = ck_val_get(ck_val_get(r->config, "data_types"),
						"grad_accum_dtype");
	const struct ck_val *bf16 = ck_val_get(r->config, "bf16");

	if (!bf16)
		bf16 = ck_val_get(r->config, "bfloat16");
	if (is_true(bf16, "enabled"))
		r->s->dtype = CKPT_BF16;
	else if (is_true(ck_val_get(r->config, "fp16"), "enabled"))
		r->s->dtype = CKPT_F16;
	else if (bf16 || ck_val_get(r->config, "fp16"))
		return;	/* "auto", or off: the caller knows */
	else
		r->s->dtype = CKPT_F32;
	r->said |= CKPT_SETUP_DTYPE;
	if (ck_val_str(grads) && ckpt_dtype_parse(ck_val_str(grads)))
		r->s->grad_dtype = ckpt_dtype_parse(ck_val_str(grads));
}

static int take_batch(struct reading *r)
{
	struct ckpt_zero_batch batch = { 0 };
	int rc = 0;

	number(r, ck_val_get(r->config, "train_batch_size"), &batch.train, &rc);
	number(r, ck_val_get(r->config, "train_micro_batch_size_per_gpu"), &batch.micro, &rc);
	number(r, ck_val_get(r->config, "gradient_accumulation_steps"), &batch.accumulation, &rc);
	if (rc)
		return rc;
	if (batch.accumulation) {
		r->s->accumulation = batch.accumulation;
		r->said |= CKPT_SETUP_ACCUMULATION;
	}
	if (ckpt_zero_batch_fill(&batch, r->s->gpus ? r->s->gpus : 1) < 0 || !batch.micro)
		return 0;
	r->s->micro = batch.micro;
	r->s->accumulation = batch.accumulation ? batch.accumulation : 1;
	r->said |= CKPT_SETUP_MICRO | CKPT_SETUP_ACCUMULATION;
	return 0;
}

int ck_setup_read(const char *path, struct ckpt_setup *setup, unsigned *said_out,
		  struct ckpt_err *err)
{
	struct ckpt_setup made = *setup;
	struct reading r = { .path = path, .s = &made, .err = err };
	struct ck_arena arena = CK_ARENA_INIT;
	struct ckpt_limits limits;
	int rc;

	ck_limits_fill(NULL, &limits);
	rc = ck_ds_config_read(path, MAX_CONFIG_BYTES, &limits, &arena, &r.config, err);
	if (!rc) {
		r.zero = ck_val_get(r.config, "zero_optimization");
		rc = take_zero(&r);
	}
	if (!rc)
		rc = take_batch(&r);
	if (!rc) {
		take_types(&r);
		*setup = made;
		*said_out = r.said;
	}
	ck_arena_release(&arena);
	return rc;
}
