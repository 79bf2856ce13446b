/*
 * ds_z12.c -- stages 1 and 2 and BF16_Optimizer: each param group is one flat run of
 * elements, padded at its end and cut into equal partitions (docs/internals/zero.md).
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/include/ckpt_zero.h"

/* With experts, one flat run for each expert rank, on 'world' of the ranks (ds_experts_group.c). */
struct z12_group {
	const struct ds_group *g;
	uint32_t number;
	uint32_t ep, nlocal;	/* runs, and parameters in each */
	uint32_t world;		/* ranks of one run */
	bool by_data;		/* which are neighbours */
	uint64_t *offset;	/* of each parameter in the flat run */
	struct ckpt_zero_cut cut;
};

static uint32_t rank_at(const struct z12_group *z, uint32_t run, uint32_t place)
{
	return z->by_data ? run * z->world + place : place * z->ep + run;
}

static uint32_t place_of(const struct z12_group *z, uint32_t rank)
{
	return z->by_data ? rank % z->world : rank / z->ep;
}

/* Elements of parameter i in one run: all, or its part of a stack. */
static uint64_t run_numel(const struct z12_group *z, uint32_t i)
{
	return z->g->param[i].numel / (z->g->stacked ? z->ep : 1);
}

/* Zeros after parameter i (param_alignment_paddings, 0.19.8 and later). */
static uint64_t gap_after(const struct ck_val *gaps, uint32_t i)
{
	int64_t n;

	return ck_val_int(ck_val_at(gaps, i), &n) && n > 0 ? (uint64_t)n : 0;
}

static int lay_out(struct ds_step *ds, uint32_t number, struct z12_group *z,
		   struct ckpt_err *err)
{
	const struct ck_val *gaps = ck_val_at(ck_val_get(ds->zero, "param_alignment_paddings"),
					      number);
	const struct ds_group *g = &ds->group[number];
	uint32_t factor = ckpt_z12_align_factor(ds->version[0], ds->version[1], ds->version[2]);
	struct ck_val *const *item;
	uint64_t at = 0, ngaps;

	*z = (struct z12_group){
		.g = g, .number = number, .ep = g->ep ? g->ep : 1,
		.nlocal = g->ep ? g->nparams / (g->stacked ? 1 : g->ep) : g->nparams,
		.by_data = ck_ds_experts_by_data(ds),
	};
	z->world = ds->world / z->ep;
	z->offset = ck_arena_alloc(&ds->arena, ((uint64_t)z->nlocal + 1) * sizeof(*z->offset));
	if (!z->offset)
		return ck_fail_nomem(err, "offsets", z->nlocal);
	if (ck_val_seq(gaps, &item, &ngaps) && ngaps != z->nlocal)
		return ck_fail(err, CKPT_E_MISMATCH, ds->optim_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: group %u has %u parameters, param_alignment_paddings "
			       "has %" PRIu64, number, z->nlocal, ngaps);
	for (uint32_t i = 0; i < z->nlocal; i++) {
		z->offset[i] = at;
		if (ck_add_over(at, run_numel(z, i), &at) ||
		    ck_add_over(at, gap_after(gaps, i), &at) || at > CKPT_ZERO_MAX_NUMEL)
			return ck_fail(err, CKPT_E_LIMIT, g->param[i].name, CKPT_NO_OFFSET,
				       "group %u exceeds 2^62 elements", number);
	}
	if (!ds->version[0] && !ds->version[1] && !ds->version[2])
		factor = 2;
	if (ckpt_z12_cut(at, z->world, factor, &z->cut))
		return ck_fail(err, CKPT_E_LIMIT, ds->at.where, CKPT_NO_OFFSET,
			       "group %u cannot be divided among %u ranks", number, z->world);
	return 0;
}

/*
 * A rank's piece must hold its valid elements and at most its partition.  Whatever the
 * version cut off behind them is padding.
 */
static bool length_fits(const struct z12_group *z, uint32_t rank, uint64_t n)
{
	return n >= ckpt_zero_valid_numel(&z->cut, place_of(z, rank)) && n <= z->cut.part;
}

