/* zt_export.c -- the weights of ztrain's run as a folder for transformers: what is asked for. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/main/zt_opt.h"
#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"

static enum kn_type type_of(enum en_precision p)
{
	return p == EN_BF16 ? KN_BF16 : p == EN_FP16 ? KN_F16 : KN_F32;
}

/* Where DeepSpeed would gather 16-bit weights for a model that is saved. */
static bool gathers(const struct en_settings *set)
{
	return set->stage == 3 && set->gather_16bit_weights_on_model_save &&
	       set->precision != EN_FP32;
}

/* With --save alone weights are written where the configuration has them; else nothing is. */
static int refuse_type(struct ckpt_err *err)
{
	err->code = CKPT_E_USAGE;
	snprintf(err->msg, sizeof(err->msg), "--export-dtype and --max-shard-size need --export");
	return -CKPT_E_USAGE;
}

int zt_export_plan(struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_settings *set = &p->config.set;
	struct en_export_opts *o = &p->export;

	if (!a->export && !(a->save && gathers(set)))
		return a->export_dtype || a->max_shard_size ? refuse_type(err) : 0;
	snprintf(p->export_dir, sizeof(p->export_dir), "%s%s",
		 a->export ? a->export : a->save, a->export ? "" : "/weights");
	snprintf(p->export_job, sizeof(p->export_job), "%.200s export", p->job);
	*o = (struct en_export_opts){
		.dir = p->export_dir, .job = p->export_job, .model = a->model,
		.type = a->export_dtype ? type_of((enum en_precision)a->export_dtype) :
			gathers(set) ? type_of(set->precision) : KN_F32,
		.sync = (enum ckpt_sync)a->sync, .timeout_ms = p->comm->timeout_ms,
		.last_only = !a->export, .merge = a->merge,
	};
	if (a->max_shard_size)
		o->max_shard_bytes = zt_size(a->max_shard_size);
	if (a->max_shard_size && !o->max_shard_bytes) {
		err->code = CKPT_E_USAGE;
		snprintf(err->where, sizeof(err->where), "--max-shard-size %.100s",
			 a->max_shard_size);
		snprintf(err->msg, sizeof(err->msg), "expected a size: 5GB, 500MB, 1GiB, or bytes");
		return -CKPT_E_USAGE;
	}
	return p->comm->rank ? 0 : en_export_check(o, err);
}

void zt_export_tell(const struct zt_program *p, const struct en_ran *ran)
{
	if (!p->export.dir)
		return;
	if (ran->exported)
		printf("weights: %s, %s, %" PRIu64 " bytes in %" PRIu64 " file%s, %.3f s\n",
		       p->export.dir, p->export.type == KN_BF16 ? "bf16" :
		       p->export.type == KN_F16 ? "fp16" : "fp32", ran->export.file_bytes,
		       ran->export.nfiles, zt_plural(ran->export.nfiles), ran->export_seconds);
	else if (p->args.export)
		printf("weights: not exported, since the run was stopped; --resume auto continues "
		       "it, zckpt convert exports its last step\n");
}
