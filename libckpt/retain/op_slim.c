/*
 * op_slim.c -- the verb `slim`: a copy of a checkpoint without what nobody needs.
 *
 * File by file: a driver writes anew what can become smaller, the rest is copied as it is.  A
 * native step knows the place of every byte in its manifest, so without moments it is laid out
 * anew; with them there is nothing in it to be saved.
 */
#include <string.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/reshard/ck_step_out.h"
#include "libckpt/retain/ck_slim.h"
#include "libckpt/retain/ck_slim_files.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_buffers.h"
#include "libckpt/run/ck_run_to_dst.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/run/op_commit.h"
#include "libckpt/step/ck_step.h"

struct slimming {
	struct ckpt *ck;
	const struct ck_slim_ask *ask;
	unsigned what;
	struct ckpt_run_opts run;
	struct ck_slim_files files;
	struct ck_plan plan;
	struct ck_findings notes;	/* of writing a native step: it lacks what was asked for */
	struct ck_arena *arena;		/* of the report */
	struct ckpt_slimmed out;
	struct ckpt_slim_kept *kept;
	uint64_t kept_cap;
};

/* ---- what goes as a file ---- */

static bool is_step_moment(const struct slimming *s, const char *name)
{
	const struct ck_format *driver = s->ck->driver;

	if (s->files.tag && !strncmp(name, s->files.tag, strlen(s->files.tag)))
		name += strlen(s->files.tag) + 1;
	return driver->is_moment && driver->is_moment(name);
}

/* A trainer begins with a new optimizer if the file is not there, and fails over an empty one. */
static bool is_trainer_moment(const char *name)
{
	return !strcmp(name, "optimizer.pt") || !strcmp(name, "optimizer.bin");
}

static bool is_moment(const struct slimming *s, const struct ck_slim_file *f)
{
	if (!(s->what & CKPT_SLIM_MOMENTS) || !s->files.is_dir)
		return false;
	if (ck_slim_is_step(s->ck))
		return f->inside && is_step_moment(s, f->name);
	return f->inside && is_trainer_moment(f->name);
}

/* ---- files ---- */

static int note_kept(struct slimming *s, const char *path, const char *why, struct ckpt_err *err)
{
	int rc = ck_grow(&s->kept, &s->kept_cap, s->out.nkept + 1, sizeof(*s->kept), err);
	const char *copy = ck_arena_strdup(s->arena, path);

	if (!rc && !copy)
		rc = ck_fail_nomem(err, "a path", strlen(path));
	if (!rc)
		s->kept[s->out.nkept++] = (struct ckpt_slim_kept){ copy, why };
	return rc;
}

static int copy_file(struct slimming *s, const char *name, const struct ck_slim_file *f,
		     struct ckpt_err *err)
{
	int rc = ck_plan_file(&s->plan, name, err);

	return rc ? rc : ck_plan_copy(&s->plan, f->path, 0, f->bytes, err);
}

/* Files of torch beside the step belong to others, who may compare them. */
static int plan_file(struct slimming *s, const struct ck_slim_file *f, struct ckpt_err *err)
{
	const char *name = s->files.is_dir || !s->ask->dst ? f->name : ck_fs_base(s->ask->dst);
	const struct ck_slim_want want = {
		.path = f->path, .name = name, .what = s->what, .limits = &s->ck->limits,
		.pool = s->ck->pool,
	};
	struct ck_slim_saved saved = { 0 };
	int rc;

	if (!f->inside || s->ck->driver == s->ck->formats->native)
		return copy_file(s, name, f, err);
	rc = s->ck->formats->pickles->slim(&want, &s->plan, &saved, err);
	if (!rc && saved.why)
		rc = note_kept(s, f->path, saved.why, err);
	s->out.views_bytes += saved.views;
	s->out.frozen_bytes += saved.frozen;
	s->out.moments_bytes += saved.moments;
	return rc;
}

static int plan_files(struct slimming *s, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->files.n; i++) {
		const struct ck_slim_file *f = &s->files.file[i];

		if (is_moment(s, f))
			s->out.moments_bytes += f->bytes;
		else
			rc = plan_file(s, f, err);
	}
	if (rc || !s->files.tag)
		return rc;
	rc = ck_plan_file(&s->plan, s->ck->driver->latest, err);
	return rc ? rc : ck_plan_literal(&s->plan, s->files.tag, strlen(s->files.tag), err);
}

/* ---- a native step without moments ---- */

static bool is_moment_state(const char *name)
{
	return strcmp(name, "weight") && strcmp(name, "master") && strcmp(name, "step");
}

