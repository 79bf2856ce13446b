/* ckpt_ops.c -- the verbs: options of any version made complete, then called down. */
#include <string.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/op_latest.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/read/op_read.h"
#include "libckpt/reshard/op_reshard.h"
#include "libckpt/run/op_commit.h"
#include "libckpt/verify/op_verify.h"

/* What every verb that writes knows. */
#define WRITE_FLAGS (CKPT_WRITE_FORCE | CKPT_WRITE_RESTART | CKPT_WRITE_DRY_RUN | \
		     CKPT_WRITE_STRICT)

/* The options that verbs share, complete. */
struct shared {
	struct ckpt_run_opts run;
	struct ckpt_select select;
};

/* Puts them in place of the caller's; 'select' is NULL where a verb has none. */
static int take_shared(struct shared *s, const struct ckpt_run_opts **run,
		       const struct ckpt_select **select, struct ckpt_err *err)
{
	int rc = ck_opts_take(&s->run, sizeof(s->run), *run, "run options", err);

	if (!rc && select)
		rc = ck_opts_take(&s->select, sizeof(s->select), *select, "a selection", err);
	if (!rc && (unsigned)s->run.sync > CKPT_SYNC_NONE)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "sync is %d, which is not "
			     "a value of enum ckpt_sync", (int)s->run.sync);
	if (!rc && select && (unsigned)s->select.tied > CKPT_TIED_DROP)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "tied is %d, which is not "
			     "a value of enum ckpt_tied", (int)s->select.tied);
	if (rc)
		return rc;
	*run = &s->run;
	if (select)
		*select = &s->select;
	return 0;
}

static int check_flags(unsigned flags, unsigned known, struct ckpt_err *err)
{
	if (flags & ~known)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "unknown flags 0x%x: a wrong value, or the program was built for "
			       "a newer library", flags & ~known);
	return 0;
}

int ckpt_dst_kind(const char *dst, enum ckpt_dst_kind *kind_out, struct ckpt_err *err)
{
	if (!dst || !kind_out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no destination is given, or the pointer to its kind is NULL");
	return ck_dst_kind(dst, kind_out, err);
}

static int take_peft(const struct ckpt *ck, struct ckpt_peft_opts *out,
		     const struct ckpt_peft_opts **peft, struct ckpt_err *err)
{
	const int rc = ck_opts_take(out, sizeof(*out), *peft, "options of an adapter", err);

	if (rc)
		return rc;
	if (out->merge == ck)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the adapter and the base are one handle; open it twice");
	if (!(out->alpha >= 0) || out->alpha > 1e15 || !(out->dropout >= 0) || out->dropout > 1)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "alpha is %g and dropout %g: alpha is a positive number, dropout is "
			       "between 0 and 1", out->alpha, out->dropout);
	*peft = out;
	return 0;
}

int ckpt_convert(struct ckpt *ck, const char *dst, const struct ckpt_convert_opts *opts,
		 struct ckpt_report *report_out, struct ckpt_err *err)
{
	struct ckpt_convert_opts o;
	struct ckpt_peft_opts peft;
	struct shared shared;
	int rc;

	if (!ck || !dst)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint or no destination is given");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of converting", err);
	if (!rc)
		rc = take_shared(&shared, &o.run, &o.select, err);
	if (!rc && o.peft)
		rc = take_peft(ck, &peft, &o.peft, err);
	if (!rc)
		rc = check_flags(o.flags, WRITE_FLAGS | CKPT_CONVERT_DIGEST |
				 CKPT_CONVERT_NO_SUMS | CKPT_CONVERT_LANGUAGE, err);
	return rc ? rc : ck_convert(ck, dst, &o, report_out, err);
}

int ckpt_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
		 struct ckpt_report *report_out, struct ckpt_err *err)
{
	const unsigned known = WRITE_FLAGS | CKPT_RESHARD_RESET | CKPT_RESHARD_WHOLE;
	struct ckpt_reshard_opts o;
	struct shared shared;
	int rc;

