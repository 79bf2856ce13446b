/*
 * op_convert.c -- `convert`: check, plan, run, report.
 */
#include "libckpt/convert/op_convert.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/convert/ck_expect.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_buffers.h"
#include "libckpt/run/ck_run_to_dst.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/run/ck_crc_fill.h"
#include "libckpt/run/op_commit.h"
#include "libckpt/sums/ck_digest_lines.h"

/* ------------------------------------------------------------------- checking */

int ck_dst_kind(const char *dst, enum ckpt_dst_kind *kind_out, struct ckpt_err *err)
{
	static const char *const torch[] = { ".pt", ".pth", ".bin" };
	enum ckpt_dst_kind kind = CKPT_DST_FOLDER;

	if (!*dst)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the destination is an empty text (an unset variable?)");
	if (ck_ends_with(dst, ".ckpt"))
		return ck_fail(err, CKPT_E_USAGE, dst, CKPT_NO_OFFSET,
			       "zckpt does not write .ckpt; give a path that ends in .pt "
			       "(a state dict) or .safetensors, or a folder");
	if (!strcmp(dst, "-"))
		kind = CKPT_DST_STREAM;
	else if (ck_ends_with(dst, ".safetensors"))
		kind = CKPT_DST_SAFETENSORS;
	for (size_t i = 0; i < CK_ARRAY_LEN(torch); i++)
		if (ck_ends_with(dst, torch[i]))
			kind = CKPT_DST_TORCH;
	*kind_out = kind;
	return 0;
}

static int check_parts(const struct ck_cv *cv, struct ckpt_err *err)
{
	const struct ckpt_convert_opts *o = cv->opts;
	const bool digest = o->flags & CKPT_CONVERT_DIGEST;

	if (o->nparts > 65535 || (o->nparts > 1 && o->part >= o->nparts))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "part %u of %u does not exist: parts are counted from 0, and at "
			       "most 65535 are possible", o->part, o->nparts);
	if (digest && o->nparts > 1)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a run in parts cannot write digests: each of the %u parts reads "
			       "only some bytes of a tensor", o->nparts);
	if (digest && cv->to == CKPT_DST_STREAM)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a stream cannot have digests: they are in the header, which "
			       "it sends first");
	if (o->nparts > 1 && cv->to == CKPT_DST_STREAM)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a stream cannot be written in parts");
	return 0;
}

static int stop_on_findings(const struct ck_cv *cv, enum ckpt_severity at_least,
			    struct ckpt_err *err)
{
	const struct ckpt_finding *f = ck_findings_worst(&cv->ck->findings, CKPT_ERROR);

	if (!f)
		f = ck_findings_worst(&cv->ck->findings, at_least);
	return f ? ck_findings_fail(f, err) : 0;
}

/* Everything that can be known before a byte is written. */
static int check_source(struct ck_cv *cv, struct ckpt_err *err)
{
	const bool strict = cv->opts->flags & CKPT_WRITE_STRICT;
	int rc = stop_on_findings(cv, CKPT_ERROR, err);

	if (!rc)
		rc = ck_cv_find_aux(cv, err);
	if (!rc)
		rc = ck_cv_choose_items(cv, err);
	if (!rc && cv->opts->peft)
		rc = cv->opts->peft->merge ? ck_cv_merge_begin(cv, err) :
		     ck_cv_peft_config(cv, err);
	if (!rc)
		rc = ck_stated_begin(cv->ck, err);
	if (!rc)
		rc = ck_master_check(cv->ck, cv->run.threads, true, err);
	if (!rc)
		rc = ck_buffers_compare(cv->ck, err);
	if (!rc && cv->to == CKPT_DST_FOLDER && !cv->opts->aux_dir)
		rc = ck_stated_files(cv->ck, err);	/* they get new sums */
	if (!rc)
		rc = stop_on_findings(cv, strict ? CKPT_WARN : CKPT_ERROR, err);
	if (!rc && cv->opts->expect_path)
		rc = ck_expect(cv->ck, cv->opts->expect_path, cv->set[0].item, cv->set[0].nitems,
			       &cv->sel, err);
	return rc;
}

int ck_cv_prepare(struct ck_cv *cv, struct ckpt_err *err)
{
	const int rc = check_source(cv, err);

	return rc ? rc : ck_cv_make_plan(cv, err);
}