static bool check_masters(struct ds_step *ds, const struct z12_group *z)
{
	bool ok = true;

	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_optim *o = &ds->optim[r];
		const uint64_t have = o->part[z->number].master.numel;

		if (length_fits(z, r, have))
			continue;
		ck_ds_length_wrong(ds, o->file, "the fp32 partition", have,
				   ckpt_zero_valid_numel(&z->cut, place_of(z, r)));
		ok = false;
	}
	return ok;
}

/* Is this state there on every rank that has elements, and of a fitting length? */
static bool check_state(struct ds_step *ds, const struct z12_group *z, uint32_t k)
{
	uint32_t have = 0, need = 0, bad = 0;
	uint64_t length = 0;

	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_slice *s = &ds->optim[r].part[z->number].state[k];

		need += ckpt_zero_valid_numel(&z->cut, place_of(z, r)) > 0;
		if (!s->dtype)
			continue;
		have++;
		if (!length_fits(z, r, s->numel)) {
			bad++;
			length = s->numel;
		}
	}
	if (!have)
		return false;
	if (bad) {
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->at.where,
				"state %s of group %u is left out: it has %" PRIu64
				" elements on a rank whose partition has %" PRIu64
				", so the parts of the ranks cannot be "
				"joined", ds->state_name[k],
				z->number, length, z->cut.part);
		return false;
	}
	if (have < need) {
		ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, ds->at.where,
				"state %s of group %u is on %u of %u ranks", ds->state_name[k],
				z->number, have, ds->world);
		return false;
	}
	return true;
}

static const struct ds_slice *slice(const struct ds_step *ds, const struct z12_group *z,
				    uint32_t rank, uint32_t k)
{
	const struct ds_part *p = &ds->optim[rank].part[z->number];

	return k == UINT32_MAX ? &p->master : &p->state[k];
}

/* What flat run 'e' has of parameter i, or of its stack. */
static int add_run(struct ds_step *ds, const struct z12_group *z, uint32_t i, uint32_t e,
		   uint32_t k, enum ckpt_dtype dtype, struct ckpt_err *err)
{
	const uint64_t at = z->offset[i % z->nlocal], n = run_numel(z, i);
	const uint64_t first = z->g->stacked ? e * n : 0;
	struct ckpt_zero_runs it;
	struct ckpt_zero_run run;
	int rc = 0;

	if (ckpt_zero_runs_init(&it, &z->cut, at, n))
		return ck_fail(err, CKPT_E_MISMATCH, z->g->param[i].name, CKPT_NO_OFFSET,
			       "the parameter is outside its group");
	while (!rc && ckpt_zero_runs_next(&it, &run)) {
		const uint32_t r = rank_at(z, e, run.rank);
		const struct ds_slice *s = slice(ds, z, r, k);

		if (s->dtype != dtype)
			rc = ck_fail(err, CKPT_E_MISMATCH, ds->optim[r].file->path,
				     CKPT_NO_OFFSET, "RANKS_DISAGREE: this partition is %s, an "
				     "earlier rank's is %s", ckpt_dtype_name(s->dtype),
				     ckpt_dtype_name(dtype));
		else
			rc = ck_ds_extent(ds, ds->optim[r].file, s, run.offset, run.numel,
					  run.global - at + first, err);
	}
	return rc;
}

/* One state of one parameter; k = UINT32_MAX is the master. */
static int add_state(struct ds_step *ds, const struct z12_group *z, uint32_t i, uint32_t k,
		     struct ckpt_err *err)
{
	const struct ds_param *p = &z->g->param[i];
	const uint32_t from = z->g->stacked ? 0 : i / z->nlocal;
	const uint32_t until = z->g->stacked ? z->ep : from + 1;
	enum ckpt_dtype dtype = slice(ds, z, 0, k)->dtype;
	int rc;