	if (!ck || !dst || !dst[0] || !opts)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint, destination or options are given");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of resharding", err);
	if (!rc)
		rc = take_shared(&shared, &o.run, NULL, err);
	if (!rc && o.weight_dtype && o.weight_dtype != CKPT_BF16 && o.weight_dtype != CKPT_F16 &&
	    o.weight_dtype != CKPT_F32)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "weights of a step made of a training file are bf16, fp16 or fp32, "
			     "not %s",
			     ckpt_dtype_name((enum ckpt_dtype)o.weight_dtype));
	if (!rc && ((o.flags & ~known) || o.stage < -1 || o.stage > 4 || o.to < 0 ||
		    (o.to > CKPT_TO_NATIVE && o.to != CKPT_TO_DCP &&
		     o.to != CKPT_TO_FSDP_RANKS && o.to != CKPT_TO_TRAINER &&
		     o.to != CKPT_TO_TORCH_TRAINING)))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown flags 0x%x, stage %d or form %d: a wrong value, or the "
			     "program was built for a newer library",
			     o.flags & ~known, o.stage, o.to);
	return rc ? rc : ck_reshard(ck, dst, &o, report_out, err);
}

int ckpt_shard(struct ckpt *ck, const char *dst, const struct ckpt_shard_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err)
{
	const unsigned known = WRITE_FLAGS;
	struct ckpt_shard_opts o;
	struct shared shared;
	int rc;

	if (!ck || !dst || !dst[0] || !opts)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no weights, destination or options are given");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of sharding", err);
	if (!rc)
		rc = take_shared(&shared, &o.run, NULL, err);
	if (!rc && ((o.flags & ~known) || o.stage < -1 || o.stage > 4 ||
		    (unsigned)o.groups > CKPT_GROUPS_DECAY ||
		    (unsigned)o.to > CKPT_SHARD_MEGATRON))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown flags 0x%x, stage %d, groups %d or form %d: a wrong value, "
			     "or the program was built for a newer library",
			     o.flags & ~known, o.stage, (int)o.groups, (int)o.to);
	return rc ? rc : ck_shard(ck, dst, &o, report_out, err);
}

void ckpt_report_free(struct ckpt_report *report)
{
	if (!report)
		return;
	ck_arena_free(report->memory);
	memset(report, 0, sizeof(*report));
}

int ckpt_commit(const char *dst, uint32_t timeout_ms, enum ckpt_sync sync, struct ckpt_err *err)
{
	if (!dst || (unsigned)sync > CKPT_SYNC_NONE)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no destination is given, or sync is not a value of enum ckpt_sync");
	return ck_commit_parts(ck_all_formats.folder, dst, timeout_ms, sync, err);
}

int ckpt_settle(const char *dst, enum ckpt_sync sync, int *settled_out, struct ckpt_err *err)
{
	bool settled = false;
	int rc;

	if (!dst || !settled_out || (unsigned)sync > CKPT_SYNC_NONE)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no destination is given, the result pointer is NULL, or "
			       "sync is "
			       "not a value of enum ckpt_sync");
	rc = ck_settle(ck_all_formats.folder, dst, sync, &settled, err);
	if (!rc)
		*settled_out = settled;
	return rc;
}

int ckpt_discard(const char *dst, struct ckpt_err *err)
{
	if (!dst)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no destination is given");
	return ck_discard_parts(ck_all_formats.folder, dst, err);
}

int ckpt_audit(const char *const *paths, size_t npaths, const struct ckpt_limits *limits,
	       struct ckpt_audit *out, struct ckpt_err *err)
{
	struct ckpt_limits whole;
	int rc = ck_opts_take(&whole, sizeof(whole), limits, "limits", err);

	for (size_t i = 0; !rc && (i < npaths || !npaths); i++)
		if (!paths || !npaths || !paths[i] || !paths[i][0])
			rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no path is given");
	if (!rc && !out)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "the pointer to the "
			"list is NULL");
	return rc ? rc : ck_audit(&ck_all_formats, paths, npaths, &whole, out, err);
}

void ckpt_audit_free(struct ckpt_audit *audit)
{
	if (!audit)
		return;
	ck_arena_free(audit->memory);
	memset(audit, 0, sizeof(*audit));
}

