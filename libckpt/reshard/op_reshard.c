/*
 * op_reshard.c -- the verb `reshard`: a step for another number of ranks.
 *
 * The index of the source says where every element is, the driver lays the new files out as a
 * plan, and what is common to all verbs runs it.
 */
#include "libckpt/reshard/op_reshard.h"

#include <string.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/reshard/ck_step_out.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_buffers.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_check.h"

#define NO_TAG "global_step0"	/* of a file whose states belong to no parameter */

struct resharding {
	struct ckpt *ck;
	const struct ckpt_reshard_opts *opts;
	const struct ck_format *driver;
	uint32_t torch;
	struct ck_plan plan;
	const char *dst;
	struct ckpt_run_opts run;
};

static int stop_on_findings(const struct resharding *r, struct ckpt_err *err)
{
	const struct ckpt_finding *f = ck_findings_worst(&r->ck->findings, CKPT_ERROR);

	if (!f && (r->opts->flags & CKPT_WRITE_STRICT))
		f = ck_findings_worst(&r->ck->findings, CKPT_WARN);
	return f ? ck_findings_fail(f, err) : 0;
}

/* Forms for any number of ranks: the source's is as good as another. */
static uint32_t world_of(const struct resharding *r)
{
	if (r->opts->to == CKPT_TO_TORCH_TRAINING)
		return 1;
	if (!r->opts->world && r->opts->to)
		return r->ck->ix.world ? r->ck->ix.world : 1;	/* a file of torch has none */
	return r->opts->world;
}

/* Then the weights beside them have the run's type. */
static bool has_masters(const struct ck_index *ix)
{
	for (uint32_t i = 0; i < ix->nstates; i++)
		if (!strcmp(ix->state[i].name, "master"))
			return true;
	return false;
}

static int check_source(struct resharding *r, struct ckpt_err *err)
{
	int rc = stop_on_findings(r, err);

	if (rc)
		return rc;
	r->driver = r->ck->driver;
	if (!r->driver->read_step)
		return ck_fail(err, CKPT_E_UNSUPPORTED, r->ck->ix.path, CKPT_NO_OFFSET,
			       "cannot reshard a checkpoint of format %s; give a step of "
			       "DeepSpeed, of FSDP or a native one, or a training file of torch",
			       r->ck->ix.format);
	if (r->opts->weight_dtype && r->opts->to != CKPT_TO_TORCH_TRAINING &&
	    (!r->driver->has_untyped_steps || has_masters(&r->ck->ix) || r->opts->to))
		return ck_fail(err, CKPT_E_USAGE, r->ck->ix.path, CKPT_NO_OFFSET,
			       "a type of weights applies to a training file of torch and to a "
			       "Trainer's folder that become a DeepSpeed step, and to a training "
			       "file that is written; other steps keep their types");
	rc = ck_step_check_world(world_of(r), err);
	if (!rc)
		rc = ck_step_check_tag(r->opts->tag ? r->opts->tag :
				       r->ck->ix.tag ? r->ck->ix.tag : NO_TAG, err);
	if (!rc)
		rc = ck_stated_begin(r->ck, err);
	if (!rc)
		rc = ck_stated_files(r->ck, err);	/* they may get new sums */
	if (!rc)
		rc = ck_master_check(r->ck, r->run.threads, true, err);
	if (!rc)
		rc = ck_buffers_compare(r->ck, err);
	return rc ? rc : stop_on_findings(r, err);
}

/* Digests are known to one process only. */
static int check_parts(const struct resharding *r, struct ckpt_err *err)
{
	if (r->opts->to != CKPT_TO_NATIVE || r->opts->nparts <= 1)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, r->ck->ix.path, CKPT_NO_OFFSET,
		       "the native form cannot be written in %u parts: one process has to "
		       "compute the sums of its manifest", r->opts->nparts);
}

