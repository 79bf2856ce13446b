/*
 * op_steps.c -- which step a folder means, and which one a run resumes from: what 'latest' decides,
 * and what is taken where that is not whole.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fdpool.h"
#include "libckpt/retain/ck_steps.h"

struct asking {
	const struct ck_formats *formats;
	struct ck_arena *arena;
	struct ck_which *out;
};

static int ask(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	const struct asking *a = arg;

	return !in->is_dir ? ck_fail(err, CKPT_E_NOTFOUND, in->path[0], CKPT_NO_OFFSET,
				     "this is not a folder of steps") :
	       ck_step_which(in, a->arena, a->out, err);
}

/*
 * Which step the folder means without a tag: the same answer that opening it gives.  Strings in
 * 'arena'.  CKPT_E_NOTFOUND, CKPT_E_FORMAT (a checkpoint of another framework), CKPT_E_UNSAFE
 * (what 'latest' says), CKPT_E_IO, CKPT_E_NOMEM.
 */
static int which_step(const struct ck_formats *formats, const char *dir,
		      const struct ckpt_limits *limits, struct ck_arena *arena,
		      struct ck_which *out, struct ckpt_err *err)
{
	struct asking a = { formats, arena, out };
	struct ck_input in = {
		.path = &dir, .npaths = 1, .threads = 1, .limits = *limits, .formats = formats,
	};
	int rc;

	in.pool = ck_fdpool_new(0);
	rc = in.pool ? ck_format_with_input(&in, ask, &a, err) :
	     ck_fail_nomem(err, "a pool of files", 0);
	ck_fdpool_free(in.pool);
	return rc;
}

/* ---- for callers ---- */

static int arena_new(struct ck_arena **out, struct ckpt_err *err)
{
	*out = ck_zalloc(sizeof(**out));
	return *out ? 0 : ck_fail_nomem(err, "a report", sizeof(**out));
}

int ck_latest_get(const struct ck_formats *formats, const char *dir,
		  const struct ckpt_limits *limits, struct ckpt_latest *out, struct ckpt_err *err)
{
	struct ckpt_latest got = { .path = NULL };
	struct ck_arena *arena;
	struct ck_which w;
	int rc = arena_new(&arena, err);

	if (rc)
		return rc;
	got.memory = arena;
	rc = which_step(formats, dir, limits, arena, &w, err);
	if (rc) {
		ck_arena_free(got.memory);
		return rc;
	}
	got.path = w.path;
	got.name = w.name;
	got.why = w.why;
	got.named = w.named;
	*out = got;
	return 0;
}

/* Rows in the order of 's'; strings are copied. */
static int add_rows(const struct ck_steps *s, struct ck_arena *arena, struct ckpt_steps *out,
		    struct ckpt_err *err)
{
	struct ckpt_step_there *row = ck_arena_zalloc(arena, (s->n + 1) * sizeof(*row));

	if (!row)
		return ck_fail_nomem(err, "a report", s->n);
	for (uint64_t i = 0; i < s->n; i++) {
		const struct ck_step *step = &s->step[i];
		const char *why = step->trouble ? step->trouble :
				  step->is_step ? NULL : "it holds only weights, not a step";

		row[i] = (struct ckpt_step_there){
			.name = ck_arena_strdup(arena, step->name), .step = step->number,
			.path = ck_arena_strdup(arena, step->inner ? step->inner : step->path),
			.whole = step->is_whole && step->is_step, .why = NULL,
		};
		if (why)
			row[i].why = ck_arena_strdup(arena, why);
		if (!row[i].name || !row[i].path || (why && !row[i].why))
			return ck_fail_nomem(err, "a report", s->n);
	}
	out->step = row;
	out->nsteps = s->n;
	return 0;
}

/* What 'latest' names if it is whole, else the newest that is. */
static int choose(const struct ck_formats *formats, const char *dir,
		  const struct ckpt_limits *limits, struct ck_arena *arena,
		  struct ckpt_steps *out, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_which w = { .named = false };
	int rc = which_step(formats, dir, limits, arena, &w, &inner);

	out->latest = out->chosen = -1;
	if (rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO || rc == -CKPT_E_LIMIT)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (rc && !strncmp(inner.msg, "LATEST_LIES", strlen("LATEST_LIES"))) {
		out->latest_why = ck_arena_strdup(arena, inner.msg);
		if (!out->latest_why)
			return ck_fail_nomem(err, "a message", 0);
	}
	for (uint64_t i = 0; i < out->nsteps; i++) {
		const struct ckpt_step_there *s = &out->step[i];

		if (!rc && w.named && !strcmp(s->name, w.name))
			out->latest = (int64_t)i;
		if (s->whole && out->chosen < 0)
			out->chosen = (int64_t)i;
	}
	if (out->latest >= 0 && out->step[out->latest].whole)
		out->chosen = out->latest;
	return 0;
}

int ck_steps_report(const struct ck_formats *formats, const char *dir,
		    const struct ckpt_run_opts *run, const struct ckpt_limits *limits,
		    struct ckpt_steps *out, struct ckpt_err *err)
{
	struct ckpt_steps got = { .nsteps = 0 };
	struct ck_steps s = { .formats = formats };
	struct ck_arena *arena;
	int rc = arena_new(&arena, err);

	if (rc)
		return rc;
	got.memory = arena;
	rc = ck_steps_list(&s, dir, run, limits, false, err);
	if (!rc)
		rc = add_rows(&s, arena, &got, err);
	if (!rc)
		rc = choose(formats, dir, limits, arena, &got, err);
	ck_steps_release(&s);
	if (rc)
		ck_arena_free(got.memory);
	else
		*out = got;
	return rc;
}
