/* op_diff.c -- `diff`: two checkpoints joined by name, their states compared, the worst first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/select/ck_select.h"

static int check(const struct ckpt *a, const struct ckpt *b, const struct ckpt_diff_opts *opts,
		 struct ckpt_err *err)
{
	const struct ckpt_finding *bad = ck_findings_worst(&a->findings, CKPT_ERROR);
	int rc;

	if (!bad)
		bad = ck_findings_worst(&b->findings, CKPT_ERROR);
	if (bad)
		return ck_findings_fail(bad, err);
	rc = ck_stated_begin(a, err);
	if (!rc)
		rc = ck_stated_begin(b, err);
	if (rc)
		return rc;
	if (!(opts->abs_tolerance >= 0) || !(opts->rel_tolerance >= 0) ||
	    isinf(opts->abs_tolerance) || isinf(opts->rel_tolerance))
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the tolerances (absolute %g, relative %g) must be numbers >= 0",
			       opts->abs_tolerance, opts->rel_tolerance);
	return 0;
}

/* What the numbers of each row come to. */
static void judge(struct ck_diff *d)
{
	const bool tolerant = d->opts->flags & CKPT_DIFF_TOLERANCE;

	for (uint64_t i = 0; i < d->nrows; i++) {
		struct ckpt_diff_row *row = &d->row[i];

		if (row->what != CKPT_DIFF_SAME)
			continue;
		if (row->beyond)
			row->what = CKPT_DIFF_VALUES;
		else if (row->dtype_a != row->dtype_b && !tolerant &&
			 !(row->flags & (CKPT_DIFF_EXPORTED_A | CKPT_DIFF_EXPORTED_B)))
			row->what = CKPT_DIFF_DTYPE;
		else if (row->differ)
			row->what = CKPT_DIFF_WITHIN;
	}
}

static int compare_doubles(double a, double b)
{
	return a > b ? -1 : a < b;
}

/* Worst first; of an export values that differ come before all that is missing. */
static int rank_of(const struct ckpt_diff_row *row)
{
	if (row->what == CKPT_DIFF_VALUES &&
	    row->flags & CKPT_DIFF_OF_EXPORT)
		return CKPT_DIFF_SHAPE + 1;
	return (int)row->what;
}

static int by_severity(const void *p, const void *q)
{
	const struct ckpt_diff_row *a = p, *b = q;
	const uint64_t nan_a = a->nan_a + a->nan_b, nan_b = b->nan_a + b->nan_b;
	int order;

	if (rank_of(a) != rank_of(b))
		return rank_of(a) > rank_of(b) ? -1 : 1;
	if (nan_a != nan_b)
		return nan_a > nan_b ? -1 : 1;
	order = compare_doubles(isinf(a->max_abs) ? 1 : 0, isinf(b->max_abs) ? 1 : 0);
	if (!order)
		order = compare_doubles(a->rel_l2, b->rel_l2);
	if (!order)
		order = compare_doubles(a->max_abs, b->max_abs);
	if (!order)
		order = a->differ > b->differ ? -1 : a->differ < b->differ;
	if (!order)
		order = strcmp(a->name, b->name);
	if (!order && a->state_a && b->state_a)
		order = strcmp(a->state_a, b->state_a);
	if (!order && a->state_b && b->state_b)
		order = strcmp(a->state_b, b->state_b);
	return order;
}

/* Tensors that were selected and that no driver reads: sparse, quantised, ... */
static uint64_t count_opaque(const struct ckpt *ck, const struct ckpt_select *select)
{
	const char *id = ck_finding_name(CK_FINDING_TENSOR_OPAQUE);
	uint64_t n = 0;

	for (uint64_t i = 0; i < ck->findings.n; i++)
		n += !strcmp(ck->findings.list[i].id, id) &&
		     ck_select_takes(select, ck->findings.list[i].where);
	return n;
}

