/* op_prune.c -- the verb `prune`: which steps stay, which lose their moments, which go. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/retain/ck_link.h"
#include "libckpt/retain/ck_prune.h"
#include "libckpt/run/ck_run.h"

struct pruning {
	const struct ckpt_prune_opts *o;
	struct ckpt_prune_opts opts;
	struct ckpt_run_opts run;
	struct ck_steps steps;
	struct ck_arena *arena;		/* of the report */
	struct ckpt_pruned_step *row;
	struct ckpt_pruned out;
};

/* ---- rules ---- */

static bool has_rule(const struct ckpt_prune_opts *o)
{
	return o->keep_last || o->keep_every || (o->keep && o->keep[0]);
}

static bool links(const struct ckpt_prune_opts *o)
{
	return o->flags & (CKPT_PRUNE_LINK | CKPT_PRUNE_REFLINK);
}

static bool is_named(const struct ckpt_prune_opts *o, const char *name)
{
	for (const char *const *p = o->keep; p && *p; p++)
		if (!strcmp(*p, name))
			return true;
	return false;
}

static int check_rules(const struct pruning *p, struct ckpt_err *err)
{
	if (!has_rule(p->o) && !p->o->moments_last && !links(p->o))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no rule says which steps to keep");
	for (const char *const *k = p->o->keep; k && *k; k++)
		if (!ck_steps_find(&p->steps, *k))
			return ck_fail(err, CKPT_E_USAGE, p->steps.dir, CKPT_NO_OFFSET,
				       "there is no step %s here", *k);
	return 0;
}

/* The newest step that verifies; nsteps = none does. */
static uint64_t newest_whole(const struct pruning *p)
{
	uint64_t i = 0;

	while (i < p->steps.n && !p->steps.step[i].is_whole)
		i++;
	return i;
}

/* A clause of two halves; a shorter one without memory. */
static const char *say(struct pruning *p, const char *begin, const char *end)
{
	const char *text = ck_arena_printf(p->arena, "%s%s", begin, end);

	return text ? text : begin;
}

/* What keeps step 'i' as it is, whatever the rules say; NULL = nothing. */
static const char *protection(struct pruning *p, uint64_t i, uint64_t newest)
{
	const struct ck_step *s = &p->steps.step[i];

	if (newest == p->steps.n)
		return "no step is known to be complete, so all stay";
	if (s->named_by) {
		const char *text = ck_arena_printf(p->arena, "'%s' names it", s->named_by);

		return text ? text : "'latest' names it";
	}
	if (i == newest)
		return "the newest complete step";
	if (i < newest)
		return "newer than the newest complete step";
	if (s->is_busy)
		return "it is being written";
	if (s->link)
		return say(p, "a link points to it: ", s->link);
	if (s->is_best)
		return "the Trainer's best";
	if (s->number < 0)
		return "its number is unknown";
	return NULL;
}

/* The rule that keeps it; 'nth' = how many that verify are newer. */
static const char *rule(struct pruning *p, const struct ck_step *s, uint64_t nth)
{
	if (!has_rule(p->o))
		return "no rule covers it";
	if (is_named(p->o, s->name))
		return "--keep";
	if (nth < p->o->keep_last)
		return s->is_whole ? "--keep-last" :
		       "--keep-last (not counted, since it is not complete)";
	if (p->o->keep_every && !((uint64_t)s->number % p->o->keep_every))
		return "--keep-every";
	return NULL;
}

static const char *why_removed(struct pruning *p, const struct ck_step *s)
{
	return s->trouble ? say(p, "no rule keeps it, and it does not verify: ",
				s->trouble) :
	       "no rule keeps it";
}

/* --moments-last means it, but no smaller step can be made of it. */
static const char *with_moments(struct pruning *p, const char *why, const char *format)
{
	const char *text = ck_arena_printf(p->arena, "%s; keeps its moments: slim does not "
					   "rewrite steps of format %s", why, format);

	return text ? text : why;
}

