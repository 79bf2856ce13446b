/*
 * ds_tp_cut.c -- the cut of one tensor, by its rule and its shapes on the ranks; each shape that
 * the rule cannot have made is an error.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ds_tp_rules_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* 'fmt': what of the tensor cannot be so, with the numbers. */
CK_PRINTF(5, 6)
static int misfit(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		  const struct ds_tp_rule *rule, struct ckpt_err *err, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return ck_fail(err, CKPT_E_MISMATCH, local->name, CKPT_NO_OFFSET,
		       "NAMES_WRONG: %s, which contradicts %s%.100s%s of %s", what,
		       rule ? "pattern '" : "the default, a cut along dimension 0",
		       rule ? rule->pattern : "", rule ? "'" : "", rules->where);
}

/* Alike on all ranks but for dimension 'but'. */
static bool same_shapes(const struct ds_tp_local *local, uint32_t but)
{
	for (uint32_t t = 1; t < local->tp; t++)
		for (uint32_t d = 0; d < local->ndim; d++)
			if (d != but && local->shape[t][d] != local->shape[0][d])
				return false;
	return true;
}

static uint64_t *new_widths(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
			    uint64_t nparts)
{
	uint64_t n;

	if (ck_mul_over(nparts, local->tp, &n) || n > ((uint64_t)1 << 24))
		return NULL;
	return ck_arena_zalloc(rules->arena, (n + 1) * sizeof(uint64_t));
}

/* The parts are in 'width': do they make up what each rank has?  Then the shape is known. */
static int finish(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		  const struct ds_tp_rule *rule, struct ds_tp_cut *cut, struct ckpt_err *err)
{
	uint64_t *shape = ck_arena_alloc(rules->arena, ((uint64_t)local->ndim + 1) *
					 sizeof(*shape));
	uint64_t total = 0;

	if (!shape)
		return ck_fail_nomem(err, "a shape", local->ndim);
	for (uint32_t t = 0; t < local->tp; t++) {
		uint64_t sum = 0;

		for (uint32_t j = 0; j < cut->nparts; j++)
			if (ck_add_over(sum, cut->width[(uint64_t)j * local->tp + t], &sum))
				return misfit(rules, local, rule, err, "its widths are too large");
		if (sum != local->shape[t][cut->axis])
			return misfit(rules, local, rule, err, "its parts have %" PRIu64 " rows "
				      "in all on tensor rank %u, where it has %" PRIu64, sum, t,
				      local->shape[t][cut->axis]);
		if (ck_add_over(total, sum, &total))
			return misfit(rules, local, rule, err, "its widths are too large");
	}
	memcpy(shape, local->shape[0], local->ndim * sizeof(*shape));
	shape[cut->axis] = total;
	cut->shape = shape;
	return 0;
}

/* 'nparts' parts of the same width on every rank. */
static int cut_evenly(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		      const struct ds_tp_rule *rule, uint64_t nparts, struct ds_tp_cut *cut,
		      struct ckpt_err *err)
{
	uint64_t *width = nparts ? new_widths(rules, local, nparts) : NULL;

	if (cut->axis >= local->ndim)
		return misfit(rules, local, rule, err, "it cannot be cut along dimension %u, as it "
			      "has %u", cut->axis, local->ndim);
	if (!same_shapes(local, cut->axis))
		return misfit(rules, local, rule, err, "its shapes differ between tensor ranks in "
			      "a dimension that is not cut");
	if (!width)
		return misfit(rules, local, rule, err, "the number of its parts is out of range");
	for (uint32_t t = 0; t < local->tp; t++)
		for (uint64_t j = 0; j < nparts; j++) {
			if (local->shape[t][cut->axis] % nparts)
				return misfit(rules, local, rule, err, "its %" PRIu64 " rows on "
					      "tensor rank %u cannot be %" PRIu64 " equal parts",
					      local->shape[t][cut->axis], t, nparts);
			width[j * local->tp + t] = local->shape[t][cut->axis] / nparts;
		}
	cut->nparts = (uint32_t)nparts;
	cut->width = width;
	return finish(rules, local, rule, cut, err);
}