static int fill_result(struct ck_diff *d, struct ckpt_diff_result *out, struct ckpt_err *err)
{
	int rc = 0;

	out->rows = ck_arena_alloc(d->arena, d->nrows * sizeof(*out->rows));
	if (!out->rows)
		return ck_fail_nomem(err, "a result", d->nrows);
	if (d->nrows) {
		memcpy(out->rows, d->row, d->nrows * sizeof(*out->rows));
		qsort(out->rows, d->nrows, sizeof(*out->rows), by_severity);
	}
	out->nrows = d->nrows;
	out->nderived = d->nderived;
	out->nbeside = d->nbeside;
	out->nopaque_a = count_opaque(d->a, d->opts->select);
	out->nopaque_b = count_opaque(d->b, d->opts->select);
	out->threads = d->threads;
	for (uint64_t i = 0; i < d->nrows; i++) {
		out->ndiffering += d->row[i].what >= CKPT_DIFF_DTYPE;
		out->nstates += d->row[i].dtype != 0;
	}
	if (!(d->opts->flags & CKPT_DIFF_NO_SCALARS))
		rc = ck_diff_scalars(d, &out->scalars, &out->nscalars, err);
	for (uint64_t i = 0; !rc && i < out->nscalars; i++)
		out->ndiffering += out->scalars[i].differs != 0;
	return rc;
}

static void set_drop(struct ck_diff *d, bool drop)
{
	ck_fdpool_set_drop(d->a->pool, drop);
	ck_fdpool_set_drop(d->b->pool, drop);
}

static uint64_t bytes_read(const struct ck_diff *d)
{
	return ck_fdpool_bytes(d->a->pool) +
	       (d->a->pool == d->b->pool ? 0 : ck_fdpool_bytes(d->b->pool));
}

static int check_sources(const struct ck_diff *d, int rc, struct ckpt_err *err)
{
	rc = ck_fdpool_check(d->a->pool, rc, err);
	return d->a->pool == d->b->pool ? rc : ck_fdpool_check(d->b->pool, rc, err);
}

/* Weights and nothing else. */
static bool is_weights(const struct ck_index *ix)
{
	for (uint64_t i = 0; i < ix->nstates; i++)
		if (strcmp(ix->state[i].name, "weight"))
			return false;
	return ix->stage < 0 && ix->nstates;
}

/* Weights alone may be of a step too, whose optimizer was not saved or has no names. */
static bool is_export_of(const struct ckpt *a, const struct ckpt *b)
{
	return is_weights(&a->ix) &&
	       (!is_weights(&b->ix) || (b->driver->is_step && !a->driver->is_step));
}

bool ck_diff_is_all(const struct ckpt_diff_opts *opts)
{
	const char *const *states = opts->states;

	return !states || (states[0] && !strcmp(states[0], "all") && !states[1]);
}

int ck_diff(struct ckpt *a, struct ckpt *b, const struct ckpt_diff_opts *opts,
	    struct ckpt_diff_result *out, struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_diff_result made = { .memory = arena };
	struct ck_diff d = { .a = a, .b = b, .opts = opts, .arena = arena,
			     .export_a = ck_diff_is_all(opts) && is_export_of(a, b),
			     .export_b = ck_diff_is_all(opts) && is_export_of(b, a) };
	const uint64_t before = bytes_read(&d);
	int rc = arena ? check(a, b, opts, err) : ck_fail_nomem(err, "a result", sizeof(*arena));

	ck_run_opts_fill(opts->run, &d.run);
	if (!rc)
		rc = ck_diff_pairs(&d, err);
	if (!rc) {
		set_drop(&d, true);
		rc = ck_diff_run(&d, err);
		if (!rc)
			rc = ck_diff_copies(&d, err);
		rc = check_sources(&d, rc, err);
		set_drop(&d, false);
	}
	if (!rc) {
		judge(&d);
		rc = fill_result(&d, &made, err);
	}
	if (!rc) {
		made.read_bytes = bytes_read(&d) - before;
		*out = made;
	} else if (arena) {
		ck_arena_release(arena);
		ck_free(arena);
	}
	ck_free(d.row);
	ck_free(d.pair);
	ck_free(d.lone);
	ck_free(d.met_a);
	ck_free(d.met_b);
	return rc;
}