/* Names of its optimizer states, NULL last. */
static int list_states(struct slimming *s, const char ***out, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;
	const char **name = ck_arena_zalloc(s->arena, (ix->nstates + 1) * sizeof(*name));
	uint64_t n = 0;

	if (!name)
		return ck_fail_nomem(err, "names of states", ix->nstates);
	for (uint64_t i = 0; i < ix->nstates; i++) {
		bool known = !is_moment_state(ix->state[i].name);

		for (uint64_t k = 0; k < n && !known; k++)
			known = !strcmp(name[k], ix->state[i].name);
		if (!known)
			name[n++] = ix->state[i].name;
		if (is_moment_state(ix->state[i].name))
			s->out.moments_bytes += ix->tensor[ix->state[i].tensor].numel *
						(ckpt_dtype_bits(ix->state[i].dtype) / 8);
	}
	*out = name;
	return 0;
}

struct relaying {
	struct slimming *s;
	const char *const *drop;
};

static int lay_out(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	struct relaying *r = arg;
	struct slimming *s = r->s;
	const struct ck_reshard_want want = {
		.target = s->ck->formats->native,
		.world = (uint32_t)ck_max_u64(1, s->ck->ix.world), .stage = -1, .round_robin = -1,
		.tag = s->ck->ix.tag, .drop = r->drop, .in_place = s->ask->bare,
	};

	return ck_step_convert(s->ck->driver, in, &s->ck->ix, &want, &s->plan, &s->notes, err);
}

/* The step's own files come first in the plan, and lose the name of its folder. */
static void strip(struct slimming *s)
{
	const size_t n = strlen(s->ck->ix.tag);
	uint64_t k = 0;

	while (k < s->plan.nfiles && !strncmp(s->plan.file[k].name, s->ck->ix.tag, n) &&
	       s->plan.file[k].name[n] == '/')
		s->plan.file[k++].name += n + 1;
	s->plan.nfiles = k;
}

static bool is_native_name(const char *name)
{
	return !strcmp(name, "manifest.json") ||
	       (!strncmp(name, "manifest-", 9) && ck_ends_with(name, ".json")) ||
	       (!strncmp(name, "rest", 4) && ck_ends_with(name, ".pt")) ||
	       ((!strncmp(name, "rank-", 5) || !strncmp(name, "frozen-", 7)) &&
		ck_ends_with(name, ".safetensors"));
}

static bool is_planned(const struct slimming *s, size_t nfiles, const char *name)
{
	for (size_t i = 0; i < nfiles; i++)
		if (!strcmp(s->plan.file[i].name, name))
			return true;
	return false;
}

/* Files of others in the step's folder which the writer of the step does not carry. */
static int add_strangers(struct slimming *s, struct ckpt_err *err)
{
	const size_t skip = s->files.tag ? strlen(s->files.tag) + 1 : 0, nfiles = s->plan.nfiles;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->files.n; i++) {
		const struct ck_slim_file *f = &s->files.file[i];

		if (f->inside && !is_native_name(f->name + skip) &&
		    !is_planned(s, nfiles, f->name))
			rc = copy_file(s, f->name, f, err);
	}
	return rc;
}

static int plan_native(struct slimming *s, const char *const *drop, struct ckpt_err *err)
{
	struct relaying r = { s, drop };
	struct ck_input in = ck_ckpt_input(s->ck);
	int rc;

	s->notes.as_warning = s->ck->findings.as_warning;
	rc = ck_format_with_input(&in, lay_out, &r, err);
	if (!rc && s->ask->bare)
		strip(s);
	return rc ? rc : add_strangers(s, err);
}

/* ---- */

static int make_plan(struct slimming *s, struct ckpt_err *err)
{
	const char **drop = NULL;
	int rc = 0;

	for (uint64_t i = 0; i < s->files.n; i++)
		s->out.before_bytes += s->files.file[i].bytes;
	if (s->what & CKPT_SLIM_MOMENTS && s->ck->driver == s->ck->formats->native)
		rc = list_states(s, &drop, err);
	if (!rc)
		rc = drop && drop[0] ? plan_native(s, drop, err) : plan_files(s, err);
	if (!rc)
		rc = ck_plan_finish(&s->plan, err);
	if (rc)
		return rc;
	s->out.manifest = s->files.manifest;
	s->out.files = s->plan.nfiles;
	s->out.after_bytes = ck_plan_bytes(&s->plan);
	return 0;
}

static int stop_on_findings(const struct slimming *s, struct ckpt_err *err)
{
	const unsigned flags = s->ask->flags;
	const struct ckpt_finding *f =
		ck_findings_worst(&s->ck->findings, flags & CKPT_WRITE_STRICT ? CKPT_WARN :
				  CKPT_ERROR);

	return f ? ck_findings_fail(f, err) : 0;
}