/* Part 'j' of 'size' rows in all, which the ranks have in equal shares. */
static bool share(const struct ds_tp_local *local, int64_t size, uint64_t *width)
{
	if (size < 0 || (uint64_t)size % local->tp)
		return false;
	for (uint32_t t = 0; t < local->tp; t++)
		width[t] = (uint64_t)size / local->tp;
	return true;
}

/* The widths that version 0.4 records: a list over parts of a list over ranks. */
static int take_widths(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		       const struct ds_tp_rule *rule, struct ds_tp_cut *cut, struct ckpt_err *err)
{
	const struct ck_val *sizes = ck_val_at(ck_val_get(rule->parts, "shape"), 0);
	struct ck_val *const *part, *const *item;
	uint64_t nparts, n, *width, sum;
	int64_t size;

	if (!ck_val_seq(ck_val_get(rules->widths, rule->pattern), &part, &nparts) || !nparts)
		return misfit(rules, local, rule, err, "sub_param_shard_widths has no list "
			      "for its pattern");
	width = new_widths(rules, local, nparts);
	for (uint64_t j = 0; width && j < nparts; j++) {
		if (!ck_val_seq(part[j], &item, &n) || n != local->tp)
			return misfit(rules, local, rule, err, "part %" PRIu64 " in "
				      "sub_param_shard_widths is no list of %u widths, one for "
				      "each tensor rank", j, local->tp);
		sum = 0;
		for (uint64_t t = 0; t < n; t++) {
			int64_t w;

			if (!ck_val_int(item[t], &w) || w < 0)
				return misfit(rules, local, rule, err, "width %" PRIu64 " of part "
					      "%" PRIu64 " in sub_param_shard_widths is no number "
					      "from 0 on", t, j);
			width[j * local->tp + t] = (uint64_t)w;
			sum += (uint64_t)w;	/* too large a one does not fit its rank */
		}
		if (ck_val_int(ck_val_at(sizes, j), &size) && size >= 0 && (uint64_t)size != sum)
			return misfit(rules, local, rule, err, "part %" PRIu64 " has %" PRId64
				      " rows in its shape, and %" PRIu64 " in "
				      "sub_param_shard_widths", j, size, sum);
	}
	if (!width)
		return misfit(rules, local, rule, err, "the number of its parts is out of range");
	cut->nparts = (uint32_t)nparts;
	cut->width = width;
	return finish(rules, local, rule, cut, err);
}

/* Before 0.4: a tuple of sizes, each in equal shares; or a number of equal parts. */
static int share_parts(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		       const struct ds_tp_rule *rule, const struct ck_val *sizes,
		       struct ds_tp_cut *cut, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n, *width;
	int64_t count;

	if (ck_val_int(sizes, &count))
		return cut_evenly(rules, local, rule, count > 0 ? (uint64_t)count : 0, cut, err);
	if (!ck_val_seq(sizes, &item, &n) || !n)
		return misfit(rules, local, rule, err, "its rule gives no sizes of parts");
	width = new_widths(rules, local, n);
	if (!width)
		return misfit(rules, local, rule, err, "the number of its parts is out of range");
	for (uint64_t j = 0; j < n; j++)
		if (!ck_val_int(item[j], &count) || !share(local, count, width + j * local->tp))
			return misfit(rules, local, rule, err, "the size of part %" PRIu64 " in "
				      "its shape is no multiple of %u tensor ranks, and there is "
				      "no sub_param_shard_widths", j, local->tp);
	cut->nparts = (uint32_t)n;
	cut->width = width;
	return finish(rules, local, rule, cut, err);
}