/* --------------------------------------------------------------------- running */

/* The files in a folder that is to be replaced. */
static int list_before(struct ck_cv *cv, struct ckpt_err *err)
{
	const unsigned flags = cv->opts->flags;
	enum ck_fs_kind kind;
	int rc;

	if (cv->to != CKPT_DST_FOLDER || !(flags & CKPT_WRITE_FORCE) ||
	    (flags & CKPT_WRITE_DRY_RUN) || cv->opts->nparts > 1)
		return 0;
	rc = ck_fs_kind(cv->dst, &kind, err);
	return rc || kind != CK_FS_DIR ? rc :
	       ck_tree_list(&cv->before, &cv->dst, 1, NULL, UINT64_MAX, err);
}

static int run_plan(struct ck_cv *cv, struct ck_run_stats *stats, struct ckpt_err *err)
{
	const struct ckpt_convert_opts *o = cv->opts;
	const struct ck_run_to_dst d = {
		.ck = cv->ck, .plan = &cv->plan, .dst = cv->dst,
		.is_dir = cv->to == CKPT_DST_FOLDER, .to_stream = cv->to == CKPT_DST_STREAM,
		.fd = o->out_fd, .flags = o->flags, .run = &cv->run, .part = o->part,
		.nparts = o->nparts, .fingerprint = cv->fingerprint,
		.is_ours = cv->config_text ? ck_cv_peft_is_output : o->states ?
			   ck_is_state_output : cv->ck->formats->folder->is_output,
		.change = ck_lora_change(cv->lora),
	};

	return ck_run_to_dst(&d, stats, err);
}

/* ------------------------------------------------------------------- reporting */

static int report_files(const struct ck_cv *cv, struct ck_arena *arena, struct ckpt_report *r,
			struct ckpt_err *err)
{
	r->nfiles = cv->plan.nfiles;
	r->files = ck_arena_zalloc(arena, r->nfiles * sizeof(*r->files));
	for (uint64_t i = 0; r->files && i < r->nfiles; i++) {
		const struct ck_outfile *f = &cv->plan.file[i];
		const char *path = cv->to == CKPT_DST_FOLDER ?
			ck_arena_printf(arena, "%s/%s", cv->dst, f->name) :
			ck_arena_strdup(arena, cv->dst);

		if (!path)
			return ck_fail_nomem(err, "a report", 0);
		r->files[i] = (struct ckpt_written){ path, f->bytes, f->ntensors };
	}
	return r->files ? 0 : ck_fail_nomem(err, "a report", r->nfiles);
}

/* The table of names that was used.  -1 without memory. */
static int report_renames(const struct ck_cv *cv, struct ck_arena *arena, struct ckpt_report *r)
{
	struct ckpt_rule *rule = ck_arena_zalloc(arena, (cv->naming.nrules + 1) * sizeof(*rule));

	r->naming = ck_arena_strdup(arena, cv->naming.family);
	r->renames = rule;
	for (uint64_t i = 0; rule && i < cv->naming.nrules; i++) {
		rule[i].pattern = ck_arena_strdup(arena, cv->naming.rule[i].pattern);
		rule[i].value = ck_arena_strdup(arena, cv->naming.rule[i].value);
		if (!rule[i].pattern || !rule[i].value)
			return -1;
	}
	return rule && r->naming ? 0 : -1;
}

static int report_rest(const struct ck_cv *cv, const struct ck_run_stats *stats,
		       struct ck_arena *arena, struct ckpt_report *r, struct ckpt_err *err)
{
	r->ntensors = cv->ntensors;
	r->written_bytes = stats->written;
	r->would_read_bytes = stats->to_read;
	r->free_bytes = stats->free;
	r->resumed_bytes = stats->resumed;
	r->overflows = stats->overflows;
	r->threads = stats->threads ? stats->threads : cv->run.threads;
	r->no_master = cv->no_master;
	r->merged = cv->merged;
	r->aliases = cv->sel.nshared;
	if (cv->sel.npublished && cv->naming.family && report_renames(cv, arena, r))
		return ck_fail_nomem(err, "a report", cv->naming.nrules);
	if (cv->sel.strip_hint) {
		r->strip_hint = ck_arena_strdup(arena, cv->sel.strip_hint);
		if (!r->strip_hint)
			return ck_fail_nomem(err, "a report", 0);
	}
	if (!stats->digest || !(cv->opts->flags & CKPT_CONVERT_DIGEST))
		return 0;
	for (uint64_t i = 0; i < cv->plan.nslots; i++)
		r->ndigests += !cv->plan.slot[i].whole;
	return ck_digest_lines_make(&cv->plan, stats->digest, arena, &r->digests, r->root, err);
}