bool ck_slim_rewrites(const struct ckpt *ck)
{
	return !ck->driver->is_step || ck->driver->latest;
}

static int check_source(struct slimming *s, struct ckpt_err *err)
{
	int rc = stop_on_findings(s, err);

	if (!rc && !s->files.is_dir && s->ck->driver != s->ck->formats->pickles)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, s->ck->path[0], CKPT_NO_OFFSET,
			     "a file of format %s holds only its tensors: nothing in it can "
			     "be dropped", s->ck->ix.format);
	if (!rc && !ck_slim_rewrites(s->ck))
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, s->ck->ix.path, CKPT_NO_OFFSET,
			     "slim does not rewrite a checkpoint of format %s; zckpt convert "
			     "writes the weights alone", s->ck->ix.format);
	if (!rc && s->files.tag && strchr(s->files.tag, '/'))
		rc = ck_fail(err, CKPT_E_USAGE, s->files.tag, CKPT_NO_OFFSET,
			     "the step is more than one folder below the path given; give the "
			     "step's own folder");
	if (!rc)
		rc = ck_stated_begin(s->ck, err);
	if (!rc && s->what & CKPT_SLIM_MOMENTS)
		rc = ck_stated_files(s->ck, err);	/* a native step's get new sums */
	if (!rc && ck_slim_is_step(s->ck))
		rc = ck_master_check(s->ck, s->run.threads, true, err);
	if (!rc && ck_slim_is_step(s->ck))
		rc = ck_buffers_compare(s->ck, err);
	return rc ? rc : stop_on_findings(s, err);
}

static int deliver(struct slimming *s, struct ckpt_err *err)
{
	struct ck_run_stats stats = { 0 };
	struct ck_run_to_dst d = {
		.ck = s->ck, .plan = &s->plan, .dst = s->ask->dst, .is_dir = s->files.is_dir,
		.flags = s->ask->flags, .run = &s->run, .step = s->files.tag,
		.fingerprint = ck_hasher_sum(s->ck->ix.fingerprint),
		.driver = s->ck->formats->step,
	};
	int rc = 0;

	if (!d.dst)
		return 0;
	if (d.is_dir && !s->ask->bare)
		rc = ck_outputs_at(s->ck->formats->folder, d.dst, &d.is_ours, err);
	if (!rc)
		rc = ck_run_to_dst(&d, &stats, err);
	s->out.resumed_bytes = stats.resumed;
	s->out.would_read_bytes = stats.to_read;
	s->out.free_bytes = stats.free;
	s->out.threads = stats.threads;
	ck_free(stats.digest);
	ck_free(stats.piece);
	return rc;
}

static int slim(struct slimming *s, struct ckpt_err *err)
{
	int rc = ck_slim_files_list(&s->files, s->ck, s->ask->bare, err);

	if (!rc)
		rc = check_source(s, err);
	if (!rc)
		rc = make_plan(s, err);
	if (!rc)
		rc = deliver(s, err);
	if (rc || !s->out.nkept)
		return rc;
	s->out.kept = ck_arena_alloc(s->arena, s->out.nkept * sizeof(*s->kept));
	if (!s->out.kept)
		return ck_fail_nomem(err, "a report", s->out.nkept);
	memcpy((void *)(uintptr_t)s->out.kept, s->kept, s->out.nkept * sizeof(*s->kept));
	return 0;
}

int ck_slim(struct ckpt *ck, const struct ck_slim_ask *ask, struct ckpt_slimmed *out,
	    struct ckpt_err *err)
{
	const uint64_t read_before = ck_fdpool_bytes(ck->pool);
	const double began = ck_clock_seconds();
	struct slimming s = { .ck = ck, .ask = ask, .plan = CK_PLAN_INIT };
	int rc;

	s.what = ask->what ? ask->what : CKPT_SLIM_VIEWS | CKPT_SLIM_FROZEN;
	ck_run_opts_fill(ask->run, &s.run);
	s.arena = ck_zalloc(sizeof(*s.arena));
	rc = s.arena ? slim(&s, err) : ck_fail_nomem(err, "a report", sizeof(*s.arena));
	s.out.memory = s.arena;
	s.out.read_bytes = ck_fdpool_bytes(ck->pool) - read_before;
	s.out.seconds = ck_clock_seconds() - began;
	if (!rc && out)
		*out = s.out;
	else
		ck_arena_free(s.out.memory);
	ck_free(s.kept);
	ck_findings_release(&s.notes);
	ck_plan_release(&s.plan);
	ck_slim_files_release(&s.files);
	return rc;
}