static int cut_parts(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		     const struct ds_tp_rule *rule, struct ds_tp_cut *cut, struct ckpt_err *err)
{
	const struct ck_val *shape = ck_val_get(rule->parts, "shape");
	int64_t axis = 0;

	if (!ck_val_int(ck_val_get(rule->parts, "partition_dim"), &axis) || axis < 0 ||
	    axis >= local->ndim)
		return misfit(rules, local, rule, err, "its partition_dim is missing, or not "
			      "below its number of dimensions, %u", local->ndim);
	if (axis)
		return ck_fail(err, CKPT_E_LAYOUT, local->name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: %s has parts along dimension %" PRId64 "; "
			       "zckpt reads parts along dimension 0", rules->where, axis);
	if (!same_shapes(local, 0))
		return misfit(rules, local, rule, err, "its shapes differ between tensor ranks in "
			      "a dimension that is not cut");
	cut->axis = 0;
	return rules->version >= 0.4 && rules->widths ?
	       take_widths(rules, local, rule, cut, err) :
	       share_parts(rules, local, rule, ck_val_at(shape, 0), cut, err);
}

static int cut_whole(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		     const struct ds_tp_rule *rule, struct ds_tp_cut *cut, struct ckpt_err *err)
{
	if (!same_shapes(local, local->ndim))
		return misfit(rules, local, rule, err, "its shapes differ between tensor ranks");
	cut->shape = local->shape[0];
	return 0;
}

static int cut_by(const struct ds_tp_rules *rules, const struct ds_tp_local *local,
		  const struct ds_tp_rule *rule, struct ds_tp_cut *cut, struct ckpt_err *err)
{
	switch (cut->kind) {
	case DS_TP_REPLICATED:
	case DS_TP_AVERAGE:
		return cut_whole(rules, local, rule, cut, err);
	case DS_TP_TWO_PARTS:
		return cut_evenly(rules, local, rule, 2, cut, err);
	case DS_TP_PARTS:
		return cut_parts(rules, local, rule, cut, err);
	case DS_TP_ROW:
		cut->axis = 1;
		return cut_evenly(rules, local, rule, 1, cut, err);
	case DS_TP_VOCABULARY:
	case DS_TP_COLUMN:
		break;
	}
	return cut_evenly(rules, local, rule, 1, cut, err);
}

int ck_ds_tp_cut(struct ds_tp_rules *rules, const struct ds_tp_local *local,
		 struct ds_tp_cut *cut_out, struct ckpt_err *err)
{
	struct ds_tp_rule *other, *rule = ck_ds_tp_find(&rules->list, local->name, &other);
	struct ds_tp_cut cut = { .kind = DS_TP_COLUMN, .ndim = local->ndim, .tp = local->tp };
	const char *pattern;
	int rc;

	if (!ck_ds_tp_knows(&rules->list, local->name, &pattern) ||
	    !ck_ds_tp_knows(&rules->unsupported, local->name, &pattern))
		return ck_fail(err, CKPT_E_LAYOUT, local->name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: the name has characters beyond ASCII, of which "
			       "zckpt does not say whether \\d or \\w in pattern '%.100s' of %s "
			       "match them; write the pattern without", pattern, rules->where);
	if (ck_ds_tp_find(&rules->unsupported, local->name, NULL))
		return ck_fail(err, CKPT_E_LAYOUT, local->name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: AutoTP says in %s that it cannot describe how "
			       "this parameter is cut", rules->where);
	if (rules->given && other && other->kind != DS_TP_VOCABULARY)
		return ck_fail(err, CKPT_E_MISMATCH, local->name, CKPT_NO_OFFSET,
			       "NAMES_WRONG: pattern '%.60s' of %s and pattern '%.60s' of %s, both "
			       "in %s, match it and contradict each other", rule->pattern,
			       ck_ds_tp_key(rule->kind), other->pattern, ck_ds_tp_key(other->kind),
			       rules->where);
	if (rule) {
		cut.kind = rule->kind;
		rule->used = true;
	} else if (local->buffer || !local->ndim) {
		cut.kind = DS_TP_REPLICATED;	/* rules are of parameters */
	}
	if (other)
		other->used = true;
	rc = cut_by(rules, local, rule, &cut, err);
	if (!rc)
		rc = ck_ds_tp_check_affine(rules, local, &cut, err);
	if (!rc)
		*cut_out = cut;
	return rc;
}