static int judge(struct pruning *p, struct ckpt_err *err)
{
	const uint64_t newest = newest_whole(p);
	struct ck_prune_slimmed slim;
	uint64_t nth = 0, kept = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < p->steps.n; i++) {
		const struct ck_step *s = &p->steps.step[i];
		const char *protects = protection(p, i, newest), *why = rule(p, s, nth);
		struct ckpt_pruned_step *row = &p->row[i];

		nth += s->is_whole;
		*row = (struct ckpt_pruned_step){
			.name = ck_arena_strdup(p->arena, s->name), .step = s->number,
			.whole = s->is_whole, .bytes = s->bytes, .what = CKPT_PRUNE_KEEP,
			.why = protects ? protects : why,
		};
		if (!row->name)
			return ck_fail_nomem(err, "a report", p->steps.n);
		if (!row->why) {
			row->what = CKPT_PRUNE_REMOVE;
			row->why = why_removed(p, s);
			row->freed = s->alone;
			continue;
		}
		kept += s->is_whole;
		if (protects || !p->o->moments_last || kept <= p->o->moments_last || !s->is_whole ||
		    !s->inner || is_named(p->o, s->name))
			continue;
		rc = ck_prune_slim(p->steps.formats, s->inner, p->o, false, &slim, err);
		if (!rc && slim.freed) {
			p->out.copied_bytes += slim.copy;
			p->out.copy_bytes = ck_max_u64(p->out.copy_bytes, slim.copy);
			row->freed = slim.freed;
			row->what = CKPT_PRUNE_SLIM;
			row->why = "--moments-last";
		} else if (!rc && *slim.format) {
			row->why = with_moments(p, why, slim.format);
		}
	}
	return rc;
}

/* ---- doing it ---- */

static bool is_canceled(const struct pruning *p, struct ckpt_err *err)
{
	if (!p->run.cancel || !*p->run.cancel)
		return false;
	ck_fail(err, CKPT_E_CANCELED, p->steps.dir, CKPT_NO_OFFSET,
		"stopped; the steps removed so far stay removed");
	return true;
}

/* Oldest first; what goes goes before copies are made, which take space. */
static int do_all(struct pruning *p, enum ckpt_prune_what what, struct ckpt_err *err)
{
	struct ck_prune_slimmed slim;
	int rc = 0;

	for (uint64_t i = p->steps.n; !rc && i > 0; i--) {
		const struct ck_step *s = &p->steps.step[i - 1];

		if (p->row[i - 1].what != what)
			continue;
		if (is_canceled(p, err))
			return -CKPT_E_CANCELED;
		if (what == CKPT_PRUNE_REMOVE) {
			rc = ck_prune_remove(s->path, p->run.sync, err);
			continue;
		}
		rc = ck_prune_slim(p->steps.formats, s->inner, p->o, true, &slim, err);
		p->row[i - 1].freed = slim.freed;
	}
	return rc;
}

static bool is_linked(const struct pruning *p, uint64_t i)
{
	const struct ck_step *s = &p->steps.step[i];

	return p->row[i].what != CKPT_PRUNE_REMOVE && s->is_whole && !s->is_busy;
}

/* Of all steps that are linked but the oldest, which the next one is compared with. */
static uint64_t bytes_to_compare(const struct pruning *p)
{
	uint64_t total = 0;
	bool has_older = false;

	for (uint64_t i = p->steps.n; i > 0; i--) {
		total += has_older && is_linked(p, i - 1) ? p->steps.step[i - 1].bytes : 0;
		has_older |= is_linked(p, i - 1);
	}
	return total;
}

/* Each step that stays with the next older one; after the others, so that these are settled. */
static int link_all(struct pruning *p, struct ckpt_err *err)
{
	const struct ck_link_opts opts = {
		.reflink = p->o->flags & CKPT_PRUNE_REFLINK, .least = CK_LINK_LEAST,
		.dry_run = !(p->o->flags & CKPT_PRUNE_APPLY), .cancel = p->run.cancel,
		.progress = p->run.progress, .progress_arg = p->run.progress_arg,
		.total = bytes_to_compare(p),
	};
	struct ck_linked linked = { 0 };
	const struct ck_step *older = NULL;
	int rc = 0;

	for (uint64_t i = p->steps.n; links(p->o) && !rc && i > 0; i--) {
		const struct ck_step *s = &p->steps.step[i - 1];

		if (!is_linked(p, i - 1))
			continue;
		if (older)
			rc = ck_link_same(s->inner, older->inner, &opts, &linked, err);
		older = s;
	}
	p->out.linked = linked.files;
	p->out.linked_bytes = linked.bytes;
	return rc;
}