	for (uint32_t r = 0; !dtype && r < ds->world; r++)
		dtype = slice(ds, z, r, k)->dtype;
	rc = ck_index_state_begin(ds->ix, p->tensor, k == UINT32_MAX ? "master" :
				  ds->state_name[k], dtype, 0, err);
	if (rc)
		return rc;
	for (uint32_t e = from; !rc && e < until; e++)
		rc = add_run(ds, z, i, e, k, dtype, err);
	if (rc) {
		ck_index_state_cancel(ds->ix);
		return rc;
	}
	return ck_index_state_end(ds->ix, NULL, err);
}

/* Flat elements [from, to) of run 'e' are of no parameter: what of them a rank's slice stores. */
static int pad_range(struct ds_step *ds, const struct z12_group *z, uint32_t e, uint32_t k,
		     const char *name, uint64_t from, uint64_t to, struct ckpt_err *err)
{
	const uint64_t part = z->cut.part;
	int rc = 0;

	for (uint64_t p = part ? from / part : z->world; !rc && p < z->world && p * part < to;
	     p++) {
		const uint32_t r = rank_at(z, e, (uint32_t)p);
		const struct ds_slice *s = slice(ds, z, r, k);
		const uint64_t a = ck_max_u64(from, p * part), base = p * part;
		const uint64_t b = ck_min_u64(ck_min_u64(to, base + part), base + s->numel);
		const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)s->dtype) / 8;
		const struct ck_pad pad = {
			.off = s->off + (a - base) * es, .bytes = b > a ? (b - a) * es : 0,
			.source = ds->optim[r].file->source, .state = name,
		};

		if (s->dtype && !(s->flags & CKPT_EXTENT_DEFLATED))
			rc = ck_index_add_pad(ds->ix, &pad, err);
	}
	return rc;
}

/* What lies between the parameters and behind them; k as in add_state(). */
static int add_pads(struct ds_step *ds, const struct z12_group *z, uint32_t e, uint32_t k,
		    const char *name, struct ckpt_err *err)
{
	const uint64_t total = z->cut.part * z->world;
	uint64_t at = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < z->nlocal; i++) {
		if (z->offset[i] > at)
			rc = pad_range(ds, z, e, k, name, at, z->offset[i], err);
		at = z->offset[i] + run_numel(z, i);
	}
	return rc ? rc : pad_range(ds, z, e, k, name, at, total, err);
}

/* Masters and Adam's moments begin as zeros there and stay zeros; of others nobody knows. */
static int declare_padding(struct ds_step *ds, const struct z12_group *z, const bool *use,
			   struct ckpt_err *err)
{
	static const char *const moment[] = { "exp_avg", "exp_avg_sq" };
	int rc = 0;

	for (uint32_t e = 0; !rc && e < z->ep; e++) {
		rc = add_pads(ds, z, e, UINT32_MAX, "master", err);
		for (uint32_t k = 0; k < ds->nstates; k++)
			for (size_t i = 0; !rc && use[k] && i < CK_ARRAY_LEN(moment); i++)
				if (!strcmp(ds->state_name[k], moment[i]))
					rc = add_pads(ds, z, e, k, moment[i], err);
	}
	return rc;
}

static int index_group(struct ds_step *ds, uint32_t number, struct ckpt_err *err)
{
	bool use[DS_MAX_STATES];
	struct z12_group z;
	int rc = lay_out(ds, number, &z, err);

	if (rc || !check_masters(ds, &z))
		return rc;
	for (uint32_t k = 0; k < ds->nstates; k++)
		use[k] = check_state(ds, &z, k);
	for (uint32_t i = 0; !rc && i < z.g->nparams; i++) {
		if (z.g->param[i].tensor == CK_NONE)
			continue;
		rc = add_state(ds, &z, i, UINT32_MAX, err);
		for (uint32_t k = 0; !rc && k < ds->nstates; k++)
			if (use[k])
				rc = add_state(ds, &z, i, k, err);
	}
	return rc ? rc : declare_padding(ds, &z, use, err);
}

int ck_ds_index_z12(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; !rc && g < ds->ngroups; g++)
		if (!ds->group[g].unplaced)
			rc = index_group(ds, g, err);
	return rc;
}
