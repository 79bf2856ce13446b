/*
 * ds_z3.c -- stage 3: every parameter is cut by itself, each rank holds ceil(n / N) slots of
 * it; a sub-group's flat tensor is those pieces one behind the other.  The weight is
 * not stored: it is the master rounded to the type of the parameter's placeholder.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/include/ckpt_zero.h"

/* Slots of each rank in the flat tensor of a sub-group. */
static int sub_group_length(struct ds_step *ds, const struct ds_group *g, uint64_t *out,
			    struct ckpt_err *err)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < g->nparams; i++)
		if (ck_add_over(sum, ckpt_z3_part_numel(g->param[i].numel, ds->world), &sum))
			return ck_fail(err, CKPT_E_LIMIT, ds->at.where, CKPT_NO_OFFSET,
				       "a sub-group exceeds 64 bits of elements");
	*out = sum;
	return 0;
}

static int check_masters(struct ds_step *ds, uint32_t sub, uint64_t want, bool *ok_out,
			 struct ckpt_err *err)
{
	uint32_t empty = 0;

	*ok_out = true;
	for (uint32_t r = 0; r < ds->world; r++) {
		const uint64_t have = ds->optim[r].part[sub].master.numel;

		if (have == want)
			continue;
		empty += !have;
		*ok_out = false;
		if (have)
			ck_ds_length_wrong(ds, ds->optim[r].file,
					   "the flat fp32 tensor of a sub-group", have, want);
	}
	if (empty == ds->world)
		return ck_fail(err, CKPT_E_LAYOUT, ds->optim[0].file->path, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: sub-group %u has no elements, expected "
			       "%" PRIu64 ": optimizer states on NVMe are not in the shards",
			       sub, want);
	if (empty)
		ck_findings_add(ds->f, CK_FINDING_LENGTH_WRONG, ds->at.where,
				"sub-group %u is empty on %u of %u ranks", sub, empty, ds->world);
	return 0;
}

static bool check_state(struct ds_step *ds, uint32_t sub, uint32_t k, uint64_t want)
{
	uint32_t have = 0, bad = 0;
	uint64_t length = 0;

	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_slice *s = &ds->optim[r].part[sub].state[k];

		have += s->dtype != 0;
		if (s->dtype && s->numel != want) {
			bad++;
			length = s->numel;
		}
	}
	if (!have)
		return false;
	if (bad) {
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
				"state %s of sub-group %u is left out: it has %" PRIu64
				" elements on a rank whose part has %" PRIu64
				", so the parts of the ranks cannot be "
				"joined", ds->state_name[k], sub,
				length, want);
		return false;
	}
	if (have < ds->world) {
		ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, ds->at.where,
				"state %s of sub-group %u is on %u of %u ranks", ds->state_name[k],
				sub, have, ds->world);
		return false;
	}
	return true;
}

static const struct ds_slice *slice(const struct ds_step *ds, uint32_t sub, uint32_t rank,
				    uint32_t k)
{
	const struct ds_part *p = &ds->optim[rank].part[sub];

	return k == UINT32_MAX ? &p->master : &p->state[k];
}

/* 'at': where the parameter's piece begins in each rank's flat tensor. */
static int add_state(struct ds_step *ds, uint32_t sub, const struct ds_param *p, uint64_t at,
		     uint32_t k, uint32_t *state_out, struct ckpt_err *err)
{
	const uint64_t part = ckpt_z3_part_numel(p->numel, ds->world);
	const enum ckpt_dtype dtype = slice(ds, sub, 0, k)->dtype;
	int rc = ck_index_state_begin(ds->ix, p->tensor, k == UINT32_MAX ? "master" :
				      ds->state_name[k], dtype, 0, err);

	for (uint32_t r = 0; !rc && r < ds->world; r++) {
		const struct ds_slice *s = slice(ds, sub, r, k);
		const uint64_t n = ckpt_z3_valid_numel(p->numel, ds->world, r);

		if (n && s->dtype != dtype)
			rc = ck_fail(err, CKPT_E_MISMATCH, ds->optim[r].file->path,
				     CKPT_NO_OFFSET, "RANKS_DISAGREE: this partition is %s, rank "
				     "0's is %s", ckpt_dtype_name(s->dtype),
				     ckpt_dtype_name(dtype));
		else
			rc = ck_ds_extent(ds, ds->optim[r].file, s, at, n, r * part, err);
	}
	if (rc) {
		ck_index_state_cancel(ds->ix);
		return rc;
	}
	return ck_index_state_end(ds->ix, state_out, err);
}

static int index_param(struct ds_step *ds, uint32_t sub, const struct ds_param *p, uint64_t at,
		       const bool *use, struct ckpt_err *err)
{
	enum ckpt_dtype dtype = ck_ds_placeholder_dtype(ds, p->name);
	uint32_t master;
	int rc = add_state(ds, sub, p, at, UINT32_MAX, &master, err);

	for (uint32_t k = 0; !rc && k < ds->nstates; k++)
		if (use[k])
			rc = add_state(ds, sub, p, at, k, NULL, err);
	if (!rc && dtype && ck_index_state_find(ds->ix, p->tensor, "weight") == CK_NONE)
		rc = ck_index_state_derive(ds->ix, master, "weight", dtype, err);
	return rc;
}

static int index_sub_group(struct ds_step *ds, uint32_t sub, struct ckpt_err *err)
{
	const struct ds_group *g = &ds->group[sub];
	bool use[DS_MAX_STATES], ok;
	uint64_t length = 0, at = 0;
	int rc = sub_group_length(ds, g, &length, err);

	if (!rc)
		rc = check_masters(ds, sub, length, &ok, err);
	if (rc || !ok)
		return rc;
	for (uint32_t k = 0; k < ds->nstates; k++)
		use[k] = check_state(ds, sub, k, length);
	for (uint32_t i = 0; !rc && i < g->nparams; i++) {
		const struct ds_param *p = &g->param[i];

		if (p->tensor != CK_NONE)
			rc = index_param(ds, sub, p, at, use, err);
		at += ckpt_z3_part_numel(p->numel, ds->world);
	}
	return rc;
}

int ck_ds_index_z3(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ds->ngroups; i++)
		rc = index_sub_group(ds, i, err);
	return rc;
}
