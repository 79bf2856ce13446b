/* ckpt_value.c -- values by path: arguments checked, then called down. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/read/op_read.h"

int ckpt_values_open(const struct ckpt *ck, uint32_t rank, unsigned flags,
		     struct ckpt_values **values_out, struct ckpt_err *err)
{
	const struct ckpt_finding *bad;

	if (!ck || !values_out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no checkpoint is given, or the pointer to its values is NULL");
	if (flags & ~CKPT_LOAD_DESPITE_FINDINGS)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "unknown flags 0x%x: a wrong value, or the program was built for "
			       "a newer library", flags & ~CKPT_LOAD_DESPITE_FINDINGS);
	bad = ck_findings_worst(&ck->findings, CKPT_ERROR);
	if (bad && !flags)
		return ck_findings_fail(bad, err);
	return ck_values_open(ck, rank, values_out, err);
}

void ckpt_values_close(struct ckpt_values *values)
{
	ck_values_free(values);
}

int ckpt_value_get(struct ckpt_values *values, const char *path, struct ckpt_value *out,
		   struct ckpt_err *err)
{
	if (!values || !out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no values are given, or the result pointer is NULL");
	return ck_value_get(values, path ? path : "", out, err);
}

int ckpt_value_step(struct ckpt_values *values, const char *path, uint64_t item,
		    const char **step_out, struct ckpt_err *err)
{
	if (!values || !step_out)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "no values are given, or the pointer to the step is NULL");
	return ck_value_step(values, path ? path : "", item, step_out, err);
}

/* A number at 'path'; 'whole': one that fits 64 bits and is no fraction. */
static int number_at(struct ckpt_values *values, const char *path, bool whole,
		     struct ckpt_value *out, struct ckpt_err *err)
{
	int rc = ckpt_value_get(values, path, out, err);
	bool is;

	if (rc)
		return rc;
	is = out->kind == CKPT_VALUE_BOOL || out->kind == CKPT_VALUE_INT ||
	     out->kind == CKPT_VALUE_FLOAT ||
	     (out->kind == CKPT_VALUE_TENSOR && out->numel == 1 && out->bytes);
	if (is && whole && out->kind == CKPT_VALUE_FLOAT) {
		is = out->f > -9e18 && out->f < 9e18;
		out->i = is ? (int64_t)out->f : 0;
	}
	if (is && whole)
		is = (double)out->i == out->f;
	return is ? 0 : ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
				"the value at this path is not a %snumber", whole ? "whole " : "");
}

int ckpt_value_int(struct ckpt_values *values, const char *path, int64_t *out,
		   struct ckpt_err *err)
{
	struct ckpt_value v = { .n = 0 };
	const int rc = number_at(values, path, true, &v, err);

	if (!rc && out)
		*out = v.i;
	return rc;
}

int ckpt_value_float(struct ckpt_values *values, const char *path, double *out,
		     struct ckpt_err *err)
{
	struct ckpt_value v = { .n = 0 };
	const int rc = number_at(values, path, false, &v, err);

	if (!rc && out)
		*out = v.f;
	return rc;
}
