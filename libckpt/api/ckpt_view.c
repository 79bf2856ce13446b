/* ckpt_view.c -- virtual files: arguments checked and options made complete, then called down. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/view/op_view.h"

int ckpt_view_checks_new(struct ckpt *ck, struct ckpt_view_checks **out, struct ckpt_err *err)
{
	if (!ck || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to its checks is NULL");
	return ck_proof_new(ck, out, err);
}

void ckpt_view_checks_free(struct ckpt_view_checks *checks)
{
	ck_proof_free(checks);
}

/* The options and what they point to, complete. */
static int take_opts(struct ckpt_view_opts *o, struct ckpt_run_opts *run,
		     struct ckpt_select *select, const struct ckpt_view_opts *opts,
		     struct ckpt_err *err)
{
	int rc = ck_opts_take(o, sizeof(*o), opts, "options of a view", err);

	if (!rc)
		rc = ck_opts_take(run, sizeof(*run), o->run, "run options", err);
	if (!rc)
		rc = ck_opts_take(select, sizeof(*select), o->select, "a selection", err);
	if (!rc && (unsigned)select->tied > CKPT_TIED_DROP)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "tied is %d, which is not "
			     "a value of enum ckpt_tied", (int)select->tied);
	o->run = run;
	o->select = select;
	return rc;
}

int ckpt_view_open(struct ckpt *ck, const struct ckpt_view_opts *opts, struct ckpt_view **view_out,
		   struct ckpt_err *err)
{
	struct ckpt_view_opts o;
	struct ckpt_run_opts run;
	struct ckpt_select select;
	int rc;

	if (!ck || !view_out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to the view is NULL");
	rc = take_opts(&o, &run, &select, opts, err);
	if (!rc && o.checks && !ck_proof_is_of(o.checks, ck))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "the checks were made for another checkpoint than the one to view");
	return rc ? rc : ck_vf_open(ck, &o, view_out, err);
}

void ckpt_view_close(struct ckpt_view *view)
{
	ck_vf_close(view);
}

uint64_t ckpt_view_file_count(const struct ckpt_view *view)
{
	return ck_vf_count(view);
}

static int check_number(const struct ckpt_view *view, uint64_t file, const void *out,
			struct ckpt_err *err)
{
	if (view && out && file < ck_vf_count(view))
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "no view is given, it has no file of that number, or the pointer to the "
		       "result is NULL");
}

int ckpt_view_file_get(const struct ckpt_view *view, uint64_t file, struct ckpt_view_file *out,
		       struct ckpt_err *err)
{
	const int rc = check_number(view, file, out, err);

	if (!rc)
		ck_vf_get(view, file, out);
	return rc;
}

int ckpt_view_find(const struct ckpt_view *view, const char *name, uint64_t *file_out,
		   struct ckpt_err *err)
{
	struct ckpt_view_file f;

	if (!view || !name || !file_out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no view or name is given, or the pointer to the number is NULL");
	for (uint64_t i = 0; i < ck_vf_count(view); i++) {
		ck_vf_get(view, i, &f);
		if (strcmp(f.name, name))
			continue;
		*file_out = i;
		return 0;
	}
	return ck_fail(err, CKPT_E_NOTFOUND, name, CKPT_NO_OFFSET, "the view has no such file");
}

int ckpt_view_read(struct ckpt_view *view, uint64_t file, uint64_t off, size_t n, void *buf,
		   struct ckpt_err *err)
{
	const int rc = check_number(view, file, n ? buf : view, err);

	return rc ? rc : ck_vf_read(view, file, off, n, buf, err);
}

int ckpt_view_check(struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n,
		    struct ckpt_err *err)
{
	const int rc = check_number(view, file, view, err);

	return rc ? rc : ck_vf_check(view, file, off, n, err);
}

uint64_t ckpt_view_overflows(const struct ckpt_view *view)
{
	return ck_vf_overflows(view);
}

int ckpt_view_finding_get(struct ckpt_view_checks *checks, uint64_t finding,
			  struct ckpt_finding *out, struct ckpt_err *err)
{
	if (checks && out && ck_proof_finding(checks, finding, out))
		return 0;
	return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
		       "no checks are given, or they have no finding of that number");
}
