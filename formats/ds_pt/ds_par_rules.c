/*
 * ds_par_rules.c -- where the rules of tensor parallelism come from: the model files, or the user.
 */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define COMPARE_DEPTH 200

static int read_stage(struct ds_par *par, uint32_t pp, struct ckpt_err *err)
{
	struct ds_step *ds = ck_ds_pos(par, pp, 0)->ds;
	const struct ck_val *info = ck_val_get(ds->model, "universal_checkpoint_info");
	struct ds_tp_rules *rules = &par->rules[pp];

	*rules = (struct ds_tp_rules){ .arena = &par->whole->arena,
				       .where = ds->model_file->path };
	for (uint32_t tp = 1; tp < par->ntp; tp++) {
		const struct ds_step *other = ck_ds_pos(par, pp, tp)->ds;

		if (!ck_val_equal(info, ck_val_get(other->model, "universal_checkpoint_info"),
				  COMPARE_DEPTH))
			return ck_fail(err, CKPT_E_MISMATCH, other->model_file->path,
				       CKPT_NO_OFFSET, "RANKS_DISAGREE: "
				       "'universal_checkpoint_info' differs from the value in %s",
				       ds->model_file->name);
	}
	return ck_ds_tp_rules_read(rules, info, err);
}

static int read_files(struct ds_par *par, struct ckpt_err *err)
{
	int rc = 0;

	par->rules = ck_arena_zalloc(&par->whole->arena, par->npp * sizeof(*par->rules));
	if (!par->rules)
		return ck_fail_nomem(err, "rules", par->npp);
	for (uint32_t pp = 0; !rc && pp < par->npp; pp++)
		rc = read_stage(par, pp, err);
	return rc;
}

static bool has_info(const struct ds_par *par)
{
	struct ck_val *const *item;
	uint64_t n;

	for (uint32_t i = 0; i < par->npos; i++)
		if (!ck_val_pairs(ck_val_get(par->pos[i].ds->model, "universal_checkpoint_info"),
				  &item, &n))
			return false;
	return true;
}

int ck_ds_par_file_rules(struct ds_par *par, struct ckpt_err *err)
{
	return par->rules || !has_info(par) ? 0 : read_files(par, err);
}

int ck_ds_par_rules(struct ds_par *par, struct ckpt_err *err)
{
	const char *path = par->whole->in->tp_rules;
	int rc = 0;

	par->given.arena = &par->whole->arena;
	if (path)
		rc = ck_ds_tp_rules_open(&par->given, path, &par->whole->in->limits, err);
	if (rc || (par->ntp == 1 && !par->cut_vocabulary))
		return rc;
	if (has_info(par))
		return read_files(par, err);
	if (path || par->ntp == 1)
		return 0;
	return ck_fail(err, CKPT_E_LAYOUT, par->whole->at.where, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %u tensor ranks and no universal_checkpoint_info to "
		       "say how they cut each tensor; give it as JSON, --tp-rules FILE: patterns "
		       "under tp_replicated_parameter_patterns, "
		       "parameter_with_row_parallelism_patterns",
		       par->ntp);
}

static bool same_cut(const struct ds_tp_cut *a, const struct ds_tp_cut *b)
{
	if (a->nparts != b->nparts || (a->nparts && a->axis != b->axis))
		return false;
	return !a->nparts || !memcmp(a->width, b->width, (uint64_t)a->nparts * a->tp *
				     sizeof(*a->width));
}

int ck_ds_par_cut(struct ds_par *par, uint32_t pp, const struct ds_tp_local *local,
		  struct ds_tp_cut *cut_out, struct ckpt_err *err)
{
	struct ds_tp_cut cut = {
		.kind = DS_TP_REPLICATED, .shape = local->shape[0], .ndim = local->ndim, .tp = 1,
	}, other;
	int rc = 0;

	if (par->ntp > 1)
		rc = ck_ds_tp_cut(par->given.given ? &par->given : &par->rules[pp], local, &cut,
				  err);
	if (!rc && par->ntp > 1 && par->given.given && par->rules) {
		rc = ck_ds_tp_cut(&par->rules[pp], local, &other, err);
		if (!rc && !same_cut(&cut, &other))
			rc = ck_fail(err, CKPT_E_MISMATCH, local->name, CKPT_NO_OFFSET,
				     "NAMES_WRONG: %s and %s say different cuts; leave --tp-rules "
				     "out to use those of the files", par->given.where,
				     par->rules[pp].where);
	}
	if (!rc)
		*cut_out = cut;
	return rc;
}

int ck_ds_par_rows(const struct ds_par *par, uint32_t pp, const char *name, uint64_t rows,
		   uint64_t *out, struct ckpt_err *err)
{
	const struct ds_step *ds = ck_ds_pos(par, pp, 0)->ds;
	const struct ck_val *info = ck_val_get(ds->model, "universal_checkpoint_info");
	int64_t kept;

	*out = rows;
	if (!par->cut_vocabulary || !par->rules ||
	    !ck_ds_tp_is_vocabulary(&par->rules[pp], name))
		return 0;
	if (!ck_val_int(ck_val_get(info, "original_vocab_size"), &kept) || kept < 0)
		return ck_fail(err, CKPT_E_CORRUPT, ds->model_file->path, CKPT_NO_OFFSET,
			       "NAMES_WRONG: vocabulary_parameter_patterns match %.100s, and "
			       "original_vocab_size, its number of rows, is missing or negative",
			       name);
	*out = ck_min_u64(rows, (uint64_t)kept);
	return 0;
}