int ckpt_sizes_get(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err)
{
	if (!ck || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to its sizes is NULL");
	return ck_sizes(ck, out, err);
}

void ckpt_sizes_free(struct ckpt_sizes *sizes)
{
	if (!sizes)
		return;
	ck_arena_free(sizes->memory);
	memset(sizes, 0, sizeof(*sizes));
}

int ckpt_latest_set(const char *dir, const char *tag, int universal, enum ckpt_sync sync,
		    struct ckpt_err *err)
{
	if (!dir || !dir[0] || !tag)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no folder or no name of a step is given");
	if ((unsigned)sync > CKPT_SYNC_NONE)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "sync is %d, which is "
			       "not a value of enum ckpt_sync", (int)sync);
	return ck_latest_set(dir, tag, universal != 0, sync, err);
}

int ckpt_digest(struct ckpt *ck, const struct ckpt_digest_opts *opts, struct ckpt_digests *out,
		struct ckpt_err *err)
{
	struct ckpt_digest_opts o;
	struct shared shared;
	int rc;

	if (!ck || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to the digests is NULL");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of digests", err);
	if (!rc)
		rc = take_shared(&shared, &o.run, &o.select, err);
	return rc ? rc : ck_digest(ck, &o, out, err);
}

void ckpt_digests_free(struct ckpt_digests *digests)
{
	if (!digests)
		return;
	ck_arena_free(digests->memory);
	memset(digests, 0, sizeof(*digests));
}

static int take_cat(struct ckpt_cat_opts *o, struct shared *shared,
		    const struct ckpt_cat_opts *opts, struct ckpt_err *err)
{
	int rc = ck_opts_take(o, sizeof(*o), opts, "options of a stream", err);

	if (!rc)
		rc = take_shared(shared, &o->run, NULL, err);
	if (!rc && ((unsigned)o->form > CKPT_CAT_RAW || (o->dtype && !ckpt_dtype_bits(o->dtype))))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "unknown form %d or type %d: a wrong value, or the program was "
			     "built for a newer library", (int)o->form, (int)o->dtype);
	return rc;
}

int ckpt_cat(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
	     ckpt_bytes_fn fn, void *arg, struct ckpt_cat_info *info_out, struct ckpt_err *err)
{
	struct ckpt_cat_opts o;
	struct shared shared;
	int rc;

	if (!ck || !fn)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint or no callback is given");
	rc = take_cat(&o, &shared, opts, err);
	return rc ? rc : ck_cat(ck, tensor, &o, fn, arg, info_out, err);
}

int ckpt_cat_file(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		  const char *dst, unsigned flags, struct ckpt_cat_info *info_out,
		  struct ckpt_err *err)
{
	struct ckpt_cat_opts o;
	struct shared shared;
	int rc;

	if (!ck || !dst || !dst[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint or no destination is given");
	rc = take_cat(&o, &shared, opts, err);
	if (!rc)
		rc = check_flags(flags, CKPT_WRITE_FORCE, err);
	return rc ? rc : ck_cat_file(ck, tensor, &o, dst, flags & CKPT_WRITE_FORCE, info_out,
				     err);
}

int ckpt_diff(struct ckpt *a, struct ckpt *b, const struct ckpt_diff_opts *opts,
	      struct ckpt_diff_result *out, struct ckpt_err *err)
{
	struct ckpt_diff_opts o;
	struct shared shared;
	int rc;

	if (!a || !b || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "two checkpoints and a result pointer are needed");
	rc = ck_opts_take(&o, sizeof(o), opts, "options of comparing", err);
	if (!rc)
		rc = take_shared(&shared, &o.run, &o.select, err);
	if (!rc)
		rc = check_flags(o.flags, CKPT_DIFF_TOLERANCE | CKPT_DIFF_NO_SCALARS, err);
	return rc ? rc : ck_diff(a, b, &o, out, err);
}

void ckpt_diff_free(struct ckpt_diff_result *result)
{
	if (!result)
		return;
	ck_arena_free(result->memory);
	memset(result, 0, sizeof(*result));
}