/* Files that are no longer in the folder: what --force took away. */
static int report_removed(const struct ck_cv *cv, struct ck_arena *arena, struct ckpt_report *r,
			  struct ckpt_err *err)
{
	const char **list = ck_arena_alloc(arena, cv->before.n * sizeof(*list));

	if (!list)
		return ck_fail_nomem(err, "a report", cv->before.n);
	r->removed = list;
	for (uint64_t i = 0; i < cv->before.n; i++) {
		const struct ck_tree_entry *e = &cv->before.entry[i];
		enum ck_fs_kind kind;
		int rc = e->is_dir ? 0 : ck_fs_kind(e->path, &kind, err);

		if (rc)
			return rc;
		if (e->is_dir || kind != CK_FS_NOTHING)
			continue;
		list[r->nremoved] = ck_arena_strdup(arena, e->path);
		if (!list[r->nremoved++])
			return ck_fail_nomem(err, "a report", strlen(e->path));
	}
	return 0;
}

/* In one arena, which ckpt_report_free() releases. */
static int make_report(const struct ck_cv *cv, const struct ck_run_stats *stats,
		       struct ckpt_report *out, struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_report r = { .memory = arena };
	int rc;

	if (!arena)
		return ck_fail_nomem(err, "a report", sizeof(*arena));
	rc = report_files(cv, arena, &r, err);
	if (!rc)
		rc = report_rest(cv, stats, arena, &r, err);
	if (!rc)
		rc = report_removed(cv, arena, &r, err);
	if (rc) {
		ck_arena_release(arena);
		ck_free(arena);
		return rc;
	}
	*out = r;
	return 0;
}

/* ----------------------------------------------------------------------- verbs */

void ck_cv_release(struct ck_cv *cv)
{
	for (uint64_t i = 0; i < cv->nsets; i++)
		ck_free(cv->set[i].meta);
	ck_lora_free(cv->lora);
	ck_peft_config_release(&cv->peft_config);
	ck_free(cv->aux);
	ck_tree_release(&cv->before);
	ck_plan_release(&cv->plan);
	ck_selection_release(&cv->sel);
	ck_naming_release(&cv->naming);
	ck_arena_release(&cv->arena);
}

/* Without the slashes at its end. */
static int take_dst(struct ck_cv *cv, const char *dst, struct ckpt_err *err)
{
	size_t n = strlen(dst);

	while (n > 1 && dst[n - 1] == '/')
		n--;
	cv->dst = dst[n] ? ck_arena_strndup(&cv->arena, dst, n) : dst;
	return cv->dst ? ck_dst_kind(dst, &cv->to, err) : ck_fail_nomem(err, "a path", n);
}

int ck_convert(struct ckpt *ck, const char *dst, const struct ckpt_convert_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err)
{
	struct ck_cv cv = {
		CK_CV_INIT, .ck = ck, .opts = opts,
		.fingerprint = ck_hasher_sum(ck->ix.fingerprint),
	};
	const uint64_t before = ck_fdpool_bytes(ck->pool);
	const double began = ck_clock_seconds();
	struct ck_run_stats stats = { 0 };
	struct ckpt_report report = { 0 };
	int rc;

	ck_run_opts_fill(opts->run, &cv.run);
	rc = take_dst(&cv, dst, err);
	if (!rc)
		rc = check_parts(&cv, err);
	if (!rc)
		rc = ck_cv_prepare(&cv, err);
	if (!rc)
		rc = list_before(&cv, err);
	if (!rc)
		rc = run_plan(&cv, &stats, err);
	if (!rc && report_out)
		rc = make_report(&cv, &stats, &report, err);
	if (!rc && report_out) {
		report.read_bytes = ck_fdpool_bytes(ck->pool) - before;
		report.seconds = ck_clock_seconds() - began;
		*report_out = report;
	}
	ck_free(stats.digest);
	ck_free(stats.piece);
	ck_cv_release(&cv);
	return rc;
}