/* What an earlier prune left; it may be a step that is missing now. */
static int settle_left(struct pruning *p, const char *dir, struct ckpt_err *err)
{
	struct ck_steps seen = { .formats = p->steps.formats };
	int rc = ck_steps_list(&seen, dir, NULL, p->o->limits, false, err);

	for (uint64_t i = 0; !rc && i < seen.nleft; i++)
		rc = ck_prune_settle(seen.left[i], p->run.sync, err);
	p->out.nleft = seen.nleft;
	ck_steps_release(&seen);
	return rc;
}

static void sum_up(struct pruning *p)
{
	for (uint64_t i = 0; i < p->steps.n; i++) {
		const struct ckpt_pruned_step *row = &p->row[i];

		p->out.bytes += row->bytes;
		p->out.freed += row->freed;
		p->out.nkept += row->what == CKPT_PRUNE_KEEP;
		p->out.nslimmed += row->what == CKPT_PRUNE_SLIM;
		p->out.nremoved += row->what == CKPT_PRUNE_REMOVE;
	}
	if (p->out.copied_bytes && !(p->o->flags & CKPT_PRUNE_APPLY))
		p->out.free_bytes = ck_fs_free(p->steps.dir);
	p->out.nsteps = p->steps.n;
	p->out.step = p->row;
}

static int prune(struct pruning *p, const char *dir, struct ckpt_err *err)
{
	const bool apply = p->o->flags & CKPT_PRUNE_APPLY;
	int rc = apply ? settle_left(p, dir, err) : 0;

	if (!rc)
		rc = ck_steps_list(&p->steps, dir, &p->run, p->o->limits,
				   p->o->flags & CKPT_PRUNE_FULL, err);
	if (!rc && !apply)
		p->out.nleft = p->steps.nleft;
	if (!rc)
		rc = check_rules(p, err);
	if (rc)
		return rc;
	p->row = ck_arena_zalloc(p->arena, (p->steps.n + 1) * sizeof(*p->row));
	if (!p->row)
		return ck_fail_nomem(err, "a report", p->steps.n);
	rc = judge(p, err);
	if (!rc && apply)
		rc = do_all(p, CKPT_PRUNE_REMOVE, err);
	if (!rc && apply)
		rc = do_all(p, CKPT_PRUNE_SLIM, err);
	if (!rc)
		rc = link_all(p, err);
	if (!rc)
		sum_up(p);
	return rc;
}

int ck_prune(const struct ck_formats *formats, const char *dir,
	     const struct ckpt_prune_opts *opts, struct ckpt_pruned *out, struct ckpt_err *err)
{
	struct pruning p = { .opts = *opts, .steps.formats = formats };
	int lock = -1, rc = 0;

	ck_run_opts_fill(opts->run, &p.run);
	p.opts.run = &p.run;
	p.o = &p.opts;
	p.arena = ck_zalloc(sizeof(*p.arena));
	p.out.memory = p.arena;
	if (!p.arena)
		return ck_fail_nomem(err, "a report", sizeof(*p.arena));
	if (!has_rule(opts) && !opts->moments_last && !links(opts))
		rc = check_rules(&p, err);
	if (!rc && opts->flags & CKPT_PRUNE_APPLY)
		rc = ck_prune_lock(dir, &lock, err);
	if (!rc)
		rc = prune(&p, dir, err);
	ck_prune_unlock(lock);
	ck_steps_release(&p.steps);
	if (!rc)
		*out = p.out;
	else
		ck_arena_free(p.out.memory);
	return rc;
}