/* Options of one form; DeepSpeed's and the native form are the same for every torch. */
static int check_options(struct resharding *r, struct ckpt_err *err)
{
	const char *version = r->opts->torch_version;

	if (r->opts->layout && r->opts->to != CKPT_TO_DCP)
		return ck_fail(err, CKPT_E_USAGE, r->opts->layout, CKPT_NO_OFFSET,
			       "a layout applies to DCP output only (--to dcp)");
	if (r->opts->to == CKPT_TO_TORCH_TRAINING && !ck_ends_with(r->dst, ".pth") &&
	    !ck_ends_with(r->dst, ".pt") && !ck_ends_with(r->dst, ".bin"))
		return ck_fail(err, CKPT_E_USAGE, r->dst, CKPT_NO_OFFSET,
			       "a training file of torch is one file: give a name that ends in "
			       ".pth, .pt or .bin");
	if (r->opts->ep && r->opts->to != CKPT_TO_DEEPSPEED)
		return ck_fail(err, CKPT_E_USAGE, r->ck->ix.path, CKPT_NO_OFFSET,
			       "expert ranks are DeepSpeed's, and apply to its steps only "
			       "(--ep %u)", r->opts->ep);
	if (version && r->opts->to != CKPT_TO_DCP && r->opts->to != CKPT_TO_FSDP_RANKS)
		return ck_fail(err, CKPT_E_USAGE, version, CKPT_NO_OFFSET,
			       "a version of torch applies to output that torch loads (--to dcp "
			       "or fsdp-ranks)");
	if (r->opts->device && (r->opts->to != CKPT_TO_FSDP_RANKS ||
				(strcmp(r->opts->device, "cuda") != 0 &&
				 strcmp(r->opts->device, "cpu") != 0)))
		return ck_fail(err, CKPT_E_USAGE, r->opts->device, CKPT_NO_OFFSET,
			       "the kind of device is cuda or cpu, and applies to rank files only "
			       "(--to fsdp-ranks)");
	return ck_step_torch(version, &r->torch, err);
}

/* DST is the folder that the step of the source lies in. */
static bool is_in_place(const struct resharding *r)
{
	char *root = r->ck->npaths == 1 ? ck_fs_parent(r->ck->ix.path) : NULL;
	struct stat a, b;
	const bool same = root && !ck_sys.stat(root, &a) && !ck_sys.stat(r->dst, &b) &&
			  a.st_dev == b.st_dev && a.st_ino == b.st_ino;

	ck_free(root);
	return same;
}

static const struct ck_format *target_of(const struct resharding *r)
{
	const struct ck_formats *f = r->ck->formats;

	return r->opts->to == CKPT_TO_UNIVERSAL ? f->universal :
	       r->opts->to == CKPT_TO_NATIVE ? f->native :
	       r->opts->to == CKPT_TO_DCP ? f->dcp :
	       r->opts->to == CKPT_TO_FSDP_RANKS ? f->ranks :
	       r->opts->to == CKPT_TO_TRAINER ? f->trainer :
	       r->opts->to == CKPT_TO_TORCH_TRAINING ? f->pickles : f->step;
}

static int lay_out(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	struct resharding *r = arg;
	const struct ck_reshard_want want = {
		.target = target_of(r), .world = world_of(r), .stage = r->opts->stage,
		.round_robin = r->opts->round_robin,
		.sub_group_size = r->opts->sub_group_size, .ep = r->opts->ep, .tag = r->opts->tag,
		.version = r->opts->ds_version, .torch = r->torch,
		.device = r->opts->device, .layout = r->opts->layout,
		.drop = r->opts->drop_states,
		.reset = (r->opts->flags & CKPT_RESHARD_RESET) != 0,
		.whole = (r->opts->flags & CKPT_RESHARD_WHOLE) != 0,
		.in_place = is_in_place(r), .file = ck_fs_base(r->dst),
		.weight_dtype = (enum ckpt_dtype)r->opts->weight_dtype,
	};

	return ck_step_convert(r->driver, in, &r->ck->ix, &want, &r->plan, &r->ck->findings, err);
}

static int make_plan(struct resharding *r, struct ckpt_err *err)
{
	struct ck_input in = ck_ckpt_input(r->ck);
	int rc = ck_format_with_input(&in, lay_out, r, err);

	if (!rc)
		rc = stop_on_findings(r, err);
	return rc ? rc : ck_plan_finish(&r->plan, err);
}

int ck_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err)
{
	struct resharding r = { .ck = ck, .opts = opts, .dst = dst, .plan = CK_PLAN_INIT };
	const struct ck_step_out out = {
		.ck = ck, .plan = &r.plan, .dst = dst, .flags = opts->flags, .run = opts->run,
		.part = opts->part, .nparts = opts->nparts, .began = ck_clock_seconds(),
		.read_before = ck_fdpool_bytes(ck->pool),
		.is_file = opts->to == CKPT_TO_TORCH_TRAINING,
	};
	int rc;

	ck_run_opts_fill(opts->run, &r.run);
	rc = check_options(&r, err);
	if (!rc)
		rc = check_source(&r, err);
	if (!rc)
		rc = check_parts(&r, err);
	if (!rc)
		rc = make_plan(&r, err);
	if (!rc)
		rc = ck_step_deliver(&out, report_out, err);
	ck_plan_release(&r.plan);
	return rc;
}
